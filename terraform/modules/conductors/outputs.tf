output "group" {
  description = "Auto Scaling group of the conductors."
  value       = aws_autoscaling_group.this.name
}

output "scheme" {
  description = "What conductors speak: https or http."
  value       = local.scheme
}

output "target_groups" {
  description = "What CloudWatch calls the target group."
  value       = [aws_lb_target_group.this.arn_suffix]
}

output "forward" {
  description = "What a rule forwards to, with weights."
  value       = [{ arn = aws_lb_target_group.this.arn, weight = 1 }]
}
