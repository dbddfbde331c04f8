output "site_toml" {
  description = "The site file."
  value       = local.site_toml
}

output "group" {
  description = "Auto Scaling group of the controller."
  value       = aws_autoscaling_group.this.name
}
