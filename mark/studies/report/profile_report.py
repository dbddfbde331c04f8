"""The result of `mark profile` for the terminal, as JSON, and as a page."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from mark.domain.profile import Candidate
from mark.domain.slo import Slo
from mark.profiling.measure import KNEE_SHARE, Measured
from mark.studies.report.figure_style import faint, new_figure, styled
from mark.studies.report.report import DataTable, Head, Marked, Plot, Report
from mark.studies.report.words import grouped, percent, rate

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

# The SLO, and the candidate that keeps it by the profile, or the reason why none does.
Promise = tuple[Slo, Candidate | str]


def _ms(seconds: float) -> str:
    """Return milliseconds with three significant digits."""
    value = seconds * 1e3
    if not value > 0.0:
        return "0"
    return f"{value:,.{max(0, 2 - math.floor(math.log10(value)))}f}"


_HEADS: tuple[Head, ...] = (
    *("batch", ("times", grouped), ("mean ms", _ms), ("+-", percent), ("p99 ms", _ms)),
    *(("in worker", _ms), ("items/s", rate)),
)
_MEAN, _P99, _RATE, _KNEE = "#2563eb", "#ea7317", "#0f9d78", "#64748b"


def profile_report(measured: Measured, promise: Promise | None) -> Report:
    """Return a row for each batch size, the conclusions, and the warnings. A p99 of too few times ends in "?".

    In the JSON `promise` is null without an SLO; if nothing keeps it, it has only `rt_max_ms` and `why_not`.
    """
    return Report(
        {**measured.as_json(), "promise": None if promise is None else _promise_json(*promise)},
        _headline(measured),
        [
            Plot("Latency by batch size", partial(latency_figure, measured, promise), _LATENCY_LEAD),
            Plot("Throughput", partial(throughput_figure, measured), "Items a second with all workers busy."),
            DataTable(_HEADS, _rows(measured), "Sizes"),
        ],
        takeaways(measured, promise),
        warnings=measured.warnings(),
        subject=f"profile of {measured.model}",
    )


_LATENCY_LEAD = "From send to done. Bars show the 95 % interval of the mean; the dotted line is RT_max."


def profiled_pipeline_report(name: str, found: Sequence[tuple[Sequence[str], Measured]]) -> Report:
    """Return the models of a pipeline, each with its stages."""
    named = [(", ".join(stages), measured) for stages, measured in found]
    rows = [[stages if n == 0 else "", *row] for stages, one in named for n, row in enumerate(_rows(one))]
    models = [{"stages": list(stages), **profile_report(measured, None).data} for stages, measured in found]
    return Report(
        {"schema": 1, "pipeline": name, "models": models},
        f"{name} on {found[0][1].instance}",
        [DataTable(("stages", *_HEADS), rows), *(Marked(f"{stages}: {_workers(one)}") for stages, one in named)],
        warnings=[f"{stages}: {warning}" for stages, one in named for warning in one.warnings()],
    )


def profiled_on_report(found: Mapping[str, Any]) -> Report:
    """Return the result of `mark profile --on`, from its JSON: the best type, and each type's bill and latencies."""
    rows = []
    for name, one in found["types"].items():
        times = " ".join(f"{batch}: {ms:.3g}" for batch, ms in one["mean_ms"].items())
        cost = one["usd_per_million"]
        rows.append(
            [name, cost, one["usd"], times, "" if cost is not None and one["why"].startswith("$") else one["why"]]
        )
    within, best = f"RT_max of {found['rt_max_ms']:g} ms", found["best"]
    if best is None:
        said = f"no type that was measured keeps {within}"
    else:
        usd = found["types"][best]["usd_per_million"]
        said = f"{best} is the cheapest: ${usd:.3g} per million requests at {within}"
    heads = (
        "",
        ("$/million", lambda usd: "-" if usd is None else f"{usd:.3g}"),
        ("bill $", "{:.4f}".format),
        ("batch: mean ms", str),
        "reason",
    )
    bill = Marked(f"The bill: ${found['usd']:.4f} of at most ${found['budget_usd']:g}.")
    return Report(found, said, [DataTable(heads, rows), bill])


