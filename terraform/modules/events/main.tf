# What EC2 says of its instances, on its way to the controller.

resource "aws_sqs_queue" "notices" {
  name = "${var.site}-notices"
  # A controller that was away reads what it missed: the bill is made from these. Interruptions older than two minutes
  # are history by then, which their own time says.
  message_retention_seconds  = 86400
  visibility_timeout_seconds = 30
  receive_wait_time_seconds  = 20
  sqs_managed_sse_enabled    = true
}

resource "aws_sqs_queue_policy" "notices" {
  queue_url = aws_sqs_queue.notices.id
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Sid       = "OurRuleOnly"
        Effect    = "Allow"
        Principal = { Service = "events.amazonaws.com" }
        Action    = "sqs:SendMessage"
        Resource  = aws_sqs_queue.notices.arn
        Condition = { ArnEquals = { "aws:SourceArn" = aws_cloudwatch_event_rule.instances.arn } }
      },
      {
        Sid       = "EncryptedTransportOnly"
        Effect    = "Deny"
        Principal = "*"
        Action    = "sqs:*"
        Resource  = aws_sqs_queue.notices.arn
        Condition = { Bool = { "aws:SecureTransport" = "false" } }
      },
    ]
  })
}

# These events carry no tags, so that a rule cannot choose: the controller ignores instances that are not of its site.
resource "aws_cloudwatch_event_rule" "instances" {
  name        = "${var.site}-instances"
  description = "Interruptions, rebalance recommendations and changes of state"
  event_pattern = jsonencode({
    source = ["aws.ec2"]
    "detail-type" = [
      "EC2 Spot Instance Interruption Warning",
      "EC2 Instance Rebalance Recommendation",
      "EC2 Instance State-change Notification",
    ]
  })
}

resource "aws_cloudwatch_event_target" "notices" {
  rule = aws_cloudwatch_event_rule.instances.name
  arn  = aws_sqs_queue.notices.arn
}
