# A whole site, as mark deploy makes it. Copy it, or call the modules from your own configuration.

provider "aws" {
  region = var.region

  # Launch templates with tags differ from themselves in the emulator.
  dynamic "default_tags" {
    for_each = var.emulated ? [] : [1]
    content {
      tags = { "mark:site" = var.site }
    }
  }

  # Endpoints come from AWS_ENDPOINT_URL. What an emulator lacks fails in a minute instead of being tried 25 times. Not
  # at once: an answer that comes sooner than the SDK has put its own request away is lost (aws-sdk-go-v2, issue 2737),
  # and an emulator on the same machine answers that fast. Two attempts in a row were seen to be lost so.
  s3_use_path_style           = var.emulated
  skip_credentials_validation = var.emulated
  skip_metadata_api_check     = var.emulated
  max_retries                 = var.emulated ? 8 : null
}

data "aws_caller_identity" "this" {}
data "aws_partition" "this" {}

data "aws_availability_zones" "this" {
  state = "available"
  # No local zones, which have few instance types and no NAT gateway.
  filter {
    name   = "opt-in-status"
    values = ["opt-in-not-required"]
  }
}

data "aws_ssm_parameter" "image" {
  for_each = toset(flatten([for service in var.services : [service.image_parameter, [for one in service.more_platforms : one.image_parameter]]]))
  name     = each.key
}

data "aws_ssm_parameter" "controller_image" {
  name = "/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-arm64"
}

locals {
  zones = var.zones != null ? var.zones : slice(
    sort(data.aws_availability_zones.this.names), 0, min(3, length(data.aws_availability_zones.this.names))
  )
  aws = {
    partition = data.aws_partition.this.partition
    region    = var.region
    account   = data.aws_caller_identity.this.account_id
  }
  names = sort(keys(var.services))
  # Where a service's rules are, by its own name alone unless said: other services that come and go do not move it.
  places = { for name, one in merge(
    { for name, service in var.services : name => { balancer = service.balancer, target_groups = service.target_groups, priority = service.priority } },
    { for name, pipeline in var.pipelines : name => { balancer = pipeline.balancer, target_groups = 1, priority = pipeline.priority } },
    ) : name => {
    balancer      = one.balancer
    target_groups = one.target_groups
    priority      = coalesce(one.priority, parseint(substr(sha256(name), 0, 8), 16) % 24999 + 1)
  } }
  # Clients do not reach the balancers before stages.
  stages       = { for name, service in var.services : name => service if service.pipeline != null }
  balancer_of  = { for name, place in local.places : name => !contains(keys(local.stages), name) ? tostring(place.balancer) : place.balancer == 0 ? "stages" : "stages-${place.balancer}" }
  balancers    = sort(distinct(concat(["0"], values(local.balancer_of))))
  bouncer_port = 8080
  functions    = { for name, service in var.services : name => service.function if service.function != null }
  addresses    = { for number, address in module.network.addresses : number => number == "0" && var.domain != null ? "https://${var.domain}" : address }
  learns = {
    bouncers   = anytrue([for service in values(var.services) : service.learns])
    conductors = anytrue([for pipeline in values(var.pipelines) : pipeline.learns])
  }
  image_ids = { for name, service in var.services : name => coalesce(service.image_id, nonsensitive(data.aws_ssm_parameter.image[service.image_parameter].value)) }
  more_image_ids = { for name, service in var.services : name => { for platform, one in service.more_platforms :
    platform => coalesce(one.image_id, nonsensitive(data.aws_ssm_parameter.image[one.image_parameter].value))
  } }
  controller_image_id = coalesce(var.controller_image_id, nonsensitive(data.aws_ssm_parameter.controller_image.value))
}

module "state" {
  source = "../../modules/state"

  site         = var.site
  aws          = local.aws
  keys         = var.keys
  keys_version = var.keys_version
  balancers    = local.balancers
  inner_key    = length(var.pipelines) > 0 || local.learns.bouncers
  emulated     = var.emulated
  artifacts = merge(
    { controller-wheels = var.controller_wheels },
    { for name, service in var.services : "archive/${name}" => service.archive if service.pipeline == null },
    merge([for name, pipeline in var.pipelines : { "archive/${name}" = pipeline.archive, "wheels/${name}" = pipeline.wheels }]...),
    { for name, service in var.services : "wheels/${name}" => service.wheels },
    merge([for name, service in var.services : { for platform, one in service.more_platforms : "wheels/${name}/${platform}" => one.wheels }]...),
    { for name, function in local.functions : "function/${name}" => function.zip if function.zip != null },
  )
}

