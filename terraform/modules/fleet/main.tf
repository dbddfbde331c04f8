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

  user_data = templatefile("${path.module}/bouncer.sh.tftpl", {
    region    = var.aws.region
    service   = var.service
    artifacts = var.artifacts
    keys      = var.keys.name
    port      = var.bouncer_port
    function  = var.function == null ? "" : var.function.name
    linger_s  = local.linger_s
    drain_s   = local.drain_s
    log_group = aws_cloudwatch_log_group.this.name
  })
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
          Resource = [for artifact in var.artifacts : artifact.arn]
        },
        {
          # aws ssm get-parameter at boot; AWS's own key for parameters needs no grant.
          Sid      = "Keys"
          Effect   = "Allow"
          Action   = "ssm:GetParameter"
          Resource = var.keys.arn
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
        Resource = var.function.arn
      }]
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
  user_data                            = base64encode(local.user_data)
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

resource "aws_lb_target_group" "this" {
  # 32 characters at most, whatever the names are.
  name        = "${trimsuffix(substr(local.name, 0, 23), "-")}-${substr(sha1("${var.site}/${var.service}"), 0, 8)}"
  vpc_id      = var.vpc_id
  port        = var.bouncer_port
  protocol    = "HTTP"
  target_type = "instance"
  # By this the controller's right to register instances is narrowed to its own site.
  tags                          = { "mark:site" = var.site }
  load_balancing_algorithm_type = "least_outstanding_requests"
  # As long as a bouncer needs to finish what it accepted.
  deregistration_delay = local.drain_s

  health_check {
    path                = "/v2/health/ready"
    matcher             = "200"
    interval            = 5
    timeout             = 2
    healthy_threshold   = 2
    unhealthy_threshold = 2
  }

  # The site's default rule lets go of the group of a service that goes before it is deleted: else AWS refuses that.
  lifecycle {
    create_before_destroy = true
  }
}

# Requests name their service in the path or, where a path cannot (SageMaker's /invocations), in a header. Conditions of
# one rule must all hold, so these are two. No two services' rules fit one request: their order means nothing, and a
# priority must only be free.
resource "aws_lb_listener_rule" "path" {
  listener_arn = var.listener_arn
  priority     = var.priority * 2

  action {
    type             = "forward"
    target_group_arn = aws_lb_target_group.this.arn
  }

  condition {
    path_pattern {
      values = ["/v2/models/${var.service}", "/v2/models/${var.service}/*"]
    }
  }
}

resource "aws_lb_listener_rule" "header" {
  listener_arn = var.listener_arn
  priority     = var.priority * 2 + 1

  action {
    type             = "forward"
    target_group_arn = aws_lb_target_group.this.arn
  }

  condition {
    http_header {
      http_header_name = "mark-service"
      values           = [var.service]
    }
  }
}
