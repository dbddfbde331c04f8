mock_provider "aws" {
  mock_resource "aws_iam_role" {
    defaults = { arn = "arn:aws:iam::123456789012:role/mark-controller" }
  }
  mock_resource "aws_cloudwatch_log_group" {
    defaults = { arn = "arn:aws:logs:eu-west-1:123456789012:log-group:/mark/mark/controller" }
  }
  mock_resource "aws_launch_template" {
    defaults = { id = "lt-1", latest_version = 1 }
  }
}

variables {
  site                      = "mark"
  aws                       = { partition = "aws", region = "eu-west-1", account = "123456789012" }
  subnets                   = { "eu-west-1a" = "subnet-1", "eu-west-1b" = "subnet-2" }
  bouncer_security_group_id = "sg-1"
  security_group_id         = "sg-2"
  image_id                  = "ami-2"
  artifacts = {
    wheel       = { bucket = "b", key = "artifacts/1/mark_serving-1.0-py3-none-any.whl", sha256 = "11", arn = "arn:aws:s3:::b/artifacts/1/mark_serving-1.0-py3-none-any.whl" }
    constraints = { bucket = "b", key = "artifacts/2/constraints.txt", sha256 = "22", arn = "arn:aws:s3:::b/artifacts/2/constraints.txt" }
  }
  table = { name = "mark-state", arn = "arn:aws:dynamodb:eu-west-1:123456789012:table/mark-state" }
  queue = { name = "mark-notices", url = "https://sqs/mark-notices", arn = "arn:aws:sqs:eu-west-1:123456789012:mark-notices" }
  keys  = { name = "/mark/keys", arn = "arn:aws:ssm:eu-west-1:123456789012:parameter/mark/keys" }
  services = {
    inception = {
      launch_template_id  = "lt-2"
      launch_template_arn = "arn:aws:ec2:eu-west-1:123456789012:launch-template/lt-2"
      target_group_arn    = "arn:aws:elasticloadbalancing:eu-west-1:123456789012:targetgroup/mark-inception/1"
      role_arn            = "arn:aws:iam::123456789012:role/mark-inception-bouncer"
      image_id            = "ami-1"
      function            = { name = "mark-inception-overflow", arn = "arn:aws:lambda:eu-west-1:123456789012:function:mark-inception-overflow" }
      archive             = { bucket = "b", key = "artifacts/3/inception.tar.gz", sha256 = "33", arn = "arn:aws:s3:::b/artifacts/3/inception.tar.gz" }
    }
  }
}

run "no_star_beside_a_star" {
  assert {
    condition     = !can(regex("\"[a-z0-9]*:?\\*\"", replace(aws_iam_role_policy.this.policy, "\"Resource\":\"*\"", "")))
    error_message = "No action is a star."
  }
  # What AWS lets nobody narrow, and nothing else, is allowed on everything.
  assert {
    condition = toset(flatten([for statement in jsondecode(aws_iam_role_policy.this.policy).Statement : statement.Action
      if contains(flatten([statement.Resource]), "*")])) == toset([
      "ec2:DescribeInstances", "ec2:DescribeSpotPriceHistory", "elasticloadbalancing:DescribeTargetHealth",
      "pricing:GetProducts", "cloudwatch:GetMetricData", "cloudwatch:PutMetricData", "ssm:UpdateInstanceInformation",
      "ssmmessages:CreateControlChannel", "ssmmessages:CreateDataChannel", "ssmmessages:OpenControlChannel",
      "ssmmessages:OpenDataChannel",
    ])
    error_message = "Something new is allowed on everything."
  }
}

run "it_ends_and_changes_only_its_own" {
  assert {
    condition = alltrue([for statement in jsondecode(aws_iam_role_policy.this.policy).Statement :
      statement.Condition.StringEquals["aws:ResourceTag/mark:site"] == "mark"
    if length(setintersection(flatten([statement.Action]), ["ec2:TerminateInstances", "ec2:StopInstances", "ec2:StartInstances"])) > 0])
    error_message = "Only what carries the site's name."
  }
  assert {
    condition = alltrue([for statement in jsondecode(aws_iam_role_policy.this.policy).Statement :
      statement.Condition.StringEquals["aws:RequestTag/mark:site"] == "mark"
      if contains(flatten([statement.Action]), "ec2:RunInstances") && strcontains(jsonencode(statement.Resource), "instance/*")
    ])
    error_message = "Nothing is launched without the site's name."
  }
  assert {
    condition     = alltrue([for tag in aws_autoscaling_group.this.tag : tag.key != "mark:site"])
    error_message = "The controller could end itself."
  }
}

run "it_passes_on_the_bouncers_role_only" {
  assert {
    condition = [for statement in jsondecode(aws_iam_role_policy.this.policy).Statement :
      [flatten([statement.Resource]), statement.Condition.StringEquals["iam:PassedToService"]] if contains(flatten([statement.Action]), "iam:PassRole")
    ] == [[["arn:aws:iam::123456789012:role/mark-inception-bouncer"], "ec2.amazonaws.com"]]
    error_message = "PassRole is for bouncers, and to EC2."
  }
}

run "one_instance_that_gives_nothing_away" {
  assert {
    condition     = one(aws_launch_template.this.metadata_options).http_tokens == "required" && alltrue([for disk in aws_launch_template.this.block_device_mappings : one(disk.ebs).encrypted == "true"])
    error_message = "IMDSv2, encrypted disk."
  }
  assert {
    condition     = aws_autoscaling_group.this.min_size == 1 && aws_autoscaling_group.this.max_size == 1
    error_message = "One, always."
  }
  assert {
    condition = alltrue([for text in [
      "mark controller inception/service.toml", "--site /etc/mark/site.toml", "--host 127.0.0.1", "--live-prices", "sha256sum --check",
    ] : strcontains(base64decode(aws_launch_template.this.user_data), text)])
    error_message = "It runs the controller, on loopback."
  }
  assert {
    condition     = !strcontains(output.site_toml, "gateway")
    error_message = "A load balancer counts nothing for us: a controller that asks it is blind."
  }
  assert {
    condition     = !strcontains(base64decode(aws_launch_template.this.user_data), "--dry-run")
    error_message = "It acts."
  }
}

run "dry_run_is_passed_on" {
  variables {
    dry_run = true
  }
  assert {
    condition     = strcontains(base64decode(aws_launch_template.this.user_data), "--dry-run")
    error_message = "It buys nothing."
  }
}
