mock_provider "aws" {
  mock_resource "aws_iam_role" {
    defaults = { arn = "arn:aws:iam::123456789012:role/mark-inception-bouncer" }
  }
  mock_resource "aws_cloudwatch_log_group" {
    defaults = { arn = "arn:aws:logs:eu-west-1:123456789012:log-group:/mark/mark/inception" }
  }
  mock_resource "aws_lb_target_group" {
    defaults = { arn = "arn:aws:elasticloadbalancing:eu-west-1:123456789012:targetgroup/mark-inception/1" }
  }
}

variables {
  site              = "mark"
  service           = "inception"
  aws               = { partition = "aws", region = "eu-west-1", account = "123456789012" }
  vpc_id            = "vpc-1"
  security_group_id = "sg-1"
  listener_arn      = "arn:aws:elasticloadbalancing:eu-west-1:123456789012:listener/app/mark/1/2"
  priority          = 1
  image_id          = "ami-1"
  slo_s             = 0.6
  artifacts = {
    wheels  = { bucket = "b", key = "artifacts/wheels/inception", version = "v1", sha256 = "11", arn = "arn:aws:s3:::b/artifacts/wheels/inception" }
    archive = { bucket = "b", key = "artifacts/archive/inception", version = "v3", sha256 = "33", arn = "arn:aws:s3:::b/artifacts/archive/inception" }
  }
  keys     = { name = "/mark/keys", arn = "arn:aws:ssm:eu-west-1:123456789012:parameter/mark/keys" }
  function = { name = "mark-inception-overflow", arn = "arn:aws:lambda:eu-west-1:123456789012:function:mark-inception-overflow" }
}

run "an_instance_gives_nothing_away" {
  assert {
    condition     = one(aws_launch_template.this.metadata_options).http_tokens == "required" && one(aws_launch_template.this.metadata_options).http_put_response_hop_limit == 1
    error_message = "IMDSv2 only, and only for the machine itself."
  }
  assert {
    condition     = alltrue([for disk in aws_launch_template.this.block_device_mappings : one(disk.ebs).encrypted == "true" && one(disk.ebs).delete_on_termination == "true"])
    error_message = "Disks are encrypted, and go with their instance."
  }
  assert {
    condition     = toset(aws_launch_template.this.vpc_security_group_ids) == toset([var.security_group_id]) && length(aws_launch_template.this.network_interfaces) == 0
    error_message = "In the fleet's security group, without a public address."
  }
  assert {
    condition     = aws_launch_template.this.key_name == null || aws_launch_template.this.key_name == ""
    error_message = "Nobody logs in."
  }
}

run "a_role_with_four_rights" {
  assert {
    condition = toset(flatten([for statement in jsondecode(aws_iam_role_policy.this.policy).Statement : statement.Action])) == toset([
      "s3:GetObjectVersion", "ssm:GetParameter", "logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents", "lambda:InvokeFunction",
    ])
    error_message = "Boot files, keys, its log, its function."
  }
  assert {
    condition = alltrue(flatten([for statement in jsondecode(aws_iam_role_policy.this.policy).Statement : [
      for resource in flatten([statement.Resource]) : resource != "*"
    ]]))
    error_message = "Each on named resources."
  }
}

run "it_boots_a_bouncer" {
  assert {
    condition = alltrue([for text in [
      "mark serve service.toml", "--instance $instance_type", "--function mark-inception-overflow", "--watch-interruptions",
      "--tls-terminated-by-balancer", "KillMode=mixed", "sha256sum --check", "fetch 'artifacts/archive/inception' 'v3' '33'",
      "fetch 'artifacts/wheels/inception' 'v1'", "--no-index", "--require-hashes", "TMPDIR=/var/tmp",
    ] : strcontains(base64decode(aws_launch_template.this.user_data), text)])
    error_message = "Checked files, a bouncer of the right type, which drains when it is stopped."
  }
  assert {
    condition     = length(base64decode(aws_launch_template.this.user_data)) < 16384
    error_message = "EC2 takes 16 KiB."
  }
}

run "without_a_function_there_is_no_right_to_it" {
  variables {
    function = null
  }
  assert {
    condition     = !strcontains(aws_iam_role_policy.this.policy, "lambda:") && !strcontains(base64decode(aws_launch_template.this.user_data), "--function")
    error_message = "No function, no right."
  }
}

run "requests_find_ready_bouncers" {
  assert {
    condition     = one(aws_lb_target_group.this.health_check).path == "/v2/health/ready" && aws_lb_target_group.this.load_balancing_algorithm_type == "least_outstanding_requests"
    error_message = "Readiness decides, and the least busy one gets the request."
  }
  assert {
    condition     = length(aws_lb_target_group.this.name) <= 32
    error_message = "ELB takes 32 characters."
  }
  assert {
    condition     = one([for c in aws_lb_listener_rule.path.condition : one(c.path_pattern).values]) == toset(["/v2/models/inception", "/v2/models/inception/*"])
    error_message = "The path names the service."
  }
}

run "two_rules_of_its_own" {
  variables {
    priority = 24999
  }
  assert {
    condition     = [aws_lb_listener_rule.path.priority, aws_lb_listener_rule.header.priority] == [49998, 49999]
    error_message = "The last place is before the default service's, 50,000."
  }
  assert {
    condition     = one([for c in aws_lb_listener_rule.header.condition : one(c.http_header)]).values == toset(["inception"])
    error_message = "The header names the service."
  }
}

run "a_priority_of_none" {
  command = plan
  variables {
    priority = 25000
  }
  expect_failures = [var.priority]
}

run "the_site_owns_what_it_launches_from" {
  assert {
    condition = alltrue([for tags in [aws_launch_template.this.tags, aws_lb_target_group.this.tags] :
      tags["mark:site"] == "mark"
    ])
    error_message = "The controller's rights go by this tag."
  }
  assert {
    condition     = aws_iam_role.this.path == "/mark/mark/bouncers/"
    error_message = "The controller passes on what is in this folder."
  }
}

run "a_service_called_controller" {
  variables {
    service = "controller"
  }
  assert {
    condition     = aws_launch_template.this.name != "mark-controller" && aws_cloudwatch_log_group.this.name != "/mark/mark/controller" && aws_iam_role.this.name != "mark-controller"
    error_message = "These are the controller's own."
  }
}

run "long_names_fit" {
  variables {
    service = "a-service-with-a-name-that-is-much_longer.than-what-elb-takes"
  }
  assert {
    condition     = length(aws_lb_target_group.this.name) <= 32 && can(regex("^[A-Za-z0-9-]+$", aws_lb_target_group.this.name))
    error_message = "ELB takes 32 letters, digits and dashes."
  }
}
