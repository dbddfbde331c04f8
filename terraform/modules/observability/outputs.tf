output "alarms" {
  description = "How many alarms there are: each costs."
  value = (
    1 + length(aws_cloudwatch_metric_alarm.nobody_ready) + length(aws_cloudwatch_metric_alarm.errors)
    + length(aws_cloudwatch_metric_alarm.throttled)
  )
}
