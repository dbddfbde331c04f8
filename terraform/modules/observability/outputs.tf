output "alarms" {
  description = "How many alarms there are: each costs."
  value = (
    2 + length(aws_cloudwatch_metric_alarm.nobody_ready) + length(aws_cloudwatch_metric_alarm.errors)
    + length(aws_cloudwatch_metric_alarm.throttled) + length(aws_cloudwatch_metric_alarm.balancer_errors)
    + length(aws_cloudwatch_metric_alarm.rejected) + length(aws_cloudwatch_metric_alarm.promise)
    + length(aws_cloudwatch_metric_alarm.spend) + length(aws_cloudwatch_metric_alarm.function_spend)
    + length(aws_cloudwatch_metric_alarm.failed_launches) + length(aws_cloudwatch_metric_alarm.conductors_busy)
    + length(aws_cloudwatch_metric_alarm.facts_unstored)
  )
}
