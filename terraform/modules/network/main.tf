# The network: instances in private subnets, one way in (the load balancer), one way out (a NAT gateway).

locals {
  tls       = var.certificate_arn != null
  door_port = local.tls ? 443 : 80
  # An ALB speaks gRPC by HTTPS only. A door of its own, as a rule by the header alone would catch it at the other one.
  grpc       = var.grpc_port == null ? {} : { grpc = var.grpc_port }
  grpc_doors = { for cidr in var.client_cidrs : cidr => cidr if var.grpc_port != null }

  # The stages of pipelines are behind balancers of their own, which no client reaches: conductors take queries to them.
  stages = { for number in var.balancers : number => startswith(number, "stages") }
  # Where there are such, and conductors in front of them.
  with_stages  = anytrue(values(local.stages))
  stages_port  = 80
  conductors   = local.with_stages ? { conductors = aws_security_group.conductor[0].id } : {}
  stages_doors = local.with_stages ? { stages = aws_security_group.stages[0].id } : {}
  # Servers that learn, which ask each other.
  learning = merge(
    var.learns.bouncers ? { bouncers = aws_security_group.bouncer.id } : {},
    var.learns.conductors ? local.conductors : {},
  )

  # A zone keeps its number, whatever others come and go: with another one its subnets would have other addresses, and
  # be made anew. One that is left keeps its subnets, which cost nothing, and the balancer: AWS deletes no subnet in
  # which something runs, and a balancer that is not in a zone sends nothing to what still serves there.
  new_zones    = [for zone in var.zones : zone if !contains(keys(var.zone_numbers), zone)]
  free_numbers = [for number in range(15) : number if !contains(values(var.zone_numbers), number)]
  zone_numbers = merge(var.zone_numbers, { for i, zone in local.new_zones : zone => local.free_numbers[i] })
  # The NAT gateway stays where it is as long as its zone is used.
  nat_number = min([for zone in var.zones : local.zone_numbers[zone]]...)
  nat_zone   = one([for zone in var.zones : zone if local.zone_numbers[zone] == local.nat_number])

  # /20 for instances (4,091 addresses a zone), /24 for the balancer and the NAT gateway.
  private_cidrs = { for zone, number in local.zone_numbers : zone => cidrsubnet(var.cidr, 4, number) }
  public_cidrs  = { for zone, number in local.zone_numbers : zone => cidrsubnet(var.cidr, 8, 240 + number) }

  endpoint_policies = { for service, statements in {
    s3 = concat([
      {
        Sid      = "BootFiles"
        Action   = "s3:GetObjectVersion"
        Resource = "arn:${var.aws.partition}:s3:::${var.bucket}/artifacts/*"
      },
      {
        Sid      = "PackagesOfAmazonLinux"
        Action   = "s3:GetObject"
        Resource = "arn:${var.aws.partition}:s3:::al2023-repos-${var.aws.region}-*/*"
      },
      ], length(local.learning) == 0 ? [] : [
      {
        Sid      = "Learned"
        Action   = ["s3:GetObject", "s3:ListBucket", "s3:PutObject"]
        Resource = ["arn:${var.aws.partition}:s3:::${var.bucket}", "arn:${var.aws.partition}:s3:::${var.bucket}/learned/*"]
      },
    ])
    dynamodb = [{
      Sid      = "State"
      Action   = [for call in ["ConditionCheckItem", "DeleteItem", "GetItem", "PutItem", "Query", "UpdateItem"] : "dynamodb:${call}"]
      Resource = var.table_arn
    }]
  } : service => jsonencode({ Version = "2012-10-17", Statement = [for one in statements : merge(one, { Effect = "Allow", Principal = "*" })] }) }
}

resource "aws_vpc" "this" {
  cidr_block           = var.cidr
  enable_dns_support   = true
  enable_dns_hostnames = true
  tags                 = { Name = var.site }
}

# Whatever is put into the VPC without a security group reaches nothing and is reached by nothing.
resource "aws_default_security_group" "closed" {
  vpc_id = aws_vpc.this.id
}

resource "aws_subnet" "private" {
  for_each          = local.private_cidrs
  vpc_id            = aws_vpc.this.id
  availability_zone = each.key
  cidr_block        = each.value
  tags              = { Name = "${var.site}-private-${each.key}" }
}

resource "aws_subnet" "public" {
  for_each          = local.public_cidrs
  vpc_id            = aws_vpc.this.id
  availability_zone = each.key
  cidr_block        = each.value
  tags              = { Name = "${var.site}-public-${each.key}" }
}

resource "aws_internet_gateway" "this" {
  vpc_id = aws_vpc.this.id
  tags   = { Name = var.site }
}

