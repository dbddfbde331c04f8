"""Compare a simulated bouncer with a real one: the same arrivals through the kernel and through `mark serve`.

    python benchmarks/fidelity/fidelity_bouncer.py [--seconds 12] [--rounds 3] [--loads 0.3,0.6,0.9,1.2]
                                          [--streams poisson,bursty] [--tail 1] [--out out/fidelity_bouncer]

The server has core 0 for all its processes, the open-loop client has core 1. The model computes nothing and takes 5 ms
+ 0.5 ms x b for a batch of b <= 16 (`mark.profiling.replay`). RT_max is 100 ms. There are no functions, so a request
that is not admitted is refused. First `profiled` measures the server's profile from outside; both worlds then decide by
this profile. Each load is a share of the profile's capacity. It is sent as a Poisson stream and as a bursty stream
(gamma inter-arrivals with a coefficient of variation of 4), with new arrivals each round.

The kernel gets the times at which the client really sent, and the latency of answered requests counts from these times.
So the comparison excludes the client's lag, which the table shows. A machine that pauses shows in that lag, because
nothing of the server runs on the client's core. A round in which the p99 of the lag is above 1 ms is repeated with new
arrivals, until there are three times as many rounds; the rounds with the least lag count. `refused` is the share of
requests that were not admitted. Each column of the table shows the round whose difference is the median. Writes
OUT.json, OUT.md and OUT.html. Exits with 1 if a quantile of the two worlds differs by more than 10 %, or the refused
share by more than 2 points.

With `--tail R` the model's times are lognormal with a 99th percentile of R times their mean, and so is the profile. The
means are profiled without tails, because a mean of heavy tails takes minutes to measure. The two worlds draw different
times, so the kernel's row is the mean of eight seeds, and the target is that the late shares (late or refused) are
within 0.5 points in the median round. docs/fidelity.md interprets the results. On a machine that others use too,
`chrt -f 1` before the command helps.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from mark.domain.profile import Candidate, ProfileRow
from mark.domain.slo import Slo
from mark.kernel.accounting import Accounting
from mark.kernel.stage import StageSimulation
from mark.profiling.policy import candidate, p99_of, sigma_of
from mark.profiling.table import load_profiles

sys.path.append(str(Path(__file__).resolve().parents[1] / "data_plane"))
import load

SERVER_CORE, CLIENT_CORE = 0, 1
FIXED_MS, EACH_MS, LARGEST, RT_MAX_MS = 5.0, 0.5, 16, 100.0
SIZES = (1, 2, 4, 8, 13, 14, 15, 16)  # in the profile
OVERLOAD, PART_LOADS, WARM_UP_S = 1.4, (0.4, 0.6, 0.8), 0.5  # while it is profiled
APART_S = 2e-3  # answers further apart are of different batches: a batch takes 5 ms, and writing its answers 1 ms
CV = 4.0
QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
TOLERANCE, POINTS = 0.10, 0.02
LATE_POINTS, SEEDS = 0.005, 8  # with a tail
CALM_MS, MORE_ROUNDS = 1.0, 3  # p99 of the client's lag in a good round; most rounds, in multiples of --rounds
CONNECTIONS = 512
REFUSED = 429

MODEL = "mark.profiling.replay:Replay?model=replay&instance=here&profile=nominal.csv"
SERVICE = f"""
[service]
name = "replay"
model = "{MODEL}"
slo_ms = {RT_MAX_MS:g}
slo_attainment = 0.98
[overflow]
function = "none"
"""
HEAD = "model,instance,batch,latency_ms,overhead_ms,p99_ms\n"
BODY = b'{"id":"1","inputs":[{"name":"x","shape":[1,1],"datatype":"FP32","data":[1.5]}]}'

Row = dict[str, float]  # measured and simulated: p50, p95, p99 in ms, refused and late (or refused) as shares


def nominal_ms(batch: int) -> float:
    return FIXED_MS + EACH_MS * batch


def p99_ms(batch: int, mean_ms: float, tail: float) -> float:
    """Return the p99 of a batch that takes `mean_ms` in all: only the model's part of it scatters."""
    sigma = sigma_of(ProfileRow(batch, 1.0, p99_ms=tail))
    variation = math.expm1(sigma**2) * (nominal_ms(batch) / mean_ms) ** 2
    return p99_of(mean_ms, math.sqrt(math.log1p(variation)))


