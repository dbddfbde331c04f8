# The function that answers what bouncers cannot finish in time.

locals {
  # Lambda takes 64 characters: letters, digits, dashes.
  clean = replace(var.service, "/[^A-Za-z0-9-]/", "-")
  slug  = length(local.clean) <= 32 ? local.clean : "${substr(local.clean, 0, 23)}-${substr(sha1(var.service), 0, 8)}"
  # No site has an underscore in its name: by that the controller's right to wake it is narrowed to its own site, as
  # versions of a function have no tags.
  name = "${var.site}_${local.slug}-overflow"
}

resource "aws_cloudwatch_log_group" "this" {
  name              = "/aws/lambda/${local.name}"
  retention_in_days = var.log_days
}

resource "aws_iam_role" "this" {
  name = local.name
  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Principal = { Service = "lambda.amazonaws.com" }
      Action    = "sts:AssumeRole"
    }]
  })
}

resource "aws_iam_role_policy" "this" {
  name = "overflow"
  role = aws_iam_role.this.id
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = concat(
      [{
        # Lambda writes what the handler prints.
        Sid      = "OwnLog"
        Effect   = "Allow"
        Action   = ["logs:CreateLogStream", "logs:PutLogEvents"]
        Resource = "${aws_cloudwatch_log_group.this.arn}:*"
      }],
      var.keys == null ? [] : [{
        # Who may ask, where the load balancer calls: no bouncer has looked. AWS's own key for parameters needs no grant.
        Sid      = "Keys"
        Effect   = "Allow"
        Action   = "ssm:GetParameter"
        Resource = var.keys.arn
      }]
    )
  })
}

resource "aws_lambda_function" "this" {
  function_name = local.name
  description   = "Overflow of ${var.service}"
  role          = aws_iam_role.this.arn
  # AWS changes no zip into an image: the function is replaced then.
  package_type     = var.image_uri == null ? "Zip" : "Image"
  s3_bucket        = try(var.package.bucket, null)
  s3_key           = try(var.package.key, null)
  source_code_hash = try(var.package.sha256, null)
  runtime          = var.image_uri == null ? "python3.12" : null
  handler          = var.image_uri == null ? "mark_lambda.overflow.handler" : null
  image_uri        = var.image_uri
  architectures    = [var.architecture]
  memory_size      = var.memory_mb
  timeout          = var.timeout_s
  # Each release of the service calls its own version, so that a model and its overflow change together.
  publish = true
  # -1 is AWS's word for none. Whatever calls it, bouncers or the balancer, costs no more than so many at work.
  reserved_concurrent_executions = coalesce(var.reserved_concurrency, -1)
  tags                           = { "mark:site" = var.site }

  # What its Dockerfile says, too: said here, since without it the emulator answers with an empty one, which is a change.
  dynamic "image_config" {
    for_each = var.image_uri == null ? [] : [1]
    content {
      command = ["mark_lambda.overflow.handler"]
    }
  }

  environment {
    variables = merge(var.environment, var.keys == null ? {} : { MARK_KEYS_PARAMETER = var.keys.name })
  }

  depends_on = [aws_cloudwatch_log_group.this, aws_iam_role_policy.this]
}

# What the load balancer calls while no instance is ready. From its creation on it is the controller's, which moves it to
# the version of the release that serves: a new one is not called before it proved good, and no more once it is taken
# back.
resource "aws_lambda_alias" "balancer" {
  name             = "balancer"
  description      = "Called by the load balancer while no instance is ready"
  function_name    = aws_lambda_function.this.function_name
  function_version = aws_lambda_function.this.version

  lifecycle {
    ignore_changes = [function_version]
    # A function that is replaced takes its aliases with it.
    replace_triggered_by = [terraform_data.package_type]
  }
}

resource "terraform_data" "package_type" {
  input = aws_lambda_function.this.package_type
}
