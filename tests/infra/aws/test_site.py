"""The site file: read strictly, and written so that it reads the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mark_infra.aws.site import Site, SitePipeline, SiteService, TemplateVersion, dump_site, load_site

from mark.domain.errors import BadInput

FULL = """
[site]
name = "mark"
region = "us-east-1"
store = "sqlite:state/mark.sqlite"
queue_url = "https://sqs.us-east-1.amazonaws.com/123456789012/mark"
bouncer_port = 8081
key_file = "mark.key"
time_scale = 12.5
[services.inception]
launch_template = "lt-1"
subnets = { "us-east-1a" = "subnet-1", "us-east-1b" = "subnet-2" }
target_groups = ["arn:1", "arn:2"]
listener_rules = ["arn:3"]
function_group = "arn:4"
grpc_groups = ["arn:5", "arn:6"]
grpc_rules = ["arn:7"]
function = "mark-inception-overflow"
function_alias = "balancer"
scheme = "https"
gateway = "http://127.0.0.1:9000"
[services."opennmt.ende"]
launch_template = "lt-2"
subnets = { "us-east-1a" = "subnet-1" }
release = "0123456789ab"
launch_template_version = "7"
[services."opennmt.ende".platforms]
x86_64 = { launch_template = "lt-2", version = "7" }
arm64-gpu = { launch_template = "lt-3", version = "1" }
[pipelines.two]
conductors = "mark-two-conductors"
scheme = "https"
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "mark-site.toml"
    path.write_text(text)
    return path


def test_everything_is_read(tmp_path: Path) -> None:
    """Paths are relative to the file, whatever the current folder is."""
    site = load_site(written(tmp_path, FULL))
    assert site == Site(
        "mark",
        "us-east-1",
        f"sqlite:{tmp_path}/state/mark.sqlite",
        "https://sqs.us-east-1.amazonaws.com/123456789012/mark",
        8081,
        tmp_path / "mark.key",
        12.5,
        {
            "inception": SiteService(
                "lt-1",
                {"us-east-1a": "subnet-1", "us-east-1b": "subnet-2"},
                ("arn:1", "arn:2"),
                "mark-inception-overflow",
                "http://127.0.0.1:9000",
                listener_rules=("arn:3",),
                function_group="arn:4",
                grpc_groups=("arn:5", "arn:6"),
                grpc_rules=("arn:7",),
                scheme="https",
                function_alias="balancer",
            ),
            "opennmt.ende": SiteService(
                "lt-2",
                {"us-east-1a": "subnet-1"},
                release="0123456789ab",
                launch_template_version="7",
                platforms={"x86_64": TemplateVersion("lt-2", "7"), "arm64-gpu": TemplateVersion("lt-3", "1")},
            ),
        },
        {"two": SitePipeline("mark-two-conductors", "https")},
    )
    assert list(site.service("inception").subnets) == ["us-east-1a", "us-east-1b"]
    with pytest.raises(BadInput, match=r"services\.other"):
        site.service("other")


def test_a_bouncer_is_reached_as_its_service_says(tmp_path: Path) -> None:
    """This includes an instance rented for a measurement. A service that names no protocol speaks http."""
    site = load_site(written(tmp_path, FULL))
    assert site.bouncer_url("inception", "10.0.0.1") == "https://10.0.0.1:8081"
    assert site.to_measure("inception").bouncer_url("inception.profile", "10.0.0.1") == "https://10.0.0.1:8081"
    ende = site.service("opennmt.ende")
    assert site.to_measure("opennmt.ende").service("opennmt.ende.profile").platforms == ende.platforms
    assert site.bouncer_url("opennmt.ende", "10.0.0.1") == "http://10.0.0.1:8081"
    assert site.bouncer_url("other", "10.0.0.1") == "http://10.0.0.1:8081"


def test_what_may_be_left_out(tmp_path: Path) -> None:
    site = load_site(written(tmp_path, '[site]\nname = "m"\nregion = "eu-west-1"\nstore = "dynamodb:mark-state"\n'))
    assert site == Site("m", "eu-west-1", "dynamodb:mark-state")


TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)


