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
  balancers          = { "0" = "app/mark/1", "1" = "app/mark-1/2" }
  services = {
    inception = {
      balancer       = "app/mark/1", target_groups = ["targetgroup/mark-inception/1"], function = "mark-inception-overflow"
      slo_attainment = 0.98, max_usd_per_hour = 120, max_function_usd_per_hour = 20
    }
    nasnet = { balancer = "app/mark-1/2", target_groups = ["targetgroup/mark-nasnet/1"] }
  }
}

run "somebody_is_told" {
  assert {
    condition = alltrue([for alarm in concat(
      [aws_cloudwatch_metric_alarm.controller_away, aws_cloudwatch_metric_alarm.controller_silent],
      values(aws_cloudwatch_metric_alarm.nobody_ready), values(aws_cloudwatch_metric_alarm.errors),
      values(aws_cloudwatch_metric_alarm.throttled), values(aws_cloudwatch_metric_alarm.balancer_errors),
      values(aws_cloudwatch_metric_alarm.rejected), values(aws_cloudwatch_metric_alarm.promise),
      values(aws_cloudwatch_metric_alarm.spend), values(aws_cloudwatch_metric_alarm.function_spend), values(aws_cloudwatch_metric_alarm.failed_launches)
    ) : toset(alarm.alarm_actions) == toset([aws_sns_topic.alarms[0].arn])])
    error_message = "Each alarm goes to the topic."
  }
  assert {
    condition     = output.alarms == 16 && toset(keys(aws_cloudwatch_metric_alarm.throttled)) == toset(["inception"])
    error_message = "Alarms are counted, and only a function can be throttled."
  }
  assert {
    condition = (
      aws_cloudwatch_metric_alarm.controller_silent.treat_missing_data == "breaching" &&
      aws_cloudwatch_metric_alarm.controller_silent.dimensions == tomap({ Site = "mark" })
    )
    error_message = "A controller that says nothing is an alarm."
  }
  assert {
    condition = (
      keys(aws_cloudwatch_metric_alarm.promise) == ["inception"] && keys(aws_cloudwatch_metric_alarm.spend) == ["inception"] &&
      aws_cloudwatch_metric_alarm.promise["inception"].threshold == 98 &&
      aws_cloudwatch_metric_alarm.spend["inception"].threshold == 114 &&
      aws_cloudwatch_metric_alarm.spend["inception"].metric_name == "BillPerHour" &&
      keys(aws_cloudwatch_metric_alarm.function_spend) == ["inception"] &&
      aws_cloudwatch_metric_alarm.function_spend["inception"].threshold == 19 &&
      aws_cloudwatch_metric_alarm.function_spend["inception"].metric_name == "FunctionBillPerHour"
    )
    error_message = "Promise and limits of those that have them, each limit by itself."
  }
  assert {
    condition = alltrue([for balancer in ["0", "1"] :
      aws_cloudwatch_metric_alarm.balancer_errors[balancer].dimensions == tomap({ LoadBalancer = var.balancers[balancer] })
    ])
    error_message = "Each balancer's own errors."
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

run "a_pipeline_keeps_a_promise_of_its_own" {
  variables {
    pipelines = { two = { balancer = "app/mark/1", target_groups = ["targetgroup/mark-two-c/1"], group = "mark-two-conductors", slo_attainment = 0.99 } }
  }
  assert {
    condition = (
      keys(aws_cloudwatch_metric_alarm.promise) == ["inception", "two"] &&
      aws_cloudwatch_metric_alarm.promise["two"].threshold == 99 &&
      aws_cloudwatch_metric_alarm.promise["two"].dimensions == tomap({ Site = "mark", Service = "two" })
    )
    error_message = "As a service does, by the pipeline's name."
  }
  assert {
    condition     = output.alarms == 20
    error_message = "Three of its conductors, and its promise."
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

run "several_groups_are_one_alarm" {
  variables {
    services = { inception = { balancer = "app/mark/1", target_groups = ["targetgroup/a/1", "targetgroup/b/2"] } }
  }
  assert {
    condition = alltrue([for alarm in [aws_cloudwatch_metric_alarm.nobody_ready["inception"], aws_cloudwatch_metric_alarm.errors["inception"]] :
      toset(compact([for query in alarm.metric_query : query.expression])) == toset(["SUM(METRICS())"]) &&
      toset(flatten([for query in alarm.metric_query : [for metric in query.metric : metric.dimensions.TargetGroup]])) == toset(["targetgroup/a/1", "targetgroup/b/2"])
    ])
    error_message = "An instance in any of them is ready, and its errors count."
  }
}

run "facts_that_are_not_stored_are_told" {
  variables {
    services = {
      inception = { balancer = "app/mark/1", target_groups = ["targetgroup/mark-inception/1"] }
      chosen    = { balancer = "app/mark/1", target_groups = ["targetgroup/mark-chosen/1"], learns = true }
    }
    pipelines = {
      two = { balancer = "app/mark/1", target_groups = ["targetgroup/mark-two/1"], group = "mark-two-conductors", learns = true }
    }
  }
  assert {
    condition     = toset(keys(aws_cloudwatch_metric_alarm.facts_unstored)) == toset(["chosen", "two"])
    error_message = "Of those that learn."
  }
  assert {
    condition = (
      aws_cloudwatch_metric_alarm.facts_unstored["two"].metric_name == "UnstoredFactsAge" &&
      aws_cloudwatch_metric_alarm.facts_unstored["two"].dimensions == tomap({ Site = "mark", Service = "two" }) &&
      aws_cloudwatch_metric_alarm.facts_unstored["two"].threshold == 60
    )
    error_message = "Of a minute or older."
  }
}
