"""Write tables of the documentation from JSON files of benchmarks, so that pages say the measured numbers.

    mark reproduce fig9 --json out/fig9.json
    python benchmarks/measured_tables.py keep fig9 out/fig9.json       # into docs/measured, without the curves
    python benchmarks/measured_tables.py                               # writes the tables of all pages anew

A page has `<!-- table: NAME -->` before such a table and `<!-- end of table -->` after it. `TABLES` has the names.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1] / "docs"
_BLOCK = re.compile(r"(<!-- table: ([\w-]+) -->\n).*?(<!-- end of table -->)", re.DOTALL)
# No table shows these details of runs, and they would make up most of the kept files.
_DETAILS = frozenset({"fleet", "promise", "speed", "trace", "box_ms", "sagemaker_types", "parts_usd", "curves"})
Json = Any
Rows = Iterable[Sequence[str]]


def usd(amount: float) -> str:
    return f"${amount:.2f}"


def percent(share: float, digits: int = 2) -> str:
    """Cut rather than rounded near 100 %, so that 99.999 % never reads as all."""
    value = 100.0 * share
    if value < 100.0 and round(value, digits) == 100.0:
        value = math.floor(value * 10**digits) / 10**digits
    return f"{value:.{digits}f} %"


def _seconds(milliseconds: float) -> str:
    return f"{milliseconds / 1e3:.0f} s" if milliseconds >= 9_950.0 else f"{milliseconds:.0f} ms"


def _bill(run: Json, asked: float) -> str:
    """Return bill and share in time, which is bold if it is below the promise."""
    in_time = percent(run["in_time"])
    return f"{usd(run['usd'])}, {in_time if run['in_time'] >= asked else f'**{in_time}**'}"


def price_of_requests(result: Json) -> Rows:
    yield ("model", "on", "$ a million", "paper", "ms", "paper")
    for row in result["rows"]:
        on = row["resource"].replace(" as the paper counts", ", as the paper counts")
        prices = f"{row['usd_per_million']:.2f}", f"{row['paper_usd_per_million']:.1f}"
        yield (row["model"], on, *prices, f"{row['latency_ms']:,.0f}", f"{row['paper_latency_ms']:,.0f}")


def price_on_burstables(result: Json) -> Rows:
    yield ("model", "on", "$ a million", "paper", "credits last", "then $")
    for row in result["rows"]:
        yield (
            row["model"], row["instance"], f"{row['usd_per_million']:.2f}", f"{row['paper_usd_per_million']:.2f}",
            f"{row['burst_min']:.0f} min", f"{row['usd_per_million_after']:.2f}",
        )  # fmt: skip


def optimum(result: Json) -> Rows:
    yield ("model", "optimum", "greedy", "no delay", "printed C", "tail", "greed", "averages")
    for row in result["rows"]:
        dollars = (
            row["optimum"]["usd"], row["greedy_usd"], row["greedy_without_cool_down_usd"],
            row["greedy_printed_capacity_usd"], row["tail"]["usd"],
        )  # fmt: skip
        prices = f"**{row['price_of_greed']:.3f}**", f"**{row['price_of_averages']:.3f}**"
        yield (f"{row['model']}{', capped' if row['capped'] else ''}", *map(usd, dollars), *prices)


def against_sagemaker(result: Json) -> Rows:
    """Return rows of the raw stream: SageMaker's bill over ours, and the paper's system."""
    others = ("mark-paper", "mark-paper:artefact")
    yield ("model", "SageMaker / `mark`", "paper", "SageMaker", "`mark`", "regret", *(f"`{name}`" for name in others))
    for row in result["rows"]:
        if not row["capped"]:
            runs = row["runs"]
            bills = _paid(runs["sagemaker"]), _paid(runs["mark"])
            regret = f"{runs['mark']['regret']:.2f}"
            yield (row["model"], *_ratios(row, ""), *bills, regret, *(_paid(runs[name]) for name in others))


def against_sagemaker_capped(result: Json) -> Rows:
    yield (
        "model",
        "SageMaker / `mark`",
        "paper",
        "`mark`",
        "regret",
        "SageMaker / `mark-spot`",
        "paper",
        "`mark-spot`",
    )
    for row in result["rows"]:
        if row["capped"]:
            ours, spot = row["runs"]["mark"], row["runs"]["mark-spot"]
            regret = f"{ours['regret']:.2f}"
            yield (row["model"], *_ratios(row, ""), _paid(ours), regret, *_ratios(row, "spot_"), _paid(spot))


def _ratios(row: Json, kind: str) -> tuple[str, str]:
    """Return our ratio, bold where it reaches the paper's, and the paper's."""
    ours, paper = row[f"{kind}ratio"], row[f"paper_{kind}ratio"]
    shown = f"{ours:.2f}"
    return f"**{shown}**" if ours >= paper else shown, f"{paper:.2f}"


def latencies(result: Json) -> Rows:
    yield ("model, RT_max", *(f"`{name}`" for name in result["rows"][0]["runs"]))
    for row in result["rows"]:
        runs = row["runs"].values()
        asked_ms = next(iter(runs))["slo"]["rt_max_ms"]
        yield (f"{row['model']}, {asked_ms:,.0f} ms", *(_quantiles(run) for run in runs))


def _quantiles(run: Json) -> str:
    found = run["latency_ms"]
    return f"{found['p50']:,.0f} ({found['p99']:,.0f}), {percent(run['slo']['attainment'])}"


def on_two_loads(result: Json) -> Rows:
    first = result["rows"][0]
    loads = {"stream": first["stream"], "mmpp": first["mmpp"]}
    runs = [(name, load) for name in loads["stream"] for load in loads]
    yield ("model", *(f"`{name}`, {'MMPP' if load == 'mmpp' else load}" for name, load in runs))
    for row in result["rows"]:
        yield (row["model"], *(_paid(row[load][name]) for name, load in runs))


def _paid(run: Json) -> str:
    return f"{usd(run['bill_usd']['total'])}, {percent(run['slo']['attainment'])}"


def routings(result: list[Json]) -> Rows:
    """Return a row for each service: the share of requests that go to functions, and the bill."""
    names = list(dict.fromkeys(row["routing"] for row in result))
    yield ("service", *names)
    for service in dict.fromkeys(row["service"] for row in result):
        rows = [row for row in result if row["service"] == service]
        bills = [usd(rows[0]["usd"]), *(f"{row['extra']:+.1%}".replace("%", " %") for row in rows[1:])]
        yield (service, *(f"{percent(row['overflow'])}, {bill}" for row, bill in zip(rows, bills, strict=True)))


def surges(result: Json) -> Rows:
    panels = result["surges"]
    yield ("run", *(panel["title"].removesuffix(" in two minutes") for panel in panels))
    for name in panels[0]["runs"]:
        runs = [panel["runs"][name] for panel in panels]
        yield (f"`{name}`", *(_surge(run) for run in runs))


def _surge(run: Json) -> str:
    functions = run["requests"]["functions"] / run["requests"]["total"]
    bill, in_time = usd(run["bill_usd"]["total"]), percent(run["in_time_after"])
    return f"{bill}, {in_time}, {_seconds(run['worst_mean_ms'])}, {percent(functions, 1)}"


def interruptions(result: Json) -> Rows:
    panels = result["storms"]
    yield ("run", *(panel["title"] for panel in panels))
    for name in panels[0]["runs"]:
        runs = [panel["runs"][name] for panel in panels]
        yield (f"`{name}`", *(_interruption(run) for run in runs))


def _interruption(run: Json) -> str:
    return f"{usd(run['bill_usd']['total'])}, {percent(run['in_time_after'])}, {run['resumed']} resumed"


def planners(result: Json) -> Rows:
    rows = result["rows"]
    names = list(rows[0]["miss_share"])
    missed = {name: [row["miss_share"][name] for row in rows] for name in names}
    cost = {name: [row["usd_per_hour"][name] / row["usd_per_hour"]["inferline"] for row in rows] for name in names}
    broken = [str(sum(share > 0.01 for share in missed[name])) for name in names]
    yield ("", *(f"`{name}`" for name in names))
    yield (f"promise missed (more than 1 % of new queries), of {len(rows)} cases", *broken)
    yield ("the most missed", *(percent(max(missed[name])) for name in names))
    yield ("dollars, InferLine's = 1", *(f"{min(cost[name]):.2f} to {max(cost[name]):.2f}" for name in names))


def tuners(result: Json) -> Rows:
    """Return each load with the bill and the share in time of each run, and the paper's if it prints them."""
    names = list(dict.fromkeys(name for load in result["loads"] for name in load["runs"]))
    with_paper = [name for name in names if any(name in load["paper"] for load in result["loads"])]
    heads: list[str] = []
    for name in names:
        heads += [f"`{name}`", "paper"] if name in with_paper else [f"`{name}`"]
    yield ("load", *heads)
    for load in result["loads"]:
        cells: list[str] = []
        for name in names:
            cells.append(_bill(load["runs"][name], result["slo_attainment"]) if name in load["runs"] else "")
            if name in with_paper:
                paper = load["paper"].get(name)
                cells.append("" if paper is None else f"{usd(paper['usd'])}, {percent(paper['in_time'], 1)}")
        yield (load["title"], *cells)


