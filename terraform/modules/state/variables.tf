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

variable "artifacts" {
  description = "Files that instances fetch when they boot, by a name: paths on this machine."
  type        = map(string)
}

variable "balancers" {
  description = "Numbers of the load balancers that write their logs here, as the network module has them."
  type        = list(string)
  default     = ["0"]
}

variable "keys" {
  description = "Keys of callers, lines NAME:KEY:SCOPES, the controller's first. Never in the state, and written once."
  type        = string
  sensitive   = true
  ephemeral   = true
}

variable "inner_key" {
  description = "There are conductors, or servers that learn, which read the inner key: that named conductor."
  type        = bool
  default     = false
}

variable "keys_version" {
  description = "To be raised to write the keys again, over what mark keys has made of them."
  type        = number
  default     = 1
}

variable "emulated" {
  description = "An emulator stands in for AWS: no bucket policy (it ignores conditions), no rule for the age of logs (a minute's wait)."
  type        = bool
  default     = false
}
