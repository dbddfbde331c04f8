variable "site" {
  description = "Name of the site."
  type        = string
}
