# One service's instances: how they boot, what they may do, how requests come to them. How many there are is the
# controller's decision, so nothing here launches any.

locals {
  # IAM takes 64 characters: letters, digits, dashes.
  clean = replace(var.service, "/[^A-Za-z0-9-]/", "-")
  slug  = length(local.clean) <= 32 ? local.clean : "${substr(local.clean, 0, 23)}-${substr(sha1(var.service), 0, 8)}"
  name  = "${var.site}-${local.slug}"
  # To leave the load balancer: two health checks that fail, and one that was under way.
  linger_s = 15
  drain_s  = max(30, ceil(2 * var.slo_s))
  # By platform, "" being the first. Of the controller's time a minute is left: it counts from the launch, and user data
  # from later on.
  booted = merge(
    { "" = { boot_s = var.boot_timeout_s - 60, wheels = var.artifacts.wheels } },
    { for platform, one in var.more_platforms : platform => { boot_s = one.boot_timeout_s - 60, wheels = one.wheels } },
  )

  # ELB takes 32 characters; names of the first groups of sites that have one only stay as they are.
  group_suffixes      = [for n in range(var.target_groups) : n == 0 ? "" : "-${n}"]
  group_hash          = substr(sha1("${var.site}/${var.service}"), 0, 8)
  grpc_groups         = var.grpc == null ? [] : [for n in range(var.target_groups) : "${trimsuffix(substr(local.name, 0, 20), "-")}-g${n}-${local.group_hash}"]
  group_names         = [for end in local.group_suffixes : "${trimsuffix(substr(local.name, 0, 23 - length(end)), "-")}${end}-${local.group_hash}"]
  function_group_name = "${trimsuffix(substr(local.name, 0, 21), "-")}-f-${local.group_hash}"
  groups              = concat([aws_lb_target_group.this], aws_lb_target_group.more)
  # A group keeps the protocol with which it was made, and what is in it speaks that: so a service does not change from
  # HTTP to HTTPS under its requests, whatever a later version of this module makes by default.
  protocol = aws_lb_target_group.this.protocol
  scheme   = lower(local.protocol)
  # At first, until the controller says otherwise: the first group.
  forward = concat(
    [for n, group in local.groups : { arn = group.arn, weight = n == 0 ? 1 : 0 }],
    [{ arn = aws_lb_target_group.function.arn, weight = 0 }],
  )

  # All that an instance becomes by booting: by this name the controller tells old ones from new ones. Of contents, so
  # that what was deployed before has its old name when it is deployed again.
  release = substr(sha256(jsonencode(merge({
    artifacts = { for name, artifact in var.artifacts : name => artifact.sha256 }
    boot      = filesha256("${path.module}/bouncer.sh.tftpl")
    boot_s    = local.booted[""].boot_s
    disk_gb   = var.disk_gb
    function  = var.function == null ? "" : var.function.qualified
    image_id  = var.image_id
    slo_s     = var.slo_s
    scheme    = local.scheme
    grpc_port = try(var.grpc.port, "")
    },
    # All platforms are one release, which is rolled out and taken back as a whole. With one it has the name that it
    # always had.
    { for key, platforms in { platforms = var.more_platforms } : key => { for platform, one in platforms : platform => {
      boot_s   = local.booted[platform].boot_s
      disk_gb  = one.disk_gb
      image_id = one.image_id
      wheels   = one.wheels.sha256
    } } if length(platforms) > 0 },
  ))), 0, 12)

  user_data = { for platform, one in local.booted : platform => templatefile("${path.module}/bouncer.sh.tftpl", {
    region    = var.aws.region
    service   = var.service
    artifacts = merge(var.artifacts, { wheels = one.wheels })
    keys      = var.keys.name
    inner_key = try(var.learned.key.name, "")
    store     = var.learned == null ? "" : "s3://${var.learned.bucket}"
    port      = var.bouncer_port
    scheme    = local.scheme
    grpc_port = try(tostring(var.grpc.port), "")
    # Of a pipeline, whose file has several models, it is one stage's.
    function  = var.function == null ? "" : var.stage == "" ? "--function ${var.function.qualified}" : "--stage-function ${var.stage}=${var.function.qualified}"
    stage     = join(" --stage ", var.stage == "" ? var.together : [var.stage])
    linger_s  = local.linger_s
    drain_s   = local.drain_s
    boot_s    = one.boot_s
    log_group = aws_cloudwatch_log_group.this.name
  }) }
}

