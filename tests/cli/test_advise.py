"""`mark advise` from the command line, against an emulated Prometheus that keeps, loses or refuses its answers."""

from __future__ import annotations

import json
import runpy
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mark.cli.main import main
from tests.prometheus import EmulatedPrometheus, add_workload

Captured = pytest.CaptureFixture[str]
pytestmark = pytest.mark.usefixtures("coarse_late_shares")

QUICK = ("--days", "0.25", "--simulate", "30m", "--policies", "best-fixed", "--rps-per-replica", "4")


@pytest.fixture
def prometheus(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmulatedPrometheus]:
    monkeypatch.delenv("PROMETHEUS_TOKEN", raising=False)
    with EmulatedPrometheus(token="right") as emulated:
        add_workload(emulated)
        yield emulated


@pytest.fixture
def asked(prometheus: EmulatedPrometheus, tmp_path: Path) -> tuple[str, ...]:
    (tmp_path / "token").write_text("right\n")
    token = ("--prometheus-token-file", str(tmp_path / "token"))
    return ("advise", "--prometheus", prometheus.url, *token, "--slo-ms", "500", *QUICK)


def _refused(capsys: Captured, *arguments: str) -> str:
    assert main([*arguments]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    (line,) = [line for line in said.err.splitlines() if line.startswith("mark: error")]
    return line


def test_report_says_what_was_read_and_writes_json_and_page(
    prometheus: EmulatedPrometheus, asked: tuple[str, ...], tmp_path: Path, capsys: Captured
) -> None:
    prometheus.clock = lambda: time.time() - 1800.0
    files = ("--json", str(tmp_path / "a.json"), "--report", str(tmp_path / "a.html"))
    assert main([*asked, "--scaler", "hpa:target=0.7,min=6,max=20", *files]) == 0
    said = capsys.readouterr().out
    assert said.startswith("read ")
    assert "Your scaler stood at its minimum of 6 replicas" in said
    found = json.loads((tmp_path / "a.json").read_text())
    assert list(found["policies"]) == ["as-is", "best-fixed"]
    assert found["now"]["mean_replicas"] == 6.0
    assert found["replica"]["instance"] == "c7i.large"
    assert found["read"]["requests"] == pytest.approx(16.0 * 6 * 3600.0, rel=0.1)
    ended_s = found["read"]["began_unix_s"] + found["read"]["duration_s"]
    assert ended_s == pytest.approx(prometheus.clock(), abs=600.0), "the server's clock counts"
    assert "yours, simulated" in (tmp_path / "a.html").read_text()
    assert "/tmp" not in said + (tmp_path / "a.json").read_text()
    printed = " ".join(said.split())
    assert found["notes"] == [note for note in found["notes"] if note in printed]
    assert any("in the simulation than was measured" in note for note in found["notes"])
    assert "Today" not in (tmp_path / "a.html").read_text()


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (("--policies", "mark,nope"), "policy: unknown"),
        (("--instance", "c7i.larg"), "--instance: aws-2026 does not sell it on demand"),
        (("--catalog", "nowhere.csv"), "nowhere.csv"),
        (("--scaler", "hpa:target"), "--scaler: must be KIND:key=value"),
        (("--scaler", "HPA:"), "KIND is one of asg, hpa, keda, knative, ray, cron, sagemaker, fixed: HPA:"),
        (("--scaler", "nothing:min=2"), "--scaler kind: must be one of asg, hpa,"),
        (("--scaler", "hpa:target=nan"), "--scaler target: must be a finite number: nan"),
        (("--scaler", "hpa:target=70"), "--scaler target: a utilisation must lie between 0 and 1, as 0.7 for 70 %: 70"),
        (("--scaler", "hpa:target=70%"), "--scaler target: must be a number, as 0.7: 70%"),
        (("--scaler", "hpa:min=9,max=3"), "--scaler max: must not be below min: 3 (min 9)"),
        (
            ("--scaler", "hpa:minReplicas=6"),
            "--scaler minReplicas: unknown key; hpa has target, min, max, stabilization_window_s, tolerance: 6",
        ),
        (("--listen", "127.0.0.1:0"), "--listen: needs --serve"),
        (("--state", "x.db"), "--state: needs --serve"),
        (("--serve", "--simulate", "1d"), "--simulate: is of the report, without --serve"),
    ],
)
def test_option_that_fits_no_history_is_refused_before_one_is_read(
    option: tuple[str, str], said: str, capsys: Captured
) -> None:
    line = _refused(capsys, "advise", "--prometheus", "http://127.0.0.1:1", "--slo-ms", "500", *option)
    assert said in line


