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

variable "zone_numbers" {
  description = "The output of this name, so that a site that changes its zones keeps their subnets. Empty: zones have never been changed."
  type        = map(number)
  default     = {}
}

variable "controller_wheels" {
  description = "A .tar of the controller's packages, mark-serving among them (mark_infra.deploy.wheelhouse): a file."
  type        = string
}

variable "keys" {
  description = "Lines NAME:KEY:SCOPES; `controller` has the key with which bouncers are asked for metrics. Never in the state."
  type        = string
  sensitive   = true
  ephemeral   = true
  validation {
    condition     = can(regex("(?m)^controller:[^:\\s]{16,}:", var.keys))
    error_message = "No line controller:KEY:SCOPES."
  }
  validation {
    condition     = alltrue([for line in compact(split("\n", var.keys)) : length(split(":", line)) >= 3])
    error_message = "Each line is NAME:KEY:SCOPES."
  }
}

variable "keys_version" {
  description = "To be raised to write the keys again, over what mark keys has made of them."
  type        = number
  default     = 1
}

variable "services" {
  description = "What is served: `slo_attainment` and `max_usd_per_hour` (of instances, and of the function) are watched by alarms, `reserved_concurrency` is of the function, `archive` is the service's folder with service.toml, `wheels` a .tar of its packages (mark_infra.deploy.wheelhouse), `zip` the overflow function, all files; `image_uri` is its image in ECR, by its digest, where it is no zip. `boot_timeout_s` is after how long the controller ends an instance that is not ready. `image_id` is a machine image instead of the newest that `image_parameter` names, `baked_image_id` one of the site's own that was made of it (mark deploy --bake). `platform` (x86_64, arm64, x86_64-gpu, arm64-gpu) says which instance types boot from all this, and `more_platforms` has the same for others of the service. `balancer`, `priority` and `target_groups` are its place, see `places`: the last is how many classes of capacity its instance types have (1 to 4), and never falls. `pipeline` and `stage` name the pipeline of which it is a stage, whose archive it has; `together` instead of `stage` several of its stages that share instances. `learns`: its instances learn from feedback, and exchange what they learned."
  type = map(object({
    slo_ms           = number
    pipeline         = optional(string)
    stage            = optional(string, "")
    together         = optional(list(string), [])
    learns           = optional(bool, false)
    slo_attainment   = optional(number)
    max_usd_per_hour = optional(number)
    archive          = string
    wheels           = string
    image_parameter  = optional(string, "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-x86_64")
    image_id         = optional(string)
    baked_image_id   = optional(string)
    disk_gb          = optional(number, 8)
    boot_timeout_s   = optional(number, 600)
    platform         = optional(string)
    more_platforms = optional(map(object({
      wheels          = string
      image_parameter = string
      image_id        = optional(string)
      baked_image_id  = optional(string)
      disk_gb         = optional(number, 8)
      boot_timeout_s  = optional(number, 600)
    })), {})
    balancer      = optional(number, 0)
    priority      = optional(number)
    target_groups = optional(number, 1)
    function = optional(object({
      zip                  = optional(string)
      image_uri            = optional(string)
      architecture         = optional(string, "x86_64")
      memory_mb            = number
      environment          = map(string)
      max_usd_per_hour     = optional(number)
      reserved_concurrency = optional(number)
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
    condition = alltrue([for groups in values({ for one in concat(
      [for service in values(var.services) : { at = "${service.pipeline == null ? "" : "stages "}${service.balancer}", groups = service.target_groups }],
      [for pipeline in values(var.pipelines) : { at = tostring(pipeline.balancer), groups = 1 }],
      ) : one.at => one.groups... }) :
      length(groups) <= floor((var.rules_per_balancer - 1) / (var.grpc_port == null ? 2 : 3)) &&
      sum(groups) * (var.grpc_port == null ? 1 : 2) + length(groups) <= 100
    ])
    error_message = "Too many services on one load balancer: it takes 100 target groups, of which a service has target_groups (by gRPC twice as many) and one more, and rules_per_balancer rules. Say `balancer = 1` (2, ...) for some."
  }
  validation {
    condition = alltrue([for names in values({ for name, one in merge(
      { for name, service in var.services : name => { at = "${service.pipeline == null ? "" : "stages "}${service.balancer}", priority = service.priority } },
      { for name, pipeline in var.pipelines : name => { at = tostring(pipeline.balancer), priority = pipeline.priority } },
      ) :
      "${one.at} ${coalesce(one.priority, parseint(substr(sha256(name), 0, 8), 16) % 24999 + 1)}" => name...
    }) : length(names) == 1])
    error_message = "Two services have the same priority on one load balancer: say `priority` (1 to 24,999) for the newer one."
  }
  validation {
    condition     = join(" ", sort(keys(var.pipelines))) == join(" ", sort(distinct([for service in values(var.services) : service.pipeline if service.pipeline != null])))
    error_message = "Each pipeline has stages among the services, and each stage its pipeline."
  }
  validation {
    condition     = length(setintersection(keys(var.pipelines), keys(var.services))) == 0
    error_message = "A pipeline and a service of one name."
  }
  validation {
    condition     = !anytrue([for service in values(var.services) : service.learns]) || can(regex("(?m)^conductor:[^:\\s]{16,}:", var.keys))
    error_message = "Servers that learn show each other a key: `keys` has no line conductor:KEY:infer."
  }
}

variable "pipelines" {
  description = "Pipelines: `slo_attainment` is watched by an alarm, `conductors` is how many instances take queries through the stages, which are services that name it; `archive` is its folder with the pipeline file as service.toml, `wheels` a .tar of what a conductor imports, files. `balancer` and `priority` are its place. `learns`: its conductors learn from feedback, and exchange what they learned."
  type = map(object({
    slo_ms         = number
    slo_attainment = optional(number)
    archive        = string
    wheels         = string
    conductors     = optional(number, 2)
    learns         = optional(bool, false)
    disk_gb        = optional(number, 8)
    balancer       = optional(number, 0)
    priority       = optional(number)
  }))
  default = {}
  validation {
    condition     = length(var.pipelines) == 0 || can(regex("(?m)^conductor:[^:\\s]{16,}:", var.keys))
    error_message = "Conductors ask stages by a key: `keys` has no line conductor:KEY:infer."
  }
}

variable "cidr" {
  description = "Addresses of the VPC, a /16. Another one makes the VPC anew, with all that is in it."
  type        = string
  default     = "10.42.0.0/16"
}

variable "default_service" {
  description = "The service that gets requests which name none (SageMaker's /invocations without the header mark-service). Null: they get 404."
  type        = string
  default     = null
  validation {
    condition     = var.default_service == null ? true : contains(concat([for name, service in var.services : name if service.pipeline == null], keys(var.pipelines)), var.default_service)
    error_message = "Must be one of the services, or of the pipelines."
  }
}

variable "domain" {
  description = "Name by which clients reach the first load balancer, as its certificate has it."
  type        = string
  default     = null
  validation {
    condition     = var.domain == null || var.certificate_arn != null
    error_message = "A domain needs its certificate: certificate_arn."
  }
}

variable "hosted_zone_id" {
  description = "Zone of Route 53 in which the domain is made to point there. Null: its owner does that, see the output `cname`."
  type        = string
  default     = null
  validation {
    condition     = var.hosted_zone_id == null || var.domain != null
    error_message = "Say which domain."
  }
}

variable "controller_image_id" {
  description = "Machine image of the controller. Null: Amazon's newest."
  type        = string
  default     = null
}

variable "former_image_ids" {
  description = "Machine images of releases that may be rolled back to."
  type        = list(string)
  default     = []
}

variable "rules_per_balancer" {
  description = "AWS's quota `Rules per Application Load Balancer` of the account; a service takes two, the default service one more."
  type        = number
  default     = 100
}

variable "grpc_port" {
  description = "Port of the load balancers, and of bouncers, for gRPC: needs certificate_arn. Null: HTTP only."
  type        = number
  default     = null
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
