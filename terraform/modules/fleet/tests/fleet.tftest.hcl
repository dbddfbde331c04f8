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
  keys     = { name = "/mark/mark/keys/bouncers", arn = "arn:aws:ssm:eu-west-1:123456789012:parameter/mark/mark/keys/bouncers" }
  function = { name = "mark_inception-overflow", arn = "arn:aws:lambda:eu-west-1:123456789012:function:mark_inception-overflow", qualified = "mark_inception-overflow:3", alias = "balancer" }
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

run "with_one_platform_a_release_has_its_old_name" {
  variables {
    platform = "x86_64"
  }
  assert {
    condition = output.launch_template.release == substr(sha256(jsonencode({
      artifacts = { wheels = "11", archive = "33" }
      boot      = filesha256("${path.module}/bouncer.sh.tftpl")
      boot_s    = 540
      disk_gb   = 8
      function  = "mark_inception-overflow:3"
      image_id  = "ami-1"
      slo_s     = 0.6
      scheme    = "https"
      grpc_port = ""
    })), 0, 12)
    error_message = "A site that is deployed again replaces no instance."
  }
  assert {
    condition = output.launch_template.platforms == {
      x86_64 = { launch_template = aws_launch_template.this.id, version = tostring(aws_launch_template.this.latest_version) }
    }
    error_message = "The controller is told which types the template is for."
  }
}

run "each_platform_has_its_image_disk_and_packages" {
  variables {
    platform = "x86_64"
    more_platforms = {
      x86_64-gpu = {
        image_id       = "ami-gpu"
        disk_gb        = 91
        boot_timeout_s = 720
        wheels         = { bucket = "b", key = "artifacts/wheels/inception/x86_64-gpu", version = "v2", sha256 = "22", arn = "arn:aws:s3:::b/artifacts/wheels/inception/x86_64-gpu" }
      }
      arm64 = {
        image_id = "ami-arm"
        wheels   = { bucket = "b", key = "artifacts/wheels/inception/arm64", version = "v4", sha256 = "44", arn = "arn:aws:s3:::b/artifacts/wheels/inception/arm64" }
      }
    }
  }
  assert {
    condition = { for name, template in merge({ first = aws_launch_template.this }, aws_launch_template.more) :
      name => [template.image_id, one(one(template.block_device_mappings).ebs).volume_size]
    } == { first = ["ami-1", 8], x86_64-gpu = ["ami-gpu", 91], arm64 = ["ami-arm", 8] }
    error_message = "What is large on GPUs is small elsewhere: disks are paid by the hour."
  }
  assert {
    condition = alltrue([for name, text in {
      x86_64-gpu = ["fetch 'artifacts/wheels/inception/x86_64-gpu' 'v2'", "wheels='22'", "most_s=660"]
      arm64      = ["fetch 'artifacts/wheels/inception/arm64' 'v4'", "wheels='44'", "most_s=540"]
      } : alltrue([for one in concat(text, ["fetch 'artifacts/archive/inception' 'v3' '33'"]) :
        strcontains(base64decode(aws_launch_template.more[name].user_data), one)
    ])])
    error_message = "Its own packages, and the service's folder."
  }
  assert {
    condition     = strcontains(base64decode(aws_launch_template.this.user_data), "fetch 'artifacts/wheels/inception' 'v1'") && length(distinct(concat([aws_launch_template.this.name], values(aws_launch_template.more)[*].name))) == 3
    error_message = "The first is as it is without the others."
  }
  assert {
    condition = alltrue([for template in values(aws_launch_template.more) :
      template.tags["mark:site"] == "mark" && one(template.metadata_options).http_tokens == "required" && template.instance_initiated_shutdown_behavior == "terminate" &&
      alltrue([for disk in template.block_device_mappings : disk.device_name == "/dev/xvda" && one(disk.ebs).encrypted == "true" && one(disk.ebs).delete_on_termination == "true"])
    ])
    error_message = "They give nothing away, either, and the controller may launch from them."
  }
  assert {
    condition     = keys(output.launch_template.platforms) == ["arm64", "x86_64", "x86_64-gpu"] && output.launch_template.release != run.with_one_platform_a_release_has_its_old_name.launch_template.release
    error_message = "All of them are one release."
  }
  assert {
    condition = toset(one([for statement in jsondecode(aws_iam_role_policy.this.policy).Statement : statement.Resource if statement.Sid == "BootFiles"])) == toset([
      "arn:aws:s3:::b/artifacts/wheels/inception", "arn:aws:s3:::b/artifacts/archive/inception",
      "arn:aws:s3:::b/artifacts/wheels/inception/x86_64-gpu", "arn:aws:s3:::b/artifacts/wheels/inception/arm64",
    ])
    error_message = "Each instance may fetch what it boots from."
  }
}

