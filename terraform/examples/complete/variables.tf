variable "site" {
  description = "Name of the site: the tag mark:site on everything, and the beginning of every name."
  type        = string
  default     = "mark"
  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{0,19}$", var.site)) && !endswith(var.site, "-")
    error_message = "At most 20 small letters, digits and dashes, a letter first."
  }
}

variable "region" {
  description = "Region of AWS."
  type        = string
}

variable "zones" {
  description = "Availability zones in which instances may be launched; null: the region's first three."
  type        = list(string)
  default     = null
}

variable "wheel" {
  description = "The wheel of mark-serving: a file."
  type        = string
}

variable "constraints" {
  description = "Versions of everything else that is installed: a file for pip -c."
  type        = string
}

variable "keys" {
  description = "Key file of mark serve; the name `controller` has the key with which bouncers are asked. Never in the state."
  type        = string
  sensitive   = true
  ephemeral   = true
  validation {
    condition     = can(regex("(?m)^controller:[^:\\s]{16,}:", var.keys))
    error_message = "No line controller:KEY:SCOPES."
  }
}

variable "keys_version" {
  description = "To be raised when the keys change."
  type        = number
  default     = 1
}

variable "services" {
  description = "What is served: `archive` is the service's folder with service.toml, `function_zip` the overflow function, both files."
  type = map(object({
    slo_ms          = number
    archive         = string
    image_parameter = optional(string, "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64")
    disk_gb         = optional(number, 8)
    function = optional(object({
      zip         = string
      memory_mb   = number
      environment = map(string)
    }))
  }))
  validation {
    condition     = length(var.services) > 0
    error_message = "At least one service."
  }
}

variable "client_cidrs" {
  description = "Address ranges that may reach the load balancer."
  type        = list(string)
  default     = ["0.0.0.0/0"]
}

variable "certificate_arn" {
  description = "Certificate (ACM) of the load balancer. Null: plain HTTP, to named networks only."
  type        = string
  default     = null
}

variable "controller_type" {
  description = "Instance type of the controller, an arm64 one."
  type        = string
  default     = "t4g.small"
}

variable "dry_run" {
  description = "The controller decides and explains, and buys nothing."
  type        = bool
  default     = false
}

variable "alarm_email" {
  description = "Address that alarms are sent to; null: none."
  type        = string
  default     = null
}

variable "monthly_budget_usd" {
  description = "Told when the account's bill of a month passes 80 % of it, or is forecast to pass it; needs alarm_email."
  type        = number
  default     = null
}

variable "emulated" {
  description = "An emulator stands in for AWS: leave out what it lacks (budgets, default tags, rules for the age of logs)."
  type        = bool
  default     = false
}