@contextmanager
def served(folder: Path, latency_ms: dict[int, float], overhead_ms: float, tail: float = 1.0) -> Iterator[load.Target]:
    """Yield a target on a real server that decides by this profile, even if its model takes other times."""
    (folder / "service.toml").write_text(SERVICE)
    nominal = {b: nominal_ms(b) for b in (1, LARGEST)}
    (folder / "nominal.csv").write_text(
        HEAD + "".join(f"replay,here,{b},{ms},0,{tail * ms if tail > 1.0 else ''}\n" for b, ms in nominal.items())
    )
    profile = folder / "profile.csv"
    profile.write_text(
        HEAD
        + "".join(
            f"{MODEL},here,{b},{ms},{overhead_ms},{p99_ms(b, ms, tail) if tail > 1.0 else ''}\n"
            for b, ms in latency_ms.items()
        )
    )
    with load.serving(["service.toml", "--profile", str(profile)], folder, str(SERVER_CORE)) as url:
        yield load.Target(f"{url}/v2/models/replay/infer", BODY)


def profiled(folder: Path, seconds: float) -> tuple[dict[int, float], float]:
    """Return milliseconds by batch size and the overhead of a request, seen from outside.

    A full batch waits with its worker, which decodes it while the model runs the batch before. A batch that is not full
    waits in the bouncer, because requests may join it. So both kinds are profiled separately, each including the time
    between two batches: full batches while the load is far above the capacity, the others below saturation, as
    `part_ms` says. A closed loop would not do: its next requests all arrive while the next batch begins, and two
    processes on one core delay each other. The overhead is the excess of a lone request's time over a batch of one.
    """
    with served(folder, {b: nominal_ms(b) for b in (1, LARGEST)}, 0.0) as target:
        full_rps = 1e3 * LARGEST / nominal_ms(LARGEST)
        offered_s = load.poisson(OVERLOAD * full_rps, seconds + WARM_UP_S, LARGEST)
        answers = load.open_loop(target, offered_s, CONNECTIONS, patience_s=3.0)
        ends_s = np.sort(answers["answered_s"][answers["right"] & (answers["scheduled_s"] > WARM_UP_S)])
        periods_s = np.sort(ends_s[LARGEST:] - ends_s[:-LARGEST])
        # The mean, because it determines queues, but without the slowest percent, which the machine causes.
        full_ms = 1e3 * float(periods_s[: int(0.99 * len(periods_s))].mean())
        parts = [
            load.open_loop(target, load.poisson(share * full_rps, seconds, seed), CONNECTIONS, patience_s=3.0)
            for seed, share in enumerate(PART_LOADS)
        ]
        # A rule that admits by these times would never fill a batch if the last places in it made it slower.
        latency_ms = {b: min(part_ms(parts, b), full_ms) for b in SIZES if b < LARGEST} | {LARGEST: full_ms}
        lone = load.closed_loop(target, seconds, 1)
    lone_ms = 1e3 * float(np.median(lone["answered_s"] - lone["sent_s"]))
    return latency_ms, max(0.0, lone_ms - latency_ms[1])


def part_ms(parts: Sequence[load.Answers], batch: int) -> float:
    """Return the time of a batch that is not full: from its answers to the next ones, if the next batch already waited.

    It is on a line through all sizes, fitted again without the percent that lies furthest above it.
    """
    items, taken_s = np.concatenate([batches(answers) for answers in parts], axis=1)
    kept = items < LARGEST
    for _ in range(2):
        line = np.polynomial.Polynomial.fit(items[kept], taken_s[kept], 1)
        above = taken_s - line(items)
        kept &= above <= np.quantile(above[kept], 0.99)
    return 1e3 * float(line(batch))


def batches(answers: load.Answers) -> load.FloatArray:
    """Return items and seconds, 2 x n, of the batches that began when the one before ended."""
    answers = np.sort(answers[answers["status"] == 200], order="answered_s")
    first = np.flatnonzero(np.diff(answers["answered_s"], prepend=-np.inf) > APART_S)
    ends_s = answers["answered_s"][first]
    sent_s = np.minimum.reduceat(answers["sent_s"], first)
    waited = sent_s[1:] < ends_s[:-1] - APART_S / 2.0
    return np.stack([np.diff(first, append=len(answers))[1:][waited], np.diff(ends_s)[waited]])


