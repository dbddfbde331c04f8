"""The data plane's settings from options and the service file."""

from __future__ import annotations

import json
import ssl
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest
import trustme
from mark_infra.aws.lambda_functions import LambdaFunctions

from mark.config.service_file import load_service
from mark.domain.errors import BadInput
from mark.domain.faults import Faults
from mark.domain.rules.admission import LATE
from mark.domain.service import CacheSettings
from mark.launch.server import ServerOptions, peers_of, serving_of
from mark.models.registry_place import open_registry, pinned
from mark.profiling.played_faults import FAULT_STREAM, FaultStream
from mark.profiling.replay import Replay
from mark.serving.overflow.capped import CappedFunctions
from mark.serving.overflow.functions import FunctionClient
from mark.serving.overflow.http_functions import HttpFunctions

SERVICE = '[service]\nname = "s"\nmodel = "{model}"\nslo_ms = 600\nslo_attainment = 0.98\n{more}'


def options(folder: Path, model: str = "model:Echo", more: str = "") -> ServerOptions:
    path = folder / "service.toml"
    path.write_text(SERVICE.format(model=model, more=more))
    return ServerOptions(service=str(path))


@pytest.mark.parametrize("late", ["function", "refuse"])
def test_where_late_requests_go_is_the_service_file_s(tmp_path: Path, late: str) -> None:
    given = options(tmp_path, more=f'[overflow]\nlate = "{late}"\n')
    assert serving_of(given, load_service(given.service)).late == LATE[late]


def test_a_functions_limit_of_money_is_the_service_files(tmp_path: Path) -> None:
    limit = '[fleet]\ncatalog = "aws-2019"\n[overflow]\nfunction = "lambda:1024"\nmax_usd_per_hour = 2.0\n'

    def functions(more: str, **to: Any) -> FunctionClient | None:
        given = replace(options(tmp_path, more=more), function_ms=100.0, **to)
        return serving_of(given, load_service(given.service)).functions

    assert isinstance(functions(limit, function="mine"), CappedFunctions)
    assert isinstance(functions("", function="mine"), LambdaFunctions)
    assert isinstance(functions(limit, function="http://there:80/invocations"), HttpFunctions), "it has no bill"
    assert functions(limit) is None
    with pytest.raises(BadInput, match=r"max_usd_per_hour: has no price without a size.*: 2\.0"):
        functions(limit.replace("lambda:1024", "lambda:*"), function="mine")


@pytest.mark.parametrize(
    ("given", "expected_s"),
    [
        ({"function": "http://there:80/invocations", "function_ms": 50.0}, 2.4),
        ({"function": "http://there:80/invocations", "function_ms": 900.0}, 3.6),
        ({"function": "mine", "function_ms": 50.0}, 20.0),
        ({"function": "mine", "function_ms": 50.0, "function_timeout_s": 7.0}, 7.0),
    ],
)
def test_a_call_of_a_function_has_a_limit(tmp_path: Path, given: dict[str, Any], expected_s: float) -> None:
    """It is a small multiple of RT_max (0.6 s) or of a warm call, but leaves time for a cold start of Lambda."""
    asked = replace(options(tmp_path), **given)
    assert serving_of(asked, load_service(asked.service)).function_timeout_s == pytest.approx(expected_s)


def test_a_server_has_the_cache_of_its_file_unless_it_is_measured(tmp_path: Path) -> None:
    given = options(tmp_path, more="[cache]\nttl_s = 30\n")
    service = load_service(given.service)
    assert serving_of(given, service).cache == CacheSettings(ttl_s=30.0)
    assert serving_of(replace(given, to_measure=True), service).cache is None


def test_a_model_without_code_or_profile_is_bad_input(tmp_path: Path) -> None:
    given = options(tmp_path, model="unheard-of")
    with pytest.raises(BadInput, match="neither module:Class nor a profile's model"):
        serving_of(given, load_service(given.service))


