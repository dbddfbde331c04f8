output "function" {
  description = "The function."
  value = {
    name = aws_lambda_function.this.function_name
    arn  = aws_lambda_function.this.arn
    # Name and version: what instances of this release call.
    qualified = "${aws_lambda_function.this.function_name}:${aws_lambda_function.this.version}"
    # What the load balancer calls.
    alias = aws_lambda_alias.balancer.name
  }
}