# One NAT gateway for all zones: it costs as much as four and a half interface endpoints, and instances need ten services
# (EC2, ELB, Lambda, SQS, SSM, CloudWatch, Logs, Pricing, packages). When its zone fails, instances elsewhere go on
# serving; they cannot overflow to functions, and nothing is launched, until it is back.
#
# In another zone it is another one, with another address. That is made first: there is a way out all the time.
resource "terraform_data" "nat_zone" {
  input = local.nat_zone
}

resource "aws_eip" "nat" {
  domain = "vpc"
  tags   = { Name = "${var.site}-nat" }

  lifecycle {
    create_before_destroy = true
    replace_triggered_by  = [terraform_data.nat_zone]
  }
}

resource "aws_nat_gateway" "this" {
  allocation_id = aws_eip.nat.id
  subnet_id     = aws_subnet.public[local.nat_zone].id
  tags          = { Name = var.site }
  depends_on    = [aws_internet_gateway.this]

  lifecycle {
    create_before_destroy = true
  }
}

resource "aws_route_table" "public" {
  vpc_id = aws_vpc.this.id
  tags   = { Name = "${var.site}-public" }
}

resource "aws_route" "internet" {
  route_table_id         = aws_route_table.public.id
  destination_cidr_block = "0.0.0.0/0"
  gateway_id             = aws_internet_gateway.this.id
}

resource "aws_route_table" "private" {
  vpc_id = aws_vpc.this.id
  tags   = { Name = "${var.site}-private" }
}

resource "aws_route" "nat" {
  route_table_id         = aws_route_table.private.id
  destination_cidr_block = "0.0.0.0/0"
  nat_gateway_id         = aws_nat_gateway.this.id
}

resource "aws_route_table_association" "public" {
  for_each       = aws_subnet.public
  subnet_id      = each.value.id
  route_table_id = aws_route_table.public.id
}

resource "aws_route_table_association" "private" {
  for_each       = aws_subnet.private
  subnet_id      = each.value.id
  route_table_id = aws_route_table.private.id
}

# Gateway endpoints cost nothing, and keep models and state off the NAT gateway, which charges by the GB. By their
# policies nothing in the subnets reaches another bucket or table, with whosever keys: Amazon Linux's packages are in
# buckets of Amazon's.
resource "aws_vpc_endpoint" "gateway" {
  for_each          = toset(["s3", "dynamodb"])
  vpc_id            = aws_vpc.this.id
  vpc_endpoint_type = "Gateway"
  service_name      = "com.amazonaws.${var.aws.region}.${each.key}"
  route_table_ids   = [aws_route_table.private.id]
  policy            = var.emulated ? null : local.endpoint_policies[each.key]
  tags              = { Name = "${var.site}-${each.key}" }
}

resource "aws_security_group" "balancer" {
  name        = "${var.site}-balancer"
  description = "The one door from outside"
  vpc_id      = aws_vpc.this.id
  tags        = { Name = "${var.site}-balancer" }
}

resource "aws_vpc_security_group_ingress_rule" "clients" {
  for_each          = toset(var.client_cidrs)
  security_group_id = aws_security_group.balancer.id
  description       = "Clients"
  cidr_ipv4         = each.key
  ip_protocol       = "tcp"
  from_port         = local.door_port
  to_port           = local.door_port
}

resource "aws_vpc_security_group_ingress_rule" "grpc_clients" {
  for_each          = local.grpc_doors
  security_group_id = aws_security_group.balancer.id
  description       = "Clients, by gRPC"
  cidr_ipv4         = each.key
  ip_protocol       = "tcp"
  from_port         = var.grpc_port
  to_port           = var.grpc_port
}

resource "aws_vpc_security_group_egress_rule" "grpc" {
  for_each                     = local.grpc
  security_group_id            = aws_security_group.balancer.id
  description                  = var.emulated ? null : "Requests by gRPC"
  referenced_security_group_id = aws_security_group.bouncer.id
  ip_protocol                  = "tcp"
  from_port                    = each.value
  to_port                      = each.value
}

resource "aws_vpc_security_group_ingress_rule" "grpc" {
  for_each                     = local.grpc
  security_group_id            = aws_security_group.bouncer.id
  description                  = var.emulated ? null : "Bouncer by gRPC, from the balancer"
  referenced_security_group_id = aws_security_group.balancer.id
  ip_protocol                  = "tcp"
  from_port                    = each.value
  to_port                      = each.value
}

resource "aws_vpc_security_group_egress_rule" "balancer_to_bouncers" {
  security_group_id            = aws_security_group.balancer.id
  description                  = var.emulated ? null : "Requests and health checks"
  referenced_security_group_id = aws_security_group.bouncer.id
  ip_protocol                  = "tcp"
  from_port                    = var.bouncer_port
  to_port                      = var.bouncer_port
}

