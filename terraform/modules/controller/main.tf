# The controller: one small instance, replaced when it fails. It keeps nothing; its replacement goes on from the store.

locals {
  name   = "${var.site}-controller"
  arn    = "arn:${var.aws.partition}"
  where  = "${var.aws.region}:${var.aws.account}"
  ec2    = "${local.arn}:ec2:${local.where}"
  bucket = values(var.artifacts)[0].bucket

  # The format of mark_infra.aws.site. JSON's strings are TOML's.
  site_toml = templatefile("${path.module}/site.toml.tftpl", {
    site = {
      name         = var.site
      region       = var.aws.region
      store        = "dynamodb:${var.table.name}"
      queue_url    = var.queue.url
      bouncer_port = var.bouncer_port
      key_file     = "/var/lib/mark/keys"
    }
    services = { for name, service in var.services : name => {
      launch_template = service.launch_template
      subnets         = var.subnets
      target_groups   = service.target_groups
      listener_rules  = service.listener_rules
      function_group  = service.function_group
      grpc            = service.grpc
      function        = service.function
      function_alias  = service.function_alias
      scheme          = service.scheme
    } }
    pipelines = var.pipelines
  })

  # What grows with the number of services, which user data (16 KB) and policies (10,240 characters) must not: files.
  boot_files = { for name, content in {
    "site.toml" = local.site_toml
    archives    = join("", distinct([for name, service in var.services : "${coalesce(service.folder, name)} ${service.archive.key} ${service.archive.version} ${service.archive.sha256}\n"]))
    } : name => {
    content = content
    sha256  = sha256(content)
  } }

  user_data = templatefile("${path.module}/controller.sh.tftpl", {
    region = var.aws.region
    bucket = local.bucket
    artifacts = merge(var.artifacts, { for name, object in aws_s3_object.boot : name => {
      key     = object.key
      version = object.version_id
      sha256  = local.boot_files[name].sha256
    } })
    keys      = var.keys.name
    dry_run   = var.dry_run
    log_group = aws_cloudwatch_log_group.this.name
  })
}

resource "aws_cloudwatch_log_group" "this" {
  name              = "/mark/${var.site}/controller"
  retention_in_days = var.log_days
}

resource "aws_iam_role" "this" {
  name = local.name
  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Principal = { Service = "ec2.amazonaws.com" }
      Action    = "sts:AssumeRole"
    }]
  })
}

