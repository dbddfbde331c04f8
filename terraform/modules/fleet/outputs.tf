output "launch_template" {
  description = "Launch template of the service's instances."
  value = {
    id = aws_launch_template.this.id
  }
  # What is launched from it may fetch its files and write its log at once, and requests find it.
  depends_on = [aws_iam_role_policy.this, aws_lb_listener_rule.path, aws_lb_listener_rule.header]
}

output "target_group" {
  description = "Target group of the service; `suffix` is what CloudWatch calls it."
  value = {
    arn    = aws_lb_target_group.this.arn
    suffix = aws_lb_target_group.this.arn_suffix
  }
}