resource "aws_security_group" "bouncer" {
  name        = "${var.site}-bouncer"
  description = "Instances of the fleet"
  vpc_id      = aws_vpc.this.id
  tags        = { Name = "${var.site}-bouncer" }
}

resource "aws_vpc_security_group_ingress_rule" "bouncer" {
  for_each = merge({
    balancer   = aws_security_group.balancer.id
    controller = aws_security_group.controller.id
  }, local.stages_doors)
  security_group_id            = aws_security_group.bouncer.id
  description                  = var.emulated ? null : "Bouncer, from the ${each.key}"
  referenced_security_group_id = each.value
  ip_protocol                  = "tcp"
  from_port                    = var.bouncer_port
  to_port                      = var.bouncer_port
}

resource "aws_vpc_security_group_egress_rule" "https" {
  for_each = merge({
    bouncer    = aws_security_group.bouncer.id
    controller = aws_security_group.controller.id
  }, local.conductors)
  security_group_id = each.value
  description       = "AWS and packages"
  cidr_ipv4         = "0.0.0.0/0"
  ip_protocol       = "tcp"
  from_port         = 443
  to_port           = 443
}

# Nothing comes in: its page is reached through Session Manager.
resource "aws_security_group" "controller" {
  name        = "${var.site}-controller"
  description = "The controller: nothing comes in"
  vpc_id      = aws_vpc.this.id
  tags        = { Name = "${var.site}-controller" }
}

resource "aws_vpc_security_group_egress_rule" "controller_to_bouncers" {
  security_group_id            = aws_security_group.controller.id
  description                  = var.emulated ? null : "Metrics and drains"
  referenced_security_group_id = aws_security_group.bouncer.id
  ip_protocol                  = "tcp"
  from_port                    = var.bouncer_port
  to_port                      = var.bouncer_port
}

# Servers that learn send each other facts and feedback.
resource "aws_vpc_security_group_egress_rule" "peers" {
  for_each                     = local.learning
  security_group_id            = each.value
  description                  = var.emulated ? null : "Facts to peers"
  referenced_security_group_id = each.value
  ip_protocol                  = "tcp"
  from_port                    = var.bouncer_port
  to_port                      = var.bouncer_port
}

resource "aws_vpc_security_group_ingress_rule" "peers" {
  for_each                     = local.learning
  security_group_id            = each.value
  description                  = var.emulated ? null : "Facts of peers"
  referenced_security_group_id = each.value
  ip_protocol                  = "tcp"
  from_port                    = var.bouncer_port
  to_port                      = var.bouncer_port
}

# What takes queries through the stages of pipelines: asked by the balancer of clients, it asks that of stages.
resource "aws_security_group" "conductor" {
  count       = local.with_stages ? 1 : 0
  name        = "${var.site}-conductor"
  description = "Conductors of pipelines"
  vpc_id      = aws_vpc.this.id
  tags        = { Name = "${var.site}-conductor" }
}

resource "aws_security_group" "stages" {
  count       = local.with_stages ? 1 : 0
  name        = "${var.site}-stages"
  description = "The door from conductors to stages"
  vpc_id      = aws_vpc.this.id
  tags        = { Name = "${var.site}-stages" }
}

resource "aws_vpc_security_group_egress_rule" "balancer_to_conductors" {
  for_each                     = local.conductors
  security_group_id            = aws_security_group.balancer.id
  description                  = var.emulated ? null : "Queries and health checks"
  referenced_security_group_id = each.value
  ip_protocol                  = "tcp"
  from_port                    = var.bouncer_port
  to_port                      = var.bouncer_port
}

resource "aws_vpc_security_group_ingress_rule" "conductors" {
  for_each                     = local.conductors
  security_group_id            = each.value
  description                  = var.emulated ? null : "Conductor, from the balancer"
  referenced_security_group_id = aws_security_group.balancer.id
  ip_protocol                  = "tcp"
  from_port                    = var.bouncer_port
  to_port                      = var.bouncer_port
}

# What became of queries.
resource "aws_vpc_security_group_egress_rule" "controller_to_conductors" {
  for_each                     = local.conductors
  security_group_id            = aws_security_group.controller.id
  description                  = var.emulated ? null : "Metrics of conductors"
  referenced_security_group_id = each.value
  ip_protocol                  = "tcp"
  from_port                    = var.bouncer_port
  to_port                      = var.bouncer_port
}

resource "aws_vpc_security_group_ingress_rule" "conductors_from_controller" {
  for_each                     = local.conductors
  security_group_id            = each.value
  description                  = var.emulated ? null : "Conductor, from the controller"
  referenced_security_group_id = aws_security_group.controller.id
  ip_protocol                  = "tcp"
  from_port                    = var.bouncer_port
  to_port                      = var.bouncer_port
}