# In a folder of their own, as are names below: a service may be called controller.
resource "aws_cloudwatch_log_group" "this" {
  name              = "/mark/${var.site}/services/${var.service}"
  retention_in_days = var.log_days
}

resource "aws_iam_role" "this" {
  name = "${local.name}-bouncer"
  # What the controller may pass on: by a tag AWS cannot tell, and the name of one site may begin another's.
  path = "/mark/${var.site}/bouncers/"
  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Principal = { Service = "ec2.amazonaws.com" }
      Action    = "sts:AssumeRole"
    }]
  })
}

resource "aws_iam_role_policy" "this" {
  name = "bouncer"
  role = aws_iam_role.this.id
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = concat(
      [
        {
          # aws s3api get-object at boot: packages, the service's folder; by their versions.
          Sid      = "BootFiles"
          Effect   = "Allow"
          Action   = "s3:GetObjectVersion"
          Resource = concat([for artifact in var.artifacts : artifact.arn], [for one in var.more_platforms : one.wheels.arn])
        },
        {
          # aws ssm get-parameter at boot, KeyParameter later; AWS's own key for parameters needs no grant.
          Sid      = "Keys"
          Effect   = "Allow"
          Action   = "ssm:GetParameter"
          Resource = concat([var.keys.arn], var.learned == null ? [] : [var.learned.key.arn])
        },
        {
          # The log agent.
          Sid      = "OwnLog"
          Effect   = "Allow"
          Action   = ["logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents"]
          Resource = "${aws_cloudwatch_log_group.this.arn}:*"
        },
      ],
      var.function == null ? [] : [{
        # LambdaFunctions.call: requests that would be late here.
        Sid      = "Overflow"
        Effect   = "Allow"
        Action   = "lambda:InvokeFunction"
        Resource = "${var.function.arn}:*" # of its versions: an older release calls an older one
      }],
      [for bucket in compact([try(var.learned.bucket, "")]) : {
        # LearnedStore: facts and snapshots. S3Objects creates a key only once, and nothing is deleted.
        Sid      = "Learned"
        Effect   = "Allow"
        Action   = ["s3:GetObject", "s3:PutObject"]
        Resource = "arn:${var.aws.partition}:s3:::${bucket}/learned/${var.service}/*"
      }],
      [for bucket in compact([try(var.learned.bucket, "")]) : {
        Sid       = "ListLearned"
        Effect    = "Allow"
        Action    = "s3:ListBucket"
        Resource  = "arn:${var.aws.partition}:s3:::${bucket}"
        Condition = { StringLike = { "s3:prefix" = "learned/${var.service}/*" } }
      }],
    )
  })
}

resource "aws_iam_instance_profile" "this" {
  name = "${local.name}-bouncer"
  role = aws_iam_role.this.name
}

resource "aws_launch_template" "this" {
  name                                 = "${local.name}-bouncer"
  description                          = "Bouncers of ${var.service}"
  update_default_version               = true
  image_id                             = var.image_id
  vpc_security_group_ids               = [var.security_group_id]
  user_data                            = base64encode(local.user_data[""])
  instance_initiated_shutdown_behavior = "terminate"
  # By this the controller's right to launch from it is narrowed to its own site.
  tags = var.emulated ? null : { "mark:site" = var.site }

  iam_instance_profile {
    name = aws_iam_instance_profile.this.name
  }

  metadata_options {
    http_endpoint               = "enabled"
    http_tokens                 = "required"
    http_put_response_hop_limit = 1
    instance_metadata_tags      = "enabled"
  }

  block_device_mappings {
    device_name = "/dev/xvda"
    ebs {
      volume_type           = "gp3"
      volume_size           = var.disk_gb
      encrypted             = true
      delete_on_termination = true
    }
  }

  # The controller adds its own tags to each launch; these are there even if it forgot.
  dynamic "tag_specifications" {
    for_each = toset(["instance", "volume"])
    content {
      resource_type = tag_specifications.key
      tags = {
        Name           = local.name
        "mark:site"    = var.site
        "mark:service" = var.service
      }
    }
  }
}

