output "bucket" {
  description = "Bucket of the artifacts."
  value       = aws_s3_bucket.artifacts.id
  # Resources that write logs to it or read from it wait until it is set up.
  depends_on = [aws_s3_bucket_policy.artifacts]
}

output "boot_files" {
  description = "What of the bucket an instance may boot from."
  value       = "arn:${var.aws.partition}:s3:::${aws_s3_bucket.artifacts.id}/artifacts/*"
}

output "artifacts" {
  description = "Where each artifact is, by its name."
  value = { for name, object in aws_s3_object.artifact : name => {
    bucket = object.bucket
    key    = object.key
    # Until it is asked for, the file has no name of its own.
    version = object.version_id
    file    = basename(local.objects[name].path)
    sha256  = local.objects[name].sha256
    arn     = "arn:${var.aws.partition}:s3:::${object.bucket}/${object.key}"
  } }
}

output "table" {
  description = "Table of the controller's state."
  value = {
    name = aws_dynamodb_table.state.name
    arn  = aws_dynamodb_table.state.arn
  }
}

output "keys" {
  description = "Parameters that hold keys: what bouncers read, what the controller reads, and what conductors do."
  value = { for reader in concat(["bouncers", "controller"], var.inner_key ? ["conductors"] : []) : reader => {
    name = aws_ssm_parameter.keys[reader].name
    arn  = aws_ssm_parameter.keys[reader].arn
  } }
}
