# What is worth waking an operator for. Graphs are the controller's page and Grafana's dashboard; here are only alarms.

locals {
  told = var.alarm_email == null ? [] : [aws_sns_topic.alarms[0].arn]
  with_function = { for name, service in var.services : name => service.function
  if service.function != null }
}

resource "aws_sns_topic" "alarms" {
  count = var.alarm_email == null ? 0 : 1
  name  = "${var.site}-alarms"
}

resource "aws_sns_topic_subscription" "email" {
  count     = var.alarm_email == null ? 0 : 1
  topic_arn = aws_sns_topic.alarms[0].arn
  protocol  = "email"
  endpoint  = var.alarm_email
}

# The controller reads its queue all the time: when a notice waits, it is not there.
resource "aws_cloudwatch_metric_alarm" "controller_away" {
  alarm_name          = "${var.site}-controller-away"
  alarm_description   = "Notices are not read: the controller is not there. The fleet serves on, but nothing is launched or ended."
  namespace           = "AWS/SQS"
  metric_name         = "ApproximateAgeOfOldestMessage"
  dimensions          = { QueueName = var.queue_name }
  statistic           = "Maximum"
  period              = 60
  evaluation_periods  = 3
  threshold           = 180
  comparison_operator = "GreaterThanThreshold"
  treat_missing_data  = "notBreaching"
  alarm_actions       = local.told
  ok_actions          = local.told
}

resource "aws_cloudwatch_metric_alarm" "nobody_ready" {
  for_each            = var.services
  alarm_name          = "${var.site}-${each.key}-nobody-ready"
  alarm_description   = "No instance of ${each.key} is ready."
  namespace           = "AWS/ApplicationELB"
  metric_name         = "HealthyHostCount"
  dimensions          = { LoadBalancer = each.value.balancer, TargetGroup = each.value.target_group }
  statistic           = "Maximum"
  period              = 60
  evaluation_periods  = 5
  threshold           = 1
  comparison_operator = "LessThanThreshold"
  treat_missing_data  = "breaching"
  alarm_actions       = local.told
  ok_actions          = local.told
}

resource "aws_cloudwatch_metric_alarm" "errors" {
  for_each            = var.services
  alarm_name          = "${var.site}-${each.key}-errors"
  alarm_description   = "Instances of ${each.key} answer with 5xx."
  namespace           = "AWS/ApplicationELB"
  metric_name         = "HTTPCode_Target_5XX_Count"
  dimensions          = { LoadBalancer = each.value.balancer, TargetGroup = each.value.target_group }
  statistic           = "Sum"
  period              = 60
  evaluation_periods  = 5
  datapoints_to_alarm = 3
  threshold           = 10
  comparison_operator = "GreaterThanThreshold"
  treat_missing_data  = "notBreaching"
  alarm_actions       = local.told
  ok_actions          = local.told
}

# Throttled overflow is refused requests.
resource "aws_cloudwatch_metric_alarm" "throttled" {
  for_each            = local.with_function
  alarm_name          = "${var.site}-${each.key}-function-throttled"
  alarm_description   = "The overflow function of ${each.key} is at its limit: ask AWS for more concurrency."
  namespace           = "AWS/Lambda"
  metric_name         = "Throttles"
  dimensions          = { FunctionName = each.value }
  statistic           = "Sum"
  period              = 60
  evaluation_periods  = 5
  datapoints_to_alarm = 3
  threshold           = 0
  comparison_operator = "GreaterThanThreshold"
  treat_missing_data  = "notBreaching"
  alarm_actions       = local.told
  ok_actions          = local.told
}

# Of the whole account: a budget by tag stays silent until the tag is activated for billing.
resource "aws_budgets_budget" "this" {
  count        = var.monthly_budget_usd == null || var.alarm_email == null ? 0 : 1
  name         = var.site
  budget_type  = "COST"
  limit_amount = tostring(var.monthly_budget_usd)
  limit_unit   = "USD"
  time_unit    = "MONTHLY"

  dynamic "notification" {
    for_each = { ACTUAL = 80, FORECASTED = 100 }
    content {
      notification_type          = notification.key
      comparison_operator        = "GREATER_THAN"
      threshold                  = notification.value
      threshold_type             = "PERCENTAGE"
      subscriber_email_addresses = [var.alarm_email]
    }
  }
}
