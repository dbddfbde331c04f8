"""The site file: account and region, and the resources that Terraform or the testbed made for each service.

[site]
name = "mark"                       # tag mark:site on everything
region = "us-east-1"
store = "dynamodb:mark-state"       # or "sqlite:PATH", relative to this file
queue_url = "https://sqs..."        # interruption warnings, rebalance recommendations, state changes; "" for none
bouncer_port = 8080
key_file = "mark.key"               # optional, relative to this file
time_scale = 1.0                    # testbed only: control seconds per wall second
[services.inception]
launch_template = "lt-0abc"
subnets = { "us-east-1a" = "subnet-0abc" }
target_groups = ["arn:aws:elasticloadbalancing:..."]  # one for each class of capacity, the smallest first
listener_rules = ["arn:aws:elasticloadbalancing:..."]  # forward to these groups, by weights that the controller sets
function_group = "arn:aws:elasticloadbalancing:..."    # of a function that answers while no instance is ready
grpc_groups = ["arn:aws:elasticloadbalancing:..."]     # the same for gRPC, as many as target_groups
grpc_rules = ["arn:aws:elasticloadbalancing:..."]
function = "mark-inception-overflow:3"                 # called by instances of this release
function_alias = "balancer"         # of that function; the controller moves it to the version of the serving release
scheme = "https"                    # protocol of its bouncers and target groups, default "http"
release = "3fa9c1d2e4b5"            # the release to boot from, and its version of the launch template
launch_template_version = "7"
platforms = { x86_64 = { launch_template = "lt-0abc", version = "7" } }  # template of each platform
gateway = "http://127.0.0.1:9000"   # a mark gateway, if all requests pass through it: its counts are the load
[pipelines.digits]                  # whose stages are among the services
conductors = "mark-digits-conductors"  # Auto Scaling group of its conductors
scheme = "https"                    # protocol of the conductors on bouncer_port, default "http"
address = "http://127.0.0.1:9001"   # instead of both: addresses of a testbed's conductors, separated by spaces
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from mark.domain.cells import read_text
from mark.domain.errors import BadInput
from mark_infra.aws.platforms import PLATFORMS

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")  # as in service files
_SITE_KEYS = {"name", "region", "store", "queue_url", "bouncer_port", "key_file", "time_scale"}
_SERVICE_KEYS = {
    "launch_template",
    "launch_template_version",
    "platforms",
    "release",
    "subnets",
    "target_groups",
    "listener_rules",
    "function_group",
    "grpc_groups",
    "grpc_rules",
    "function",
    "function_alias",
    "gateway",
    "scheme",
}


# Suffix of the service's name in the tag mark:service of instances that are rented for measurements. No controller
# manages that service, so these instances get no requests, and a controller ends those that are left over.
TO_MEASURE = ".profile"


@dataclass(frozen=True, slots=True)
class TemplateVersion:
    """A version of a launch template; `$Latest` is the newest."""

    launch_template: str  # its id
    version: str


@dataclass(frozen=True, slots=True)
class SiteService:
    """The resources of a site for one service."""

    launch_template: str  # its id
    subnets: Mapping[str, str]  # zone -> subnet id, in order of preference
    target_groups: tuple[str, ...] = ()  # ARNs
    function: str | None = None  # name of its Lambda function, with a version if there are releases
    gateway: str | None = None  # a mark gateway that counts the requests; behind a load balancer bouncers count them
    release: str = ""  # hash of the release to boot from; "" launches the newest, as releases have no names then
    launch_template_version: str = ""  # set together with release
    listener_rules: tuple[str, ...] = ()  # ARNs of rules that forward only to the target groups
    function_group: str | None = None  # ARN of a function's target group
    grpc_groups: tuple[str, ...] = ()  # ARNs, in the order of target_groups
    grpc_rules: tuple[str, ...] = ()
    scheme: str = "http"  # or https: protocol of the bouncers of all its releases
    function_alias: str | None = None  # alias of its function, which answers while no instance is ready
    platforms: Mapping[str, TemplateVersion] = field(default_factory=dict)  # by name; empty: launch_template for all

    @property
    def launch_templates(self) -> frozenset[str]:
        """The ids of all its launch templates."""
        return frozenset((self.launch_template, *(one.launch_template for one in self.platforms.values())))


@dataclass(frozen=True, slots=True)
class SitePipeline:
    """The conductors of a site for one pipeline; its stages are services."""

    conductors: str = ""  # name of their Auto Scaling group
    scheme: str = "http"  # or https: protocol of the conductors
    address: str = ""  # URLs of conductors outside a group, separated by spaces


@dataclass(frozen=True, slots=True)
class Site:
    """An account, a region and the resources there. Paths are absolute."""

    name: str
    region: str
    store: str  # dynamodb:TABLE or sqlite:PATH
    queue_url: str = ""
    bouncer_port: int = 8080
    key_file: Path | None = None
    time_scale: float = 1.0  # control seconds per wall second
    services: Mapping[str, SiteService] = field(default_factory=dict)
    pipelines: Mapping[str, SitePipeline] = field(default_factory=dict)

    def service(self, name: str) -> SiteService:
        """Return the resources of a service. Raises BadInput if the site has none."""
        try:
            return self.services[name]
        except KeyError:
            raise BadInput(f"site {self.name} has nothing for this service", f"[services.{name}]") from None

    def bouncer_url(self, service: str, address: str) -> str:
        """Return the URL of the bouncer on a service's instance; http for a service that the site does not know."""
        scheme = self.services[service].scheme if service in self.services else "http"
        return f"{scheme}://{address}:{self.bouncer_port}"

    def to_measure(self, name: str) -> Site:
        """Return the same site with the service that rents instances to measure this one, behind no balancer."""
        there = self.service(name)
        alone = SiteService(
            there.launch_template,
            there.subnets,
            gateway=there.gateway,
            release=there.release,
            launch_template_version=there.launch_template_version,
            scheme=there.scheme,
            platforms=there.platforms,
        )
        return replace(self, services={name + TO_MEASURE: alone})


