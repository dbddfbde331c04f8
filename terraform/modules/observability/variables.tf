variable "site" {
  description = "Name of the site."
  type        = string
}

variable "alarm_email" {
  description = "Address that alarms are sent to; null: they are only seen in the console."
  type        = string
  default     = null
}

variable "monthly_budget_usd" {
  description = "Told when the account's bill of a month passes 80 % of it, or is forecast to pass it. Null, or no address: no budget."
  type        = number
  default     = null
}

variable "queue_name" {
  description = "Queue of notices."
  type        = string
}

variable "balancers" {
  description = "Load balancers by number, as CloudWatch names them."
  type        = map(string)
}

variable "pipelines" {
  description = "What is watched of each pipeline's conductors: their balancer and target groups (as CloudWatch names them), and their Auto Scaling group; and the share of queries that the whole promises (0 to 1; null: no alarm). `learns`: facts of its conductors go to the bucket."
  type = map(object({
    balancer       = string
    target_groups  = list(string)
    group          = string
    slo_attainment = optional(number)
    learns         = optional(bool, false)
  }))
  default = {}
}

variable "services" {
  description = "What is watched of each service: its balancer and target groups (as CloudWatch names them), its function or null, the share of requests that it promises (0 to 1), what its instances may cost in an hour, and what calls of its function may; null: no alarm. `learns`: facts of its instances go to the bucket."
  type = map(object({
    balancer                  = string
    target_groups             = list(string)
    function                  = optional(string)
    slo_attainment            = optional(number)
    max_usd_per_hour          = optional(number)
    learns                    = optional(bool, false)
    max_function_usd_per_hour = optional(number)
  }))
}
