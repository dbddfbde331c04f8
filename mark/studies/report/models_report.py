"""The content of a registry of models, as tables and as JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mark.domain.offer import Catalog, Market
from mark.domain.profile import Profile
from mark.models.registry import AliasMove, ModelVersion, shown
from mark.studies.report.report import DataTable, Marked, Report
from mark.studies.report.words import count, grouped, milliseconds, number_3, number_4

Profiles = Mapping[str, Profile]  # by instance


@dataclass(frozen=True, slots=True)
class VersionDiff:
    """Two versions of a model side by side; `usd_per_million` has each type for which both have a profile."""

    before: ModelVersion
    after: ModelVersion
    profiles: tuple[Profiles, Profiles]
    usd_per_million: Mapping[str, tuple[float, float]]

    @property
    def metrics(self) -> dict[str, tuple[float | None, float | None]]:
        old, new = (version.content.metrics or {} for version in (self.before, self.after))
        return {metric: (old.get(metric), new.get(metric)) for metric in sorted({*old, *new})}

    @property
    def files(self) -> dict[str, str]:
        """The change of each file that differs: added, removed or changed."""
        old, new = self.before.content.files, self.after.content.files
        return {
            path: "added" if path not in old else "removed" if path not in new else "changed"
            for path in sorted({*old, *new})
            if old.get(path) != new.get(path)
        }

    @property
    def latency_ms(self) -> dict[str, dict[int, tuple[float | None, float | None]]]:
        """Latencies by type and batch size, if one of the versions has a row."""
        old, new = (
            {name: {row.batch: row.latency_ms for row in one.rows} for name, one in each.items()}
            for each in self.profiles
        )
        return {
            name: {
                batch: (old.get(name, {}).get(batch), new.get(name, {}).get(batch))
                for batch in sorted({*old.get(name, {}), *new.get(name, {})})
            }
            for name in sorted({*old, *new})
        }


def version_diff(
    before: ModelVersion, after: ModelVersion, profiles: tuple[Profiles, Profiles], catalog: Catalog
) -> VersionDiff:
    """Compare two versions with their `profiles`.

    Dollars are for a full instance on demand, at the batch size with the highest throughput.
    """
    prices = {o.instance: o.usd_per_hour for o in catalog.offers if o.market is Market.ON_DEMAND and not o.retired}
    both = sorted(profiles[0].keys() & profiles[1].keys() & prices.keys())
    usd = {name: tuple(_usd_per_million(each[name], prices[name]) for each in profiles) for name in both}
    return VersionDiff(before, after, profiles, {name: (old, new) for name, (old, new) in usd.items()})


def models_report(place: str, models: Mapping[str, tuple[Sequence[ModelVersion], Mapping[str, AliasMove]]]) -> Report:
    data = {
        "schema": 1,
        "models": [
            {"name": name, "versions": len(versions), "aliases": {a: _hash(m.version) for a, m in aliases.items()}}
            for name, (versions, aliases) in models.items()
        ],
    }
    if not models:
        return Report(data, parts=[Marked(f"The registry {place} holds no model.")])
    rows = [
        (name, len(versions), ", ".join(f"{alias} = {shown(move.version)}" for alias, move in aliases.items()))
        for name, (versions, aliases) in models.items()
    ]
    return Report(data, parts=[DataTable(("model", ("versions", str), ""), rows)])


def model_report(name: str, versions: Sequence[ModelVersion], histories: Mapping[str, Sequence[AliasMove]]) -> Report:
    data = {
        "schema": 1,
        "name": name,
        "versions": [version_json(version) for version in versions],
        "aliases": {alias: [move_json(name, move) for move in moves] for alias, moves in histories.items()},
    }
    rows = []
    for one in versions:
        names = ", ".join(alias for alias, moves in histories.items() if moves[-1].version == one.id)
        content, made = one.content, f"{one.created_at[:16]} {one.created_by}"
        has_profile = "yes" if content.profile else "no"
        rows.append((one.short, made, content.model, len(content.files), has_profile, names))
    heads = ("version", "", "model", ("files", count), ("profile", str), "")
    moved = [
        (alias, f"{move.number}.", shown(move.version), _when(move))
        for alias, moves in histories.items()
        for move in moves
    ]
    return Report(data, parts=[DataTable(heads, rows), *([DataTable(("", "", "", ""), moved)] if histories else [])])


def version_json(version: ModelVersion) -> dict[str, Any]:
    content = version.content
    return {
        "name": version.name,
        "version": _hash(version.id),
        "model": content.model,
        "files": {path: {"sha256": digest, "bytes": size} for path, (digest, size) in content.files.items()},
        "profile": None if content.profile is None else {"sha256": content.profile, "model": content.profiled},
        "metrics": dict(content.metrics or {}),
        "parent": None if content.parent is None else _hash(content.parent),
        "created_at": version.created_at,
        "created_by": version.created_by,
    }


def version_report(version: ModelVersion) -> Report:
    content = version.content
    lines = {
        "version": f"{version.name}@{shown(version.id)}",
        "model": content.model,
        "registered": f"{version.created_at[:19]} by {version.created_by}",
        "parent": "none" if content.parent is None else shown(content.parent),
        "profile": "none" if content.profile is None else f"of {content.profiled}",
        **{f"metric {metric}": f"{value:g}" for metric, value in (content.metrics or {}).items()},
    }
    files = [(path, size, digest[:12]) for path, (digest, size) in content.files.items()]
    heads = ("file", ("bytes", grouped), ("sha256", str))
    data = {"schema": 1, **version_json(version)}
    return Report(data, parts=[DataTable(("", ""), list(lines.items())), DataTable(heads, files)])


def move_json(name: str, move: AliasMove) -> dict[str, Any]:
    return {
        "schema": 1,
        "name": name,
        "alias": move.alias,
        "version": _hash(move.version),
        "number": move.number,
        "at": move.at,
        "by": move.by,
    }


def move_report(name: str, move: AliasMove) -> Report:
    said = f"{name}@{move.alias} is {shown(move.version)}: move {move.number}, {_when(move)}"
    return Report(move_json(name, move), parts=[Marked(said)])


def version_diff_report(diff: VersionDiff) -> Report:
    def pair(values: tuple[Any, Any]) -> dict[str, Any]:
        return {"before": values[0], "after": values[1]}

    data = {
        "schema": 1,
        "before": version_json(diff.before),
        "after": version_json(diff.after),
        "files": diff.files,
        "metrics": {metric: pair(values) for metric, values in diff.metrics.items()},
        "latency_ms": {
            name: {str(batch): pair(values) for batch, values in sizes.items()}
            for name, sizes in diff.latency_ms.items()
        },
        "usd_per_million": {name: pair(values) for name, values in diff.usd_per_million.items()},
    }
    before, after = diff.before, diff.after
    rows = [("version", before.short, after.short, "")]
    if before.content.model != after.content.model:
        rows.append(("model", before.content.model, after.content.model, ""))
    rows += [_compared(metric, number_4, values) for metric, values in diff.metrics.items()]
    rows += [(path, "", "", became) for path, became in diff.files.items()]
    for name, sizes in diff.latency_ms.items():
        rows += [_compared(f"{name}, batch {batch}, ms", milliseconds, times) for batch, times in sizes.items()]
    rows += [_compared(f"{name}, $ per million", number_3, usd) for name, usd in diff.usd_per_million.items()]
    return Report(data, parts=[DataTable(("", ("before", str), ("after", str), ("change", str)), rows)])


def _compared(
    name: str, unit: Callable[[float | None], str], values: tuple[float | None, float | None]
) -> tuple[str, str, str, str]:
    old, new = values
    return name, unit(old), unit(new), "" if not old or new is None else f"{100.0 * (new / old - 1.0):+z.1f} %"


def _usd_per_million(profile: Profile, usd_per_hour: float) -> float:
    rps = profile.workers * max(row.batch / row.latency_ms for row in profile.rows) * 1e3
    return usd_per_hour / 3600.0 / rps * 1e6


def _when(move: AliasMove) -> str:
    return f"{move.at[:19]} by {move.by}"


def _hash(id: str) -> str:
    return f"sha256:{id}"