def load_site(path: Path) -> Site:
    """Read the site file at `path`. Raises BadInput, which names file, key and value."""
    try:
        tables = tomllib.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise BadInput(f"is no TOML: {error}", str(path)) from None
    file = _Table(path, "", tables)
    file.check({"site", "services", "pipelines"})
    site = file.table("site")
    site.check(_SITE_KEYS)
    services = file.table("services") if "services" in tables else _Table(path, "services", {})
    pipelines = file.table("pipelines") if "pipelines" in tables else _Table(path, "pipelines", {})
    store = site.text("store")
    kind, _, place = store.partition(":")
    if kind not in ("dynamodb", "sqlite") or not place:
        raise BadInput("must be dynamodb:TABLE or sqlite:PATH", site.where("store"), store)
    if kind == "sqlite":
        # The path is relative to the file, so that the folder can be moved as a whole.
        store = f"sqlite:{(path.parent / place).absolute()}"
    key_file = site.text("key_file", "")
    port = site.values.get("bouncer_port", 8080)
    if type(port) is not int or not 0 < port < 65536:
        raise BadInput("must be a port", site.where("bouncer_port"), port)
    scale = site.values.get("time_scale", 1.0)
    if type(scale) not in (int, float) or not (math.isfinite(scale) and scale > 0.0):
        raise BadInput("must be a number above zero", site.where("time_scale"), scale)
    return Site(
        name=site.name("name"),
        region=site.text("region"),
        store=store,
        queue_url=site.text("queue_url", ""),
        bouncer_port=port,
        key_file=(path.parent / key_file).absolute() if key_file else None,
        time_scale=float(scale),
        services={name: _service(services.table(name), name) for name in services.values},
        pipelines={name: _pipeline(pipelines.table(name)) for name in pipelines.values},
    )


def dump_site(site: Site) -> str:
    """Return the text of a site file, from which `load_site` reads the same site."""
    head: dict[str, object] = {
        "name": site.name,
        "region": site.region,
        "store": site.store,
        "queue_url": site.queue_url,
        "bouncer_port": site.bouncer_port,
        "key_file": None if site.key_file is None else str(site.key_file),
        "time_scale": site.time_scale,
    }
    lines = ["[site]", *_lines(head)]
    for name, service in site.services.items():
        body: dict[str, object] = {
            "launch_template": service.launch_template,
            "subnets": service.subnets,
            "target_groups": list(service.target_groups),
            "listener_rules": list(service.listener_rules) or None,
            "function_group": service.function_group,
            "grpc_groups": list(service.grpc_groups) or None,
            "grpc_rules": list(service.grpc_rules) or None,
            "function": service.function,
            "function_alias": service.function_alias,
            "gateway": service.gateway,
            "scheme": None if service.scheme == "http" else service.scheme,
            "release": service.release or None,
            "launch_template_version": service.launch_template_version or None,
            "platforms": {name: asdict(one) for name, one in service.platforms.items()} or None,
        }
        lines += ["", f"[services.{_text(name)}]", *_lines(body)]
    for name, pipeline in site.pipelines.items():
        lines += ["", f"[pipelines.{_text(name)}]", *_lines({k: v or None for k, v in asdict(pipeline).items()})]
    return "\n".join(lines) + "\n"


