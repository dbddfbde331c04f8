mock_provider "aws" {
  mock_resource "aws_iam_role" {
    defaults = { arn = "arn:aws:iam::123456789012:role/mark-inception-overflow" }
  }
  mock_resource "aws_cloudwatch_log_group" {
    defaults = { arn = "arn:aws:logs:eu-west-1:123456789012:log-group:/aws/lambda/mark-inception-overflow" }
  }
}

variables {
  site        = "mark"
  service     = "inception.v3"
  package     = { bucket = "b", key = "artifacts/1/f.zip", sha256 = "1" }
  memory_mb   = 3008
  environment = { MARK_MODEL = "model:Model" }
}

run "it_may_do_nothing_but_log" {
  assert {
    condition = alltrue(flatten([for statement in jsondecode(aws_iam_role_policy.this.policy).Statement : [
      for action in statement.Action : startswith(action, "logs:") && !strcontains(action, "*")
    ]]))
    error_message = "The function writes its log, and calls nothing."
  }
  assert {
    condition = alltrue([for statement in jsondecode(aws_iam_role_policy.this.policy).Statement :
      statement.Resource == "${aws_cloudwatch_log_group.this.arn}:*"
    ])
    error_message = "Its own log, not others'."
  }
}

run "it_reads_who_may_ask" {
  variables {
    keys = { name = "/mark/mark/keys/bouncers", arn = "arn:aws:ssm:eu-west-1:123456789012:parameter/mark/mark/keys/bouncers" }
  }
  assert {
    condition     = jsondecode(aws_iam_role_policy.this.policy).Statement[1].Action == "ssm:GetParameter" && jsondecode(aws_iam_role_policy.this.policy).Statement[1].Resource == var.keys.arn
    error_message = "This parameter, and nothing else."
  }
  assert {
    condition     = aws_lambda_function.this.environment[0].variables == tomap({ MARK_MODEL = "model:Model", MARK_KEYS_PARAMETER = "/mark/mark/keys/bouncers" })
    error_message = "The handler is told where keys are."
  }
}

run "the_balancer_calls_the_newest" {
  assert {
    condition     = aws_lambda_alias.balancer.function_version == aws_lambda_function.this.version && output.function.alias == "balancer"
    error_message = "An alias changes in one step, a target does not."
  }
}

run "it_is_what_the_service_asked_for" {
  assert {
    condition     = aws_lambda_function.this.memory_size == 3008 && aws_lambda_function.this.handler == "mark_lambda.overflow.handler"
    error_message = "Memory of the service file, our handler."
  }
  assert {
    condition     = aws_lambda_function.this.function_name == "mark_inception-v3-overflow" && aws_cloudwatch_log_group.this.retention_in_days == 30
    error_message = "A name that Lambda takes, and logs that end."
  }
}

run "it_has_no_limit_unless_said" {
  assert {
    condition     = aws_lambda_function.this.reserved_concurrent_executions == -1
    error_message = "Unless said it has no limit of its own."
  }
}

run "its_environments_are_limited" {
  variables {
    reserved_concurrency = 107
  }
  assert {
    condition     = aws_lambda_function.this.reserved_concurrent_executions == 107
    error_message = "As many as were said."
  }
}

run "none_at_all_is_refused" {
  command = plan
  variables {
    reserved_concurrency = 0
  }
  expect_failures = [var.reserved_concurrency]
}

run "too_little_memory_is_refused" {
  command = plan
  variables {
    memory_mb = 64
  }
  expect_failures = [var.memory_mb]
}

run "a_zip_is_run_by_lambdas_python" {
  assert {
    condition     = aws_lambda_function.this.package_type == "Zip" && aws_lambda_function.this.runtime == "python3.12" && aws_lambda_function.this.s3_key == "artifacts/1/f.zip"
    error_message = "A runtime and a handler, and the zip."
  }
  assert {
    condition     = aws_lambda_function.this.architectures == tolist(["x86_64"])
    error_message = "x86_64 unless said."
  }
}

run "an_image_brings_its_own" {
  variables {
    package              = null
    image_uri            = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/mark/mark/inception-v3@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
    architecture         = "arm64"
    reserved_concurrency = 7
  }
  assert {
    condition     = aws_lambda_function.this.package_type == "Image" && aws_lambda_function.this.image_uri == var.image_uri
    error_message = "The image, by its digest."
  }
  assert {
    condition     = aws_lambda_function.this.handler == null && aws_lambda_function.this.s3_bucket == null
    error_message = "AWS refuses handler and zip of an image."
  }
  assert {
    condition     = aws_lambda_function.this.image_config[0].command == tolist(["mark_lambda.overflow.handler"])
    error_message = "Our handler is its command."
  }
  assert {
    condition     = aws_lambda_function.this.architectures == tolist(["arm64"])
    error_message = "The processors that it was built for."
  }
  assert {
    condition     = aws_lambda_function.this.publish && aws_lambda_function.this.reserved_concurrent_executions == 7 && aws_lambda_alias.balancer.function_version == aws_lambda_function.this.version
    error_message = "Versions, the alias and the limit are as with a zip."
  }
}

run "both_at_once_are_refused" {
  command = plan
  variables {
    image_uri = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/mark/mark/inception-v3@sha256:0"
  }
  expect_failures = [var.image_uri]
}

run "neither_is_refused" {
  command = plan
  variables {
    package = null
  }
  expect_failures = [var.image_uri]
}

run "processors_that_lambda_has_not_are_refused" {
  command = plan
  variables {
    architecture = "riscv"
  }
  expect_failures = [var.architecture]
}
