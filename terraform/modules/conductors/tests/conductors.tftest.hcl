mock_provider "aws" {
  mock_resource "aws_iam_role" {
    defaults = { arn = "arn:aws:iam::123456789012:role/mark/mark/conductors/mark-two-conductors" }
  }
  mock_resource "aws_cloudwatch_log_group" {
    defaults = { arn = "arn:aws:logs:eu-west-1:123456789012:log-group:/mark/mark/pipelines/two" }
  }
  mock_resource "aws_lb_target_group" {
    defaults = { arn = "arn:aws:elasticloadbalancing:eu-west-1:123456789012:targetgroup/mark-two-c-01234567/1" }
  }
  mock_resource "aws_lb_listener_rule" {
    defaults = { arn = "arn:aws:elasticloadbalancing:eu-west-1:123456789012:listener-rule/app/mark/1/2/3" }
  }
  mock_resource "aws_launch_template" {
    defaults = { id = "lt-1", latest_version = 1 }
  }
}

variables {
  site              = "mark"
  aws               = { partition = "aws", region = "eu-west-1", account = "123456789012" }
  pipeline          = "two"
  vpc_id            = "vpc-1"
  subnets           = { "eu-west-1a" = "subnet-1", "eu-west-1b" = "subnet-2" }
  security_group_id = "sg-1"
  listener_arn      = "arn:aws:elasticloadbalancing:eu-west-1:123456789012:listener/app/mark/1/2"
  priority          = 7
  image_id          = "ami-1"
  slo_s             = 0.6
  artifacts = {
    wheels  = { bucket = "b", key = "artifacts/wheels/two", version = "v1", sha256 = "11", arn = "arn:aws:s3:::b/artifacts/wheels/two" }
    archive = { bucket = "b", key = "artifacts/archive/two", version = "v2", sha256 = "22", arn = "arn:aws:s3:::b/artifacts/archive/two" }
  }
  keys        = { name = "/mark/mark/keys/bouncers", arn = "arn:aws:ssm:eu-west-1:123456789012:parameter/mark/mark/keys/bouncers" }
  stages_keys = { name = "/mark/mark/keys/conductors", arn = "arn:aws:ssm:eu-west-1:123456789012:parameter/mark/mark/keys/conductors" }
  stages      = { first = "http://internal-mark-stages-1.eu-west-1.elb.amazonaws.com:80", second = "http://internal-mark-stages-1.eu-west-1.elb.amazonaws.com:80" }
}

run "two_stay_while_new_ones_come" {
  assert {
    condition     = aws_autoscaling_group.this.min_size == 2 && aws_autoscaling_group.this.max_size == 4 && length(aws_autoscaling_group.this.vpc_zone_identifier) == 2
    error_message = "Two, in two zones; as many more while a release comes."
  }
  assert {
    condition     = one(one(aws_autoscaling_group.this.instance_refresh).preferences).min_healthy_percentage == 100
    error_message = "New ones first."
  }
  assert {
    condition     = aws_autoscaling_group.this.health_check_type == "ELB" && tolist(aws_autoscaling_group.this.target_group_arns) == tolist([aws_lb_target_group.this.arn])
    error_message = "The balancer says which answer."
  }
  # Were it readiness, a stage without an instance would have every conductor replaced again and again.
  assert {
    condition     = one(aws_lb_target_group.this.health_check).path == "/v2/health/live"
    error_message = "Whether a conductor answers."
  }
  assert {
    condition     = alltrue([for tag in aws_autoscaling_group.this.tag : tag.key != "mark:site"])
    error_message = "The controller could end it."
  }
}

run "it_may_do_what_a_conductor_does_and_nothing_else" {
  assert {
    condition = toset(flatten([for statement in jsondecode(aws_iam_role_policy.this.policy).Statement : statement.Action])) == toset([
      "s3:GetObjectVersion", "ssm:GetParameter", "logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents",
    ])
    error_message = "Files at boot, two parameters, its own log."
  }
  assert {
    condition     = alltrue([for statement in jsondecode(aws_iam_role_policy.this.policy).Statement : !contains(flatten([statement.Resource]), "*")])
    error_message = "Nothing is allowed on everything."
  }
  assert {
    condition     = aws_iam_role.this.path == "/mark/mark/conductors/"
    error_message = "Among the bouncers' roles the controller could pass it on."
  }
}

run "it_boots_from_user_data" {
  assert {
    condition     = length(base64decode(aws_launch_template.this.user_data)) < 16384
    error_message = "User data has 16 KB."
  }
  assert {
    condition     = strcontains(base64decode(aws_launch_template.this.user_data), "--stage-at first=http://internal-mark-stages-1.eu-west-1.elb.amazonaws.com:80 --stage-at second=http")
    error_message = "It knows where its stages are."
  }
  assert {
    condition     = aws_launch_template.this.metadata_options[0].http_tokens == "required" && aws_launch_template.this.block_device_mappings[0].ebs[0].encrypted == "true"
    error_message = "Metadata by tokens, and an encrypted disk."
  }
}

run "it_answers_by_path_and_header" {
  assert {
    condition     = aws_lb_listener_rule.path.priority == 14 && aws_lb_listener_rule.header.priority == 15
    error_message = "As a service's rules."
  }
  assert {
    condition     = length(aws_lb_target_group.this.name) <= 32 && aws_lb_target_group.this.protocol == "HTTPS"
    error_message = "By TLS, under a name that ELB takes."
  }
}

run "the_longest_names_fit" {
  variables {
    site     = "a-site-of-20-letters"
    pipeline = "a_pipeline.with-a-name-of-63-characters-as-the-longest-of-them-1"
    stages   = { for n in range(62) : "stage_of_a_long_name_${n}" => "http://internal-a-site-of-20-letters-stages-1234567890.ap-southeast-1.elb.amazonaws.com:80" }
  }
  assert {
    condition     = length(aws_iam_role.this.name) <= 64 && length(aws_lb_target_group.this.name) <= 32
    error_message = "AWS takes them."
  }
  assert {
    condition     = length(base64decode(aws_launch_template.this.user_data)) < 16384
    error_message = "User data has 16 KB."
  }
}

run "one_zone_is_refused" {
  command = plan
  variables {
    subnets    = { "eu-west-1a" = "subnet-1" }
    conductors = 1
  }
  expect_failures = [var.subnets, var.conductors]
}

run "conductors_that_learn_have_their_part_of_the_store" {
  variables {
    learned_bucket = "b"
  }
  assert {
    condition     = strcontains(base64decode(aws_launch_template.this.user_data), " --feedback-store s3://b ")
    error_message = "Told where its store is."
  }
  assert {
    condition = { for statement in jsondecode(aws_iam_role_policy.this.policy).Statement : statement.Sid => [statement.Action, statement.Resource] if strcontains(statement.Sid, "Learned") } == {
      Learned     = [["s3:GetObject", "s3:PutObject"], "arn:aws:s3:::b/learned/two/*"]
      ListLearned = ["s3:ListBucket", "arn:aws:s3:::b"]
    }
    error_message = "It reads and writes its own part, and deletes nothing."
  }
}