def latency_figure(measured: Measured, promise: Promise | None) -> Figure:
    """Return the mean with its interval, and the 99th percentile."""
    batches = [size.batch for size in measured.sizes]
    half_ms = [size.half_s * 1e3 for size in measured.sizes]
    figure = new_figure()
    figure.add_scatter(
        x=batches,
        y=[size.mean_s * 1e3 for size in measured.sizes],
        error_y={"array": half_ms, "color": _MEAN},
        name="mean",
        line={"color": _MEAN},
        mode="lines+markers",
    )
    figure.add_scatter(
        x=batches,
        y=[size.p99_s * 1e3 for size in measured.sizes],
        name="p99",
        line={"color": _P99, "dash": "dot"},
        mode="lines+markers",
    )
    if promise is not None:
        figure.add_hline(y=promise[0].rt_max_s * 1e3, line={"color": "#dc2626", "width": 1.2, "dash": "dot"})
    return _by_batch(figure, measured, "ms")


def throughput_figure(measured: Measured) -> Figure:
    """Return items a second, and the knee."""
    figure = new_figure()
    figure.add_scatter(
        x=[size.batch for size in measured.sizes],
        y=[measured.throughput_rps(size) for size in measured.sizes],
        name="throughput",
        line={"color": _RATE},
        fill="tozeroy",
        fillcolor=faint(_RATE, 0.12),
        mode="lines+markers",
    )
    return _by_batch(figure, measured, "items/s")


def takeaways(measured: Measured, promise: Promise | None) -> list[str]:
    """Return the knee, the batch policy that keeps an SLO, and additional times."""
    knee, best = measured.knee, max(measured.sizes, key=measured.throughput_rps)
    of_best = "the best that was measured"
    if knee is not best:
        of_best = (
            f"at least {percent(KNEE_SHARE, 0)} of the best ({rate(measured.throughput_rps(best))} with {best.batch})"
        )
    lines = [f"The knee is at batches of {knee.batch}: {rate(measured.throughput_rps(knee))} items/s, {of_best}."]
    if promise is not None:
        slo, kept = promise
        if isinstance(kept, str):
            lines.append(f"RT_max of {slo.rt_max_s * 1e3:g} ms cannot be kept: {kept}.")
        else:
            lines.append(
                f"RT_max of {slo.rt_max_s * 1e3:g} ms gives N_batch = {kept.policy.n_batch}, W_batch = "
                f"{_ms(kept.policy.w_batch_s)} ms, and a capacity of {rate(kept.capacity_rps)} requests/s."
            )
    if measured.overhead_s is not None:
        lines.append(
            f"Beyond these times, mark's server adds {_ms(measured.overhead_s)} ms to a request that need not wait."
        )
    if measured.cold_s is not None:
        lines.append(f"From start to ready: {measured.cold_s:.2f} s.")
    return lines


def _promise_json(slo: Slo, kept: Candidate | str) -> dict[str, Any]:
    found = kept if isinstance(kept, Candidate) else None
    return {
        "rt_max_ms": slo.rt_max_s * 1e3,
        "n_batch": found and found.policy.n_batch,
        "w_batch_ms": found and found.policy.w_batch_s * 1e3,
        "capacity_rps": found and found.capacity_rps,
        "why_not": kept if isinstance(kept, str) else None,
    }


def _headline(measured: Measured) -> str:
    meanwhile = f", {measured.background} busy processes beside" if measured.background else ""
    return f"{measured.model} on {measured.instance}: {_workers(measured)}{meanwhile}"


def _workers(measured: Measured) -> str:
    """Return the number of workers, and the use of the machine by one of them."""
    workers = "one worker" if measured.workers == 1 else f"{measured.workers} workers at a time"
    vcpus = max((size.vcpus for size in measured.sizes if size.vcpus is not None), default=None)
    if vcpus is None or measured.memory_bytes is None:
        return workers
    used = f"{vcpus:.2f} vCPUs and {measured.memory_bytes / 1e6:,.0f} MB"
    return f"{workers}, using {used}{'' if measured.workers == 1 else ' each'}"


def _rows(measured: Measured) -> list[list[Any]]:
    return [
        [
            *(str(size.batch), size.count, size.mean_s, size.half_s / size.mean_s),
            _ms(size.p99_s) + ("" if size.p99_is_certain else "?"),
            *("-" if size.service_s is None else size.service_s, measured.throughput_rps(size)),
        ]
        for size in measured.sizes
    ]


def _by_batch(figure: Figure, measured: Measured, unit: str) -> Figure:
    knee = measured.knee.batch
    figure.add_vline(
        x=knee, line={"color": _KNEE, "width": 1.2, "dash": "dash"}, annotation_text=html.escape(f"knee: {knee}")
    )
    figure.update_xaxes(title_text="batch size", tickvals=[size.batch for size in measured.sizes])
    figure.update_yaxes(title_text=unit, rangemode="tozero")
    return styled(figure, 360)
