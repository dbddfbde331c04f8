"""`mark init`'s texts: they load, contain the given values, and promise nothing that cannot be kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from mark.config.new_service import new_service, new_service_of
from mark.config.service_file import SERVICE_NAMES, load_service
from mark.domain.errors import BadInput
from mark.domain.offer import Market
from mark.domain.service import ServiceConfig
from mark.profiling.table import load_profiles

OWN = """model,instance,batch,latency_ms
credit:Credit,c7i.large,1,6
credit:Credit,c7i.large,16,35
credit:Credit,c8g.large,1,5
credit:Credit,local,1,4
credit:Credit,p2.xlarge,1,2
credit:Credit,lambda:2048,1,60
credit:Credit,lambda:1024,1,90
credit:Credit,lambda:512,1,300
"""


def loaded(folder: Path, text: str) -> ServiceConfig:
    path = folder / "new.toml"
    path.write_text(text)
    return load_service(str(path))


def own(folder: Path, rows: str = OWN, *, slo_ms: float = 100.0, model: str | None = None) -> ServiceConfig:
    (folder / "own.csv").write_text(rows)
    profiles = load_profiles(str(folder / "own.csv"))
    return loaded(folder, new_service_of("shop", profiles, "own.csv", slo_ms, model))


@pytest.mark.parametrize("name", ["shop-images", *SERVICE_NAMES])
def test_a_new_service_loads_under_its_name(tmp_path: Path, name: str) -> None:
    found = loaded(tmp_path, new_service(name, 250.0))
    assert (found.name, found.slo.rt_max_s) == (name, 0.25)
    assert loaded(tmp_path, new_service(name)).slo.rt_max_s >= 0.1


def test_spot_is_on_and_its_risk_is_said_beside_it(tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text(OWN)
    mine = new_service_of("shop", load_profiles(str(tmp_path / "own.csv")), "own.csv", 100.0)
    for text in (new_service("shop-images"), mine):
        assert loaded(tmp_path, text).markets == (Market.ON_DEMAND, Market.SPOT)
        at = text.splitlines().index(next(line for line in text.splitlines() if line.startswith("markets = ")))
        assert "AWS takes it back" in text.splitlines()[at + 1]


def test_a_new_name_begins_with_todays_hardware(tmp_path: Path) -> None:
    text = new_service("shop-images")
    assert (loaded(tmp_path, text).model, loaded(tmp_path, text).catalog) == ("inception-v3-2026", "aws-2026")
    assert "# [policy]" in text


@pytest.mark.parametrize("name", ['x"; rm', "", "-a"])
def test_a_name_that_is_no_tag_is_refused(name: str) -> None:
    with pytest.raises(BadInput, match="service name"):
        new_service(name)


def test_a_profiled_model_buys_what_was_measured_and_is_sold(tmp_path: Path) -> None:
    found = own(tmp_path)
    assert (found.name, found.model, found.slo.rt_max_s) == ("shop", "credit:Credit", 0.1)
    assert found.instances == ("c7i.large", "c8g.large")
    assert found.profile_file == str(tmp_path / "own.csv")
    assert found.functions == ("lambda:*",)


def test_functions_of_both_processors_may_be_chosen(tmp_path: Path) -> None:
    arm = "credit:Credit,lambda-arm64:2048,1,60\n"
    assert own(tmp_path, OWN + arm).functions == ("lambda:*", "lambda-arm64:*")
    x86_less = "".join(line for line in OWN.splitlines(keepends=True) if ",lambda:" not in line)
    assert own(tmp_path, x86_less + arm).functions == ("lambda-arm64:2048",)


def test_without_a_measured_function_there_is_none(tmp_path: Path) -> None:
    assert own(tmp_path, OWN.split("credit:Credit,lambda", 1)[0]).functions == ()


@pytest.mark.parametrize(
    ("rows", "slo_ms", "model", "message"),
    [
        pytest.param(OWN, 4.0, None, "one request alone takes 5 ms", id="promise"),
        pytest.param(OWN + "other,c7i.large,1,3\n", 100.0, None, "several models", id="several"),
        pytest.param(OWN, 100.0, "credit:Credot", "did you mean credit:Credit", id="slip"),
        pytest.param(OWN, 100.0, "zzz", "it has credit:Credit", id="unknown"),
        pytest.param("model,instance,batch,latency_ms\nm,local,1,3\n", 100.0, None, "--instance TYPE", id="unsold"),
    ],
)
def test_what_could_not_be_served_is_one_line(
    tmp_path: Path, rows: str, slo_ms: float, model: str | None, message: str
) -> None:
    with pytest.raises(BadInput, match=message) as refused:
        own(tmp_path, rows, slo_ms=slo_ms, model=model)
    assert "\n" not in str(refused.value)
