mock_provider "aws" {
  mock_resource "aws_s3_bucket" {
    defaults = { arn = "arn:aws:s3:::mark-artifacts-1", id = "mark-artifacts-1" }
  }
}

variables {
  site      = "mark"
  aws       = { partition = "aws", region = "eu-west-1", account = "123456789012" }
  keys      = "controller:0123456789abcdef:admin"
  artifacts = { readme = "./versions.tf" }
}

run "the_bucket_is_private_and_encrypted" {
  assert {
    condition = alltrue([
      aws_s3_bucket_public_access_block.artifacts.block_public_acls,
      aws_s3_bucket_public_access_block.artifacts.block_public_policy,
      aws_s3_bucket_public_access_block.artifacts.ignore_public_acls,
      aws_s3_bucket_public_access_block.artifacts.restrict_public_buckets,
    ])
    error_message = "Nothing of the bucket is public."
  }
  assert {
    condition     = one(one(aws_s3_bucket_server_side_encryption_configuration.artifacts.rule).apply_server_side_encryption_by_default).sse_algorithm == "AES256"
    error_message = "Encrypted at rest."
  }
  assert {
    condition = anytrue([for statement in jsondecode(aws_s3_bucket_policy.artifacts[0].policy).Statement :
      statement.Effect == "Deny" && try(statement.Condition.Bool["aws:SecureTransport"], "") == "false"
    ])
    error_message = "Encrypted on the way."
  }
  assert {
    condition = alltrue([for statement in jsondecode(aws_s3_bucket_policy.artifacts[0].policy).Statement :
      statement.Effect == "Deny" || can(statement.Principal.Service)
    ])
    error_message = "Only a service of AWS's is let in by the policy."
  }
}

run "an_artifact_has_a_version_for_each_content" {
  assert {
    condition     = one(aws_s3_bucket_versioning.artifacts.versioning_configuration).status == "Enabled" && output.artifacts["readme"].version == aws_s3_object.artifact["readme"].version_id
    error_message = "What an instance boots from cannot change under it."
  }
  assert {
    condition     = output.artifacts["readme"].sha256 == filesha256("./versions.tf") && output.artifacts["readme"].file == "versions.tf"
    error_message = "It is checked by its content, and gets its name back."
  }
}

run "what_was_replaced_stays_for_90_days" {
  # Only what was replaced: what has been right for long is needed still.
  assert {
    condition = [for rule in aws_s3_bucket_lifecycle_configuration.artifacts[0].rule :
      one(rule.noncurrent_version_expiration).noncurrent_days if startswith(rule.id, "replaced-") && length(rule.expiration) == 0
    ] == [90, 90]
    error_message = "An old template boots for 90 days."
  }
  # What serves is noncurrent after a roll-back, and must boot for as long as it serves.
  assert {
    condition = [for rule in aws_s3_bucket_lifecycle_configuration.artifacts[0].rule :
      one(rule.noncurrent_version_expiration).newer_noncurrent_versions if startswith(rule.id, "replaced-") && length(rule.expiration) == 0
    ] == [100, 100]
    error_message = "The last releases boot whatever their age."
  }
}

run "the_table_is_safe" {
  assert {
    condition     = one(aws_dynamodb_table.state.server_side_encryption).enabled && one(aws_dynamodb_table.state.point_in_time_recovery).enabled
    error_message = "Encrypted, and restorable to any second of the last days."
  }
  assert {
    condition     = one(aws_dynamodb_table.state.ttl).enabled && one(aws_dynamodb_table.state.ttl).attribute_name == "expires_unix_s"
    error_message = "What the store lets expire goes away."
  }
}

run "keys_are_secret" {
  assert {
    condition = alltrue([for parameter in aws_ssm_parameter.keys :
      parameter.type == "SecureString" && try(parameter.value_wo, null) == null && startswith(parameter.name, "/mark/mark/keys/")
    ])
    error_message = "SecureStrings, and not in the state."
  }
  assert {
    condition     = !contains(keys(output.keys), "plain")
    error_message = "Nothing on an instance is told where the keys themselves are."
  }
}

run "what_was_learned_stays_for_30_days" {
  assert {
    condition = [for rule in aws_s3_bucket_lifecycle_configuration.artifacts[0].rule : [one(rule.filter).prefix, one(rule.expiration).days] if rule.id == "learned"] == [
      ["learned/", 30],
    ]
    error_message = "As long as a state remembers the writers of facts."
  }
}
