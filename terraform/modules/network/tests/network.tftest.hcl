mock_provider "aws" {
  mock_resource "aws_lb" {
    defaults = { arn = "arn:aws:elasticloadbalancing:eu-west-1:123456789012:loadbalancer/app/mark/1" }
  }
}

variables {
  site            = "mark"
  aws             = { partition = "aws", region = "eu-west-1", account = "123456789012" }
  zones           = ["eu-west-1a", "eu-west-1b"]
  certificate_arn = "arn:aws:acm:eu-west-1:123456789012:certificate/1"
  bucket          = "mark-artifacts-1"
  table_arn       = "arn:aws:dynamodb:eu-west-1:123456789012:table/mark-state"
}

run "nothing_leaves_by_other_buckets_or_tables" {
  assert {
    condition = [for statement in jsondecode(aws_vpc_endpoint.gateway["s3"].policy).Statement : [statement.Action, statement.Resource]] == [
      ["s3:GetObjectVersion", "arn:aws:s3:::mark-artifacts-1/artifacts/*"],
      ["s3:GetObject", "arn:aws:s3:::al2023-repos-eu-west-1-*/*"],
    ]
    error_message = "The site's boot files and Amazon Linux's packages, to be read."
  }
  assert {
    condition     = [for statement in jsondecode(aws_vpc_endpoint.gateway["dynamodb"].policy).Statement : statement.Resource] == ["arn:aws:dynamodb:eu-west-1:123456789012:table/mark-state"]
    error_message = "The state's table."
  }
}

run "only_the_balancer_is_open" {
  assert {
    condition = alltrue([
      aws_vpc_security_group_ingress_rule.clients["0.0.0.0/0"].security_group_id == aws_security_group.balancer.id,
      aws_vpc_security_group_ingress_rule.clients["0.0.0.0/0"].from_port == 443,
      aws_vpc_security_group_ingress_rule.clients["0.0.0.0/0"].to_port == 443,
    ])
    error_message = "Clients come in by HTTPS, at the balancer."
  }
  assert {
    condition = alltrue([for rule in values(aws_vpc_security_group_ingress_rule.bouncer) :
      rule.cidr_ipv4 == null && rule.cidr_ipv6 == null && rule.from_port == 8080 && rule.to_port == 8080
    ])
    error_message = "A bouncer is reached on its port only, from security groups only."
  }
  assert {
    condition     = toset(keys(aws_vpc_security_group_ingress_rule.bouncer)) == toset(["balancer", "controller"])
    error_message = "Nobody but balancer and controller reaches a bouncer."
  }
  assert {
    condition     = length(aws_default_security_group.closed.ingress) == 0 && length(aws_default_security_group.closed.egress) == 0
    error_message = "The VPC's default security group is closed."
  }
}

run "instances_are_private" {
  assert {
    condition     = toset(keys(aws_subnet.private)) == toset(var.zones) && length(setintersection(values(output.subnets), [for subnet in aws_subnet.public : subnet.id])) == 0
    error_message = "One private subnet a zone, and no other is handed out."
  }
  assert {
    condition = alltrue([for subnet in concat(values(aws_subnet.private), values(aws_subnet.public)) :
      !coalesce(subnet.map_public_ip_on_launch, false)
    ])
    error_message = "No instance gets a public address by itself."
  }
  assert {
    condition     = aws_route.nat.gateway_id == null && aws_route.nat.nat_gateway_id == aws_nat_gateway.this.id
    error_message = "Private subnets go out by NAT."
  }
}

run "clients_are_met_with_modern_tls" {
  assert {
    condition     = aws_lb_listener.this["0"].protocol == "HTTPS" && startswith(aws_lb_listener.this["0"].ssl_policy, "ELBSecurityPolicy-TLS13-1-2")
    error_message = "TLS 1.2 at least."
  }
  assert {
    condition     = aws_lb.this["0"].drop_invalid_header_fields
    error_message = "Headers that could be read in two ways are dropped."
  }
}

run "plain_http_is_not_for_the_internet" {
  command = plan
  variables {
    certificate_arn = null
  }
  expect_failures = [aws_lb.this["0"]]
}

run "plain_http_for_named_networks" {
  variables {
    certificate_arn = null
    client_cidrs    = ["192.0.2.0/24"]
  }
  assert {
    condition     = aws_lb_listener.this["0"].port == 80 && toset(keys(aws_vpc_security_group_ingress_rule.clients)) == toset(["192.0.2.0/24"])
    error_message = "Plain HTTP, and only from there."
  }
}