# Each statement names the call that needs it. Where Resource is "*", AWS knows no narrower one for these actions. None
# lists services, so that it does not grow with them: what carries the tag mark:site, or lies in the site's own folder,
# is the site's. A name alone does not tell, as mark- begins the names of site mark-2, too.
resource "aws_iam_role_policy" "this" {
  name = "controller"
  role = aws_iam_role.this.id
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = concat(
      [
        {
          # Inventory: what there is, once a second. ScheduledEvents: what EC2 will stop or restart, once a minute.
          # Balancer: whether a target is healthy, and what rules say. LivePrices: what it costs.
          # History (--history cloudwatch:...): what CloudWatch counted.
          Sid    = "Look"
          Effect = "Allow"
          Action = [
            "ec2:DescribeInstances",
            "ec2:DescribeInstanceStatus",
            "ec2:DescribeSpotPriceHistory",
            "elasticloadbalancing:DescribeRules",
            "elasticloadbalancing:DescribeTargetHealth",
            "pricing:GetProducts",
            "cloudwatch:GetMetricData",
          ]
          Resource = "*"
        },
        {
          # Ec2Cloud.launch: from our launch templates,
          Sid       = "LaunchFrom"
          Effect    = "Allow"
          Action    = ["ec2:CreateFleet", "ec2:RunInstances"]
          Resource  = "${local.ec2}:launch-template/*"
          Condition = { StringEquals = { "aws:ResourceTag/mark:site" = var.site } }
        },
        {
          # with our images, into our subnets
          Sid    = "LaunchWith"
          Effect = "Allow"
          Action = ["ec2:CreateFleet", "ec2:RunInstances"]
          Resource = concat(
            [for id in distinct(concat(flatten([for service in var.services : [service.image_id, service.more_image_ids]]), var.former_image_ids)) : "${local.arn}:ec2:${var.aws.region}::image/${id}"],
            [for id in values(var.subnets) : "${local.ec2}:subnet/${id}"],
          )
        },
        {
          # and security group, which are no resources of ec2:CreateFleet (Service Authorization Reference).
          Sid      = "LaunchInto"
          Effect   = "Allow"
          Action   = "ec2:RunInstances"
          Resource = ["${local.ec2}:security-group/${var.bouncer_security_group_id}", "${local.ec2}:network-interface/*"]
        },
        {
          # With images that mark deploy --bake made, of which each service has its own.
          Sid       = "LaunchBaked"
          Effect    = "Allow"
          Action    = ["ec2:CreateFleet", "ec2:RunInstances"]
          Resource  = "${local.arn}:ec2:${var.aws.region}::image/*"
          Condition = { StringEquals = { "aws:ResourceTag/mark:site" = var.site } }
        },
        {
          # The same: nothing is launched that does not carry the site's name.
          Sid       = "LaunchTagged"
          Effect    = "Allow"
          Action    = "ec2:RunInstances"
          Resource  = [for kind in ["instance", "volume"] : "${local.ec2}:${kind}/*"]
          Condition = { StringEquals = { "aws:RequestTag/mark:site" = var.site } }
        },
        {
          # A fleet by itself is nothing: each of its launches is checked as ec2:RunInstances, too.
          Sid      = "Fleet"
          Effect   = "Allow"
          Action   = "ec2:CreateFleet"
          Resource = [for kind in ["fleet", "instance", "volume"] : "${local.ec2}:${kind}/*"]
        },
        {
          # Tags that come with a launch.
          Sid      = "TagAtLaunch"
          Effect   = "Allow"
          Action   = "ec2:CreateTags"
          Resource = [for kind in ["fleet", "instance", "volume"] : "${local.ec2}:${kind}/*"]
          Condition = { StringEquals = {
            "ec2:CreateAction"         = ["CreateFleet", "RunInstances"]
            "aws:RequestTag/mark:site" = var.site
          } }
        },
        {
          # Ec2Cloud: drain (the tag mark:draining), resume and stop of standbys, terminate. The controller's own
          # instance does not carry the tag, so that it cannot end itself.
          Sid       = "OwnInstances"
          Effect    = "Allow"
          Action    = ["ec2:CreateTags", "ec2:StartInstances", "ec2:StopInstances", "ec2:TerminateInstances"]
          Resource  = "${local.ec2}:instance/*"
          Condition = { StringEquals = { "aws:ResourceTag/mark:site" = var.site } }
        },
        {
          # A launch gives the instance its role: the bouncers', to EC2, and no other.
          Sid       = "PassBouncerRoles"
          Effect    = "Allow"
          Action    = "iam:PassRole"
          Resource  = "${local.arn}:iam::${var.aws.account}:role/mark/${var.site}/bouncers/*"
          Condition = { StringEquals = { "iam:PassedToService" = "ec2.amazonaws.com" } }
        },
        {
          # The first spot instance of an account creates this role of AWS's own. (An instant fleet needs none.)
          Sid       = "ServiceLinkedRoles"
          Effect    = "Allow"
          Action    = "iam:CreateServiceLinkedRole"
          Resource  = "${local.arn}:iam::${var.aws.account}:role/aws-service-role/spot.amazonaws.com/AWSServiceRoleForEC2Spot"
          Condition = { StringEquals = { "iam:AWSServiceName" = "spot.amazonaws.com" } }
        },
        {
          # Balancer: instances in and out.
          Sid       = "Targets"
          Effect    = "Allow"
          Action    = ["elasticloadbalancing:RegisterTargets", "elasticloadbalancing:DeregisterTargets"]
          Resource  = "${local.arn}:elasticloadbalancing:${local.where}:targetgroup/*"
          Condition = { StringEquals = { "aws:ResourceTag/mark:site" = var.site } }
        },
        {
          # Balancer: how much each group gets.
          Sid       = "Shares"
          Effect    = "Allow"
          Action    = "elasticloadbalancing:ModifyRule"
          Resource  = "${local.arn}:elasticloadbalancing:${local.where}:listener-rule/app/*"
          Condition = { StringEquals = { "aws:ResourceTag/mark:site" = var.site } }
        },
        {
          # Notices: EventBridge's events, read and deleted.
          Sid      = "Notices"
          Effect   = "Allow"
          Action   = ["sqs:ReceiveMessage", "sqs:DeleteMessage"]
          Resource = var.queue.arn
        },
        {
          # Store and lease; the check is the lease's number, within each transaction.
          Sid    = "State"
          Effect = "Allow"
          Action = [
            "dynamodb:ConditionCheckItem",
            "dynamodb:DeleteItem",
            "dynamodb:GetItem",
            "dynamodb:PutItem",
            "dynamodb:Query",
            "dynamodb:UpdateItem",
          ]
          Resource = var.table.arn
        },
        {
          # Metrics of the controller.
          Sid       = "OwnMetrics"
          Effect    = "Allow"
          Action    = "cloudwatch:PutMetricData"
          Resource  = "*"
          Condition = { StringEquals = { "cloudwatch:namespace" = "mark" } }
        },
        {
          # aws s3api get-object at boot: packages, site file, the services' folders; by their versions. The bucket is the site's own.
          Sid      = "BootFiles"
          Effect   = "Allow"
          Action   = "s3:GetObjectVersion"
          Resource = var.boot_files
        },
        {
          # aws ssm get-parameter at boot, KeyParameter later.
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
        {
          # Session Manager: the way to the controller's page, for people with the right to use it. No port is open.
          Sid    = "SessionManager"
          Effect = "Allow"
          Action = [
            "ssm:UpdateInstanceInformation",
            "ssmmessages:CreateControlChannel",
            "ssmmessages:CreateDataChannel",
            "ssmmessages:OpenControlChannel",
            "ssmmessages:OpenDataChannel",
          ]
          Resource = "*"
        },
      ],
      alltrue([for service in var.services : service.function == null]) ? [] : [{
        # Warming: invocations that only wake an environment.
        Sid      = "Warm"
        Effect   = "Allow"
        Action   = "lambda:InvokeFunction"
        Resource = "${local.arn}:lambda:${local.where}:function:${var.site}_*-overflow:*"
        }, {
        # What the load balancer calls while no instance is ready: the version of the release that serves.
        Sid      = "Switch"
        Effect   = "Allow"
        Action   = "lambda:UpdateAlias"
        Resource = "${local.arn}:lambda:${local.where}:function:${var.site}_*-overflow"
      }]
    )
  })
}