def activation(result: Json) -> Rows:
    """Return a row for each load, promise and activation time, with the bound for fleets with functions."""
    names = ["inferline", "mark", "mark lean", "mark functions"]
    yield ("load", "within", "activation", *(f"`{name}`" for name in names), "of it functions", "over the bound")
    for load in result["loads"]:
        runs, asked = load["runs"], result["slo_attainment"]
        cells = [_bill(runs[name], asked) if name in runs else "" for name in names]
        served, bound = runs.get("mark functions"), load.get("bound_usd")
        part = "" if served is None else usd(served["function_usd"])
        over = "" if served is None or bound is None else f"{served['usd'] / bound:.2f}"
        yield (load["title"], f"{load['slo_ms']:.0f} ms", f"{load['activation_s']:.0f} s", *cells, part, over)


def forecasts(kind: str) -> Callable[[Json], Rows]:
    """Make a table of one kind of traffic: the median's error by horizon, and CRPS, as shares of the mean rate."""

    def make(result: Json) -> Rows:
        found = result[kind]
        minutes = (1, 5, 15, 30, 60)
        yield ("MMPP" if kind == "mmpp" else kind, *(f"{m} min" for m in minutes), "CRPS", "in 90 %")
        for name, scores in found["predictors"].items():
            errors = [scores["by_horizon"][m - 1]["median_error"] for m in minutes]
            shares = [error / found["mean_rps"] for error in (*errors, scores["crps"])]
            yield (f"`{name}`", *(percent(share, 1) for share in shares), percent(scores["coverage"]["0.9"], 1))

    return make


