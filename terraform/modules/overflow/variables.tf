variable "site" {
  description = "Name of the site."
  type        = string
}

variable "service" {
  description = "Name of the service."
  type        = string
}

variable "package" {
  description = "The function's zip in the artifacts bucket; null where it is an image."
  type = object({
    bucket = string
    key    = string
    sha256 = string
  })
  default = null
}

variable "image_uri" {
  description = "The function's container image in ECR, by its digest, where a zip cannot hold it (250 MiB). Its command is the handler."
  type        = string
  default     = null
  validation {
    condition     = (var.image_uri == null) != (var.package == null)
    error_message = "Either package or image_uri."
  }
}

variable "architecture" {
  description = "Processors that it was built for: x86_64 or arm64, of which AWS asks a fifth less."
  type        = string
  default     = "x86_64"
  validation {
    condition     = contains(["x86_64", "arm64"], var.architecture)
    error_message = "x86_64 or arm64."
  }
}

variable "memory_mb" {
  description = "Memory of an environment; its share of CPU follows from it (1,769 MB are one)."
  type        = number
  validation {
    condition     = var.memory_mb >= 128 && var.memory_mb <= 10240
    error_message = "Lambda gives 128 to 10,240 MB."
  }
}

variable "environment" {
  description = "What mark_lambda reads: MARK_MODEL, MARK_MODEL_PATH, MARK_NAME, MARK_VERSION."
  type        = map(string)
}

variable "keys" {
  description = "Parameter with digests of the keys of callers, for requests that come from the load balancer. Null: those are refused."
  type = object({
    name = string
    arn  = string
  })
  default = null
}

variable "reserved_concurrency" {
  description = "Environments that are kept for this function, and beyond which it has none: what its dollars pay for. Null: as many as the account allows."
  type        = number
  default     = null
  validation {
    condition     = var.reserved_concurrency == null ? true : var.reserved_concurrency >= 1
    error_message = "At least one, or the function never answers; null for no limit."
  }
}

variable "timeout_s" {
  description = "After this long an invocation is ended; a bouncer gave up on it long before."
  type        = number
  default     = 60
}

variable "log_days" {
  description = "Days for which logs are kept."
  type        = number
  default     = 30
}