run "several_balancers_one_door_each" {
  variables {
    balancers = ["0", "1", "2"]
  }
  assert {
    condition     = [for number in ["0", "1", "2"] : aws_lb.this[number].name] == ["mark", "mark-1", "mark-2"]
    error_message = "The first keeps its name."
  }
  assert {
    condition = alltrue([for number in ["0", "1", "2"] :
      aws_lb.this[number].security_groups == toset([aws_security_group.balancer.id]) && aws_lb_listener.this[number].protocol == "HTTPS"
    ])
    error_message = "All are as closed as the first."
  }
  assert {
    condition     = keys(output.addresses) == ["0", "1", "2"] && keys(output.listener_arns) == ["0", "1", "2"]
    error_message = "Each has an address."
  }
}

run "the_first_balancer_is_always_there" {
  command = plan
  variables {
    balancers = ["1"]
  }
  expect_failures = [var.balancers]
}

run "a_name_that_elb_keeps_for_itself" {
  command = plan
  variables {
    site = "internal-models"
  }
  expect_failures = [var.site]
}

run "a_name_whose_second_balancer_elb_refuses" {
  command = plan
  variables {
    site = "internal"
  }
  expect_failures = [var.site]
}

run "grpc_has_a_door_of_its_own" {
  variables {
    grpc_port = 50051
  }
  assert {
    condition     = aws_lb_listener.grpc["0"].protocol == "HTTPS" && aws_lb_listener.grpc["0"].port == 50051 && output.grpc_listener_arns["0"] == aws_lb_listener.grpc["0"].arn
    error_message = "An ALB speaks gRPC by HTTPS only."
  }
  assert {
    condition = alltrue([
      aws_vpc_security_group_ingress_rule.grpc_clients["0.0.0.0/0"].security_group_id == aws_security_group.balancer.id,
      aws_vpc_security_group_ingress_rule.grpc["grpc"].referenced_security_group_id == aws_security_group.balancer.id,
      aws_vpc_security_group_egress_rule.grpc["grpc"].referenced_security_group_id == aws_security_group.bouncer.id,
    ])
    error_message = "Clients reach the balancer, and only it the bouncers."
  }
}

run "without_grpc_no_port_is_open" {
  assert {
    condition     = length(aws_lb_listener.grpc) + length(aws_vpc_security_group_ingress_rule.grpc) + length(aws_vpc_security_group_ingress_rule.grpc_clients) == 0
    error_message = "Only what is asked for."
  }
}

run "grpc_in_clear_is_refused" {
  command = plan
  variables {
    certificate_arn = null
    client_cidrs    = ["192.0.2.0/24"]
    grpc_port       = 50051
  }
  expect_failures = [var.grpc_port]
}

run "a_single_zone_is_refused" {
  command = plan
  variables {
    zones = ["eu-west-1a"]
  }
  expect_failures = [var.zones]
}

run "servers_that_do_not_learn_do_not_reach_each_other" {
  assert {
    condition     = length(aws_vpc_security_group_ingress_rule.peers) == 0 && length(aws_vpc_security_group_egress_rule.peers) == 0
    error_message = "No rule between instances."
  }
}

run "servers_that_learn_reach_each_other_and_the_bucket" {
  variables {
    balancers = ["0", "stages"]
    learns    = { bouncers = true, conductors = true }
  }
  assert {
    condition = alltrue([for rules in [aws_vpc_security_group_ingress_rule.peers, aws_vpc_security_group_egress_rule.peers] :
      toset(keys(rules)) == toset(["bouncers", "conductors"]) && alltrue([for rule in values(rules) :
        rule.referenced_security_group_id == rule.security_group_id && rule.from_port == 8080 && rule.to_port == 8080
      ])
    ])
    error_message = "Servers of one kind reach each other on their port, and nothing else."
  }
  assert {
    condition = [for statement in jsondecode(aws_vpc_endpoint.gateway["s3"].policy).Statement : statement.Resource if statement.Sid == "Learned"] == [
      ["arn:aws:s3:::mark-artifacts-1", "arn:aws:s3:::mark-artifacts-1/learned/*"],
    ]
    error_message = "Of the bucket what was learned, too."
  }
}