def arrivals(stream: str, rate_rps: float, seconds: float, seed: int) -> load.FloatArray:
    if stream == "poisson":
        return load.poisson(rate_rps, seconds, seed)
    shape = 1.0 / CV**2
    random = np.random.default_rng(seed)
    times = np.cumsum(random.gamma(shape, 1.0 / (rate_rps * shape), int(2.0 * rate_rps * seconds) + 1000))
    return times[times < seconds]


def simulated(kind: Candidate, arrivals_s: load.FloatArray) -> Row:
    seeds = range(SEEDS if kind.sigma > 0.0 else 1)
    rows = [_simulated(kind, arrivals_s, seed) for seed in seeds]
    return {key: float(np.mean([one[key] for one in rows])) for key in rows[0]}


def _simulated(kind: Candidate, arrivals_s: load.FloatArray, seed: int) -> Row:
    rt_max_s = RT_MAX_MS / 1e3
    stage = StageSimulation(
        [kind], accounts=Accounting(rt_max_s=rt_max_s, end_s=float(arrivals_s[-1]) + 1.0), seed=seed, keep=True
    )
    stage.add(0, 0, 0.0)
    stage.advance(arrivals_s, 0, np.inf)
    stage.finish()
    recording = stage.recording()
    served = recording.slot >= 0
    return row(recording.finish_s[served] - arrivals_s[served], len(served))


def measured(target: load.Target, arrivals_s: load.FloatArray) -> tuple[Row, load.FloatArray]:
    """Return the measured row, and the times at which requests were sent."""
    answers = load.open_loop(target, arrivals_s, CONNECTIONS, patience_s=3.0)
    served, sent_s = answers["status"] == 200, answers["sent_s"]
    assert (served | (answers["status"] == REFUSED)).all(), "neither answered nor refused"
    found = row((answers["answered_s"] - sent_s)[served], len(served))
    return found | {"lag_p99": 1e3 * float(np.quantile(sent_s - answers["scheduled_s"], 0.99))}, sent_s


def row(latency_s: load.FloatArray, asked: int) -> Row:
    """Return the latency quantiles of the served ones of `asked` requests, and the shares refused and late."""
    quantiles = 1e3 * np.quantile(latency_s, list(QUANTILES.values()))
    late = 1.0 - np.count_nonzero(latency_s <= RT_MAX_MS / 1e3) / asked
    shares = {"refused": 1.0 - len(latency_s) / asked, "late": late}
    return {**dict(zip(QUANTILES, map(float, quantiles), strict=True)), **shares}