# What boots from another image, with other packages and another disk: user data cannot differ by instance type. The first
# platform keeps the template above, so that nothing changes for it when others come. In the same release, see there.
resource "aws_launch_template" "more" {
  for_each                             = var.more_platforms
  name                                 = "${local.name}-bouncer-${each.key}"
  description                          = "Bouncers of ${var.service}, ${each.key}"
  update_default_version               = true
  image_id                             = each.value.image_id
  vpc_security_group_ids               = [var.security_group_id]
  user_data                            = base64encode(local.user_data[each.key])
  instance_initiated_shutdown_behavior = "terminate"
  # By this the controller's right to launch from it is narrowed to its own site.
  tags = var.emulated ? null : { "mark:site" = var.site }

  iam_instance_profile {
    name = aws_iam_instance_profile.this.name
  }

  metadata_options {
    http_endpoint               = "enabled"
    http_tokens                 = "required"
    http_put_response_hop_limit = 1
    instance_metadata_tags      = "enabled"
  }

  block_device_mappings {
    device_name = "/dev/xvda"
    ebs {
      volume_type           = "gp3"
      volume_size           = each.value.disk_gb
      encrypted             = true
      delete_on_termination = true
    }
  }

  # The controller adds its own tags to each launch; these are there even if it forgot.
  dynamic "tag_specifications" {
    for_each = toset(["instance", "volume"])
    content {
      resource_type = tag_specifications.key
      tags = {
        Name           = local.name
        "mark:site"    = var.site
        "mark:service" = var.service
      }
    }
  }
}

# One for each class of capacity, the smallest first: a balancer sends all targets of a group the same. The controller
# registers instances and sets the shares, so a group without instances has none, and is no trouble. A group that a rule
# forwards to cannot be deleted, and only the controller takes one out: so their number never falls, and as another
# protocol is another group, none changes its protocol. The first one remembers it.
resource "aws_lb_target_group" "this" {
  # 32 characters at most, whatever the names are.
  name        = local.group_names[0]
  vpc_id      = var.vpc_id
  port        = var.bouncer_port
  protocol    = var.bouncer_tls ? "HTTPS" : "HTTP"
  target_type = "instance"
  # By this the controller's right to register instances is narrowed to its own site.
  tags                          = { "mark:site" = var.site }
  load_balancing_algorithm_type = "least_outstanding_requests"
  # As long as a bouncer needs to finish what it accepted.
  deregistration_delay = local.drain_s

  health_check {
    path                = "/v2/health/ready"
    protocol            = var.bouncer_tls ? "HTTPS" : "HTTP"
    matcher             = "200"
    interval            = 5
    timeout             = 2
    healthy_threshold   = 2
    unhealthy_threshold = 2
  }

  lifecycle {
    ignore_changes = [protocol, health_check[0].protocol]
  }
}

resource "aws_lb_target_group" "more" {
  count       = var.target_groups - 1
  name        = local.group_names[count.index + 1]
  vpc_id      = var.vpc_id
  port        = var.bouncer_port
  protocol    = local.protocol
  target_type = "instance"
  # By this the controller's right to register instances is narrowed to its own site.
  tags                          = { "mark:site" = var.site }
  load_balancing_algorithm_type = "least_outstanding_requests"
  # As long as a bouncer needs to finish what it accepted.
  deregistration_delay = local.drain_s

  health_check {
    path                = "/v2/health/ready"
    protocol            = local.protocol
    matcher             = "200"
    interval            = 5
    timeout             = 2
    healthy_threshold   = 2
    unhealthy_threshold = 2
  }
}

moved {
  from = aws_lb_target_group.this[0]
  to   = aws_lb_target_group.this
}

moved {
  from = aws_lb_target_group.this[1]
  to   = aws_lb_target_group.more[0]
}

moved {
  from = aws_lb_target_group.this[2]
  to   = aws_lb_target_group.more[1]
}

moved {
  from = aws_lb_target_group.this[3]
  to   = aws_lb_target_group.more[2]
}

