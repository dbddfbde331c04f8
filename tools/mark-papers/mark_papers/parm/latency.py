"""Section 6 of ParM: latencies by rate (Fig. 10), k (Fig. 11), batch, imbalance (Figs. 12, 13).

Fig. 14 compares with smaller models that back up the deployed one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mark.domain.faults import Faults
from mark_papers.panels import Curve, FigurePanel, PanelFigure, Row
from mark_papers.parm import fleets
from mark_papers.parm.fleets import CALIBRATED_RPS, CPU, GPU, SHARE_OF_A_SHUFFLE, SHUFFLES, Cluster, Latencies

PAPER = "ParM (Kosaian et al., SOSP 2019)"
RATES_RPS = (210.0, 240.0, 270.0, 300.0)
_SHARES = (0.00125, 0.0025, 0.005, 0.01)
_BATCHES = ((1, 300.0), (2, 460.0), (4, 584.0))  # section 6.2.3: sizes of batches, and rates
# Times of batches that follow from 300, 460 and 584 queries/s, because the load is the same at each.
_BATCH_S = {size: GPU.batch_s[0] * size * 300.0 / rps for size, rps in _BATCHES}
_SHUFFLES = (2, 3, 4, 5)
_BATCHES_SAID = (
    "In the paper p99.9 falls by 43 and 47 % with batches of 2 and 4. Here the instances of Equal-Resources batch only "
    "queries that wait, so that most of its batches are smaller."
)
_SHUFFLES_SAID = "In the paper p99.9 falls by 35 % with two shuffles and by 39 % with three."
_HEDGE_MEDIANS = 1.5
_FASTER = 1.15  # MobileNet-V2 against ResNet-18 on a GPU (section 6.2.6)
# Section 6.2.4: inference tasks on a ninth of the instances, at less than 5 % of their capacity.
_SHARED_INSTANCES, _SHARED_TIME, _SHARED_FACTOR = 1.0 / 9.0, 0.05, 2.0

Progress = Callable[[float], None] | None


def run_parm_fig10(*, queries: int = fleets.QUERIES, progress: Progress = None) -> PanelFigure:
    """Compare median and p99.9 by the rate on both clusters, k = 2."""
    panels, done = list[FigurePanel](), 0
    for cluster in (GPU, CPU):
        rows: list[Row] = []
        for rps in RATES_RPS:
            rows.append({"rps": f"{rps:g}", **_beside(cluster, 2, rps, _usual(cluster), queries)})
            done += 1
            _tell(progress, done, 2 * len(RATES_RPS))
        panels.append(FigurePanel(cluster.name, tuple(rows), _curves(RATES_RPS, rows), ("rps", "p99.9_ms")))
    return _figure(
        "parm-fig10",
        "Fig. 10 of ParM: latencies by the rate, k = 2",
        panels,
        [f"{_fall(panels[0], GPU.name)} (paper: 38 to 43).", f"{_fall(panels[1], CPU.name)} (paper: 44 to 48)."],
    )


def run_parm_fig11(*, queries: int = fleets.QUERIES, progress: Progress = None) -> PanelFigure:
    """Compare parity with k of 2, 3 and 4 with Equal-Resources with 33 % and with hedging."""
    faults, rows = _usual(GPU), list[Row]()
    equal = fleets.equal_resources(GPU, 2, CALIBRATED_RPS, faults, queries)
    rows.append(_all_of(f"{GPU.instances + GPU.extra(2)} equal", equal))
    for k in (2, 3, 4):
        found = fleets.parity(GPU, k, CALIBRATED_RPS, faults, queries)
        rows.append(_all_of(f"{GPU.instances} + {GPU.extra(k)}, k = {k}", found))
        _tell(progress, k, 6)
    after_s = _HEDGE_MEDIANS * equal.median_ms / 1e3
    for k in (2, 4):
        found = fleets.hedged(GPU, k, after_s, CALIBRATED_RPS, faults, queries)
        rows.append(_all_of(f"{GPU.instances + GPU.extra(k)} hedged", found))
    _tell(progress, 6, 6)
    panel = FigurePanel(f"{GPU.name} and further ones, {CALIBRATED_RPS:g} queries/s", tuple(rows))
    said = (
        "Rows: instances of the deployed model and of parity models. Hedging is not in the paper: a second call after "
        f"{_HEDGE_MEDIANS:g} medians. Its own answer is then so late that it helps little."
    )
    return _figure("parm-fig11", "Fig. 11 of ParM: latencies by k", [panel], [said])


def run_parm_delays(*, queries: int = fleets.QUERIES, progress: Progress = None) -> PanelFigure:
    """Vary the share of time in which an instance's answers are delayed, which the paper does not state."""
    rows: list[Row] = []
    for place, share in enumerate(_SHARES):
        faults = fleets.shuffled(SHUFFLES, fleets.delay_s(GPU, share), share)
        found = _beside(GPU, 2, CALIBRATED_RPS, faults, queries)
        rows.append({"delayed": f"{100 * SHUFFLES * share:g} %", **found})
        _tell(progress, place + 1, len(_SHARES))
    panel = FigurePanel(f"{GPU.name}, {CALIBRATED_RPS:g} queries/s, k = 2", tuple(rows))
    said = "Parity stops helping where both an answer and the one that it needs are late in one query of a thousand."
    return _figure("parm-delays", "ParM's gain by the share of delayed answers", [panel], [said])