def panels(result: Json) -> Rows:
    """Return the rows of all panels with their titles.

    Columns that end in _ms or _us are times, other numbers shares.
    """
    shown = result["panels"]
    yield ("", *(column.replace("_", " ") for column in shown[0]["rows"][0]))
    for panel in shown:
        for row in panel["rows"]:
            cells = (
                value
                if isinstance(value, str)
                else f"{value:.1f}"
                if column.endswith(("_ms", "_us"))
                else percent(value)
                for column, value in row.items()
            )
            yield (panel["title"], *cells)


# The name in a page: the benchmark whose kept file has the numbers, and the table made of it.
TABLES: dict[str, tuple[str, Callable[[Json], Rows]]] = {
    "table2": ("table2", price_of_requests),
    "table3": ("table3", price_on_burstables),
    "optimal": ("optimal", optimum),
    "alb": ("alb", routings),
    "table5-raw": ("table5", against_sagemaker),
    "table5-capped": ("table5", against_sagemaker_capped),
    "fig7": ("fig7", latencies),
    "fig8": ("fig8", on_two_loads),
    "fig6-stream": ("fig6", forecasts("stream")),
    "fig6-mmpp": ("fig6", forecasts("mmpp")),
    "surges": ("fig9", surges),
    "interruptions": ("fig9", interruptions),
    "inferline-fig5": ("inferline-fig5", planners),
    "inferline-fig6": ("inferline-fig6", tuners),
    "inferline-fig7": ("inferline-fig7", tuners),
    "inferline-fig9": ("inferline-fig9", planners),
    "inferline-fig10": ("inferline-fig10", tuners),
    "inferline-fig11": ("inferline-fig11", tuners),
    "inferline-fig12": ("inferline-fig12", tuners),
    "inferline-activation": ("inferline-activation", activation),
    **{f"clipper-{figure}": (f"clipper-{figure}", panels) for figure in ("fig3-7", "fig3-8", "fig3-9", "fig3-10")},
    **{f"velox-{figure}": (f"velox-{figure}", panels) for figure in ("fig2-3", "fig2-4")},
    **{
        f"parm-{figure}": (f"parm-{figure}", panels)
        for figure in ("accuracy", "fig10", "fig11", "fig12", "fig13", "fig14", "batches", "delays")
    },
}


