output "launch_template" {
  description = "Launch template of the service's instances; where it is not for all of them, each platform's."
  value = {
    id      = aws_launch_template.this.id
    version = tostring(aws_launch_template.this.latest_version)
    release = local.release
    platforms = { for platform, template in merge(
      { for platform in compact([var.platform]) : platform => aws_launch_template.this }, aws_launch_template.more
    ) : platform => { launch_template = template.id, version = tostring(template.latest_version) } }
  }
  # What is launched from it may fetch its files and write its log at once, and requests find it.
  depends_on = [aws_iam_role_policy.this, aws_lb_listener_rule.path, aws_lb_listener_rule.header, aws_lb_listener_rule.grpc]
}

output "target_groups" {
  description = "Target groups of the service, by class of capacity; `suffix` is what CloudWatch calls one."
  value       = [for group in local.groups : { arn = group.arn, suffix = group.arn_suffix }]
}

output "scheme" {
  description = "What bouncers speak: http or https."
  value       = local.scheme
}

output "function_group" {
  description = "Target group of what answers while no instance is ready; null: nothing does."
  value       = var.function == null ? null : aws_lb_target_group.function.arn
  # It answers as soon as it is told of.
  depends_on = [aws_lb_target_group_attachment.function]
}

output "forward" {
  description = "What a rule forwards to at first, with weights."
  value       = local.forward
}

output "listener_rules" {
  description = "Rules that forward to the target groups."
  value       = [aws_lb_listener_rule.path.arn, aws_lb_listener_rule.header.arn]
}

output "grpc" {
  description = "Target groups for gRPC, by class of capacity, and rules that forward to them."
  value       = { groups = aws_lb_target_group.grpc[*].arn, rules = aws_lb_listener_rule.grpc[*].arn }
}