def run_parm_batches(*, queries: int = fleets.QUERIES, progress: Progress = None) -> PanelFigure:
    """Compare batches of 1, 2 and 4, as in section 6.2.3."""
    rows: list[Row] = []
    for place, (size, rps) in enumerate(_BATCHES):
        batch_s = tuple(_BATCH_S.get(n, 0.5 * (_BATCH_S[2] + _BATCH_S[4])) for n in range(1, size + 1))
        cluster = Cluster(GPU.name, GPU.instances, batch_s, GPU.gap)
        rows.append(
            {
                "batch": str(size),
                "rps": f"{rps:g}",
                **_beside(cluster, 2, rps, _usual(GPU), queries),
            }
        )
        _tell(progress, place + 1, len(_BATCHES))
    return _figure(
        "parm-batches", "Section 6.2.3 of ParM: batches", [FigurePanel(GPU.name, tuple(rows))], [_BATCHES_SAID]
    )


def run_parm_fig12(*, queries: int = fleets.QUERIES, progress: Progress = None) -> PanelFigure:
    """Compare two to five shuffles at a time, with the delay calibrated for four."""
    rows: list[Row] = []
    for place, shuffles in enumerate(_SHUFFLES):
        faults = fleets.shuffled(shuffles, fleets.delay_s(GPU))
        rows.append({"shuffles": str(shuffles), **_beside(GPU, 2, CALIBRATED_RPS, faults, queries)})
        _tell(progress, place + 1, len(_SHUFFLES))
    curves = _curves(tuple(map(float, _SHUFFLES)), rows)
    panel = FigurePanel(f"{GPU.name}, {CALIBRATED_RPS:g} queries/s", tuple(rows), curves, ("shuffles", "p99.9_ms"))
    return _figure(
        "parm-fig12", "Fig. 12 of ParM: latencies by the number of shuffles, k = 2", [panel], [_SHUFFLES_SAID]
    )


def run_parm_fig13(*, queries: int = fleets.QUERIES, progress: Progress = None) -> PanelFigure:
    """Add other inference tasks on a ninth of the instances, and no shuffles."""
    share = _SHARED_INSTANCES * _SHARED_TIME
    faults, rows = Faults(slow_share=share, slow_s=GPU.batch_s[0], slow_factor=_SHARED_FACTOR), list[Row]()
    for place, rps in enumerate(RATES_RPS):
        found = _beside(GPU, 2, rps, faults, queries)
        rows.append({"rps": f"{rps:g}", **found})
        _tell(progress, place + 1, len(RATES_RPS))
    panel = FigurePanel(GPU.name, tuple(rows), _curves(RATES_RPS, rows), ("rps", "p99.9_ms"))
    said = (
        f"Assumed: an instance shares its GPU {100 * share:.1f} % of the time, and then takes {_SHARED_FACTOR:g} times "
        "as long. In the paper the gap is 43 % of Equal-Resources' at best."
    )
    return _figure("parm-fig13", "Fig. 13 of ParM: latencies beside other inference tasks, k = 2", [panel], [said])


