variable "site" {
  description = "Name of the site."
  type        = string
}

variable "pipeline" {
  description = "Name of the pipeline: what clients call the model."
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

variable "subnets" {
  description = "Private subnet by zone, of two zones at least."
  type        = map(string)
  validation {
    condition     = length(var.subnets) >= 2
    error_message = "Two zones at least, so that one may fail."
  }
}

variable "security_group_id" {
  description = "Security group of conductors."
  type        = string
}

variable "listener_arn" {
  description = "Listener of the load balancer that clients ask."
  type        = string
}

variable "priority" {
  description = "Place of the pipeline's two rules among the listener's: they take 2n and 2n+1."
  type        = number
  validation {
    condition     = var.priority >= 1 && var.priority <= 24999 && floor(var.priority) == var.priority
    error_message = "A whole number from 1 to 24,999."
  }
}

variable "port" {
  description = "Port on which conductors listen."
  type        = number
  default     = 8080
}

variable "tls" {
  description = "Conductors speak TLS, with certificates of their own making that nobody verifies."
  type        = bool
  default     = true
}

variable "image_id" {
  description = "Machine image, for the processor of the instance type: Amazon Linux 2023."
  type        = string
}

variable "instance_type" {
  description = "Where conductors run, an arm64 one: a process takes one processor."
  type        = string
  default     = "t4g.small"
}

variable "conductors" {
  description = "How many there are: two at least, in different zones."
  type        = number
  default     = 2
  validation {
    condition     = var.conductors >= 2 && var.conductors <= 100 && floor(var.conductors) == var.conductors
    error_message = "A whole number from 2 to 100."
  }
}

variable "disk_gb" {
  description = "Size of the disk."
  type        = number
  default     = 8
}

variable "slo_s" {
  description = "RT_max of the pipeline."
  type        = number
}

variable "artifacts" {
  description = "What a conductor boots from, in the artifacts bucket: wheels, archive."
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

variable "stages_keys" {
  description = "Parameter with the key by which stages are asked."
  type = object({
    name = string
    arn  = string
  })
}

variable "learned_bucket" {
  description = "Of conductors that learn from feedback: the bucket in which learned/PIPELINE/ is theirs. Null: they do not learn."
  type        = string
  default     = null
}

variable "stages" {
  description = "Where each stage is asked: http://host:port of a load balancer before it."
  type        = map(string)
  validation {
    condition     = length(var.stages) > 0 && alltrue([for name, url in var.stages : can(regex("^[A-Za-z][A-Za-z0-9_]{0,62}$", name))])
    error_message = "Stages by their names in the pipeline file."
  }
}

variable "log_days" {
  description = "Days for which logs are kept."
  type        = number
  default     = 30
}

variable "emulated" {
  description = "An emulator stands in for AWS: its group registers nothing with the balancer."
  type        = bool
  default     = false
}