def compared(rounds: Sequence[tuple[Row, Row]]) -> Row:
    """Return, for each quantile and share, the difference in the median round, and both values there."""
    cell = {"lag_p99": max(seen["lag_p99"] for seen, _ in rounds)}
    for key in (*QUANTILES, "refused", "late"):

        def off(both: tuple[Row, Row], key: str = key) -> float:
            seen, expected = both[0][key], both[1][key]
            return seen - expected if key in ("refused", "late") else seen / expected - 1.0

        middle = sorted(rounds, key=off)[len(rounds) // 2]
        cell |= {f"measured_{key}": middle[0][key], f"simulated_{key}": middle[1][key], f"off_{key}": off(middle)}
    return cell


def calmest(rounds: Sequence[tuple[Row, Row]], count: int) -> list[tuple[Row, Row]]:
    return sorted(rounds, key=lambda both: both[0]["lag_p99"])[:count]


def agrees(cell: Row, tail: float = 1.0) -> bool:
    if tail > 1.0:
        return abs(cell["off_late"]) <= LATE_POINTS
    return all(abs(cell[f"off_{key}"]) <= TOLERANCE for key in QUANTILES) and abs(cell["off_refused"]) <= POINTS


Table = dict[tuple[str, float], Row]


def markdown(table: Table, tail: float = 1.0) -> str:
    head = "| arrivals | load | p50 ms, measured / simulated | p95 | p99 | refused | late or refused |"
    lines = [f"{head} client's lag p99 at most, ms | |", "|---|---|---|---|---|---|---|---|---|"]
    for (stream, share), cell in table.items():
        quantiles = [
            f"{cell[f'measured_{q}']:.1f} / {cell[f'simulated_{q}']:.1f} ({cell[f'off_{q}']:+.1%})" for q in QUANTILES
        ]
        refused = " | ".join(f"{cell[f'measured_{x}']:.1%} / {cell[f'simulated_{x}']:.1%}" for x in ("refused", "late"))
        last = f"{cell['lag_p99']:.2f} | {'' if agrees(cell, tail) else 'apart'}"
        lines.append(f"| {stream} | {share:.0%} | {' | '.join(quantiles)} | {refused} | {last} |")
    return "\n".join(lines) + "\n"


def plot(table: Table, file: Path) -> None:
    """Plot quantiles by load, a panel for each stream: lines are simulated, dots measured."""
    from plotly.subplots import make_subplots

    streams = list(dict.fromkeys(stream for stream, _ in table))
    figure = make_subplots(rows=1, cols=len(streams), subplot_titles=streams, shared_yaxes=True)
    for column, stream in enumerate(streams, 1):
        cells = {share: cell for (of, share), cell in table.items() if of == stream}
        for key, color in zip(QUANTILES, ("#0b6e4f", "#c77d0a", "#9b2226"), strict=True):
            x = [100.0 * share for share in cells]
            for world, mode in (("simulated", "lines"), ("measured", "markers")):
                y = [cell[f"{world}_{key}"] for cell in cells.values()]
                name, shown = f"{key} {world}", column == 1
                figure.add_scatter(
                    x=x, y=y, mode=mode, name=name, line_color=color, showlegend=shown, row=1, col=column
                )
        figure.add_hline(y=RT_MAX_MS, line_dash="dot", row=1, col=column)
    figure.update_xaxes(title_text="offered load, % of capacity")
    figure.update_yaxes(title_text="latency of answered requests, ms", col=1)
    figure.update_layout(title="One bouncer: simulated and measured", template="plotly_white")
    figure.write_html(file, include_plotlyjs=True)


def main(argv: Sequence[str] = sys.argv[1:]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=12.0, help="seconds of one stream")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--loads", default="0.3,0.6,0.9,1.2")
    parser.add_argument("--streams", default="poisson,bursty")
    parser.add_argument("--tail", type=float, default=1.0, metavar="R", help="p99 / mean of the model's times")
    parser.add_argument("--out", type=Path, default=Path("out/fidelity_bouncer"))
    args = parser.parse_args(argv)
    os.sched_setaffinity(0, {CLIENT_CORE})
    loads, streams = [float(text) for text in args.loads.split(",")], args.streams.split(",")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        latency_ms, overhead_ms = profiled(folder, max(2.0, args.seconds / 4.0))
        shown = ", ".join(f"{batch}: {ms:.2f}" for batch, ms in latency_ms.items())
        print(f"profile, ms by batch: {shown}; overhead {overhead_ms:.2f} ms")
        rounds: dict[tuple[str, float], list[tuple[Row, Row]]] = {(s, x): [] for s in streams for x in loads}
        with served(folder, latency_ms, overhead_ms, args.tail) as target:
            kind = candidate(load_profiles(str(folder / "profile.csv"))[MODEL]["here"], Slo(RT_MAX_MS / 1e3, 0.98))
            assert isinstance(kind, Candidate), kind
            for seed in range(MORE_ROUNDS * args.rounds + 1):
                for (stream, share), played in rounds.items():
                    if sum(seen["lag_p99"] <= CALM_MS for seen, _ in played) >= args.rounds:
                        continue
                    seconds = args.seconds if seed else 1.0  # the first round warms both worlds up
                    arrivals_s = arrivals(stream, share * kind.capacity_rps, seconds, seed)
                    seen, sent_s = measured(target, arrivals_s)
                    expected = simulated(kind, sent_s)
                    if seed:
                        played.append((seen, expected))
                    time.sleep(0.2)
    table = {cell: compared(calmest(played, args.rounds)) for cell, played in rounds.items()}
    text = markdown(table, args.tail)
    print(text)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.with_suffix(".md").write_text(text)
    profile = {"latency_ms": latency_ms, "overhead_ms": overhead_ms, "capacity_rps": kind.capacity_rps}
    cells = [
        {"arrivals": stream, "load": share, **cell, "rounds": rounds[stream, share]}
        for (stream, share), cell in table.items()
    ]
    args.out.with_suffix(".json").write_text(json.dumps({"profile": profile, "cells": cells}, indent=1))
    plot(table, args.out.with_suffix(".html"))
    apart = [f"{stream} at {share:.0%}" for (stream, share), cell in table.items() if not agrees(cell, args.tail)]
    if apart:
        print(f"the two worlds are apart: {', '.join(apart)}", file=sys.stderr)
    return 1 if apart else 0


if __name__ == "__main__":
    sys.exit(main())
