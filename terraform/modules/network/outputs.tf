output "vpc_id" {
  description = "The VPC."
  value       = aws_vpc.this.id
}

output "subnets" {
  description = "Private subnet by zone."
  value       = { for zone, subnet in aws_subnet.private : zone => subnet.id }
}

output "bouncer_security_group_id" {
  description = "Security group of the fleet's instances."
  value       = aws_security_group.bouncer.id
}

output "controller_security_group_id" {
  description = "Security group of the controller."
  value       = aws_security_group.controller.id
}

output "listener_arn" {
  description = "Listener to which services add their rules."
  value       = aws_lb_listener.this.arn
}

output "balancer_arn_suffix" {
  description = "The load balancer as CloudWatch names it."
  value       = aws_lb.this.arn_suffix
}

output "address" {
  description = "Where clients send requests."
  value       = "${local.tls ? "https" : "http"}://${aws_lb.this.dns_name}"
}