run "a_platform_has_one_template" {
  command = plan
  variables {
    platform = "arm64"
    more_platforms = {
      arm64 = {
        image_id = "ami-arm"
        wheels   = { bucket = "b", key = "k", version = "v4", sha256 = "44", arn = "arn:aws:s3:::b/k" }
      }
    }
  }
  expect_failures = [var.more_platforms]
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
      "mark serve service.toml", "--instance $instance_type", "--function mark_inception-overflow:3", "--watch-interruptions",
      "--tls-terminated-by-balancer", "KillMode=mixed", "sha256sum --check", "fetch 'artifacts/archive/inception' 'v3' '33'",
      "most_s=540", "fetch 'artifacts/wheels/inception' 'v1'", "--no-index", "--require-hashes", "TMPDIR=/var/tmp",
    ] : strcontains(base64decode(aws_launch_template.this.user_data), text)])
    error_message = "Checked files, a bouncer of the right type, which drains when it is stopped."
  }
  assert {
    condition     = length(base64decode(aws_launch_template.this.user_data)) < 16384
    error_message = "EC2 takes 16 KiB."
  }
}

run "stages_together_are_all_served" {
  variables {
    function = null
    together = ["first", "second"]
  }
  assert {
    condition     = strcontains(base64decode(aws_launch_template.this.user_data), " --stage first --stage second\n")
    error_message = "Instances serve each of them."
  }
}

