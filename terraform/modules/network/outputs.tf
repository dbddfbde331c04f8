output "vpc_id" {
  description = "The VPC."
  value       = aws_vpc.this.id
}

output "subnets" {
  description = "Private subnet by zone in which instances may be launched."
  value       = { for zone in var.zones : zone => aws_subnet.private[zone].id }
  # What is put into them reaches AWS, packages and bouncers at once. Nothing else orders that: a subnet is there long
  # before there is a way out of it.
  depends_on = [
    aws_route.internet,
    aws_route.nat,
    aws_route_table_association.private,
    aws_route_table_association.public,
    aws_vpc_endpoint.gateway,
    aws_vpc_security_group_egress_rule.controller_to_bouncers,
    aws_vpc_security_group_egress_rule.https,
    aws_vpc_security_group_egress_rule.conductors_to_stages,
    aws_vpc_security_group_ingress_rule.bouncer,
    aws_vpc_security_group_ingress_rule.conductors,
    aws_vpc_security_group_ingress_rule.grpc,
  ]
}

output "zone_numbers" {
  description = "Numbers of all zones that the site has or had, to be given again."
  value       = local.zone_numbers
}

output "bouncer_security_group_id" {
  description = "Security group of the fleet's instances."
  value       = aws_security_group.bouncer.id
}

output "conductor_security_group_id" {
  description = "Security group of conductors; null: there are no stages."
  value       = one(aws_security_group.conductor[*].id)
}

output "controller_security_group_id" {
  description = "Security group of the controller."
  value       = aws_security_group.controller.id
}

output "listener_arns" {
  description = "Listeners to which services add their rules, by the balancer's number."
  value       = { for number, listener in aws_lb_listener.this : number => listener.arn }
}

output "grpc_listener_arns" {
  description = "Listeners for gRPC, by the balancer's number; none without grpc_port."
  value       = { for number, listener in aws_lb_listener.grpc : number => listener.arn }
}

output "balancer_arn_suffixes" {
  description = "The load balancers as CloudWatch names them, by number."
  value       = { for number, balancer in aws_lb.this : number => balancer.arn_suffix }
}

output "names" {
  description = "What a domain of one's own is to point to, by the balancer's number."
  value       = { for number, balancer in aws_lb.this : number => { dns_name = balancer.dns_name, zone_id = balancer.zone_id } }
}

output "addresses" {
  description = "Where clients send requests, by the balancer's number."
  value = { for number, balancer in aws_lb.this : number => local.stages[number] ?
    "http://${balancer.dns_name}:${local.stages_port}" : "${local.tls ? "https" : "http"}://${balancer.dns_name}"
  }
}
