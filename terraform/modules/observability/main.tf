# What is worth waking an operator for. Graphs are the controller's page and Grafana's dashboard; here are only alarms.

locals {
  told = var.alarm_email == null ? [] : [aws_sns_topic.alarms[0].arn]
  # What answers behind balancers: instances of services and of stages, and conductors.
  answering = merge(
    { for name, one in var.services : name => { balancer = one.balancer, target_groups = one.target_groups } },
    { for name, one in var.pipelines : name => { balancer = one.balancer, target_groups = one.target_groups } },
  )
  with_function = { for name, service in var.services : name => service.function
  if service.function != null }
  # Of a pipeline's stages each, and of the whole.
  promised = { for name, one in merge(
    { for name, service in var.services : name => service.slo_attainment },
    { for name, pipeline in var.pipelines : name => pipeline.slo_attainment },
  ) : name => one if one != null }
  learning = toset(concat([for name, one in var.services : name if one.learns], [for name, one in var.pipelines : name if one.learns]))
  # Each limit by itself: of the sum of both an alarm would be silent while one of them binds.
  limited = { for name, service in var.services : name => service.max_usd_per_hour
  if service.max_usd_per_hour != null }
  limited_functions = { for name, service in var.services : name => service.max_function_usd_per_hour
  if service.max_function_usd_per_hour != null && service.function != null }
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

# The leading controller says once a minute that it is there. One that never came, cannot start or hangs says nothing.
resource "aws_cloudwatch_metric_alarm" "controller_silent" {
  alarm_name          = "${var.site}-controller-silent"
  alarm_description   = "No controller leads. The fleet serves on, but nothing is launched or ended. Fires also while a site's first controller boots."
  namespace           = "mark"
  metric_name         = "Heartbeat"
  dimensions          = { Site = var.site }
  statistic           = "Sum"
  period              = 60
  evaluation_periods  = 6
  threshold           = 1
  comparison_operator = "LessThanThreshold"
  treat_missing_data  = "breaching"
  alarm_actions       = local.told
  ok_actions          = local.told
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
  for_each            = local.answering
  alarm_name          = "${var.site}-${each.key}-nobody-ready"
  alarm_description   = "No instance of ${each.key} is ready."
  namespace           = length(each.value.target_groups) > 1 ? null : "AWS/ApplicationELB"
  metric_name         = length(each.value.target_groups) > 1 ? null : "HealthyHostCount"
  dimensions          = length(each.value.target_groups) > 1 ? null : { LoadBalancer = each.value.balancer, TargetGroup = each.value.target_groups[0] }
  statistic           = length(each.value.target_groups) > 1 ? null : "Maximum"
  period              = length(each.value.target_groups) > 1 ? null : 60
  evaluation_periods  = 5
  threshold           = 1
  comparison_operator = "LessThanThreshold"
  treat_missing_data  = "breaching"
  alarm_actions       = local.told
  ok_actions          = local.told

  # Of all groups together; one without instances has no numbers.
  dynamic "metric_query" {
    for_each = length(each.value.target_groups) > 1 ? { all = "SUM(METRICS())" } : {}
    content {
      id          = metric_query.key
      expression  = metric_query.value
      label       = "HealthyHostCount"
      return_data = true
    }
  }
  dynamic "metric_query" {
    for_each = length(each.value.target_groups) > 1 ? each.value.target_groups : []
    content {
      id = "group_${metric_query.key}"
      metric {
        namespace   = "AWS/ApplicationELB"
        metric_name = "HealthyHostCount"
        dimensions  = { LoadBalancer = each.value.balancer, TargetGroup = metric_query.value }
        stat        = "Maximum"
        period      = 60
      }
    }
  }
}

resource "aws_cloudwatch_metric_alarm" "errors" {
  for_each            = local.answering
  alarm_name          = "${var.site}-${each.key}-errors"
  alarm_description   = "Instances of ${each.key} answer with 5xx."
  namespace           = length(each.value.target_groups) > 1 ? null : "AWS/ApplicationELB"
  metric_name         = length(each.value.target_groups) > 1 ? null : "HTTPCode_Target_5XX_Count"
  dimensions          = length(each.value.target_groups) > 1 ? null : { LoadBalancer = each.value.balancer, TargetGroup = each.value.target_groups[0] }
  statistic           = length(each.value.target_groups) > 1 ? null : "Sum"
  period              = length(each.value.target_groups) > 1 ? null : 60
  evaluation_periods  = 5
  datapoints_to_alarm = 3
  threshold           = 10
  comparison_operator = "GreaterThanThreshold"
  treat_missing_data  = "notBreaching"
  alarm_actions       = local.told
  ok_actions          = local.told

  # Of all groups together; one without instances has no numbers.
  dynamic "metric_query" {
    for_each = length(each.value.target_groups) > 1 ? { all = "SUM(METRICS())" } : {}
    content {
      id          = metric_query.key
      expression  = metric_query.value
      label       = "HTTPCode_Target_5XX_Count"
      return_data = true
    }
  }
  dynamic "metric_query" {
    for_each = length(each.value.target_groups) > 1 ? each.value.target_groups : []
    content {
      id = "group_${metric_query.key}"
      metric {
        namespace   = "AWS/ApplicationELB"
        metric_name = "HTTPCode_Target_5XX_Count"
        dimensions  = { LoadBalancer = each.value.balancer, TargetGroup = metric_query.value }
        stat        = "Sum"
        period      = 60
      }
    }
  }
}

# How many there are the pipeline file says. Queries wait for the one processor that a conductor's process takes.
resource "aws_cloudwatch_metric_alarm" "conductors_busy" {
  for_each            = var.pipelines
  alarm_name          = "${var.site}-${each.key}-conductors-busy"
  alarm_description   = "Conductors of ${each.key} use a third of their two processors: [conductors] count says how many there are."
  namespace           = "AWS/EC2"
  metric_name         = "CPUUtilization"
  dimensions          = { AutoScalingGroupName = each.value.group }
  statistic           = "Average"
  period              = 300
  evaluation_periods  = 2
  threshold           = 33
  comparison_operator = "GreaterThanOrEqualToThreshold"
  treat_missing_data  = "notBreaching"
  alarm_actions       = local.told
  ok_actions          = local.told
}

# What the balancer answers itself, 502, 503 and 504, is in no count of a target's.
resource "aws_cloudwatch_metric_alarm" "balancer_errors" {
  for_each            = var.balancers
  alarm_name          = "${var.site}-balancer-${each.key}-errors"
  alarm_description   = "Load balancer ${each.key} answers with 5xx itself: no instance is ready, or connections break."
  namespace           = "AWS/ApplicationELB"
  metric_name         = "HTTPCode_ELB_5XX_Count"
  dimensions          = { LoadBalancer = each.value }
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

resource "aws_cloudwatch_metric_alarm" "rejected" {
  for_each            = var.balancers
  alarm_name          = "${var.site}-balancer-${each.key}-rejected"
  alarm_description   = "Load balancer ${each.key} is at its limit of connections, and rejects more."
  namespace           = "AWS/ApplicationELB"
  metric_name         = "RejectedConnectionCount"
  dimensions          = { LoadBalancer = each.value }
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

# What was learned, and would be lost with the machines that know it.
resource "aws_cloudwatch_metric_alarm" "facts_unstored" {
  for_each            = local.learning
  alarm_name          = "${var.site}-${each.key}-facts-unstored"
  alarm_description   = "Facts that ${each.key} has learned from feedback are not in the bucket for more than a minute: its log says why."
  namespace           = "mark"
  metric_name         = "UnstoredFactsAge"
  dimensions          = { Site = var.site, Service = each.key }
  statistic           = "Maximum"
  period              = 60
  evaluation_periods  = 1
  threshold           = 60
  comparison_operator = "GreaterThanThreshold"
  treat_missing_data  = "notBreaching"
  alarm_actions       = local.told
  ok_actions          = local.told
}

# Of the last 1,000 requests or so, as the controller counts them; of a pipeline as its conductors do.
resource "aws_cloudwatch_metric_alarm" "promise" {
  for_each            = local.promised
  alarm_name          = "${var.site}-${each.key}-promise"
  alarm_description   = "Fewer requests of ${each.key} are answered in time than promised."
  namespace           = "mark"
  metric_name         = "Attainment"
  dimensions          = { Site = var.site, Service = each.key }
  statistic           = "Average"
  period              = 60
  evaluation_periods  = 10
  datapoints_to_alarm = 8
  threshold           = 100 * each.value
  comparison_operator = "LessThanThreshold"
  treat_missing_data  = "notBreaching"
  alarm_actions       = local.told
  ok_actions          = local.told
}

# Limits are kept by controller and bouncers; who pays should know before they bind for long.
resource "aws_cloudwatch_metric_alarm" "spend" {
  for_each            = local.limited
  alarm_name          = "${var.site}-${each.key}-spend"
  alarm_description   = "Instances of ${each.key} cost 95 % or more of what they may (${each.value} $/h)."
  namespace           = "mark"
  metric_name         = "BillPerHour"
  dimensions          = { Site = var.site, Service = each.key }
  statistic           = "Average"
  period              = 300
  evaluation_periods  = 2
  threshold           = 0.95 * each.value
  comparison_operator = "GreaterThanOrEqualToThreshold"
  treat_missing_data  = "notBreaching"
  alarm_actions       = local.told
  ok_actions          = local.told
}

resource "aws_cloudwatch_metric_alarm" "function_spend" {
  for_each            = local.limited_functions
  alarm_name          = "${var.site}-${each.key}-function-spend"
  alarm_description   = "Calls of the overflow function of ${each.key} cost 95 % or more of what they may (${each.value} $/h)."
  namespace           = "mark"
  metric_name         = "FunctionBillPerHour"
  dimensions          = { Site = var.site, Service = each.key }
  statistic           = "Average"
  period              = 300
  evaluation_periods  = 2
  threshold           = 0.95 * each.value
  comparison_operator = "GreaterThanOrEqualToThreshold"
  treat_missing_data  = "notBreaching"
  alarm_actions       = local.told
  ok_actions          = local.told
}

# One refusal leads to another offer; for a quarter of an hour it is a quota, a right, or no offer is left.
resource "aws_cloudwatch_metric_alarm" "failed_launches" {
  for_each            = var.services
  alarm_name          = "${var.site}-${each.key}-failed-launches"
  alarm_description   = "Launches for ${each.key} have failed for a quarter of an hour: the controller's page says why."
  namespace           = "mark"
  metric_name         = "FailedLaunches"
  dimensions          = { Site = var.site, Service = each.key }
  statistic           = "Sum"
  period              = 300
  evaluation_periods  = 3
  threshold           = 0
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
