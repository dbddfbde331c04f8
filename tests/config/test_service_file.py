"""Service files: the shipped ones, and refusals."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from mark.config.fleet import markets_of
from mark.config.service_file import SERVICE_NAMES, load_service
from mark.domain.errors import BadInput
from mark.domain.load_unit import REQUESTS, LoadUnit
from mark.domain.offer import Market
from mark.domain.service import (
    Commitment,
    ControlSettings,
    FeedbackSettings,
    ServiceConfig,
    SloMonitorSettings,
    Version,
)

HEAD = '[service]\nname = "s"\nmodel = "m"\nslo_ms = 600\nslo_attainment = 0.98\n'


def service(folder: Path, text: str) -> ServiceConfig:
    path = folder / "service.toml"
    path.write_text(text)
    return load_service(str(path))


def test_the_shipped_services_are_the_paper_s_then_and_now() -> None:
    promises = {"inception-v3": 600, "nasnet": 1000, "lstm-ptb": 100, "opennmt-ende": 1400}
    assert set(SERVICE_NAMES) == {*promises, *(f"{name}-2026" for name in promises)}
    for name in SERVICE_NAMES:
        shipped, of_today = load_service(name), name.endswith("-2026")
        assert (shipped.name, shipped.model, shipped.slo.attainment) == (name, name, 0.98)
        assert shipped.slo.rt_max_s * 1e3 == promises[name.removesuffix("-2026")]
        assert (shipped.catalog, shipped.markets) == ("aws-2026" if of_today else "aws-2019", (Market.ON_DEMAND,))
        hardware = ("c7i.*", "c8g.*", "g4dn.xlarge", "g6.xlarge") if of_today else ("c5.*", "p2.xlarge", "t2.*")
        assert shipped.instances == hardware
        assert (shipped.max_instances, shipped.max_usd_per_hour) == (500, 1000.0)
        assert (shipped.max_function_usd_per_hour, shipped.limits_unsaid) == (200.0, ())
        assert shipped.functions == (("lambda:*",) if of_today else ("lambda:3008",))


def test_what_is_not_said_has_a_default(tmp_path: Path) -> None:
    short = service(tmp_path, HEAD)
    assert (short.catalog, short.markets, short.instances) == ("aws-2026", (Market.ON_DEMAND,), ("*",))
    assert short.min_instances == 1
    assert (short.max_instances, short.max_usd_per_hour, short.functions) == (500, 1000.0, ())
    assert (short.max_function_usd_per_hour, short.limits_unsaid) == (
        math.inf,
        ("[fleet] max_instances", "[fleet] max_usd_per_hour"),
    )
    assert (short.batching, short.routing, short.as_is) == ("work-conserving", "alb", None)
    assert math.isinf(short.hedge_after_s)


@pytest.mark.parametrize(
    ("said", "functions"),
    [
        ('"none"', ()),
        ('["none"]', ()),
        ('"lambda:*"', ("lambda:*",)),
        ('["lambda:2048", "lambda:*"]', ("lambda:2048", "lambda:*")),
        ('["lambda-arm64:2048", "lambda-arm64:*"]', ("lambda-arm64:2048", "lambda-arm64:*")),
    ],
)
def test_a_function_may_have_several_sizes(tmp_path: Path, said: str, functions: tuple[str, ...]) -> None:
    assert service(tmp_path, HEAD + f"[overflow]\nfunction = {said}\n").functions == functions


def test_limits_that_are_defaults_are_named(tmp_path: Path) -> None:
    """The limit of functions is named only if the service may have a function."""
    some = service(tmp_path, HEAD + '[fleet]\nmax_instances = 7\n[overflow]\nfunction = "lambda:1024"\n')
    assert some.limits_unsaid == ("[fleet] max_usd_per_hour", "[overflow] max_usd_per_hour")
    every = HEAD + '[fleet]\nmax_instances = 7\nmax_usd_per_hour = 1\n[overflow]\nfunction = "lambda:1024"\n'
    assert service(tmp_path, every + "max_usd_per_hour = 2.5\n").limits_unsaid == ()


def test_everything_that_can_be_said_is_read(tmp_path: Path) -> None:
    full = service(
        tmp_path,
        HEAD
        + 'batching = "paper"\nrouting = "power-of-two-choices"\n'
        + 'request_kb = 100\nresponse_kb = 0.5\nprofile = "own/p.csv"\ntail = 1.5\n'
        + '[fleet]\ncatalog = "prices.csv"\nmarkets = ["spot", "on-demand"]\ninstances = ["c5.*"]\nmax_instances = 7\n'
        + 'min_instances = 2\nmax_usd_per_hour = 2.5\n[overflow]\nfunction = "lambda:1769"\nlate = "refuse"\n'
        + "max_usd_per_hour = 0.5\n"
        + '[policy]\nkind = "asg"\ninstance = "c5.large"\ntarget = 0.6\nmin = 2\nmax = 9\nscale_out_cooldown_s = 60\n'
        + "scale_in_cooldown_s = 0\n[insurance]\nhedge_after_ms = 250\n",
    )
    assert (full.batching, full.routing, full.hedge_after_s) == ("paper", "power-of-two-choices", 0.25)
    assert (full.request_kb, full.response_kb, full.tail) == (100.0, 0.5, 1.5)
    assert full.markets == (Market.SPOT, Market.ON_DEMAND)
    assert full.min_instances == 2
    assert (full.max_instances, full.max_usd_per_hour, full.functions) == (7, 2.5, ("lambda:1769",))
    assert (full.late, full.max_function_usd_per_hour) == ("refuse", 0.5)
    # Files lie beside the service file, wherever mark is started.
    assert full.catalog == str(tmp_path / "prices.csv")
    assert full.profile_file == str(tmp_path / "own" / "p.csv")
    assert full.as_is is not None
    assert (full.as_is.kind, full.as_is.target, full.as_is.min_instances) == ("asg", 0.6, 2)
    assert (full.as_is.max_instances, full.as_is.scale_in_cooldown_s) == (9, 0.0)


def test_what_the_paper_leaves_open_is_a_setting(tmp_path: Path) -> None:
    plain = service(tmp_path, HEAD)
    assert plain.control == ControlSettings(300.0, 60, 360.0, 180.0)
    assert plain.slo_monitor == SloMonitorSettings(1000, 1, None, 300.0)
    tuned = service(
        tmp_path,
        HEAD
        + "[control]\ntau_s = 120\nhorizon_steps = 30\ncool_down_s = 0\nlaunch_overhead_s = 90.5\n"
        + '[slo_monitor]\nwindow = 200\ncount = 3\ninstance = "c5.xlarge"\npause_s = 0\n',
    )
    assert tuned.control == ControlSettings(120.0, 30, 0.0, 90.5)
    assert tuned.slo_monitor == SloMonitorSettings(200, 3, "c5.xlarge", 0.0)


def test_feedback_is_taken_where_its_log_is_named(tmp_path: Path) -> None:
    """The path is relative to the file; without the section there is no feedback."""
    assert service(tmp_path, HEAD).feedback is None
    log = str(tmp_path / "said")
    assert service(tmp_path, HEAD + '[feedback]\nlog = "said"\n').feedback == FeedbackSettings(log)
    told = '[feedback]\nlog = "/said"\nhorizon_s = 60\nbody_bytes = 0\nmemory_mb = 1\nlog_mb = 16\n'
    assert service(tmp_path, HEAD + told).feedback == FeedbackSettings("/said", 60.0, 0, 1, 16)


def test_learned_facts_are_stored_in_a_folder_beside_the_file_or_in_a_bucket(tmp_path: Path) -> None:
    told = HEAD + '[feedback]\nlog = "said"\nstore = '
    folder = service(tmp_path, told + '"facts"\n').feedback
    bucket = service(tmp_path, told + '"s3://b/p"\ndurability = "store"\n').feedback
    log = str(tmp_path / "said")
    assert folder == FeedbackSettings(log, store=str(tmp_path / "facts"), durability="peers")
    assert bucket == FeedbackSettings(log, store="s3://b/p", durability="store")


def test_a_fixed_fleet_is_said_by_its_number_alone(tmp_path: Path) -> None:
    fixed = service(tmp_path, HEAD + '[policy]\nkind = "fixed"\ninstance = "c5.large"\nmin = 4\n').as_is
    assert fixed is not None
    assert (fixed.min_instances, fixed.max_instances, fixed.target) == (4, 4, None)


def test_commitments_are_read_by_type_with_or_without_their_price(tmp_path: Path) -> None:
    told = '[fleet.committed]\n"p2.xlarge" = 2\n"c5.large" = { count = 4, usd_per_hour = 0.05 }\n'
    assert service(tmp_path, HEAD + told).committed == (Commitment("c5.large", 4, 0.05), Commitment("p2.xlarge", 2))
    assert service(tmp_path, HEAD).committed == ()


def test_versions_share_the_requests(tmp_path: Path) -> None:
    """They keep the file's order, each with its model and weight; without versions the model itself is the only one."""
    told = '[service.versions]\n"1" = { model = "a:Old", weight = 0.9 }\n"2" = { model = "a:New", weight = 0.1 }\n'
    assert service(tmp_path, HEAD + told).versions == (Version("1", "a:Old", 0.9), Version("2", "a:New", 0.1))
    assert service(tmp_path, HEAD).versions == ()


