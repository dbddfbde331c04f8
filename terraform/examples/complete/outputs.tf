output "site_toml" {
  description = "The site file, for mark controller --site."
  value       = module.controller.site_toml
}

output "address" {
  description = "Where clients send requests."
  value       = module.network.address
}

output "controller_group" {
  description = "Auto Scaling group of the controller."
  value       = module.controller.group
}

output "zones" {
  description = "Zones in which instances may be launched."
  value       = local.zones
}

output "alarms" {
  description = "How many alarms there are."
  value       = module.observability.alarms
}