resource "aws_iam_instance_profile" "this" {
  name = local.name
  role = aws_iam_role.this.name
}

# As all that instances boot from, by version: a template names one, and old ones stay for a while.
resource "aws_s3_object" "boot" {
  for_each = local.boot_files
  bucket   = local.bucket
  key      = "artifacts/controller/${each.key}"
  content  = each.value.content
}

resource "aws_launch_template" "this" {
  name                   = local.name
  description            = "The controller"
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

resource "aws_autoscaling_group" "this" {
  name                = local.name
  min_size            = 1
  desired_capacity    = 1
  max_size            = 2
  vpc_zone_identifier = values(var.subnets)
  health_check_type   = "EC2"
  # Nothing waits for it: it is there when the first heartbeat is.
  wait_for_capacity_timeout = "0"
  force_delete              = true

  launch_template {
    id      = aws_launch_template.this.id
    version = aws_launch_template.this.latest_version
  }

  # A new version of anything replaces the controller: the new one first. It stands by until the old one gives up the
  # lease at its end, so that somebody decides all the time.
  instance_refresh {
    strategy = "Rolling"
    preferences {
      min_healthy_percentage = 100
      max_healthy_percentage = 200
      # Until it stands by: it boots, and installs what it needs.
      instance_warmup = 180
    }
  }

  # Not mark:site, which is the mark of what the controller itself may end.
  tag {
    key                 = "mark:controller"
    value               = var.site
    propagate_at_launch = true
  }

  tag {
    key                 = "Name"
    value               = local.name
    propagate_at_launch = true
  }

  # Without its rights it would fail as soon as it starts. That there is a way out of its subnets, var.subnets waits for.
  depends_on = [aws_iam_role_policy.this]
}