POLICY = '[policy]\nkind = "asg"\ninstance = "c5.large"\ntarget = 0.5\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[service\n", "is no TOML"),
        (HEAD.replace("600", "9" * 5000), "is no TOML"),
        ("", "[service] name: missing"),
        (HEAD.replace("slo_ms = 600\n", ""), "[service] slo_ms: missing"),
        (HEAD.replace("600", "0"), "[service] slo_ms: RT_max must lie between"),
        (HEAD.replace("600", "-5"), "[service] slo_ms: must be zero or more: -5"),
        (HEAD.replace("600", "nan"), "[service] slo_ms: must be a finite number: nan"),
        (HEAD.replace("600", '"600"'), "[service] slo_ms: must be a number: 600"),
        (HEAD.replace("600", "true"), "[service] slo_ms: must be a number: True"),
        (HEAD.replace("0.98", "98"), "[service] slo_attainment: SL_min must lie between"),
        (HEAD.replace('"s"', '"a b"'), "[service] name: must be 1 to 63 letters"),
        (HEAD.replace('"m"', '" "'), "[service] model: must be a text that is not empty"),
        (HEAD + "slo = 3\n", "[service] slo: unknown key (known: batch"),
        (HEAD + "[flet]\n", "[flet]: unknown section"),
        ("fleet = 3\n" + HEAD, "fleet: must be a section: 3"),
        (HEAD + 'batching = "greedy"\n', "[service] batching: must be one of work-conserving, paper: greedy"),
        (HEAD + 'routing = "random"\n', "[service] routing: must be one of"),
        (HEAD + "hedge_after_ms = 50\n", "[service] hedge_after_ms: has moved: write [insurance] hedge_after_ms: 50"),
        (HEAD + "request_kb = 1e22\n", "[service] request_kb: must be at most 1e+07: 1e+22"),
        (HEAD + "tail = 1.0\n", "[service] tail: p99 over mean must be above 1 and at most 14.96: 1"),
        (HEAD + "tail = 15\n", "[service] tail: p99 over mean must be above 1 and at most 14.96: 15"),
        (HEAD + 'tail = "1.5"\n', "[service] tail: must be a number: 1.5"),
        (HEAD + "[fleet]\nmarkets = []\n", "[fleet] markets: must be a list of texts that is not empty: []"),
        (HEAD + '[fleet]\nmarkets = "spot"\n', "[fleet] markets: must be a list of texts"),
        (HEAD + '[fleet]\nmarkets = ["sport"]\n', "[fleet] markets: must be one of on-demand, spot"),
        (HEAD + '[fleet]\nmarkets = ["function"]\n', "[fleet] markets: must be one of on-demand, spot"),
        (HEAD + '[fleet]\nmarkets = ["spot", "spot"]\n', "[fleet] markets: names a market twice"),
        (HEAD + "[fleet]\ninstances = [3]\n", "[fleet] instances: must be a list of texts"),
        (HEAD + "[fleet]\nmax_instances = 0\n", "[fleet] max_instances: must lie between 1 and 100000: 0"),
        (HEAD + "[fleet]\nmin_instances = -1\n", "[fleet] min_instances: must lie between 0 and 100000: -1"),
        (
            HEAD + "[fleet]\nmin_instances = 501\n",
            "[fleet] min_instances: must not be above max_instances: 501 (of 500)",
        ),
        (
            HEAD + "[fleet]\nmax_instances = 2\nwarm_pool = 3\n",
            "[fleet] warm_pool: must not be above max_instances: 3 (of 2)",
        ),
        (HEAD + "[fleet]\nmax_instances = 1.5\n", "[fleet] max_instances: must be a whole number: 1.5"),
        (HEAD + "[fleet]\nmax_usd_per_hour = 0\n", "[fleet] max_usd_per_hour: must be above zero: 0"),
        (HEAD + "[overflow]\nmax_usd_per_hour = 0\n", "[overflow] max_usd_per_hour: must be above zero: 0"),
        (HEAD + '[service.versions]\n"1" = "a:B"\n', "[service.versions] 1: must be { model = ..., weight = ... }"),
        (HEAD + '[service.versions]\n"1" = { model = "a:B", weight = 2 }\n', "weight: a weight is a share"),
        (HEAD + '[service.versions]\n"1" = { model = "a:B", weight = 0.4 }\n', "weights must add up to 1: 0.4"),
        (HEAD + '[service.versions]\n"1" = { model = "a:B", share = 1 }\n', "[service.versions.1] share: unknown key"),
        (HEAD + "[fleet]\ncommitted = 3\n", "[fleet.committed]: must be a section: 3"),
        (HEAD + '[fleet.committed]\n"c5.large" = 0\n', "[fleet.committed] c5.large: must lie between 1 and"),
        (HEAD + '[fleet.committed]\n"c5.large" = "4"\n', "[fleet.committed] c5.large: must be a whole number: 4"),
        (HEAD + '[fleet.committed]\n"a" = { usd_per_hour = 1 }\n', "[fleet.committed.a] count: missing"),
        (
            HEAD + '[fleet.committed]\n"a" = { count = 1, usd = 1 }\n',
            "[fleet.committed.a] usd: unknown key (known: count, usd_per_hour): 1",
        ),
        (
            HEAD + '[fleet.committed]\n"a" = { count = 1, usd_per_hour = -1 }\n',
            "usd_per_hour: must be zero or more: -1",
        ),
        (HEAD + '[overflow]\nfunction = "lambda"\n', "[overflow] function: must be lambda:MEMORY_MB"),
        (HEAD + '[overflow]\nfunction = "lambda-arm:512"\n', "[overflow] function: must be lambda:MEMORY_MB"),
        (HEAD + '[overflow]\nfunction = ["lambda:512", "none"]\n', "[overflow] function: must be lambda:MEMORY_MB"),
        (HEAD + "[overflow]\nfunction = []\n", "[overflow] function: must be a list of texts that is not empty"),
        (HEAD + "[overflow]\nfunction = 512\n", "[overflow] function: must be a"),
        (HEAD + '[overflow]\nlate = "queue"\n', "[overflow] late: must be one of function, refuse: queue"),
        (
            HEAD + POLICY.replace("asg", "magic"),
            "[policy] kind: must be one of asg, hpa, keda, knative, ray, cron, sagemaker, fixed",
        ),
        (
            HEAD + POLICY.replace("0.5", "50"),
            "[policy] target: a utilisation must lie between 0 and 1, as 0.5 for 50 %: 50",
        ),
        (HEAD + POLICY.replace("0.5", "0"), "[policy] target: must be above zero: 0"),
        (
            HEAD + '[fleet]\nmarkets = ["sagemaker"]\n',
            "[fleet] markets: must be one of on-demand, spot, burstable: sagemaker",
        ),
        (HEAD + POLICY + "min = 5\nmax = 4\n", "[policy] max: must not be below min: 4 (min 5)"),
        (HEAD + POLICY.replace("asg", "fixed"), "[policy] target: a fixed fleet has no target"),
        (HEAD + '[policy]\nkind = "fixed"\ninstance = "x"\nmin = 3\nmax = 4\n', "must equal min in a fixed fleet"),
        (HEAD + "[policy]\n", "[policy] kind: missing"),
        (HEAD + "[feedback]\n", "[feedback] log: missing"),
        (HEAD + '[feedback]\nlog = "l"\nkeep = true\n', "[feedback] keep: unknown key (known: "),
        (HEAD + '[feedback]\nlog = "l"\nhorizon_s = 0\n', "[feedback] horizon_s: must be above zero: 0"),
        (
            HEAD + '[feedback]\nlog = "l"\nstore = "ftp://b"\n',
            "[feedback] store: must be a folder, or one of s3: ftp://b",
        ),
        (HEAD + '[feedback]\nlog = "l"\nstore = 7\n', "[feedback] store: must be a text that is not empty: 7"),
        (HEAD + '[feedback]\nlog = "l"\ndurability = "all"\n', "[feedback] durability: must be one of peers, store"),
        (HEAD + '[feedback]\nlog = "l"\ndurability = "store"\n', "[feedback] durability: needs a `store`: store"),
        (HEAD + '[feedback]\nlog = "l"\nlog_mb = 15\n', "[feedback] log_mb: must lie between 16 and"),
        (HEAD + "[control]\ntau = 5\n", "[control] tau: unknown key, did you mean tau_s?: 5"),
        (HEAD + "[control]\ntau_s = -1\n", "[control] tau_s: must be zero or more: -1"),
        (HEAD + "[control]\nhorizon_steps = 61\n", "[control] horizon_steps: forecasts reach 60 steps: 61"),
        (HEAD + "unit_size = 5\n", "[service] unit_size: needs a `unit` other than requests: 5"),
        (
            HEAD + 'unit = "tokens"\n',
            "[service] unit_size: is needed beside unit = 'tokens': the mean tokens of a request",
        ),
        (HEAD + 'unit = "tokens"\nunit_size = 0\n', "[service] unit_size: must be above zero"),
        (HEAD + 'unit = "tokens"\nunit_size = "big"\n', "[service] unit_size: must be a number: big"),
        (HEAD + 'unit = "a b"\nunit_size = 5\n', "[service] unit: must be a word of at most 31 letters"),
        (HEAD + 'unit = "tokens"\nunit_size = 5\n', "[service] unit: this command counts, serves or measures requests"),
        (HEAD + "[slo_monitor]\nwindow = 0\n", "[slo_monitor] window: must lie between 1 and"),
        (HEAD + "[slo_monitor]\ninstance = 3\n", "[slo_monitor] instance: must be a text that is not empty: 3"),
    ],
)
def test_a_wrong_service_is_reported_by_file_section_and_key(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(BadInput) as caught:
        service(tmp_path, text)
    assert str(caught.value).startswith(str(tmp_path / "service.toml"))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_load_may_be_in_another_unit(tmp_path: Path) -> None:
    assert service(tmp_path, HEAD).unit == REQUESTS
    (tmp_path / "chat.toml").write_text(HEAD + 'unit = "tokens"\nunit_size = 480\n')
    assert load_service(str(tmp_path / "chat.toml"), any_unit=True).unit == LoadUnit("tokens", 480.0)


def test_an_unknown_name_says_which_services_ship(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"resnet: no such file.*inception-v3, nasnet"):
        load_service("resnet")
    with pytest.raises(BadInput, match=r"is a folder, not a file, and the shipped services are"):
        load_service(str(tmp_path))


def test_markets_given_as_an_option_are_checked_under_its_name() -> None:
    assert markets_of(["burstable", "spot"], "markets") == (Market.BURSTABLE, Market.SPOT)
    for names in ([], ["lambda"], ["spot", "spot"]):
        with pytest.raises(BadInput, match="markets"):
            markets_of(names, "markets")
