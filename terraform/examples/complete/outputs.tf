output "site_toml" {
  description = "The site file, for mark controller --site."
  value       = module.controller.site_toml
}

output "address" {
  description = "Where clients send requests, as far as services are on the first load balancer."
  value       = local.addresses["0"]
}

output "addresses" {
  description = "Where clients of each service, and of each pipeline, send requests."
  value       = { for name, balancer in local.balancer_of : name => local.addresses[balancer] if !contains(keys(local.stages), name) }
}

output "balancer_names" {
  description = "The own name of each service's load balancer: it answers there before a domain points to it."
  value       = { for name, balancer in local.balancer_of : name => module.network.names[balancer].dns_name if !contains(keys(local.stages), name) }
}

output "cname" {
  description = "What the owner of the domain has to set; empty where nothing is left to do."
  value       = var.domain != null && var.hosted_zone_id == null ? { (var.domain) = module.network.names["0"].dns_name } : {}
}

output "places" {
  description = "Where each service's rules are: its balancer and its priority, to be given again, so that it stays there."
  value       = local.places
}

output "images" {
  description = "The machine images of each service, by which parameters they were found, for which platforms they are, and the controller's; to be given again, so that Amazon's next one replaces nothing."
  value = {
    controller = local.controller_image_id
    services = { for name, service in var.services : name => {
      parameter = service.image_parameter
      id        = local.image_ids[name]
      platform  = service.platform
      more      = { for platform, one in service.more_platforms : platform => { parameter = one.image_parameter, id = local.more_image_ids[name][platform] } }
    } }
    former = var.former_image_ids
  }
}

output "releases" {
  description = "What instances of each service are to boot from, by the name that they carry in their tag mark:release."
  value       = { for name in local.names : name => module.fleet[name].launch_template.release }
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

output "zone_numbers" {
  description = "Numbers of all zones that the site has or had, to be given again, so that each keeps its subnets."
  value       = module.network.zone_numbers
}

output "alarms" {
  description = "How many alarms there are."
  value       = module.observability.alarms
}

output "cidr" {
  description = "Addresses of the VPC."
  value       = var.cidr
}