PROFILE = "model,instance,batch,latency_ms\nown:M,c5.large,1,{}\nown:M,c5.large,8,{}\n"
VERSIONS = """
[service.versions]
"old" = { model = "registry:m@old", weight = 0.5 }
"new" = { model = "registry:m@new", weight = 0.5 }
"bare" = { model = "model:Echo", weight = 0.0 }
"""


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ServerOptions:
    """Make two registered versions of different speed, and one from code without a profile."""
    monkeypatch.setenv("MARK_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("MARK_REGISTRY", str(tmp_path / "registry"))
    registry = open_registry()
    for name, ms in (("old", 20), ("new", 40)):
        rows = PROFILE.format(ms, 4 * ms).encode()
        registry.promote("m", registry.register("m", "own:M", {}, profile=("own:M", rows)).short, name)
    return options(tmp_path, model="registry:m@old", more=VERSIONS)


def test_each_version_is_admitted_by_its_own_times(service: ServerOptions) -> None:
    """The machine as a whole, workers, and versions without a profile go by the mix's times."""
    found = serving_of(service, pinned(load_service(service.service)))
    assert {name: one.service_s[8] for name, one in found.candidates.items()} == {"old": 0.080, "new": 0.160}
    assert found.candidate is not None
    assert found.candidate.service_s[8] == pytest.approx(0.120)


def test_a_paced_version_has_the_pace_of_its_own_profile(service: ServerOptions) -> None:
    found = serving_of(replace(service, pace=True), pinned(load_service(service.service)))
    for name, ms in (("old", 20), ("new", 40)):
        reference = found.versions.references[name]
        said = dict(parse_qsl(reference.partition("?")[2]))
        assert said["model"].startswith("version:")
        assert (said["profiled"], said["instance"]) == ("own:M", "c5.large")
        assert Replay(said["profiled"], said["instance"], said["profile"]).service_s(1) == ms / 1e3


FAULTS = "[faults]\ncrashes_per_hour = 1\nhangs_per_hour = 2\n"


def played(given: ServerOptions) -> str | None:
    """Return the faults in the settings of the service's model."""
    found = serving_of(given, load_service(given.service)).versions.references["1"]
    return dict(parse_qsl(found.partition("?")[2])).get("faults")


@pytest.mark.parametrize("model", ["inception-v3", "own:M"])
def test_only_a_stand_in_plays_faults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str) -> None:
    """They are the service file's or a separate file's, for the instance that the testbed names or the first one.

    A measured instance plays no faults.
    """
    if model == "own:M":
        (tmp_path / "own.csv").write_text(PROFILE.format(20, 80))
        given = replace(options(tmp_path, model, FAULTS), profile=str(tmp_path / "own.csv"), instance="c5.large")
    else:
        given = replace(options(tmp_path, model, FAULTS), instance="p2.xlarge")
    assert played(given) is None
    stand_in = replace(given, pace=True)
    assert played(replace(stand_in, to_measure=True)) is None
    (said, stream) = json.loads(played(stand_in) or "")
    assert Faults(**said) == Faults(crashes_per_hour=1.0, hangs_per_hour=2.0)
    assert (stream["seed"], stream["number"], stream["time_scale"]) == (0, 1, 1.0)
    named = FaultStream(1.8e9, 3, 7, 20.0)
    monkeypatch.setenv(FAULT_STREAM, named.as_text())
    (tmp_path / "faults.toml").write_text("[faults]\nhangs_per_hour = 5\n")
    (said, stream) = json.loads(played(replace(stand_in, faults=str(tmp_path / "faults.toml"))) or "")
    assert (Faults(**said), FaultStream(**stream)) == (Faults(hangs_per_hour=5.0), named)
    (tmp_path / "faults.toml").write_text("[faults]\n")
    assert played(replace(stand_in, faults=str(tmp_path / "faults.toml"))) is None
    with pytest.raises(BadInput, match="faults: are played where this machine stands in for another"):
        played(replace(given, faults=str(tmp_path / "faults.toml")))


def test_peers_are_reached_as_stages_are(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("a-key-of-the-peers\n")
    key.chmod(0o600)
    given = options(tmp_path, more='[feedback]\nlog = "l"\n')
    given = replace(given, peers=["https://10.0.0.5:8443", "http://127.0.0.1:1"], stage_key=key)
    found = serving_of(given, load_service(given.service))
    assert [address.url for address in found.peers.addresses] == list(given.peers)
    assert (found.peers.key, found.peers.in_clear) == ("a-key-of-the-peers", False)
    assert serving_of(options(tmp_path), load_service(given.service)).peers.addresses == ()
    in_clear = replace(given, peers=["http://10.0.0.5:80"])
    with pytest.raises(BadInput, match=r"peers: would be reached in clear: https, or `stages_in_clear`"):
        serving_of(in_clear, load_service(given.service))
    assert serving_of(replace(in_clear, stages_in_clear=True), load_service(given.service)).peers.addresses
    with pytest.raises(BadInput, match=r"peers: must be http://host:port or https://host:port: 10\.0\.0\.5"):
        serving_of(replace(given, peers=["10.0.0.5"]), load_service(given.service))


def test_peers_of_a_private_network_may_show_any_certificate(tmp_path: Path) -> None:
    """Instances of a site make their own certificates. Elsewhere an authority must have signed them."""
    given = options(tmp_path)
    assert peers_of(given).reach.tls is None
    reach = peers_of(replace(given, stages_in_clear=True)).reach
    assert reach.tls is not None
    assert reach.tls.verify_mode is ssl.CERT_NONE
    ca = tmp_path / "ca.pem"
    ca.write_bytes(trustme.CA().cert_pem.bytes())
    reach = peers_of(replace(given, stages_in_clear=True, stage_ca=ca)).reach
    assert reach.tls is not None
    assert reach.tls.verify_mode is ssl.CERT_REQUIRED


def test_store_of_the_options_takes_the_place_of_the_files(tmp_path: Path) -> None:
    given = replace(options(tmp_path, more='[feedback]\nlog = "l"\nstore = "s"\n'), feedback_store="s3://bucket")
    found = serving_of(given, load_service(given.service)).feedback
    assert found is not None
    assert (found.store, Path(found.log).name) == ("s3://bucket", "l")
    given = replace(options(tmp_path), feedback_store="s3://bucket")
    with pytest.raises(BadInput, match=r"feedback_store: there is no section \[feedback\]: s3://bucket"):
        serving_of(given, load_service(given.service))
