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
    wheels = { bucket = "b", key = "artifacts/controller-wheels", version = "v1", file = "controller-wheels.tar", sha256 = "11", arn = "arn:aws:s3:::b/artifacts/controller-wheels" }
  }
  table      = { name = "mark-state", arn = "arn:aws:dynamodb:eu-west-1:123456789012:table/mark-state" }
  queue      = { name = "mark-notices", url = "https://sqs/mark-notices", arn = "arn:aws:sqs:eu-west-1:123456789012:mark-notices" }
  boot_files = "arn:aws:s3:::b/artifacts/*"
  keys       = { name = "/mark/mark/keys/controller", arn = "arn:aws:ssm:eu-west-1:123456789012:parameter/mark/mark/keys/controller" }
  services = {
    inception = {
      launch_template = { id = "lt-2", version = "3", release = "0123456789ab" }
      target_groups   = ["arn:aws:elasticloadbalancing:eu-west-1:123456789012:targetgroup/mark-inception/1"]
      listener_rules  = ["arn:aws:elasticloadbalancing:eu-west-1:123456789012:listener-rule/app/mark/1/2/3"]
      image_id        = "ami-1"
      function        = "mark_inception-overflow:3"
      archive         = { key = "artifacts/archive/inception", version = "v3", sha256 = "33" }
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
      "ec2:DescribeInstances", "ec2:DescribeInstanceStatus", "ec2:DescribeSpotPriceHistory", "elasticloadbalancing:DescribeRules", "elasticloadbalancing:DescribeTargetHealth",
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

run "it_launches_from_its_own_templates_only" {
  assert {
    condition = alltrue([for statement in jsondecode(aws_iam_role_policy.this.policy).Statement :
      statement.Condition.StringEquals["aws:ResourceTag/mark:site"] == "mark"
      if strcontains(jsonencode(statement.Resource), "launch-template/") || strcontains(jsonencode(statement.Resource), "targetgroup/")
    ])
    error_message = "Templates and target groups are its own by their tag."
  }
}

run "it_passes_on_the_bouncers_role_only" {
  assert {
    condition = [for statement in jsondecode(aws_iam_role_policy.this.policy).Statement :
      [flatten([statement.Resource]), statement.Condition.StringEquals["iam:PassedToService"]] if contains(flatten([statement.Action]), "iam:PassRole")
    ] == [[["arn:aws:iam::123456789012:role/mark/mark/bouncers/*"], "ec2.amazonaws.com"]]
    error_message = "PassRole is for bouncers, and to EC2."
  }
}

run "one_instance_that_gives_nothing_away" {
  assert {
    condition     = one(aws_launch_template.this.metadata_options).http_tokens == "required" && alltrue([for disk in aws_launch_template.this.block_device_mappings : one(disk.ebs).encrypted == "true"])
    error_message = "IMDSv2, encrypted disk."
  }
  assert {
    condition     = aws_autoscaling_group.this.min_size == 1 && aws_autoscaling_group.this.desired_capacity == 1 && aws_autoscaling_group.this.instance_refresh[0].preferences[0].min_healthy_percentage == 100
    error_message = "One, always."
  }
  assert {
    condition = alltrue([for text in [
      "mark controller$services ", "--site /etc/mark/site.toml", "fetch '${aws_s3_object.boot["site.toml"].key}' '${aws_s3_object.boot["site.toml"].version_id}' '${sha256(output.site_toml)}' /etc/mark/site.toml", "--host 127.0.0.1", "--live-prices", "LimitNOFILE=65536", "sha256sum --check",
    ] : strcontains(base64decode(aws_launch_template.this.user_data), text)])
    error_message = "It runs the controller, on loopback."
  }
  assert {
    condition     = aws_s3_object.boot["archives"].content == "inception artifacts/archive/inception v3 33\n" && aws_s3_object.boot["site.toml"].content == output.site_toml
    error_message = "It finds services in files."
  }
  assert {
    condition     = alltrue([for object in values(aws_s3_object.boot) : startswith(object.key, "artifacts/")])
    error_message = "They are where it may read."
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

run "it_knows_the_conductors_of_a_pipeline" {
  variables {
    pipelines = { "two.x" = { conductors = "mark-two-x-conductors", scheme = "https" } }
  }
  assert {
    condition     = endswith(output.site_toml, "\n\n[pipelines.\"two.x\"]\nconductors = \"mark-two-x-conductors\"\nscheme = \"https\"\n")
    error_message = "It asks them what became of queries."
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

run "images_of_all_platforms" {
  variables {
    former_image_ids = ["ami-1", "ami-old"]
    services = {
      inception = {
        launch_template = { id = "lt-2", version = "3", release = "0123456789ab", platforms = {
          x86_64     = { launch_template = "lt-2", version = "3" }
          x86_64-gpu = { launch_template = "lt-3", version = "1" }
        } }
        target_groups  = ["arn:aws:elasticloadbalancing:eu-west-1:123456789012:targetgroup/mark-inception/1"]
        listener_rules = ["arn:aws:elasticloadbalancing:eu-west-1:123456789012:listener-rule/app/mark/1/2/3"]
        image_id       = "ami-1"
        more_image_ids = ["ami-gpu"]
        archive        = { key = "artifacts/archive/inception", version = "v3", sha256 = "33" }
      }
    }
  }
  assert {
    condition = [for resource in one([for statement in jsondecode(aws_iam_role_policy.this.policy).Statement : statement.Resource if statement.Sid == "LaunchWith"]) :
      resource if strcontains(resource, ":image/")
    ] == [for id in ["ami-1", "ami-gpu", "ami-old"] : "arn:aws:ec2:eu-west-1::image/${id}"]
    error_message = "It may launch what the service boots from, and what it is rolled back to."
  }
  assert {
    condition     = strcontains(output.site_toml, "\nplatforms = { x86_64 = { launch_template = \"lt-2\", version = \"3\" }, x86_64-gpu = { launch_template = \"lt-3\", version = \"1\" } }\n")
    error_message = "It knows by which template each type boots."
  }
}

run "too_many_images" {
  command = plan
  variables {
    services = { for n in range(21) : "s${n}" => {
      launch_template = { id = "lt-2", version = "3", release = "0123456789ab" }
      target_groups   = ["arn:aws:elasticloadbalancing:eu-west-1:123456789012:targetgroup/mark-inception/1"]
      listener_rules  = ["arn:aws:elasticloadbalancing:eu-west-1:123456789012:listener-rule/app/mark/1/2/3"]
      image_id        = "ami-${n}"
      archive         = { key = "artifacts/archive/inception", version = "v3", sha256 = "33" }
    } }
  }
  expect_failures = [var.services]
}

run "two_hundred_services_with_long_names" {
  variables {
    subnets = { for letter in ["a", "b", "c", "d", "e", "f"] : "ap-southeast-1${letter}" => "subnet-0123456789abcdef${letter}" }
    services = { for n in range(200) : format("a-service-with-a-name-that-is-much_longer.than-what-most-take-%03d", n) => {
      launch_template = { id = "lt-0123456789abcdef0", version = "3", release = "0123456789ab" }
      target_groups   = ["arn:aws:elasticloadbalancing:eu-west-1:123456789012:targetgroup/mark-a-service-with-a-name-01234567/73e2d6bc24d8a067"]
      listener_rules  = ["arn:aws:elasticloadbalancing:eu-west-1:123456789012:listener-rule/app/mark/1/2/3"]
      image_id        = "ami-0123456789abcde${n % 20}"
      function        = "mark_a-service-with-a-name-that-01234567-overflow:3"
      archive         = { key = "artifacts/archive/a", version = "v", sha256 = sha256(tostring(n)) }
    } }
  }
  assert {
    condition     = length(aws_iam_role_policy.this.policy) < 10240
    error_message = "IAM takes 10,240 characters, whatever there is: 200 services, 20 images, six zones."
  }
  assert {
    condition     = length(base64decode(aws_launch_template.this.user_data)) < 16384
    error_message = "EC2 takes 16 KB."
  }
  assert {
    condition     = length(split("\n", trimspace(aws_s3_object.boot["archives"].content))) == 200
    error_message = "All of them are in the file."
  }
}