resource "aws_vpc_security_group_egress_rule" "conductors_to_stages" {
  for_each                     = local.stages_doors
  security_group_id            = aws_security_group.conductor[0].id
  description                  = var.emulated ? null : "Calls of stages"
  referenced_security_group_id = each.value
  ip_protocol                  = "tcp"
  from_port                    = local.stages_port
  to_port                      = local.stages_port
}

resource "aws_vpc_security_group_ingress_rule" "stages" {
  # checkov:skip=CKV_AWS_260:from conductors only, whose group it names
  for_each                     = local.stages_doors
  security_group_id            = each.value
  description                  = var.emulated ? null : "Calls of conductors"
  referenced_security_group_id = aws_security_group.conductor[0].id
  ip_protocol                  = "tcp"
  from_port                    = local.stages_port
  to_port                      = local.stages_port
}

resource "aws_vpc_security_group_egress_rule" "stages_to_bouncers" {
  for_each                     = local.stages_doors
  security_group_id            = each.value
  description                  = var.emulated ? null : "Calls and health checks"
  referenced_security_group_id = aws_security_group.bouncer.id
  ip_protocol                  = "tcp"
  from_port                    = var.bouncer_port
  to_port                      = var.bouncer_port
}

# Several: one takes 100 target groups, a limit that AWS does not raise, and 100 rules, which it does.
resource "aws_lb" "this" {
  for_each                   = toset(var.balancers)
  name                       = each.key == "0" ? var.site : "${var.site}-${each.key}"
  load_balancer_type         = "application"
  internal                   = local.stages[each.key]
  security_groups            = [local.stages[each.key] ? aws_security_group.stages[0].id : aws_security_group.balancer.id]
  subnets                    = values(local.stages[each.key] ? aws_subnet.private : aws_subnet.public)[*].id
  drop_invalid_header_fields = true
  # Deleting the site is what mark deploy --destroy is for.
  enable_deletion_protection = false

  dynamic "access_logs" {
    for_each = var.access_log_bucket == null ? [] : [var.access_log_bucket]
    content {
      bucket  = access_logs.value
      prefix  = "alb"
      enabled = true
    }
  }

  lifecycle {
    precondition {
      condition     = local.tls || !contains(var.client_cidrs, "0.0.0.0/0")
      error_message = "Keys would travel the internet in clear: give certificate_arn, or name the networks of your clients in client_cidrs."
    }
  }

  # AWS refuses one that faces the internet in a VPC without a gateway, and without the route it answers nothing.
  depends_on = [
    aws_internet_gateway.this,
    aws_route.internet,
    aws_route_table_association.public,
    aws_vpc_security_group_egress_rule.balancer_to_bouncers,
    aws_vpc_security_group_ingress_rule.clients,
  ]
}

resource "aws_lb_listener" "this" {
  # checkov:skip=CKV_AWS_2:that of stages is private, and the clients' has a certificate where it has a name
  # checkov:skip=CKV_AWS_103:as above
  for_each          = aws_lb.this
  load_balancer_arn = each.value.arn
  # To stages in clear, within the site's own private subnets: the certificate is of the clients' name, and has none of a
  # balancer's own. From there on it is TLS again.
  port            = local.stages[each.key] ? local.stages_port : local.door_port
  protocol        = local.tls && !local.stages[each.key] ? "HTTPS" : "HTTP"
  ssl_policy      = local.tls && !local.stages[each.key] ? "ELBSecurityPolicy-TLS13-1-2-2021-06" : null
  certificate_arn = local.stages[each.key] ? null : var.certificate_arn

  # Services add their rules.
  default_action {
    type = "fixed-response"
    fixed_response {
      content_type = "application/json"
      message_body = jsonencode({ error = "no such service" })
      status_code  = "404"
    }
  }
}

resource "aws_lb_listener" "grpc" {
  for_each          = { for number, balancer in aws_lb.this : number => balancer.arn if var.grpc_port != null && !local.stages[number] }
  load_balancer_arn = each.value
  port              = var.grpc_port
  protocol          = "HTTPS"
  ssl_policy        = "ELBSecurityPolicy-TLS13-1-2-2021-06"
  certificate_arn   = var.certificate_arn

  # Services add their rules.
  default_action {
    type = "fixed-response"
    fixed_response {
      content_type = "application/json"
      message_body = jsonencode({ error = "no such service" })
      status_code  = "404"
    }
  }
}

# Sites that had only one keep it, and its address.
moved {
  from = aws_lb.this
  to   = aws_lb.this["0"]
}

moved {
  from = aws_lb_listener.this
  to   = aws_lb_listener.this["0"]
}
