output "queue" {
  description = "Queue of notices."
  value = {
    name = aws_sqs_queue.notices.name
    url  = aws_sqs_queue.notices.url
    arn  = aws_sqs_queue.notices.arn
  }
  # Before what reads it launches anything, notices come in.
  depends_on = [aws_sqs_queue_policy.notices, aws_cloudwatch_event_target.notices]
}