module "network" {
  source = "../../modules/network"

  site              = var.site
  aws               = local.aws
  zones             = local.zones
  zone_numbers      = var.zone_numbers
  bouncer_port      = local.bouncer_port
  grpc_port         = var.grpc_port
  cidr              = var.cidr
  client_cidrs      = var.client_cidrs
  certificate_arn   = var.certificate_arn
  access_log_bucket = var.emulated ? null : module.state.bucket
  bucket            = module.state.bucket
  table_arn         = module.state.table.arn
  balancers         = local.balancers
  learns            = local.learns
  emulated          = var.emulated
}

module "events" {
  source = "../../modules/events"

  site = var.site
}

module "overflow" {
  source   = "../../modules/overflow"
  for_each = local.functions

  site        = var.site
  service     = each.key
  package     = each.value.zip == null ? null : module.state.artifacts["function/${each.key}"]
  memory_mb   = each.value.memory_mb
  environment = each.value.environment

  image_uri    = each.value.image_uri
  architecture = each.value.architecture

  reserved_concurrency = each.value.reserved_concurrency
  keys                 = module.state.keys["bouncers"]
}

module "fleet" {
  source   = "../../modules/fleet"
  for_each = var.services

  site              = var.site
  aws               = local.aws
  service           = each.key
  vpc_id            = module.network.vpc_id
  security_group_id = module.network.bouncer_security_group_id
  listener_arn      = module.network.listener_arns[local.balancer_of[each.key]]
  priority          = local.places[each.key].priority
  target_groups     = local.places[each.key].target_groups
  bouncer_port      = local.bouncer_port
  bouncer_tls       = !var.emulated # its instances do not boot from user data, which makes the certificate
  grpc = var.grpc_port == null || each.value.pipeline != null ? null : {
    port         = var.grpc_port
    listener_arn = module.network.grpc_listener_arns[local.balancer_of[each.key]]
  }
  stage          = each.value.stage
  together       = each.value.together
  image_id       = coalesce(each.value.baked_image_id, local.image_ids[each.key])
  disk_gb        = each.value.disk_gb
  boot_timeout_s = each.value.boot_timeout_s
  platform       = each.value.platform
  more_platforms = { for platform, one in each.value.more_platforms : platform => {
    image_id       = coalesce(one.baked_image_id, local.more_image_ids[each.key][platform])
    disk_gb        = one.disk_gb
    boot_timeout_s = one.boot_timeout_s
    wheels         = module.state.artifacts["wheels/${each.key}/${platform}"]
  } }
  slo_s = each.value.slo_ms / 1000
  artifacts = {
    wheels  = module.state.artifacts["wheels/${each.key}"]
    archive = module.state.artifacts["archive/${coalesce(each.value.pipeline, each.key)}"]
  }
  keys     = module.state.keys["bouncers"]
  learned  = each.value.learns ? { bucket = module.state.bucket, key = module.state.keys["conductors"] } : null
  function = each.value.function == null ? null : module.overflow[each.key].function
  emulated = var.emulated
}

module "conductors" {
  source   = "../../modules/conductors"
  for_each = var.pipelines

  site              = var.site
  aws               = local.aws
  pipeline          = each.key
  vpc_id            = module.network.vpc_id
  subnets           = module.network.subnets
  security_group_id = module.network.conductor_security_group_id
  listener_arn      = module.network.listener_arns[local.balancer_of[each.key]]
  priority          = local.places[each.key].priority
  port              = local.bouncer_port
  tls               = !var.emulated # its instances do not boot from user data, which makes the certificate
  image_id          = local.controller_image_id
  conductors        = each.value.conductors
  disk_gb           = each.value.disk_gb
  slo_s             = each.value.slo_ms / 1000
  artifacts         = { for kind in ["wheels", "archive"] : kind => module.state.artifacts["${kind}/${each.key}"] }
  keys              = module.state.keys["bouncers"]
  stages_keys       = module.state.keys["conductors"]
  learned_bucket    = each.value.learns ? module.state.bucket : null
  stages = merge([for name, service in local.stages : {
    for stage in length(service.together) == 0 ? [service.stage] : service.together : stage => module.network.addresses[local.balancer_of[name]]
  } if service.pipeline == each.key]...)
  emulated = var.emulated