run "a_stage_names_its_function" {
  variables {
    stage = "second"
  }
  assert {
    condition     = strcontains(base64decode(aws_launch_template.this.user_data), " --stage-function second=mark_inception-overflow:3 --stage second\n") && !strcontains(base64decode(aws_launch_template.this.user_data), "--function")
    error_message = "A pipeline's file has several models."
  }
  assert {
    condition = [for statement in jsondecode(aws_iam_role_policy.this.policy).Statement : statement.Resource if statement.Action == "lambda:InvokeFunction"] == [
      "${var.function.arn}:*"
    ]
    error_message = "Its own function, and no other."
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

run "a_group_for_each_class" {
  variables {
    target_groups = 3
  }
  assert {
    condition     = length(distinct([for group in local.groups : group.name])) == 3 && startswith(aws_lb_target_group.this.name, "mark-inception-") && alltrue([for group in local.groups : length(group.name) <= 32])
    error_message = "Each has a name of its own, and the first the one that it always had."
  }
  assert {
    condition     = [for share in output.forward : share.weight] == [1, 0, 0, 0]
    error_message = "All is sent to the first, until the controller says otherwise."
  }
}

run "more_groups_than_a_rule_takes" {
  command = plan
  variables {
    target_groups = 5
  }
  expect_failures = [var.target_groups]
}

run "the_balancer_may_call_the_function" {
  assert {
    condition     = aws_lambda_permission.balancer[0].principal == "elasticloadbalancing.amazonaws.com" && aws_lambda_permission.balancer[0].qualifier == "balancer" && aws_lambda_permission.balancer[0].source_arn == aws_lb_target_group.function.arn
    error_message = "For the service's own group, and no other."
  }
  assert {
    condition     = aws_lb_target_group_attachment.function[0].target_id == "${var.function.arn}:balancer" && output.function_group == aws_lb_target_group.function.arn
    error_message = "The alias is the target."
  }
}

run "without_a_function_its_group_is_empty" {
  variables {
    function = null
  }
  assert {
    condition     = length(aws_lb_target_group_attachment.function) == 0 && output.function_group == null
    error_message = "The rules name it still, as a group in use cannot be deleted."
  }
}

run "by_grpc_too" {
  variables {
    target_groups = 2
    grpc          = { port = 50051, listener_arn = "arn:aws:elasticloadbalancing:eu-west-1:123456789012:listener/app/mark/1/3" }
  }
  assert {
    condition     = length(aws_lb_target_group.grpc) == 2 && alltrue([for group in aws_lb_target_group.grpc : group.protocol_version == "GRPC" && group.port == 50051 && length(group.name) <= 32])
    error_message = "As many groups as by HTTP."
  }
  assert {
    condition     = aws_lb_listener_rule.grpc[0].listener_arn == var.grpc.listener_arn && length(aws_lb_listener_rule.grpc[0].condition) == 2 && output.grpc.rules == [aws_lb_listener_rule.grpc[0].arn]
    error_message = "Path and header name gRPC and the service."
  }
  assert {
    condition     = strcontains(base64decode(aws_launch_template.this.user_data), "--grpc-port 50051")
    error_message = "Bouncers listen there."
  }
}

run "everything_speaks_https" {
  variables {
    target_groups = 2
    grpc          = { port = 50051, listener_arn = "arn:aws:elasticloadbalancing:eu-west-1:123456789012:listener/app/mark/1/3" }
  }
  assert {
    condition = alltrue([for group in concat(local.groups, aws_lb_target_group.grpc) :
      group.protocol == "HTTPS" && one(group.health_check).protocol == "HTTPS"
    ]) && output.scheme == "https"
    error_message = "Requests, calls by gRPC and health checks."
  }
  assert {
    condition = alltrue([for text in [
      "--tls-cert /run/mark/tls.crt --tls-key /run/mark/tls.key", "-keyout /run/mark/tls.key", "RuntimeDirectoryMode=0700",
    ] : strcontains(base64decode(aws_launch_template.this.user_data), text)])
    error_message = "With a key in memory, which the bouncer's user makes."
  }
}

run "a_service_in_clear" {
  state_key = "in_clear"
  variables {
    bouncer_tls = false
  }
  assert {
    condition     = aws_lb_target_group.this.protocol == "HTTP" && one(aws_lb_target_group.this.health_check).protocol == "HTTP" && output.scheme == "http"
    error_message = "As it is asked for."
  }
  assert {
    condition     = !strcontains(base64decode(aws_launch_template.this.user_data), "ExecStartPre=/usr/bin/openssl")
    error_message = "No certificate is made."
  }
}

run "that_is_there_stays_so" {
  state_key = "in_clear"
  variables {
    target_groups = 2
    grpc          = { port = 50051, listener_arn = "arn:aws:elasticloadbalancing:eu-west-1:123456789012:listener/app/mark/1/3" }
  }
  assert {
    condition = alltrue([for group in concat(local.groups, aws_lb_target_group.grpc) :
      group.protocol == "HTTP" && one(group.health_check).protocol == "HTTP"
    ]) && output.scheme == "http"
    error_message = "Its instances speak HTTP, and a group's protocol cannot change."
  }
  assert {
    condition     = !strcontains(base64decode(aws_launch_template.this.user_data), "ExecStartPre=/usr/bin/openssl")
    error_message = "Newer instances go into the same groups."
  }
}

run "without_grpc_nothing_listens" {
  assert {
    condition     = !strcontains(base64decode(aws_launch_template.this.user_data), "--grpc-port") && length(aws_lb_target_group.grpc) == 0 && output.grpc.rules == []
    error_message = "Only what is asked for."
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
    condition = alltrue([for tags in [aws_launch_template.this.tags, aws_lb_target_group.this.tags, aws_lb_listener_rule.path.tags, aws_lb_listener_rule.header.tags] :
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

run "instances_that_do_not_learn_have_no_inner_key" {
  assert {
    condition = (
      !strcontains(base64decode(aws_launch_template.this.user_data), "keys/conductors") &&
      !strcontains(aws_iam_role_policy.this.policy, "learned/")
    )
    error_message = "Neither the key nor the rights."
  }
}

run "instances_that_learn_have_the_inner_key_and_their_part_of_the_store" {
  variables {
    learned = { bucket = "b", key = { name = "/mark/mark/keys/conductors", arn = "arn:aws:ssm:eu-west-1:123456789012:parameter/mark/mark/keys/conductors" } }
  }
  assert {
    condition = (
      strcontains(base64decode(aws_launch_template.this.user_data), "inner_key='/mark/mark/keys/conductors'") &&
      strcontains(base64decode(aws_launch_template.this.user_data), "--feedback-store s3://b'")
    )
    error_message = "Told where its key and its store are."
  }
  assert {
    condition = { for statement in jsondecode(aws_iam_role_policy.this.policy).Statement : statement.Sid => [statement.Action, statement.Resource] if strcontains(statement.Sid, "Learned") } == {
      Learned     = [["s3:GetObject", "s3:PutObject"], "arn:aws:s3:::b/learned/inception/*"]
      ListLearned = ["s3:ListBucket", "arn:aws:s3:::b"]
    }
    error_message = "It reads and writes its own part, and deletes nothing."
  }
  assert {
    condition     = contains(flatten([for statement in jsondecode(aws_iam_role_policy.this.policy).Statement : statement.Resource if statement.Sid == "Keys"]), var.learned.key.arn)
    error_message = "It may read the inner key."
  }
}
