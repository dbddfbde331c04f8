output "function" {
  description = "The function."
  value = {
    name = aws_lambda_function.this.function_name
    arn  = aws_lambda_function.this.arn
  }
}