def test_token_may_come_from_the_environment(
    prometheus: EmulatedPrometheus, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    arguments = ("advise", "--prometheus", prometheus.url, "--slo-ms", "500", *QUICK)
    assert "refuses the credentials" in _refused(capsys, *arguments)
    monkeypatch.setenv("PROMETHEUS_TOKEN", "right")
    assert main([*arguments, "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["schema"] == 1


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("503", "does not answer now: 503 unavailable: the TSDB is not ready"),
        ("422", "ask for fewer days or select fewer series: 422 execution"),
        ("cut", "the answer was cut"),
        ("garbage", "is the path right?"),
        ("partial", "the answer is not complete"),
        ("elsewhere", "redirects to another address"),
        ("empty", "no metric counts requests in the last day"),
        ("nan", "no metric counts requests in the last day"),
    ],
)
def test_failing_prometheus_is_one_line_and_exit_two(
    fault: str, said: str, asked: tuple[str, ...], prometheus: EmulatedPrometheus, capsys: Captured
) -> None:
    prometheus.fault = fault
    prometheus.faulty_words = ("requests_total",) if fault == "nan" else ()  # the server knows its time
    assert said in _refused(capsys, *asked)


def test_instance_type_that_nobody_tells_is_asked_for(
    asked: tuple[str, ...], prometheus: EmulatedPrometheus, capsys: Captured
) -> None:
    prometheus.fault, prometheus.faulty_words = "empty", ("kube_node_labels",)
    assert "--instance: is not known: kube_node_labels" in _refused(capsys, *asked)


def test_prometheus_that_is_not_there_is_one_line_and_exit_two(capsys: Captured) -> None:
    with EmulatedPrometheus() as gone:
        url = gone.url
    assert "does not answer" in _refused(capsys, "advise", "--prometheus", url, "--slo-ms", "500")


def test_several_workloads_are_named_with_the_option(
    asked: tuple[str, ...], prometheus: EmulatedPrometheus, capsys: Captured
) -> None:
    add_workload(prometheus, "search", 3.0)
    line = _refused(capsys, *asked)
    assert "--workload: several workloads have requests, name one: shop/ranker by http, shop/search by http" in line


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--days", "400"), "--days: must be an hour (0.042) to 366 days: 400"),
        (("--days", "0.001"), "--days: must be an hour (0.042) to 366 days: 0.001"),
        (("--simulate", "1s"), "--simulate: must be ten minutes to 366 days: 1 s"),
        (("--simulate", "400d"), "--simulate: must be ten minutes to 366 days"),
        (("--boot", "2d"), "--boot: must be at most a day"),
        (("--rps-per-replica", "0.5"), "--rps-per-replica: contradicts Prometheus: half of the time a replica did"),
        (("--service", "inception-v3-2026"), "--slo-ms: stands in the service file"),
        (("--instance", "c99.large"), "--instance: aws-2026 does not sell it on demand"),
        (("--select", "namespace=shop"), "--select: must be label matchers"),
        (("--prometheus-ca", "absent.pem"), "--prometheus-ca: cannot be read"),
        (("--metric", "istoi"), "--metric: must be one of"),
    ],
)
def test_wrong_option_is_one_line_and_exit_two(
    more: tuple[str, ...], said: str, asked: tuple[str, ...], capsys: Captured
) -> None:
    assert said in _refused(capsys, *asked, *more)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--listen", "0.0.0.0:0"), "--listen: other machines can reach this address"),
        (("--act", "ranker"), "--act: must be sagemaker:ENDPOINT/VARIANT: ranker"),
    ],
)
def test_option_of_the_floor_is_named_as_it_was_given(
    more: tuple[str, ...], said: str, prometheus: EmulatedPrometheus, tmp_path: Path, capsys: Captured
) -> None:
    served = ("--serve", "--slo-ms", "500", "--rps-per-replica", "4", "--state", str(tmp_path / "mark.db"))
    assert said in _refused(capsys, "advise", "--prometheus", prometheus.url, *served, *more)


def test_promise_must_be_said(prometheus: EmulatedPrometheus, capsys: Captured) -> None:
    line = _refused(capsys, "advise", "--prometheus", prometheus.url)
    assert "--slo-ms: says within how many milliseconds an answer is in time" in line


def test_empty_token_file_is_refused(asked: tuple[str, ...], tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "token").write_text("\n")
    assert "--prometheus-token-file: is empty" in _refused(capsys, *asked)


@pytest.mark.slow
def test_example_month_gives_a_true_sentence_about_its_scaler(tmp_path: Path, capsys: Captured) -> None:
    """A day of the example, with a fitted capacity, and mark beside the autoscaler's settings."""
    path = Path(__file__).parents[2] / "examples" / "advise" / "emulated_prometheus.py"
    example = runpy.run_path(str(path))
    with EmulatedPrometheus() as emulated:
        example["fill"](emulated, time.time() + 3600.0, 1.1)
        more = ("--days", "1", "--simulate", "1h", "--scaler", "hpa:target=0.7,min=6,max=30")
        arguments = ("advise", "--prometheus", emulated.url, "--slo-ms", "500", *more)
        assert main([*arguments, "--policies", "mark", "--json", str(tmp_path / "a.json")]) == 0
    found = json.loads((tmp_path / "a.json").read_text())
    assert list(found["policies"]) == ["as-is", "mark"]
    assert found["now"]["least_replicas"] == 6.0
    assert found["advice"][0]["about"] == "minimum"
    assert 3.0 < found["replica"]["rps"] <= 8.0  # a replica of the example does eight at most


