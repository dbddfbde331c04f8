variable "site" {
  description = "Name of the site: the tag mark:site on everything, and the beginning of every name."
  type        = string
  default     = "mark"
  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{0,19}$", var.site)) && !endswith(var.site, "-")
    error_message = "At most 20 small letters, digits and dashes, a letter first."
  }
  validation {
    condition     = !can(regex("^internal(-|$)", var.site))
    error_message = "Load balancers of this name are refused by AWS: internal-... is its own."
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
  description = "What is served: `archive` is the service's folder with service.toml, `wheels` a .tar of its packages (mark_infra.deploy.wheelhouse), `zip` the overflow function, all files. `balancer` and `priority` are its place, see `places`."
  type = map(object({
    slo_ms          = number
    archive         = string
    wheels          = string
    image_parameter = optional(string, "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64")
    disk_gb         = optional(number, 8)
    balancer        = optional(number, 0)
    priority        = optional(number)
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
  validation {
    condition     = length(distinct([for name in keys(var.services) : lower(replace(name, "/[^A-Za-z0-9-]/", "-"))])) == length(var.services)
    error_message = "Two services with one name, as AWS writes names: letters, digits and dashes, small or not."
  }
  validation {
    condition = alltrue([for group in values({ for service in values(var.services) : tostring(service.balancer) => 1... }) :
      length(group) <= min(100, floor((var.rules_per_balancer - 1) / 2))
    ])
    error_message = "Too many services on one load balancer: it takes 100, and less than half of rules_per_balancer. Say `balancer = 1` (2, ...) for some."
  }
  validation {
    condition = alltrue([for names in values({ for name, service in var.services :
      "${service.balancer} ${coalesce(service.priority, parseint(substr(sha256(name), 0, 8), 16) % 24999 + 1)}" => name...
    }) : length(names) == 1])
    error_message = "Two services have the same priority on one load balancer: say `priority` (1 to 24,999) for the newer one."
  }
}

variable "default_service" {
  description = "The service that gets requests which name none (SageMaker's /invocations without the header mark-service). Null: they get 404."
  type        = string
  default     = null
  validation {
    condition     = var.default_service == null ? true : contains(keys(var.services), var.default_service)
    error_message = "Must be one of the services."
  }
}

variable "rules_per_balancer" {
  description = "AWS's quota `Rules per Application Load Balancer` of the account; a service takes two, the default service one more."
  type        = number
  default     = 100
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

variable "controller_disk_gb" {
  description = "Size of the controller's disk, which holds every service's folder besides 8 GiB of its own."
  type        = number
  default     = 8
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
