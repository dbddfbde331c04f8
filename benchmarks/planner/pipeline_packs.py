"""Compare stages that share instances with stages on separate ones: whole instances at list prices, four pipelines.

    python benchmarks/planner/pipeline_packs.py [--quick] [--seed 0] [--out out/pipeline_packs.md]

The pipelines of `pipeline_planning.py` on c7i.large, c7i.xlarge, g4dn.xlarge, g6.xlarge and g5.xlarge at the prices of
aws-2026. Profiles are made up for them in the same style: T(b) = fixed + b x each, on a GPU of g4dn, and faster by the
factors below on others; small models (preprocess, language, categorise, plates) run on one vCPU anywhere. Both plans
are for new traffic, by the same search; each is judged on traffic that it has not seen. Target: a fleet that shares is
15 % cheaper in the median of two of the four pipelines, and neither fleet misses more than promised. Exits with 1 if
the target is missed.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from pathlib import Path

import numpy as np
from mark_papers.inferline.pipelines import PIPELINES, gamma_queries
from pipeline_planning import JUDGED_S, PLANNED_S, judged

from mark.domain.catalog.tables import load_catalog
from mark.domain.offer import Market, Offer
from mark.domain.pipeline import Pipeline
from mark.domain.profile import Profile, ProfileRow
from mark.domain.slo import Slo
from mark.planning.graphs.configure import configure
from mark.planning.graphs.estimate import StageChoice, StageOption
from mark.planning.graphs.fleet_cost import bought
from mark.planning.graphs.stage_options import InstanceOption, shared_options

LARGEST = 32
# ms on one vCPU of a c7i: the fixed part of a batch, and each item
PROCESSOR = {
    "preprocess": (1.0, 6.0), "language": (0.5, 1.5), "categorise": (1.0, 6.0), "plates": (5.0, 45.0),
    "fast": (3.0, 18.0), "vehicles": (5.0, 120.0), "people": (5.0, 120.0), "translate": (30.0, 240.0),
}  # fmt: skip
# ms on the GPU of a g4dn (T4)
GPU = {
    "resnet152": (7.0, 4.6), "slow": (7.0, 4.6), "detect": (9.0, 7.0), "vehicles": (4.0, 1.5), "people": (4.0, 1.5),
    "translate": (12.0, 2.6), "fast": (2.0, 0.35),
}  # fmt: skip
SMALL = ("preprocess", "language", "categorise", "plates")
# Times of a g4dn's GPU and of a c7i's vCPU on others
GPU_TIMES = {"g4dn.xlarge": 1.0, "g6.xlarge": 0.55, "g5.xlarge": 0.42}
PROCESSOR_TIMES = {"c7i.large": 1.0, "c7i.xlarge": 1.0, "g4dn.xlarge": 1.3, "g6.xlarge": 1.1, "g5.xlarge": 1.1}


def offers() -> dict[str, Offer]:
    found: dict[str, Offer] = {}
    for offer in load_catalog("aws-2026").offers:
        if offer.market is Market.ON_DEMAND and offer.instance in PROCESSOR_TIMES:
            found.setdefault(offer.instance, offer)
    assert set(found) == set(PROCESSOR_TIMES)
    return found


def options_of(model: str) -> list[InstanceOption]:
    found = []
    for name, offer in sorted(offers().items()):
        if offer.gpus and model not in SMALL:
            times_ms, workers, factor = GPU.get(model), 1, GPU_TIMES[name]
        else:
            times_ms, workers, factor = PROCESSOR.get(model), int(offer.vcpu), PROCESSOR_TIMES[name]
        if times_ms is None:
            continue
        service_s = np.array([0.0, *(1e-3 * factor * (times_ms[0] + times_ms[1] * b) for b in range(1, LARGEST + 1))])
        profile = Profile(model, name, (ProfileRow(1, service_s[1] * 1e3, workers=workers),))
        found.append(InstanceOption(offer, profile, StageOption(name, offer.usd_per_hour, service_s, workers)))
    return found


def told(pipeline: Pipeline, choices: tuple[StageChoice, ...]) -> str:
    packs = (
        f"{pack.count} {pack.instance} ("
        + ", ".join(f"{name} {n}" for name, n in zip(pipeline.names, pack.workers, strict=True) if n)
        + ")"
        for pack in bought(choices)
    )
    return "; ".join(packs)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="measure only one rate and one promise")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("out/pipeline_packs.md"))
    args = parser.parse_args()
    rates, slos = ((150.0,), (300.0,)) if args.quick else ((20.0, 150.0, 500.0), (150.0, 300.0))
    lines = [
        "| pipeline | queries/s | SLO ms | CV | separate $/h | misses % | shared $/h | misses % "
        "| shared / separate | s |",
        "|---" + "|--:" * 9 + "|",
    ]
    print(*lines, sep="\n", flush=True)
    ratios: dict[str, list[float]] = {name: [] for name in PIPELINES}
    missed: list[float] = []
    fleets = []
    for name, rate, slo_ms, cv in itertools.product(PIPELINES, rates, slos, (1.0, 4.0)):
        pipeline, law = PIPELINES[name]
        slo = Slo(slo_ms / 1e3, 0.99)
        sample = gamma_queries(law, rate, cv, PLANNED_S, args.seed)
        new = gamma_queries(law, rate, cv, JUDGED_S, args.seed + 1_000_000)
        offered = [options_of(stage.model) for stage in pipeline.stages]
        by_worker = shared_options(offered, [stage.model in SMALL for stage in pipeline.stages])
        separate_options, shared = ([[one.option for one in of] for of in way] for way in (offered, by_worker))
        began_s = time.process_time()
        separate = configure(pipeline, sample, separate_options, slo, seed=args.seed)
        start = tuple(
            StageChoice(option, choice.batch, choice.workers)
            for choice, of in zip(separate.choices, shared, strict=True)
            for option in of
            if option.hardware == choice.option.hardware
        )
        found = configure(pipeline, sample, shared, slo, seed=args.seed, start=start)
        took_s = time.process_time() - began_s
        (usd, late), (shared_usd, shared_late) = (judged(pipeline, new, slo, one.choices) for one in (separate, found))
        ratios[name].append(shared_usd / usd)
        missed += [late, shared_late]
        lines.append(
            f"| {name} | {rate:g} | {slo_ms:g} | {cv:g} | {usd:.2f} | {100 * late:.2f} | {shared_usd:.2f} | "
            f"{100 * shared_late:.2f} | {shared_usd / usd:.2f} | {took_s:.1f} |"
        )
        print(lines[-1], flush=True)
        fleets.append(f"{name} {rate:g}/s {slo_ms:g} ms CV {cv:g}: {told(pipeline, found.choices)}")
    medians = {name: float(np.median(of)) for name, of in ratios.items()}
    everything = list(itertools.chain.from_iterable(ratios.values()))
    closing = [
        "shared / separate, median by pipeline: " + ", ".join(f"{name} {one:.2f}" for name, one in medians.items()),
        f"of all cells: mean {np.mean(everything):.3f}, least {min(everything):.2f}, greatest {max(everything):.2f}",
        f"more than 1 % of new queries missed in {sum(late > 0.01 for late in missed)} of {len(missed)} plans, "
        f"{100 * max(missed):.2f} % at most",
    ]
    print("", *closing, sep="\n")
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text("\n".join([*lines, "", *closing, "", *fleets]) + "\n")
    cheaper = sum(one <= 0.85 for one in medians.values())
    return int(cheaper < 2 or max(everything) > 1.0 + 1e-9 or max(missed) > 0.01)


if __name__ == "__main__":
    sys.exit(main())
