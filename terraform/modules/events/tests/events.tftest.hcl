mock_provider "aws" {
  mock_resource "aws_sqs_queue" {
    defaults = { arn = "arn:aws:sqs:eu-west-1:123456789012:mark-notices" }
  }
  mock_resource "aws_cloudwatch_event_rule" {
    defaults = { arn = "arn:aws:events:eu-west-1:123456789012:rule/mark-instances" }
  }
}

variables {
  site = "mark"
}

run "the_queue_is_encrypted_and_ours" {
  assert {
    condition     = aws_sqs_queue.notices.sqs_managed_sse_enabled
    error_message = "Encrypted at rest."
  }
  assert {
    condition = alltrue([for statement in jsondecode(aws_sqs_queue_policy.notices.policy).Statement :
      statement.Condition.ArnEquals["aws:SourceArn"] == aws_cloudwatch_event_rule.instances.arn
    if statement.Effect == "Allow"])
    error_message = "Only our rule may send."
  }
}

run "all_that_the_controller_wants_to_hear" {
  assert {
    condition = toset(jsondecode(aws_cloudwatch_event_rule.instances.event_pattern)["detail-type"]) == toset([
      "EC2 Spot Instance Interruption Warning",
      "EC2 Instance Rebalance Recommendation",
      "EC2 Instance State-change Notification",
    ])
    error_message = "Interruptions, recommendations, changes of state."
  }
}
