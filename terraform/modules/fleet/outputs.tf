output "launch_template" {
  description = "Launch template of the service's instances."
  value = {
    id  = aws_launch_template.this.id
    arn = aws_launch_template.this.arn
  }
}

output "target_group" {
  description = "Target group of the service; `suffix` is what CloudWatch calls it."
  value = {
    arn    = aws_lb_target_group.this.arn
    suffix = aws_lb_target_group.this.arn_suffix
  }
}

output "role_arn" {
  description = "Role of the instances: what the controller may pass on."
  value       = aws_iam_role.this.arn
}
