output "queue" {
  description = "Queue of notices."
  value = {
    name = aws_sqs_queue.notices.name
    url  = aws_sqs_queue.notices.url
    arn  = aws_sqs_queue.notices.arn
  }
}
