variable "site" {
  description = "Name of the site."
  type        = string
}

variable "service" {
  description = "Name of the service: the tag mark:service, and what clients call the model."
  type        = string
}

variable "aws" {
  description = "Where this is: what ARNs are made of."
  type = object({
    partition = string
    region    = string
    account   = string
  })
}

variable "vpc_id" {
  description = "The VPC."
  type        = string
}

variable "security_group_id" {
  description = "Security group of the instances."
  type        = string
}

variable "listener_arn" {
  description = "The load balancer's listener."
  type        = string
}

variable "priority" {
  description = "Place of the service's two rules among the listener's, which goes from 1 to 50,000: they take 2n and 2n+1."
  type        = number
  validation {
    condition     = var.priority >= 1 && var.priority <= 24999 && floor(var.priority) == var.priority
    error_message = "A whole number from 1 to 24,999."
  }
}

variable "target_groups" {
  description = "Target groups: classes of instance types that can do about the same. A number that falls later is refused by AWS."
  type        = number
  default     = 1
  validation {
    condition     = contains([1, 2, 3, 4], var.target_groups)
    error_message = "1 to 4: a rule forwards to five, and one is the function's."
  }
}

variable "bouncer_port" {
  description = "Port on which bouncers listen."
  type        = number
  default     = 8080
}

variable "grpc" {
  description = "Port on which bouncers speak gRPC, and the load balancer's listener for it. Null: they do not."
  type = object({
    port         = number
    listener_arn = string
  })
  default = null
}

variable "bouncer_tls" {
  description = "Bouncers speak TLS, with certificates of their own making that nobody verifies, and target groups are of HTTPS. Of a new service: one that is there keeps what it has."
  type        = bool
  default     = true
}

variable "stage" {
  description = "The stage of a pipeline that this is: the archive has the pipeline's file, and instances serve this stage of it alone. Empty: a service."
  type        = string
  default     = ""
}

variable "together" {
  description = "The stages of a pipeline that this is, in place of one stage: instances serve all of them, each with workers of its own."
  type        = list(string)
  default     = []
  validation {
    condition     = length(var.together) != 1 && (length(var.together) == 0 || var.stage == "" && var.function == null)
    error_message = "Two stages or more, instead of one, and without a function."
  }
}

variable "platform" {
  description = "Platform of the instance types that boot from image_id, with disk_gb and the wheels among the artifacts: x86_64, arm64, x86_64-gpu or arm64-gpu. Null: of all of them, unless more_platforms has any."
  type        = string
  default     = null
  validation {
    condition     = var.platform == null ? true : contains(["x86_64", "arm64", "x86_64-gpu", "arm64-gpu"], var.platform)
    error_message = "x86_64, arm64, x86_64-gpu or arm64-gpu."
  }
}

variable "more_platforms" {
  description = "What instance types of other platforms boot from, by platform, as image_id, disk_gb and boot_timeout_s say it of the first."
  type = map(object({
    image_id       = string
    disk_gb        = optional(number, 8)
    boot_timeout_s = optional(number, 600)
    wheels = object({
      bucket  = string
      key     = string
      version = string
      sha256  = string
      arn     = string
    })
  }))
  default = {}
  validation {
    condition     = length(setsubtract(keys(var.more_platforms), ["x86_64", "arm64", "x86_64-gpu", "arm64-gpu"])) == 0
    error_message = "x86_64, arm64, x86_64-gpu or arm64-gpu."
  }
  validation {
    condition     = var.platform == null ? true : !contains(keys(var.more_platforms), var.platform)
    error_message = "The first platform has what image_id says."
  }
  validation {
    condition     = alltrue([for one in var.more_platforms : one.boot_timeout_s >= 120])
    error_message = "At least 120 s to boot: a minute of it is the launch's."
  }
}

variable "image_id" {
  description = "Machine image: Amazon Linux 2023, or one made from it, whose root device is /dev/xvda."
  type        = string
}

variable "boot_timeout_s" {
  description = "Seconds after which the controller ends an instance that is not ready."
  type        = number
  default     = 600
  validation {
    condition     = var.boot_timeout_s >= 120
    error_message = "At least 120: a minute of it is the launch's."
  }
}

variable "disk_gb" {
  description = "Size of the disk; it is paid while an instance is stopped, too."
  type        = number
  default     = 8
}

variable "slo_s" {
  description = "RT_max of the service."
  type        = number
}

variable "artifacts" {
  description = "What an instance boots from, in the artifacts bucket: wheels, archive."
  type = map(object({
    bucket  = string
    key     = string
    version = string
    sha256  = string
    arn     = string
  }))
}

variable "keys" {
  description = "Parameter with digests of the keys of callers."
  type = object({
    name = string
    arn  = string
  })
}

variable "learned" {
  description = "Of instances that learn from feedback: the bucket in which learned/SERVICE/ is theirs, and the parameter with the key that they show each other. Null: they do not learn."
  type = object({
    bucket = string
    key    = object({ name = string, arn = string })
  })
  default = null
}

variable "function" {
  description = "Overflow function, with the version that instances call and the alias that the load balancer does; null: there is none."
  type = object({
    name      = string
    arn       = string
    qualified = string
    alias     = string
  })
  default = null
}

variable "log_days" {
  description = "Days for which logs are kept."
  type        = number
  default     = 30
}

variable "emulated" {
  description = "An emulator stands in for AWS: a launch template with tags differs from itself in it."
  type        = bool
  default     = false
}