  # A stage is asked as soon as a conductor is there.
  depends_on = [module.fleet]
}

# Clients check that the certificate is of the name that they asked for, which a balancer's own name never is.
resource "aws_route53_record" "domain" {
  count   = var.hosted_zone_id == null ? 0 : 1
  zone_id = var.hosted_zone_id
  name    = var.domain
  type    = "A"

  alias {
    name                   = module.network.names["0"].dns_name
    zone_id                = module.network.names["0"].zone_id
    evaluate_target_health = false
  }
}

# What names no service goes to the default service. The last of all priorities, so that it moves for no other; a rule
# of the site and not of the service. What it forwards to is the controller's, as with services' own rules: another
# default service gets another rule, and requests without a name get 404 for the moment between the two.
resource "terraform_data" "default" {
  input = var.default_service
}

resource "aws_lb_listener_rule" "default" {
  count        = var.default_service == null ? 0 : 1
  listener_arn = module.network.listener_arns[local.balancer_of[var.default_service]]
  priority     = 50000
  tags         = { "mark:site" = var.site }

  action {
    type = "forward"
    forward {
      dynamic "target_group" {
        for_each = flatten([for named in [module.fleet, module.conductors] : [for name, one in named : one.forward if name == var.default_service]])
        content {
          arn    = target_group.value.arn
          weight = target_group.value.weight
        }
      }
    }
  }

  condition {
    path_pattern {
      values = ["/*"]
    }
  }

  lifecycle {
    ignore_changes       = [action]
    replace_triggered_by = [terraform_data.default]
  }
}

module "controller" {
  source = "../../modules/controller"

  site                      = var.site
  aws                       = local.aws
  subnets                   = module.network.subnets
  bouncer_port              = local.bouncer_port
  bouncer_security_group_id = module.network.bouncer_security_group_id
  security_group_id         = module.network.controller_security_group_id
  image_id                  = local.controller_image_id
  former_image_ids          = var.former_image_ids
  instance_type             = var.controller_type
  disk_gb                   = var.controller_disk_gb
  artifacts                 = { wheels = module.state.artifacts["controller-wheels"] }
  boot_files                = module.state.boot_files
  table                     = module.state.table
  queue                     = module.events.queue
  keys                      = module.state.keys["controller"]
  dry_run                   = var.dry_run
  pipelines                 = { for name in keys(var.pipelines) : name => { conductors = module.conductors[name].group, scheme = module.conductors[name].scheme } }
  services = { for name in local.names : name => {
    launch_template = module.fleet[name].launch_template
    target_groups   = module.fleet[name].target_groups[*].arn
    listener_rules = concat(
      module.fleet[name].listener_rules, name == var.default_service ? aws_lb_listener_rule.default[*].arn : []
    )
    function_group = module.fleet[name].function_group
    grpc           = module.fleet[name].grpc
    scheme         = module.fleet[name].scheme
    image_id       = local.image_ids[name]
    more_image_ids = values(local.more_image_ids[name])
    function       = var.services[name].function == null ? null : module.overflow[name].function.qualified
    function_alias = var.services[name].function == null ? null : module.overflow[name].function.alias
    folder         = var.services[name].pipeline
    archive        = module.state.artifacts["archive/${coalesce(var.services[name].pipeline, name)}"]
  } }
}

module "observability" {
  source = "../../modules/observability"

  site               = var.site
  alarm_email        = var.alarm_email
  monthly_budget_usd = var.emulated ? null : var.monthly_budget_usd
  queue_name         = module.events.queue.name
  balancers          = module.network.balancer_arn_suffixes
  pipelines = { for name in keys(var.pipelines) : name => {
    balancer       = module.network.balancer_arn_suffixes[local.balancer_of[name]]
    target_groups  = module.conductors[name].target_groups
    group          = module.conductors[name].group
    slo_attainment = var.pipelines[name].slo_attainment
    learns         = var.pipelines[name].learns
  } }
  services = { for name in local.names : name => {
    balancer      = module.network.balancer_arn_suffixes[local.balancer_of[name]]
    target_groups = module.fleet[name].target_groups[*].suffix
    function      = var.services[name].function == null ? null : module.overflow[name].function.name

    slo_attainment            = var.services[name].slo_attainment
    learns                    = var.services[name].learns
    max_usd_per_hour          = var.services[name].max_usd_per_hour
    max_function_usd_per_hour = try(var.services[name].function.max_usd_per_hour, null)
  } }
}