def kept(found: Any) -> Any:
    """Return `found` without its curves (lists without objects) and without details that no table shows."""
    if isinstance(found, dict):
        return {key: kept(value) for key, value in found.items() if key not in _DETAILS and not _is_curve(value)}
    return [kept(value) for value in found] if isinstance(found, list) else found


def _is_curve(value: Any) -> bool:
    return isinstance(value, list) and not any(isinstance(item, dict) for item in value)


def keep(name: str, path: Path, docs: Path, measured: str, command: str) -> None:
    result = kept(json.loads(path.read_text(encoding="utf-8")))
    whole = {"measured": measured, "command": command, "result": result}
    target = docs / "measured" / f"{name}.json"
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")


def block(name: str, docs: Path) -> str:
    """Return the table NAME as Markdown, with where and when it was measured."""
    if name not in TABLES:
        raise SystemExit(f"no table {name!r}; known: {', '.join(TABLES)}")
    source, make = TABLES[name]
    path = docs / "measured" / f"{source}.json"
    if not path.exists():
        raise SystemExit(f"{path} is missing: run `python benchmarks/measured_tables.py keep {source} JSON`")
    whole = json.loads(path.read_text(encoding="utf-8"))
    head, *rows = make(whole["result"])
    lines = [head, ["---", *["--:"] * (len(head) - 1)], *rows]
    told = f"`{whole['command']}`, {whole['measured']} ([data](measured/{source}.json))."
    return "\n".join([*(f"| {' | '.join(line)} |" for line in lines), "", told])


def written(page: str, docs: Path) -> str:
    """Return the page with its tables from the kept files."""
    return _BLOCK.sub(lambda found: f"{found[1]}\n{block(found[2], docs)}\n\n{found[3]}", page)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(dest="action")
    keeping = actions.add_parser("keep", help="keep a benchmark's JSON, without curves, for the tables")
    keeping.add_argument("name", choices=sorted({source for source, _ in TABLES.values()}))
    keeping.add_argument("json", type=Path)
    keeping.add_argument("--measured", default=f"{datetime.now(UTC):%Y-%m-%d}", help="the date (default: today)")
    keeping.add_argument("--command", help="how it was measured (default: mark reproduce NAME)")
    options = parser.parse_args(arguments)
    if options.action == "keep":
        command = options.command or f"mark reproduce {options.name}"
        keep(options.name, options.json, DOCS, options.measured, command)
    for page in sorted(DOCS.glob("*.md")):
        text = page.read_text(encoding="utf-8")
        if (new := written(text, DOCS)) != text:
            page.write_text(new, encoding="utf-8")
            print(f"wrote the tables of {page.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
