# One pipeline's conductors: what takes queries through its stages. They keep nothing, so a group keeps their number, the
# load balancer says which of them answer, and a new release replaces them, new ones first.

locals {
  # IAM takes 64 characters: letters, digits, dashes.
  clean = replace(var.pipeline, "/[^A-Za-z0-9-]/", "-")
  slug  = length(local.clean) <= 29 ? local.clean : "${substr(local.clean, 0, 20)}-${substr(sha1(var.pipeline), 0, 8)}"
  name  = "${var.site}-${local.slug}-conductors"
  # ELB takes 32 characters.
  group_name = "${trimsuffix(substr("${var.site}-${local.clean}", 0, 21), "-")}-c-${substr(sha1("${var.site}/${var.pipeline}"), 0, 8)}"
  # To leave the load balancer: two health checks that fail, and one that was under way.
  linger_s = 15
  drain_s  = max(30, ceil(2 * var.slo_s))
  scheme   = var.tls ? "https" : "http"

  user_data = templatefile("${path.module}/conductor.sh.tftpl", {
    region      = var.aws.region
    pipeline    = var.pipeline
    artifacts   = var.artifacts
    keys        = var.keys.name
    stages_keys = var.stages_keys.name
    stages_at   = join(" ", [for stage, url in var.stages : "--stage-at ${stage}=${url}"])
    store       = var.learned_bucket == null ? "" : "--feedback-store s3://${var.learned_bucket}"
    port        = var.port
    scheme      = local.scheme
    linger_s    = local.linger_s
    drain_s     = local.drain_s
    log_group   = aws_cloudwatch_log_group.this.name
  })
}

resource "aws_cloudwatch_log_group" "this" {
  name              = "/mark/${var.site}/pipelines/${var.pipeline}"
  retention_in_days = var.log_days
}

resource "aws_iam_role" "this" {
  name = local.name
  # Not among the bouncers': the controller passes on those, and this one reads a key.
  path = "/mark/${var.site}/conductors/"
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
  name = "conductor"
  role = aws_iam_role.this.id
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = concat([
      {
        # aws s3api get-object at boot: packages, the pipeline's folder; by their versions.
        Sid      = "BootFiles"
        Effect   = "Allow"
        Action   = "s3:GetObjectVersion"
        Resource = [for artifact in var.artifacts : artifact.arn]
      },
      {
        # aws ssm get-parameter at boot, KeyParameter later: who may ask, and the key by which stages are asked.
        Sid      = "Keys"
        Effect   = "Allow"
        Action   = "ssm:GetParameter"
        Resource = [var.keys.arn, var.stages_keys.arn]
      },
      {
        # The log agent.
        Sid      = "OwnLog"
        Effect   = "Allow"
        Action   = ["logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents"]
        Resource = "${aws_cloudwatch_log_group.this.arn}:*"
      },
      ], [for bucket in compact([var.learned_bucket]) : {
        # LearnedStore: facts and snapshots. S3Objects creates a key only once, and nothing is deleted.
        Sid      = "Learned"
        Effect   = "Allow"
        Action   = ["s3:GetObject", "s3:PutObject"]
        Resource = "arn:${var.aws.partition}:s3:::${bucket}/learned/${var.pipeline}/*"
      }],
      [for bucket in compact([var.learned_bucket]) : {
        Sid       = "ListLearned"
        Effect    = "Allow"
        Action    = "s3:ListBucket"
        Resource  = "arn:${var.aws.partition}:s3:::${bucket}"
        Condition = { StringLike = { "s3:prefix" = "learned/${var.pipeline}/*" } }
    }])
  })
}

resource "aws_iam_instance_profile" "this" {
  name = local.name
  role = aws_iam_role.this.name
}

resource "aws_launch_template" "this" {
  name                   = local.name
  description            = "Conductors of ${var.pipeline}"
  update_default_version = true
  image_id               = var.image_id
  instance_type          = var.instance_type
  vpc_security_group_ids = [var.security_group_id]
  user_data              = base64encode(local.user_data)
  # By user data that fails.
  instance_initiated_shutdown_behavior = "terminate"

  iam_instance_profile {
    name = aws_iam_instance_profile.this.name
  }

  metadata_options {
    http_endpoint               = "enabled"
    http_tokens                 = "required"
    http_put_response_hop_limit = 1
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
}

resource "aws_lb_target_group" "this" {
  name                          = local.group_name
  vpc_id                        = var.vpc_id
  port                          = var.port
  protocol                      = upper(local.scheme)
  target_type                   = "instance"
  tags                          = { "mark:site" = var.site }
  load_balancing_algorithm_type = "least_outstanding_requests"
  # As long as a conductor needs to finish what it accepted.
  deregistration_delay = local.drain_s

  # That it answers. It is ready when its stages are, and another one in its place would have the same ones: so no
  # conductor is ended because a stage has no instance.
  health_check {
    path                = "/v2/health/live"
    protocol            = upper(local.scheme)
    matcher             = "200"
    interval            = 5
    timeout             = 2
    healthy_threshold   = 2
    unhealthy_threshold = 2
  }

}

# As those of a service, by path and by header.
resource "aws_lb_listener_rule" "path" {
  listener_arn = var.listener_arn
  priority     = var.priority * 2
  tags         = { "mark:site" = var.site }

  action {
    type             = "forward"
    target_group_arn = aws_lb_target_group.this.arn
  }

  condition {
    path_pattern {
      values = ["/v2/models/${var.pipeline}", "/v2/models/${var.pipeline}/*"]
    }
  }
}

resource "aws_lb_listener_rule" "header" {
  listener_arn = var.listener_arn
  priority     = var.priority * 2 + 1
  tags         = { "mark:site" = var.site }

  action {
    type             = "forward"
    target_group_arn = aws_lb_target_group.this.arn
  }

  condition {
    http_header {
      http_header_name = "mark-service"
      values           = [var.pipeline]
    }
  }
}

resource "aws_autoscaling_group" "this" {
  name                = local.name
  min_size            = var.conductors
  desired_capacity    = var.conductors
  max_size            = 2 * var.conductors
  vpc_zone_identifier = values(var.subnets)
  # An emulator registers instances while they boot, which it refuses then.
  target_group_arns = var.emulated ? [] : [aws_lb_target_group.this.arn]
  health_check_type = "ELB"
  # It boots, and installs what it needs; what hangs then ends itself.
  health_check_grace_period = 960
  # Nothing waits for them: mark deploy asks until they answer.
  wait_for_capacity_timeout = "0"
  force_delete              = true

  launch_template {
    id      = aws_launch_template.this.id
    version = aws_launch_template.this.latest_version
  }

  # New ones first. Where they do not come to answer, those that are there stay.
  instance_refresh {
    strategy = "Rolling"
    preferences {
      min_healthy_percentage = 100
      max_healthy_percentage = 200
      instance_warmup        = 180
    }
  }

  # Not mark:site, which is the mark of what the controller may end.
  tag {
    key                 = "mark:conductor"
    value               = var.site
    propagate_at_launch = true
  }

  tag {
    key                 = "Name"
    value               = local.name
    propagate_at_launch = true
  }

  # Without its rights a conductor would fail as soon as it starts; and a group without a balancer has no health of it.
  depends_on = [aws_iam_role_policy.this, aws_lb_listener_rule.path, aws_lb_listener_rule.header]
}
