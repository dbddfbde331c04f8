variable "site" {
  description = "Name of the site: the tag mark:site, and the beginning of every name."
  type        = string
  validation {
    condition     = !can(regex("^internal(-|$)", var.site))
    error_message = "Load balancers of this name are refused by AWS: internal-... is its own."
  }
}

variable "zones" {
  description = "Availability zones in which instances may be launched; two at least, a load balancer asks for them."
  type        = list(string)
  validation {
    condition     = length(var.zones) >= 2 && length(var.zones) <= 6 && length(distinct(var.zones)) == length(var.zones)
    error_message = "Two to six zones, each named once."
  }
}

variable "zone_numbers" {
  description = "Numbers of the zones that the site has or had, as the output of this name had them: a zone keeps its subnets. Others get the next free ones."
  type        = map(number)
  default     = {}
  validation {
    condition     = length(distinct(values(var.zone_numbers))) == length(var.zone_numbers) && alltrue([for number in values(var.zone_numbers) : number >= 0 && number < 15])
    error_message = "Each zone has a number of its own, 0 to 14."
  }
}

variable "cidr" {
  description = "Addresses of the VPC, a /16."
  type        = string
  default     = "10.42.0.0/16"
  validation {
    condition     = can(cidrnetmask(var.cidr)) && endswith(var.cidr, "/16")
    error_message = "Must be an IPv4 range of the form a.b.0.0/16."
  }
}

variable "bouncer_port" {
  description = "Port on which bouncers listen."
  type        = number
  default     = 8080
}

variable "grpc_port" {
  description = "Port on which bouncers, and the load balancers for clients, speak gRPC; it needs a certificate. Null: they do not."
  type        = number
  default     = null
  validation {
    condition     = var.grpc_port == null ? true : var.certificate_arn != null && !contains([80, 443, var.bouncer_port], var.grpc_port)
    error_message = "A load balancer speaks gRPC by HTTPS only, so give certificate_arn; and the port must be another one."
  }
}

variable "learns" {
  description = "Which servers learn from feedback: they ask each other, and keep what they learned in the bucket."
  type        = object({ bouncers = bool, conductors = bool })
  default     = { bouncers = false, conductors = false }
}

variable "client_cidrs" {
  description = "Address ranges that may reach the load balancer."
  type        = list(string)
  default     = ["0.0.0.0/0"]
}

variable "balancers" {
  description = "Names of the load balancers: their numbers, from 0, as text; and stages, stages-1, ... of those before the stages of pipelines, which conductors alone reach. One takes 100 target groups."
  type        = list(string)
  default     = ["0"]
  validation {
    condition     = contains(var.balancers, "0") && alltrue([for one in var.balancers : can(regex("^([0-9]{1,2}|stages(-[0-9]{1,2})?)$", one))])
    error_message = "Numbers of at most two digits, 0 among them; and stages, stages-1, ..."
  }
}

variable "certificate_arn" {
  description = "Certificate (ACM) of the load balancer. Without one it speaks plain HTTP, to named networks only."
  type        = string
  default     = null
}

variable "access_log_bucket" {
  description = "Bucket for the load balancer's access logs (under alb/): a trace for mark simulate. Null: none are written."
  type        = string
  default     = null
}

variable "bucket" {
  description = "Bucket from which instances boot: the only one of ours that they reach."
  type        = string
}

variable "table_arn" {
  description = "Table of the controller's state: the only one that is reached from here."
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

variable "emulated" {
  description = "An emulator stands in for AWS: it forgets descriptions of rules between security groups."
  type        = bool
  default     = false
}
