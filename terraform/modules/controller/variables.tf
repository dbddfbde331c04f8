variable "site" {
  description = "Name of the site."
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

variable "subnets" {
  description = "Private subnet by zone."
  type        = map(string)
}

variable "bouncer_port" {
  description = "Port on which bouncers listen."
  type        = number
  default     = 8080
}

variable "services" {
  description = "What there is for each service."
  type = map(object({
    launch_template = object({
      id      = string
      version = string
      release = string
      platforms = optional(map(object({
        launch_template = string
        version         = string
      })), {})
    })
    target_groups  = list(string)
    listener_rules = list(string)
    function_group = optional(string)
    grpc           = optional(object({ groups = list(string), rules = list(string) }), { groups = [], rules = [] })
    image_id       = string
    more_image_ids = optional(list(string), []) # of other platforms
    function       = optional(string)
    function_alias = optional(string)
    scheme         = optional(string, "http")
    folder         = optional(string)
    archive = object({
      key     = string
      version = string
      sha256  = string
    })
  }))
  validation {
    condition     = length(var.services) > 0
    error_message = "At least one service."
  }
  validation {
    condition     = length(distinct(concat(flatten([for service in var.services : [service.image_id, service.more_image_ids]]), var.former_image_ids))) <= 20
    error_message = "At most 20 machine images on a site: the controller's policy names each, and its length is limited."
  }
}

variable "pipelines" {
  description = "Pipelines whose stages are among the services: the Auto Scaling group of their conductors, which are asked what became of queries, and what those speak."
  type = map(object({
    conductors = string
    scheme     = string
  }))
  default = {}
}

variable "former_image_ids" {
  description = "Machine images of releases that may be rolled back to."
  type        = list(string)
  default     = []
}

variable "bouncer_security_group_id" {
  description = "Security group of the fleet: the one with which instances may be launched."
  type        = string
}

variable "security_group_id" {
  description = "Security group of the controller."
  type        = string
}

variable "image_id" {
  description = "Machine image of the controller, for the processor of its instance type."
  type        = string
}

variable "instance_type" {
  description = "Where the controller runs; 2 GiB are enough for hundreds of services."
  type        = string
  default     = "t4g.small"
}

variable "disk_gb" {
  description = "Size of its disk, which holds the system, its packages (some 3 GiB together) and every service's folder."
  type        = number
  default     = 8
}

variable "boot_files" {
  description = "What of the artifacts bucket an instance may boot from: an ARN with a star."
  type        = string
}

variable "artifacts" {
  description = "What it boots from, in the artifacts bucket: wheels, a .tar of its packages."
  type = map(object({
    bucket  = string
    key     = string
    version = string
    file    = string
    sha256  = string
    arn     = string
  }))
}

variable "table" {
  description = "Table of its state."
  type = object({
    name = string
    arn  = string
  })
}

variable "queue" {
  description = "Queue of notices."
  type = object({
    name = string
    url  = string
    arn  = string
  })
}

variable "keys" {
  description = "Parameter with its own key, and digests of the keys of callers."
  type = object({
    name = string
    arn  = string
  })
}

variable "dry_run" {
  description = "Decide and explain, and buy nothing."
  type        = bool
  default     = false
}

variable "log_days" {
  description = "Days for which logs are kept."
  type        = number
  default     = 30
}
