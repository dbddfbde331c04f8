"""The content of a registry of models, as tables and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mark.domain.offer import Catalog, Market
from mark.domain.profile import Profile
from mark.models.registry import AliasMove, ModelVersion, shown
from mark.studies.report.layout import columns, page, text
from mark.studies.report.words import count, milliseconds, number

if TYPE_CHECKING:
    from rich.console import RenderableType

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
        old, new = ({name: _rows(one) for name, one in each.items()} for each in self.profiles)
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


def models_json(models: Mapping[str, tuple[Sequence[ModelVersion], Mapping[str, AliasMove]]]) -> dict[str, Any]:
    return {
        "schema": 1,
        "models": [
            {"name": name, "versions": len(versions), "aliases": {a: _hash(m.version) for a, m in aliases.items()}}
            for name, (versions, aliases) in models.items()
        ],
    }


def models_table(models: Mapping[str, tuple[Sequence[ModelVersion], Mapping[str, AliasMove]]]) -> RenderableType:
    if not models:
        return text("The registry holds no model.")
    table = columns("model", "versions", "")
    for name, (versions, aliases) in models.items():
        places = ", ".join(f"{alias} = {shown(move.version)}" for alias, move in aliases.items())
        table.add_row(text(name), str(len(versions)), text(places))
    return page(table)


def model_json(
    name: str, versions: Sequence[ModelVersion], histories: Mapping[str, Sequence[AliasMove]]
) -> dict[str, Any]:
    return {
        "schema": 1,
        "name": name,
        "versions": [version_json(version) for version in versions],
        "aliases": {alias: [move_json(name, move) for move in moves] for alias, moves in histories.items()},
    }


def model_table(versions: Sequence[ModelVersion], histories: Mapping[str, Sequence[AliasMove]]) -> RenderableType:
    table = columns("version", "", "model", "files", "profile", "")
    now = {alias: moves[-1].version for alias, moves in histories.items()}
    for version in versions:
        names = ", ".join(alias for alias, id in now.items() if id == version.id)
        made = f"{version.created_at[:16]} {version.created_by}"
        kept = count(len(version.content.files)), "yes" if version.content.profile else "no"
        table.add_row(text(version.short), text(made), text(version.content.model), *kept, text(names))
    moves = columns("", "", "", "")
    for alias, history in histories.items():
        for move in history:
            moves.add_row(text(alias), text(f"{move.number}."), text(shown(move.version)), text(_when(move)))
    return page(table, *([moves] if histories else []))


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


def version_table(version: ModelVersion) -> RenderableType:
    content = version.content
    table = columns("", "")
    lines = {
        "version": f"{version.name}@{_hash(version.id)}",
        "model": content.model,
        "registered": f"{version.created_at[:19]} by {version.created_by}",
        "parent": "none" if content.parent is None else shown(content.parent),
        "profile": "none" if content.profile is None else f"of {content.profiled}",
        **{f"metric {metric}": f"{value:g}" for metric, value in (content.metrics or {}).items()},
    }
    for name, value in lines.items():
        table.add_row(text(name), text(value))
    files = columns("file", "bytes", "sha256")
    for path, (digest, size) in content.files.items():
        files.add_row(text(path), f"{size:,}", digest[:12])
    return page(table, files)


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


def move_text(name: str, move: AliasMove) -> RenderableType:
    return text(f"{name}@{move.alias} is {shown(move.version)}: move {move.number}, {_when(move)}")


def version_diff_json(diff: VersionDiff) -> dict[str, Any]:
    def pair(values: tuple[Any, Any]) -> dict[str, Any]:
        return {"before": values[0], "after": values[1]}

    return {
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


def version_diff_table(diff: VersionDiff) -> RenderableType:
    table = columns("", "before", "after", "change")
    table.add_row("version", diff.before.short, diff.after.short, "")
    if diff.before.content.model != diff.after.content.model:
        table.add_row("model", text(diff.before.content.model), text(diff.after.content.model), "")
    for metric, values in diff.metrics.items():
        table.add_row(text(metric), *(number(value, 4) for value in values), _change(*values))
    for path, became in diff.files.items():
        table.add_row(text(path), "", "", became)
    for name, sizes in diff.latency_ms.items():
        for batch, times in sizes.items():
            table.add_row(text(f"{name}, batch {batch}, ms"), *map(milliseconds, times), _change(*times))
    for name, usd in diff.usd_per_million.items():
        table.add_row(text(f"{name}, $ per million"), *(number(value, 3) for value in usd), _change(*usd))
    return page(table)


def _change(old: float | None, new: float | None) -> str:
    return "" if not old or new is None else f"{new / old - 1.0:+.1%}"


def _rows(profile: Profile) -> dict[int, float]:
    return {row.batch: row.latency_ms for row in profile.rows}


def _usd_per_million(profile: Profile, usd_per_hour: float) -> float:
    rps = profile.workers * max(row.batch / row.latency_ms for row in profile.rows) * 1e3
    return usd_per_hour / 3600.0 / rps * 1e6


def _when(move: AliasMove) -> str:
    return f"{move.at[:19]} by {move.by}"


def _hash(id: str) -> str:
    return f"sha256:{id}"