@given(
    zones=st.dictionaries(TEXT, TEXT, min_size=1),
    groups=st.lists(TEXT, unique=True),
    function=TEXT,
    scale=st.floats(1e-3, 1e3),
)
def test_what_is_written_reads_the_same(
    tmp_path_factory: pytest.TempPathFactory, zones: dict[str, str], groups: list[str], function: str, scale: float
) -> None:
    """Any character may be in it."""
    path = tmp_path_factory.getbasetemp() / "mark-site.toml"
    service = SiteService(
        "lt-1", zones, tuple(groups), function, function,
        listener_rules=(function,), function_group=function if groups else None, grpc_groups=tuple(groups),
        grpc_rules=(function,), scheme="https" if groups else "http", release=function,
        launch_template_version=function, platforms={"arm64": TemplateVersion(function, function)} if groups else {},
    )  # fmt: skip
    site = Site(
        "mark", function, "sqlite:/a b/ü.db", function, 1, Path("/k e y"), scale, {"a.b-c": service, "d": service},
        {
            **{name: SitePipeline(name, "https" if groups else "http") for name in zones},
            "one conductor": SitePipeline(address=f"http://{function}"),
        },
    )  # fmt: skip
    path.write_bytes(dump_site(site).encode())
    assert load_site(path) == site


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('name = "mark"', "", r"\[site\] name: is missing"),
        ('name = "mark"', 'name = "a b"', r"\[site\] name: must be letters.*a b"),
        ('name = "mark"', 'name = "mark"\ncolour = 3', r"\[site\] colour: unknown key: 3"),
        ('region = "us-east-1"', "region = 1", r"\[site\] region: must be a text: 1"),
        ('"sqlite:state/mark.sqlite"', '"sqlite:"', r"\[site\] store: must be dynamodb:TABLE or sqlite:PATH"),
        ('"sqlite:state/mark.sqlite"', '"postgres:x"', r"\[site\] store: must be"),
        ('scheme = "https"', 'scheme = "tls"', r"\[services\.inception\] scheme: must be http or https: tls"),
        ("8081", "0", r"\[site\] bouncer_port: must be a port: 0"),
        ("8081", "true", r"\[site\] bouncer_port: must be a port: True"),
        ("12.5", "nan", r"\[site\] time_scale: must be a number above zero: nan"),
        ("12.5", "0", r"\[site\] time_scale: must be a number above zero: 0"),
        ("[site]", "[sight]", r"\[sight\]: unknown key"),
        ('launch_template = "lt-1"', "", r"\[services.inception\] launch_template: is missing"),
        ('"us-east-1a" = "subnet-1", "us-east-1b" = "subnet-2"', "", r"subnets: names no subnet"),
        ('"us-east-1b" = "subnet-2"', '"us-east-1b" = 2', r"\[services.inception.subnets\] us-east-1b: must be a text"),
        ('["arn:1", "arn:2"]', '"arn:1"', r"target_groups: must be a list of ARNs"),
        ('["arn:1", "arn:2"]', '["arn:1", "arn:1"]', r"target_groups: names an ARN twice"),
        ('listener_rules = ["arn:3"]', "", r"listener_rules: is missing"),
        ('target_groups = ["arn:1", "arn:2"]', "target_groups = []", r"target_groups: is missing"),
        ('["arn:5", "arn:6"]', '["arn:5"]', r"grpc_groups: must be as many as target_groups"),
        ('grpc_rules = ["arn:7"]', "", r"grpc_groups: must be as many as target_groups, with grpc_rules"),
        ("arm64-gpu", "riscv", r"\[services\.opennmt\.ende\.platforms\] riscv: unknown key"),
        (
            'version = "1"',
            "version = 1",
            r"\[services\.opennmt\.ende\.platforms\.arm64-gpu\] version: must be a text: 1",
        ),
        (
            'release = "0123456789ab"\nlaunch_template_version = "7"\n',
            "",
            r"release: is missing where there are platforms",
        ),
        ("[services.inception]", '[services."in ception"]', r"\[services\]: is no service name: in ception"),
        ('conductors = "mark-two-conductors"\n', "", r"\[pipelines\.two\] conductors: is missing"),
        ('conductors = "', 'count = 2\nconductors = "', r"\[pipelines\.two\] count: unknown key: 2"),
        ("[services.inception]", "[services]", r"\[services\.launch_template\]: must be a section|must be a section"),
        ("[site]", "[site", r"is no TOML"),
    ],
)
def test_whatever_is_wrong_is_named(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in FULL
    path = written(tmp_path, FULL.replace(old, new, 1))
    with pytest.raises(BadInput, match=message) as caught:
        load_site(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
