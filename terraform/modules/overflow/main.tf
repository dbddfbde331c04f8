# The function that answers what bouncers cannot finish in time.

locals {
  # Lambda takes 64 characters: letters, digits, dashes.
  clean = replace(var.service, "/[^A-Za-z0-9-]/", "-")
  slug  = length(local.clean) <= 32 ? local.clean : "${substr(local.clean, 0, 23)}-${substr(sha1(var.service), 0, 8)}"
  name  = "${var.site}-${local.slug}-overflow"
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
    Statement = [{
      # Lambda writes what the handler prints. The function calls nothing else.
      Sid      = "OwnLog"
      Effect   = "Allow"
      Action   = ["logs:CreateLogStream", "logs:PutLogEvents"]
      Resource = "${aws_cloudwatch_log_group.this.arn}:*"
    }]
  })
}

resource "aws_lambda_function" "this" {
  function_name    = local.name
  description      = "Overflow of ${var.service}"
  role             = aws_iam_role.this.arn
  s3_bucket        = var.package.bucket
  s3_key           = var.package.key
  source_code_hash = var.package.sha256
  runtime          = "python3.12"
  architectures    = ["x86_64"]
  handler          = "mark_lambda.overflow.handler"
  memory_size      = var.memory_mb
  timeout          = var.timeout_s
  # By this the controller's right to wake it is narrowed to its own site.
  tags = { "mark:site" = var.site }

  environment {
    variables = var.environment
  }

  depends_on = [aws_cloudwatch_log_group.this, aws_iam_role_policy.this]
}
