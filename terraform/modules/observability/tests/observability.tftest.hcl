mock_provider "aws" {
  mock_resource "aws_sns_topic" {
    defaults = { arn = "arn:aws:sns:eu-west-1:123456789012:mark-alarms" }
  }
}

variables {
  site               = "mark"
  alarm_email        = "ops@example.org"
  monthly_budget_usd = 500
  queue_name         = "mark-notices"
  services = {
    inception = { balancer = "app/mark/1", target_group = "targetgroup/mark-inception/1", function = "mark-inception-overflow" }
    nasnet    = { balancer = "app/mark-1/2", target_group = "targetgroup/mark-nasnet/1" }
  }
}

run "somebody_is_told" {
  assert {
    condition = alltrue([for alarm in concat(
      [aws_cloudwatch_metric_alarm.controller_away], values(aws_cloudwatch_metric_alarm.nobody_ready),
      values(aws_cloudwatch_metric_alarm.errors), values(aws_cloudwatch_metric_alarm.throttled)
    ) : toset(alarm.alarm_actions) == toset([aws_sns_topic.alarms[0].arn])])
    error_message = "Each alarm goes to the topic."
  }
  assert {
    condition     = output.alarms == 6 && toset(keys(aws_cloudwatch_metric_alarm.throttled)) == toset(["inception"])
    error_message = "Alarms are counted, and only a function can be throttled."
  }
  assert {
    condition = [for name in ["inception", "nasnet"] : aws_cloudwatch_metric_alarm.nobody_ready[name].dimensions.LoadBalancer] == [
      "app/mark/1", "app/mark-1/2"
    ]
    error_message = "Each is watched at its own load balancer."
  }
  assert {
    condition     = aws_budgets_budget.this[0].limit_amount == "500" && length(aws_budgets_budget.this[0].notification) == 2
    error_message = "The budget tells what is spent, and what will be."
  }
}

run "nobody_to_tell" {
  variables {
    alarm_email = null
  }
  assert {
    condition     = length(aws_sns_topic.alarms) == 0 && length(aws_budgets_budget.this) == 0 && length(aws_cloudwatch_metric_alarm.controller_away.alarm_actions) == 0
    error_message = "Alarms are there to be seen."
  }
}