def _service(table: _Table, name: str) -> SiteService:
    if not _NAME.fullmatch(name):
        raise BadInput("is no service name", f"{table.path} [services]", name)
    table.check(_SERVICE_KEYS)
    subnets = table.table("subnets")
    if not subnets.values:
        raise BadInput("names no subnet", table.where("subnets"))
    groups, rules = table.arns("target_groups"), table.arns("listener_rules")
    function_group = table.text("function_group", "") or None
    grpc_groups, grpc_rules = table.arns("grpc_groups"), table.arns("grpc_rules")
    if (len(groups) > 1 or function_group) and not rules:
        raise BadInput("is missing: several groups have shares, which stand in rules", table.where("listener_rules"))
    if function_group and not groups:
        raise BadInput("is missing where there is a function_group", table.where("target_groups"))
    if grpc_groups and (len(grpc_groups) != len(groups) or not grpc_rules):
        raise BadInput("must be as many as target_groups, with grpc_rules", table.where("grpc_groups"), grpc_groups)
    release, version = table.text("release", ""), table.text("launch_template_version", "")
    if bool(release) != bool(version):
        missing = "launch_template_version" if release else "release"
        raise BadInput("is missing: release and launch_template_version go together", table.where(missing))
    function, function_alias = table.text("function", "") or None, table.text("function_alias", "") or None
    if function_alias and not function:
        raise BadInput("is missing where there is a function_alias", table.where("function"))
    return SiteService(
        launch_template=table.text("launch_template"),
        subnets={zone: subnets.text(zone) for zone in subnets.values},
        target_groups=groups,
        function=function,
        function_alias=function_alias,
        gateway=table.text("gateway", "") or None,
        release=release,
        launch_template_version=version,
        listener_rules=rules,
        function_group=function_group,
        grpc_groups=grpc_groups,
        grpc_rules=grpc_rules,
        scheme=table.scheme(),
        platforms=_platforms(table, release),
    )


def _pipeline(table: _Table) -> SitePipeline:
    table.check({"conductors", "scheme", "address"})
    if address := table.text("address", ""):
        return SitePipeline(scheme=table.scheme(), address=address)
    return SitePipeline(table.text("conductors"), table.scheme())


def _platforms(table: _Table, release: str) -> dict[str, TemplateVersion]:
    """Return the launch template version of each platform."""
    if "platforms" not in table.values:
        return {}
    platforms = table.table("platforms")
    platforms.check(set(PLATFORMS))
    if not release:
        raise BadInput("is missing where there are platforms", table.where("release"))
    found = {}
    for name in platforms.values:
        one = platforms.table(name)
        one.check({"launch_template", "version"})
        found[name] = TemplateVersion(one.text("launch_template"), one.text("version"))
    return found


@dataclass(frozen=True, slots=True)
class _Table:
    path: Path
    section: str
    values: Mapping[str, Any]

    def where(self, key: str) -> str:
        return f"{self.path} [{self.section}] {key}" if self.section else f"{self.path} [{key}]"

    def check(self, known: set[str]) -> None:
        for key, value in self.values.items():
            if key not in known:
                raise BadInput("unknown key", self.where(key), value)

    def table(self, key: str) -> _Table:
        value = self.values.get(key)
        if not isinstance(value, dict):
            raise BadInput("must be a section" if key in self.values else "is missing", self.where(key), value)
        return _Table(self.path, f"{self.section}.{key}" if self.section else key, value)

    def text(self, key: str, default: str | None = None) -> str:
        value = self.values.get(key, default)
        if value is None:
            raise BadInput("is missing", self.where(key))
        if not isinstance(value, str) or (not value and default is None):
            raise BadInput("must be a text", self.where(key), value)
        return value

    def arns(self, key: str) -> tuple[str, ...]:
        value = self.values.get(key, [])
        if not isinstance(value, list) or not all(isinstance(arn, str) and arn for arn in value):
            raise BadInput("must be a list of ARNs", self.where(key), value)
        if len(set(value)) < len(value):
            raise BadInput("names an ARN twice", self.where(key), value)
        return tuple(value)

    def scheme(self) -> str:
        value = self.text("scheme", "http")
        if value not in ("http", "https"):
            raise BadInput("must be http or https", self.where("scheme"), value)
        return value

    def name(self, key: str) -> str:
        value = self.text(key)
        if not _NAME.fullmatch(value):
            raise BadInput("must be letters, digits, . _ -, 63 at most", self.where(key), value)
        return value


def _lines(values: Mapping[str, object]) -> list[str]:
    return [f"{key} = {_toml(value)}" for key, value in values.items() if value is not None]


def _toml(value: object) -> str:
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_text(key)} = {_toml(item)}" for key, item in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    return _text(value) if isinstance(value, str) else repr(value)


def _text(value: str) -> str:
    # JSON's escapes are valid in TOML; only DEL must be escaped in addition.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
