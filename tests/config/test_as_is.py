from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from mark.config.as_is import as_is_of
from mark.config.section import Section, tables_of
from mark.domain.errors import BadInput
from mark.domain.scaler import HpaSettings, KedaSettings, KpaSettings, RaySettings
from mark.domain.service import AsIsPolicy

CRON = '[[policy.cron]]\nstart = "0 8 * * 1-5"\nend = "0 20 * * 1-5"\nreplicas = 6\ntimezone = "Europe/Berlin"\n'
BEGINS = "begins = 2026-01-05T00:00:00Z\n"


def read(folder: Path, kind: str, more: str = "") -> AsIsPolicy:
    path = folder / "s.toml"
    path.write_text(f'[policy]\nkind = "{kind}"\ninstance = "c5.large"\n{more}')
    return as_is_of(Section(path, "policy", tables_of(path)["policy"]))


@pytest.mark.parametrize(
    ("kind", "more", "settings"),
    [
        ("hpa", "", HpaSettings(0.1, 300.0)),
        ("keda", "stabilization_window_s = 0\n", KedaSettings(0.1, 0.0, 30.0, 300.0, 0.0)),
        ("knative", 'metric = "rps"\nmax_scale_down_rate = 3\n', KpaSettings("rps", max_scale_down_rate=3.0)),
        ("knative", "", KpaSettings("concurrency", 70.0, 60.0, 10.0, 200.0, 1000.0, 2.0)),
        ("ray", "upscale_delay_s = 0\n", RaySettings(0.0, 600.0, 1.0, 1.0, 30.0)),
        ("asg", "", None),
    ],
)
def test_kind_has_its_own_settings_with_its_document_s_defaults(
    tmp_path: Path, kind: str, more: str, settings: object
) -> None:
    assert read(tmp_path, kind, more).settings == settings


@pytest.mark.parametrize("kind", ["keda", "knative"])
def test_kinds_that_scale_to_zero_may_have_no_minimum(tmp_path: Path, kind: str) -> None:
    assert read(tmp_path, kind, "min = 0\n").min_instances == 0


def test_schedule_is_read_with_the_time_at_which_the_trace_begins(tmp_path: Path) -> None:
    own = read(tmp_path, "keda", "target = 20\n" + BEGINS + CRON)
    assert (own.target, own.begins) == (20.0, datetime(2026, 1, 5, tzinfo=UTC))
    assert [(w.start.text, w.replicas, w.timezone.key) for w in own.windows] == [("0 8 * * 1-5", 6, "Europe/Berlin")]


@pytest.mark.parametrize(
    ("kind", "more", "says"),
    [
        ("hpa", "upscale_delay_s = 3\n", "upscale_delay_s: kind hpa has no such setting (it belongs to ray): 3"),
        ("ray", "scale_in_cooldown_s = 3\n", "kind ray has no such setting (it belongs to asg, sagemaker): 3"),
        ("hpa", "min = 0\n", "min: must lie between 1 and"),
        ("hpa", "cooldown_period_s = 9\n", "kind hpa has no such setting (it belongs to keda, cron): 9"),
        ("ray", BEGINS + CRON, "begins: kind ray has no such setting (it belongs to keda, cron)"),
        ("knative", "panic_threshold_percentage = 90\n", "panic_threshold_percentage: must be 110 or more and at most"),
        ("knative", "max_scale_up_rate = 1\n", "max_scale_up_rate: must be above 1: 1.0"),
        ("knative", 'metric = "cpu"\n', "metric: must be one of concurrency, rps: cpu"),
        ("cron", "", "cron: missing: kind cron needs at least one [[policy.cron]]"),
        ("cron", "target = 1\n" + BEGINS + CRON, "target: a schedule has no target: 1"),
        (
            "keda",
            BEGINS.replace("Z", "") + CRON,
            "begins: must be a time with its zone, such as 2026-01-05T00:00:00Z: 2026-01-05 00:00:00",
        ),
        ("keda", BEGINS + CRON.replace("20", "8"), "[policy.cron 1] end: start and end must differ: 0 8 * * 1-5"),
        ("keda", BEGINS + CRON.replace("1-5", "8"), "[policy.cron 1] start: the day of week must lie between 0 and 6"),
        ("keda", BEGINS + CRON.replace("Berlin", "Atlantis"), "[policy.cron 1] timezone: no such time zone"),
        ("keda", BEGINS + CRON.replace("6", "0"), "[policy.cron 1] replicas: must lie between 1 and"),
        ("keda", BEGINS + "cron = 5\n", "cron: write one [[policy.cron]] for each schedule: 5"),
    ],
)
def test_wrong_setting_is_named_with_its_value(tmp_path: Path, kind: str, more: str, says: str) -> None:
    with pytest.raises(BadInput) as caught:
        read(tmp_path, kind, more)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
