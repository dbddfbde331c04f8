variable "site" {
  description = "Name of the site."
  type        = string
}

variable "service" {
  description = "Name of the service."
  type        = string
}

variable "package" {
  description = "The function's zip in the artifacts bucket."
  type = object({
    bucket = string
    key    = string
    sha256 = string
  })
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
