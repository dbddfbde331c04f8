# What outlives instances: files that they boot from, the controller's state, keys.

locals {
  balancers = "arn:${var.aws.partition}:elasticloadbalancing:${var.aws.region}:${var.aws.account}:loadbalancer/app"
  # Lines NAME:KEY:SCOPES, perhaps with :UNTIL. Who only checks keys has digests of them, for the scopes that it checks;
  # mark_infra.deploy.keys makes the same of them when they change.
  keys = [for line in compact(split("\n", var.keys)) : { line = line, parts = split(":", trimspace(line)), scopes = split(",", split(":", trimspace(line))[2]) }]
  # Who may do all may do at a bouncer what others may there.
  told = {
    bouncers   = [for key in local.keys : merge(key, { scopes = contains(key.scopes, "admin") ? tolist(["infer", "metrics"]) : key.scopes })]
    controller = local.keys
  }
  digests = { for reader, scopes in { bouncers = ["infer", "metrics"], controller = ["metrics", "read", "admin"] } : reader => [
    for key in local.told[reader] : {
      name = key.parts[0]
      text = join(":", concat(
        [key.parts[0], "sha256-${sha256(key.parts[1])}", join(",", [for scope in key.scopes : scope if contains(scopes, scope)])],
        slice(key.parts, 3, length(key.parts)),
      ))
    } if length(setintersection(key.scopes, scopes)) > 0
  ] }
  key_files = {
    plain = var.keys
    # The newest last.
    conductors = join("", [for key in local.keys : "${key.line}\n" if key.parts[0] == "conductor"])
    bouncers   = join("", [for key in local.digests.bouncers : "${key.text}\n"])
    controller = join("", concat(
      [for key in local.keys : "${key.line}\n" if key.parts[0] == "controller"],
      [for key in local.digests.controller : "${key.text}\n" if key.name != "controller"],
    ))
  }
  # Each name has its key, and each content its version there: what an instance boots from never changes under it, nor
  # goes away, and an unchanged file is not sent again.
  objects = { for name, path in var.artifacts : name => {
    path   = path
    sha256 = filesha256(path)
    # Functions' packages are fetched by Lambda alone, as the deployer: no instance may read that folder.
    key = "${startswith(name, "function/") ? "functions" : "artifacts"}/${name}"
  } }
}

resource "aws_s3_bucket" "artifacts" {
  bucket_prefix = "${var.site}-artifacts-"
  # Everything in it is made from the user's own files, or a log.
  force_destroy = true
}

# An instance that boots while something new is sent, or later by an old template, names the version that it wants.
resource "aws_s3_bucket_versioning" "artifacts" {
  bucket = aws_s3_bucket.artifacts.id
  versioning_configuration {
    status = "Enabled"
  }
}

resource "aws_s3_bucket_public_access_block" "artifacts" {
  bucket                  = aws_s3_bucket.artifacts.id
  block_public_acls       = true
  block_public_policy     = true
  ignore_public_acls      = true
  restrict_public_buckets = true
}

# AES256: the load balancer can write its logs to no other kind.
resource "aws_s3_bucket_server_side_encryption_configuration" "artifacts" {
  bucket = aws_s3_bucket.artifacts.id
  rule {
    apply_server_side_encryption_by_default {
      sse_algorithm = "AES256"
    }
  }
}

resource "aws_s3_bucket_policy" "artifacts" {
  count  = var.emulated ? 0 : 1
  bucket = aws_s3_bucket.artifacts.id
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [
      {
        Sid       = "EncryptedTransportOnly"
        Effect    = "Deny"
        Principal = "*"
        Action    = "s3:*"
        Resource  = [aws_s3_bucket.artifacts.arn, "${aws_s3_bucket.artifacts.arn}/*"]
        Condition = { Bool = { "aws:SecureTransport" = "false" } }
      },
      {
        Sid       = "AccessLogsOfTheBalancer"
        Effect    = "Allow"
        Principal = { Service = "logdelivery.elasticloadbalancing.amazonaws.com" }
        Action    = "s3:PutObject"
        Resource  = "${aws_s3_bucket.artifacts.arn}/alb/AWSLogs/${var.aws.account}/*"
        Condition = { ArnLike = { "aws:SourceArn" = [for number in var.balancers :
          "${local.balancers}/${number == "0" ? var.site : "${var.site}-${number}"}/*"
        ] } }
      },
    ]
  })
  depends_on = [aws_s3_bucket_public_access_block.artifacts]
}

resource "aws_s3_bucket_lifecycle_configuration" "artifacts" {
  count  = var.emulated ? 0 : 1
  bucket = aws_s3_bucket.artifacts.id
  rule {
    id     = "access-logs"
    status = "Enabled"
    filter {
      prefix = "alb/"
    }
    expiration {
      days = 30
    }
    noncurrent_version_expiration {
      noncurrent_days = 1
    }
  }
  # Facts and snapshots of what servers have learned. A snapshot each day holds all facts before it.
  rule {
    id     = "learned"
    status = "Enabled"
    filter {
      prefix = "learned/"
    }
    expiration {
      days = 30
    }
    noncurrent_version_expiration {
      noncurrent_days = 1
    }
  }
  # By age alone S3 could not tell what was replaced from what has been right for long: after a roll-back, or beside
  # a release that its canary refused, what serves is a noncurrent version. So as many stay as S3 keeps by number.
  dynamic "rule" {
    for_each = toset(["artifacts", "functions"])
    content {
      id     = "replaced-${rule.key}"
      status = "Enabled"
      filter {
        prefix = "${rule.key}/"
      }
      noncurrent_version_expiration {
        noncurrent_days           = 90
        newer_noncurrent_versions = 100
      }
    }
  }
  rule {
    id     = "uploads"
    status = "Enabled"
    filter {}
    abort_incomplete_multipart_upload {
      days_after_initiation = 1
    }
  }
}

resource "aws_s3_object" "artifact" {
  for_each    = local.objects
  bucket      = aws_s3_bucket.artifacts.id
  key         = each.value.key
  source      = each.value.path
  source_hash = each.value.sha256
  depends_on  = [aws_s3_bucket_server_side_encryption_configuration.artifacts, aws_s3_bucket_versioning.artifacts]
}

# Snapshots, decisions, numbers of instances, the leader's lease.
resource "aws_dynamodb_table" "state" {
  name         = "${var.site}-state"
  billing_mode = "PAY_PER_REQUEST"
  hash_key     = "pk"
  range_key    = "sk"

  attribute {
    name = "pk"
    type = "S"
  }

  attribute {
    name = "sk"
    type = "S"
  }

  ttl {
    attribute_name = "expires_unix_s"
    enabled        = true
  }

  point_in_time_recovery {
    enabled = true
  }

  server_side_encryption {
    enabled = true
  }
}

# Written once, and never read back: neither state nor plan holds a key. mark keys changes them. Above 4 KB AWS makes the
# parameter an advanced one (up to 8 KB).
resource "aws_ssm_parameter" "keys" {
  for_each         = toset(concat(["bouncers", "controller", "plain"], var.inner_key ? ["conductors"] : []))
  name             = "/mark/${var.site}/keys/${each.key}"
  description      = "Who may ask, for: ${each.key}"
  type             = "SecureString"
  tier             = "Intelligent-Tiering"
  value_wo         = local.key_files[each.key]
  value_wo_version = var.keys_version
}