# What answers while no instance is ready. It is there without a function, too, as the rules name it: then it has no
# target, and the controller gives it no share.
resource "aws_lb_target_group" "function" {
  name        = local.function_group_name
  target_type = "lambda"
  tags        = { "mark:site" = var.site }
  # A creation that is broken off may leave what no state knows. What costs nothing and needs nothing comes late.
  depends_on = [var.listener_arn]
}

resource "aws_lambda_permission" "balancer" {
  count         = var.function == null ? 0 : 1
  statement_id  = "balancer"
  action        = "lambda:InvokeFunction"
  function_name = var.function.name
  qualifier     = var.function.alias
  principal     = "elasticloadbalancing.amazonaws.com"
  source_arn    = aws_lb_target_group.function.arn
}

resource "aws_lb_target_group_attachment" "function" {
  count            = var.function == null ? 0 : 1
  target_group_arn = aws_lb_target_group.function.arn
  target_id        = "${var.function.arn}:${var.function.alias}"
  depends_on       = [aws_lambda_permission.balancer]
}

# Requests name their service in the path or, where a path cannot (SageMaker's /invocations), in a header. Conditions of
# one rule must all hold, so these are two. No two services' rules fit one request: their order means nothing, and a
# priority must only be free.
#
# What they forward to is here as it is at first, and the controller's from then on: an apply resets no shares.
resource "aws_lb_listener_rule" "path" {
  listener_arn = var.listener_arn
  priority     = var.priority * 2
  # By this the controller's right to set shares is narrowed to its own site.
  tags = { "mark:site" = var.site }

  action {
    type = "forward"
    forward {
      dynamic "target_group" {
        for_each = local.forward
        content {
          arn    = target_group.value.arn
          weight = target_group.value.weight
        }
      }
    }
  }

  condition {
    path_pattern {
      values = ["/v2/models/${var.service}", "/v2/models/${var.service}/*"]
    }
  }

  lifecycle {
    ignore_changes = [action]
  }
}

resource "aws_lb_listener_rule" "header" {
  listener_arn = var.listener_arn
  priority     = var.priority * 2 + 1
  tags         = { "mark:site" = var.site }

  action {
    type = "forward"
    forward {
      dynamic "target_group" {
        for_each = local.forward
        content {
          arn    = target_group.value.arn
          weight = target_group.value.weight
        }
      }
    }
  }

  condition {
    http_header {
      http_header_name = "mark-service"
      values           = [var.service]
    }
  }

  lifecycle {
    ignore_changes = [action]
  }
}

# By gRPC the same, with groups and a rule of their own: a target has one protocol in a group, and a function none that
# speaks gRPC.
resource "aws_lb_target_group" "grpc" {
  count                         = length(local.grpc_groups)
  name                          = local.grpc_groups[count.index]
  vpc_id                        = var.vpc_id
  port                          = var.grpc.port
  protocol                      = local.protocol
  protocol_version              = "GRPC"
  target_type                   = "instance"
  tags                          = { "mark:site" = var.site }
  load_balancing_algorithm_type = "least_outstanding_requests"
  deregistration_delay          = local.drain_s

  # That it answers; whether it is ready the controller asks, before it registers it.
  health_check {
    path                = "/inference.GRPCInferenceService/ServerLive"
    protocol            = local.protocol
    matcher             = "0"
    interval            = 5
    timeout             = 2
    healthy_threshold   = 2
    unhealthy_threshold = 2
  }
}

resource "aws_lb_listener_rule" "grpc" {
  count        = var.grpc == null ? 0 : 1
  listener_arn = var.grpc.listener_arn
  priority     = var.priority
  tags         = { "mark:site" = var.site }

  action {
    type = "forward"
    forward {
      dynamic "target_group" {
        for_each = aws_lb_target_group.grpc
        content {
          arn    = target_group.value.arn
          weight = target_group.key == 0 ? 1 : 0
        }
      }
    }
  }

  condition {
    path_pattern {
      values = ["/inference.GRPCInferenceService/*"]
    }
  }

  condition {
    http_header {
      http_header_name = "mark-service"
      values           = [var.service]
    }
  }

  lifecycle {
    ignore_changes = [action]
  }
}
