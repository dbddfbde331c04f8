output "site_toml" {
  description = "The site file, for mark controller --site."
  value       = module.controller.site_toml
}

output "address" {
  description = "Where clients send requests, as far as services are on the first load balancer."
  value       = module.network.addresses["0"]
}

output "addresses" {
  description = "Where clients of each service send requests."
  value       = { for name, place in local.places : name => module.network.addresses[tostring(place.balancer)] }
}

output "places" {
  description = "Where each service's rules are: its balancer and its priority, to be given again, so that it stays there."
  value       = local.places
}

output "default_service" {
  description = "The service that gets requests which name none; to be given again, so that it stays so. Empty: none."
  value       = var.default_service == null ? "" : var.default_service
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
