"""The profile of a mix: means by shares, the spread of both kinds, and the promise to the slowest version."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mark.config.service_file import load_service
from mark.domain.catalog.tables import load_catalog
from mark.domain.errors import BadInput
from mark.domain.load_unit import LoadUnit
from mark.domain.profile import Basis, Candidate, Profile, ProfileRow
from mark.domain.service import ServiceConfig, Version
from mark.domain.slo import Slo
from mark.models.registry import Registry
from mark.models.registry_place import pinned
from mark.planning.resolve import resolve
from mark.profiling.policy import candidate, p99_of, sigma_of
from mark.profiling.version_profiles import mix, profile_source, service_profiles
from mark.simulation.request import RunRequest
from mark.studies.decision import plan_service_once
from mark.testing.fakes import FakeObjects

SLO = Slo(0.6, 0.98)
HEAD = "model,instance,batch,latency_ms\n"


def profile(*rows: ProfileRow, instance: str = "c5.large") -> Profile:
    return Profile("m", instance, rows)


FAST = profile(ProfileRow(1, 20.0), ProfileRow(8, 80.0), ProfileRow(16, 150.0))
SLOW = profile(ProfileRow(1, 60.0), ProfileRow(8, 200.0), ProfileRow(32, 900.0))


def test_one_version_has_its_own_profile() -> None:
    assert mix("m", [(1.0, FAST)], SLO) is FAST


def test_a_batch_of_the_mix_takes_the_mean_by_shares() -> None:
    """This holds at every size that a version has a row of and both can keep the promise with."""
    mixed = mix("m", [(0.75, FAST), (0.25, SLOW)], SLO)
    assert [row.batch for row in mixed.rows] == [1, 8]  # 2 T_16 of the slow version is above 600 ms
    assert [row.latency_ms for row in mixed.rows] == [pytest.approx(30.0), pytest.approx(110.0)]
    found = candidate(mixed, SLO)
    assert isinstance(found, Candidate)
    assert found.capacity_rps == pytest.approx(8 / 0.110)


def test_the_spread_is_that_of_the_mixture() -> None:
    """A million draws agree on the spread within the versions and between them."""
    parts = [(0.6, profile(ProfileRow(1, 20.0, p99_ms=40.0))), (0.4, profile(ProfileRow(1, 60.0)))]
    (row,) = mix("m", parts, SLO).rows
    draw, sigma = np.random.default_rng(0), sigma_of(parts[0][1].rows[0])
    of_first = draw.random(1_000_000) < 0.6
    times = np.where(of_first, 20.0 * draw.lognormal(-(sigma**2) / 2, sigma, 1_000_000), 60.0)
    assert row.latency_ms == pytest.approx(times.mean(), rel=0.003)
    assert row.latency_ms**2 * (math.exp(sigma_of(row) ** 2) - 1) == pytest.approx(times.var(), rel=0.01)


def test_equal_versions_mix_to_what_they_are() -> None:
    mixed = mix("m", [(0.5, FAST), (0.5, FAST)], SLO)
    assert [(row.batch, row.p99_ms) for row in mixed.rows] == [(1, None), (8, None), (16, None)]
    assert [row.latency_ms for row in mixed.rows] == pytest.approx([20.0, 80.0, 150.0])


def test_types_too_slow_for_a_version_are_refused_with_times() -> None:
    """Its share may be small, because the promise is to each request."""
    late = profile(ProfileRow(1, 700.0))
    mixed = mix("m", [(0.99, FAST), (0.01, late)], SLO)
    assert candidate(mixed, SLO) == "one request takes 700.0 ms, RT_max is 600 ms"


def test_the_rest_of_a_row_is_on_the_safe_side() -> None:
    parts = [
        (0.5, profile(ProfileRow(1, 20.0, overhead_ms=4.0, workers=4))),
        (0.5, profile(ProfileRow(1, 20.0, basis=Basis.ASSUMED, workers=2))),
    ]
    (row,) = mix("m", parts, SLO).rows
    assert (row.overhead_ms, row.workers, row.basis) == (2.0, 2, Basis.ASSUMED)


@pytest.mark.parametrize("sigma", [0.01, 0.5, 2.0, 2.3])
def test_a_p99_says_which_lognormal_it_is_of(sigma: float) -> None:
    assert sigma_of(ProfileRow(1, 20.0, p99_ms=p99_of(20.0, sigma))) == pytest.approx(sigma, abs=1e-6)


def test_a_wider_mixture_counts_as_the_widest_lognormal() -> None:
    assert sigma_of(ProfileRow(1, 20.0, p99_ms=p99_of(20.0, 5.0))) == pytest.approx(2.3)


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ServiceConfig:
    """Write a service whose `model` is m; its file has rows of m, for versions without their own, and of quick:Q."""
    monkeypatch.setenv("MARK_CACHE_DIR", str(tmp_path / "cache"))
    rows = "m,c5.large,1,50\nm,c5.xlarge,1,30\nm,lambda:3008,1,80\nquick:Q,c5.large,1,10\nquick:Q,lambda:3008,1,20\n"
    (tmp_path / "profile.csv").write_text(HEAD + rows)
    (tmp_path / "service.toml").write_text(
        '[service]\nname = "s"\nmodel = "m"\nprofile = "profile.csv"\nslo_ms = 600\nslo_attainment = 0.98\n'
        '[fleet]\ncatalog = "aws-2019"\n'
    )
    return load_service(str(tmp_path / "service.toml"))


def versions(*given: tuple[str, float]) -> tuple[Version, ...]:
    return tuple(Version(str(n), model, weight) for n, (model, weight) in enumerate(given))


def test_versions_without_rows_share_those_of_the_model(service: ServiceConfig) -> None:
    shared = service_profiles(service)
    assert service_profiles(replace(service, versions=versions(("a:A", 0.5), ("b:B", 0.5)))) == shared


def test_a_version_with_rows_has_its_own(service: ServiceConfig) -> None:
    """Only types with rows of all versions are left; a function has the times of the version that it holds."""
    mixed = service_profiles(replace(service, versions=versions(("a:A", 0.8), ("quick:Q", 0.2))))["m"]
    assert sorted(mixed) == ["c5.large", "lambda:3008"]
    assert mixed["c5.large"].latency_s(1) == pytest.approx(0.042)
    assert mixed["lambda:3008"].latency_s(1) == 0.080
    unweighted = service_profiles(replace(service, versions=versions(("a:A", 1.0), ("quick:Q", 0.0))))["m"]
    assert unweighted["c5.large"].latency_s(1) == 0.050


def test_a_registered_version_brings_its_profile(service: ServiceConfig, tmp_path: Path) -> None:
    registry = Registry(FakeObjects(), by="ann")
    rows = ("own:O", (HEAD + "own:O,c5.large,1,70\n").encode())
    registry.promote("r", registry.register("r", "own:O", {}, profile=rows).short, "production")
    registry.promote("r", registry.register("r", "own:O", {}).short, "bare")
    alone = pinned(replace(service, model="registry:r@production"), lambda: registry)
    found = service_profiles(alone)["registry:r@production"]
    assert {name: one.latency_s(1) for name, one in found.items()} == {"c5.large": 0.070}
    assert resolve(alone, load_catalog("aws-2019"), service_profiles(alone)).offers[0].instance == "c5.large"
    file, model = profile_source(alone.versions[0].model, alone, {})
    assert (Path(str(file)).name, model) == ("profile.csv", "own:O")
    assert file != service.profile_file
    both = versions(("registry:r@production", 0.5), ("registry:r@bare", 0.5))
    mixed = pinned(replace(service, versions=both), lambda: registry)
    assert service_profiles(mixed)["m"]["c5.large"].latency_s(1) == pytest.approx(0.060)


@pytest.mark.usefixtures("coarse_late_shares")
def test_a_slower_version_with_a_share_makes_the_plan_larger(tmp_path: Path) -> None:
    """Traffic and promise stay the same; a fifth of the requests goes to a version whose batches take twice as long."""
    rows = "old:M,c5.large,1,50\nold:M,c5.large,4,160\nnew:M,c5.large,1,150\nnew:M,c5.large,4,300\n"
    (tmp_path / "profile.csv").write_text(HEAD + rows)
    planned = {}
    for share in (0.0, 0.2, 1.0):
        file = tmp_path / f"{share}.toml"
        file.write_text(
            '[service]\nname = "s"\nmodel = "old:M"\nprofile = "profile.csv"\nslo_ms = 800\nslo_attainment = 0.98\n'
            f'[service.versions]\n"1" = {{ model = "old:M", weight = {1 - share} }}\n'
            f'"2" = {{ model = "new:M", weight = {share} }}\n[fleet]\ncatalog = "aws-2019"\ninstances = ["c5.large"]\n'
        )
        request = RunRequest("synthetic:poisson?rate=200", str(file), predictor="seasonal-naive", duration_s=300.0)
        made = plan_service_once(request, 1800.0)
        planned[share] = sum(target.count for target in made.plan.targets)
        (found,) = {round(each.capacity_rps, 3) for each in made.context.resolved.candidates}
        of_means = 4 / ((1 - share) * 0.160 + share * 0.300)
        # A mix has a tail, so less of its capacity keeps the promise.
        assert found == pytest.approx(of_means, abs=1e-3) if share in (0.0, 1.0) else 0.7 * of_means < found < of_means
    assert planned[0.0] < planned[0.2] < planned[1.0]


def test_a_stated_tail_is_of_each_mixed_version(tmp_path: Path) -> None:
    """If versions were mixed first, the small differences between them would pass for a measured tail."""
    rows = "fast,c5.large,1,100\nslow,c5.large,1,101\n"
    (tmp_path / "p.csv").write_text(HEAD + rows)
    service = replace(
        load_service("inception-v3"),
        model="fast",
        profile_file=str(tmp_path / "p.csv"),
        versions=(Version("1", "fast", 0.5), Version("2", "slow", 0.5)),
        tail=1.5,
    )
    (row,) = service_profiles(service)["fast"]["c5.large"].rows
    assert row.p99_ms == pytest.approx(1.5 * row.latency_ms, rel=1e-3)
    assert row.tail_derived


def in_units(folder: Path, unit: str, size: float, text: str) -> Profile:
    (folder / "own.csv").write_text(text)
    config = replace(load_service("nasnet"), model="m", profile_file=str(folder / "own.csv"), source="s.toml", tail=2.0)
    return service_profiles(replace(config, unit=LoadUnit(unit, size)))["m"]["x"]


def test_request_takes_the_time_of_its_mean_size(tmp_path: Path) -> None:
    text = "model,instance,unit,units_per_s,workers\nm,x,tokens,2400,4\n"
    (row,) = in_units(tmp_path, "tokens", 600.0, text).rows
    assert (row.latency_ms, row.p99_ms, row.unit) == (pytest.approx(1000.0), pytest.approx(2000.0), "requests")
    assert row.tail_derived


@pytest.mark.parametrize(
    ("unit", "head", "message"),
    [
        ("tokens", "batch,latency_ms\nm,x,1,5", "the profile of m on x is in requests, and the service in: tokens"),
        (
            "requests",
            "unit,units_per_s\nm,x,tokens,5",
            "the profile of m on x is in tokens, and the service in: requests",
        ),
        ("pages", "unit,units_per_s\nm,x,tokens,5", "the profile of m on x is in tokens, and the service in: pages"),
    ],
)
def test_profile_in_another_unit_than_the_service_is_refused(
    tmp_path: Path, unit: str, head: str, message: str
) -> None:
    with pytest.raises(BadInput, match=rf"s.toml \[service\] unit: {message}"):
        in_units(tmp_path, unit, 1.0, f"model,instance,{head}\n")


def test_request_that_takes_forever_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"unit_size: on x a latency lies between 0.001 and 1e9 ms, of a request: 10000"):
        in_units(tmp_path, "tokens", 1e12, "model,instance,unit,units_per_s\nm,x,tokens,5\n")