def run_parm_fig14(*, queries: int = fleets.QUERIES, progress: Progress = None) -> PanelFigure:
    """Send all queries also to smaller models on the instances that would have parity models."""
    faults, rows = _usual(GPU), list[Row]()
    for place, rps in enumerate(RATES_RPS):
        coded = fleets.parity(GPU, 2, rps, faults, queries)
        backed = fleets.approximate(GPU, 2, _FASTER, rps, faults, queries)
        rows.append({
            "rps": f"{rps:g}", "ParM p50_ms": coded.median_ms, "ParM p99.9_ms": coded.p999_ms,
            "A.B. p50_ms": backed.median_ms, "A.B. p99.9_ms": backed.p999_ms,
        })  # fmt: skip
        _tell(progress, place + 1, len(RATES_RPS))
    varies = {of: _spread([float(row[f"{of} p99.9_ms"]) for row in rows]) for of in ("ParM", "A.B.")}
    said = (
        f"p99.9 varies by {100 * varies['ParM']:.0f} % with parity models and by {100 * varies['A.B.']:.0f} % with "
        f"smaller models (paper: modestly, over 36 %)."
    )
    return _figure(
        "parm-fig14",
        "Fig. 14 of ParM: parity models beside smaller models",
        [FigurePanel(GPU.name, tuple(rows))],
        [said],
    )


def _usual(cluster: Cluster) -> Faults:
    return fleets.shuffled(SHUFFLES, fleets.delay_s(cluster))


def _beside(cluster: Cluster, k: int, rps: float, faults: Faults, queries: int) -> dict[str, str | float]:
    """Compare Equal-Resources and parity: the change of p99.9, and of its distance from the median, as shares."""
    equal = fleets.equal_resources(cluster, k, rps, faults, queries)
    coded = fleets.parity(cluster, k, rps, faults, queries)
    return {
        "E.R. p50_ms": equal.median_ms,
        "E.R. p99.9_ms": equal.p999_ms,
        "ParM p50_ms": coded.median_ms,
        "ParM p99.9_ms": coded.p999_ms,
        "p99.9": coded.p999_ms / equal.p999_ms - 1.0,
        "gap": coded.gap_ms / equal.gap_ms,
    }


def _all_of(name: str, found: Latencies) -> Row:
    return {
        "instances": name, "median_ms": found.median_ms, "mean_ms": found.mean_ms,
        "p99_ms": found.p99_ms, "p99.5_ms": found.p995_ms, "p99.9_ms": found.p999_ms,
        "rebuilt": found.reconstructed, "copies": found.copies,
    }  # fmt: skip


def _curves(x: Sequence[float], rows: Sequence[Row]) -> tuple[Curve, ...]:
    named = {"Equal-Resources": "E.R. p99.9_ms", "parity": "ParM p99.9_ms"}
    return tuple(Curve(name, tuple(x), tuple(float(row[key]) for row in rows)) for name, key in named.items())


def _fall(panel: FigurePanel, where: str) -> str:
    falls = sorted(100 * float(row["p99.9"]) for row in panel.rows)
    return f"With parity models p99.9 is {-falls[-1]:.0f} to {-falls[0]:.0f} % lower on {where}"


def _spread(values: Sequence[float]) -> float:
    return max(values) / min(values) - 1.0


def _figure(name: str, headline: str, panels: Sequence[FigurePanel], said: Sequence[str]) -> PanelFigure:
    return PanelFigure(
        name,
        PAPER,
        headline,
        tuple(panels),
        tuple(said),
        (
            "E.R.: Equal-Resources, with more instances of the deployed model; ParM: parity models on these; A.B.: "
            "smaller models on these; gap: of p99.9 from the median, as a share of that of E.R.",
            f"simulated: {fleets.QUERIES:,} Poisson queries in each of three runs, of which the one with the median "
            "p99.9 is shown; instances share one queue; a reconstruction is given as soon as there is one",
            f"an instance's answers are delayed {100 * SHUFFLES * SHARE_OF_A_SHUFFLE:g} % of the time with four "
            "shuffles, which is assumed; the delay is calibrated to the p99.9 of Equal-Resources in the paper "
            f"({GPU.gap:g} medians on GPUs, {CPU.gap:g} on CPUs)",
        ),
    )


def _tell(progress: Progress, done: int, of: int) -> None:
    if progress is not None:
        progress(done / of)