@pytest.fixture
def tokens(prometheus: EmulatedPrometheus, asked: tuple[str, ...]) -> tuple[str, ...]:
    """Add a model of 16 requests/s with 480 tokens each; return the arguments that ask for it."""
    add_workload(prometheus, "llama")
    for requests in [one for one in prometheus.series if one.labels.get("app") == "llama"]:
        for metric, size in (("request_success", 1.0), ("prompt_tokens", 300.0), ("generation_tokens", 180.0)):
            labels = {"namespace": "shop", "pod": requests.labels["pod"], "model_name": "llama"}
            prometheus.add(f"vllm:{metric}_total", labels, requests.times_s, size * requests.values)
    return asked[: -len(QUICK)] + QUICK[:-2]


def test_report_on_a_language_model_is_in_tokens(tokens: tuple[str, ...], tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "a.json"
    more = ("--metric", "vllm-tokens", "--units-per-replica", "1920", "--scaler", "keda:target=1400,min=2,max=20")
    assert main([*tokens, *more, "--json", str(file)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert " tokens in 6 hours, 7," in said
    assert "a replica is c7i.large and does 1,920 tokens/s" in said
    assert "capacity of a replica: as --units-per-replica says" in said
    found = json.loads(file.read_text())
    unit = found["unit"]
    assert (unit["name"], unit["per_replica_per_s"]) == ("tokens", 1920.0)
    assert unit["size"] == pytest.approx(480.0)
    assert unit["total"] == pytest.approx(found["read"]["requests"] * unit["size"])
    assert found["replica"]["rps"] == pytest.approx(4.0)
    run = found["policies"]["as-is"]
    assert run["requests"]["total"] == pytest.approx(16.0 * 1800.0, rel=0.35)
    # Six replicas stood there; KEDA asks for one per 1,400 of 7,700 tokens/s.
    assert 4 <= run["fleet"]["peak_instances"] <= 8


def test_service_file_states_the_unit(tokens: tuple[str, ...], tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "own.csv").write_text("model,instance,unit,units_per_s,workers\nllama,c7i.large,tokens,1920,2\n")
    service = tmp_path / "chat.toml"
    service.write_text(
        '[service]\nname = "chat"\nmodel = "llama"\nslo_ms = 800\nslo_attainment = 0.98\nprofile = "own.csv"\n'
        'unit = "tokens"\nunit_size = 480\n[fleet]\ninstances = ["c7i.large"]\n[overflow]\nlate = "refuse"\n'
    )
    place = tokens.index("--slo-ms")
    given = (*tokens[:place], *tokens[place + 2 :], "--service", str(service))
    assert main([*given, "--metric", "vllm-tokens", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["unit"]["per_replica_per_s"] == pytest.approx(1920.0)
    assert "--unit: stands in the service file: tokens" in _refused(capsys, *given, "--unit", "tokens")
    assert "--metric: counts requests, and the load is in tokens: http" in _refused(capsys, *given, "--metric", "http")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--units-per-replica", "9"), "--units-per-replica: counts a unit, and the load is in requests"),
        (
            ("--metric", "vllm-tokens", "--rps-per-replica", "4"),
            "--rps-per-replica: counts requests, and the",
        ),
        (("--unit-size", "9"), "--unit-size: needs a --unit, or a --metric of another unit than requests"),
        (("--metric", "vllm-tokens"), "--units-per-replica: there is no histogram of latencies up to RT_max"),
        (("--serve", "--unit", "tokens"), "--unit: is of the report, without --serve: a floor counts requests"),
        (
            ("--serve", "--metric", "vllm-tokens"),
            "--metric: is of the report, without --serve",
        ),
    ],
)
def test_options_of_another_unit_are_refused(
    tokens: tuple[str, ...], capsys: Captured, more: tuple[str, ...], message: str
) -> None:
    given = tokens
    if "--serve" in more:
        given = tokens[: tokens.index("--days")]
    assert message in _refused(capsys, *given, *more)


@pytest.mark.slow
def test_example_draws_a_language_model(tmp_path: Path) -> None:
    example = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "advise" / "emulated_prometheus.py"))
    with EmulatedPrometheus() as emulated:
        example["fill"](emulated, time.time() + 3600.0, 0.6, example=example["LLAMA"])
        arguments = ("advise", "--prometheus", emulated.url, "--slo-ms", "30000", "--days", "0.5", "--simulate", "30m")
        more = ("--metric", "vllm-generation-tokens", "--units-per-replica", "900", "--policies", "best-fixed")
        assert main([*arguments, *more, "--json", str(tmp_path / "a.json")]) == 0
    found = json.loads((tmp_path / "a.json").read_text())
    assert found["unit"]["size"] == pytest.approx(180.0, rel=0.02)
    assert found["now"]["late_share"] < 0.02
