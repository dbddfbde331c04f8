"""`[personal]` of a pipeline file: a small model of each user learns behind a stage or a table of item vectors."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from mark.config.section import Section
from mark.domain.errors import BadInput
from mark.domain.service import FeedbackSettings
from mark.personal.settings import (
    ALPHAS,
    EXPLORING,
    GREEDY,
    HEAD_LOSSES,
    IN_REGISTRY,
    LOGISTIC,
    MEAN,
    PRIORS,
    STAGE,
    Exploration,
    PersonalSettings,
    Retraining,
)

PERSONAL_KEYS = frozenset(
    (
        *("features", "table", "loss", "ridge", "bias", "prior", "explore", "memory_mb", "keep_days", "durability"),
        *("retrain", "warm_s"),
    )
)
_DURABILITY = ("peers", "store")
_METRICS = {"rmse": "squared", "mae": "squared", "log_loss": "logistic"}


def personal_of(
    path: Path,
    tables: dict[str, dict[str, Any]],
    stages: Collection[str],
    feedback: FeedbackSettings | None,
) -> PersonalSettings | None:
    """Return the settings of the section, or None without one. Raises BadInput."""
    if "personal" not in tables:
        return None
    section, own = Section(path, "personal", tables["personal"]), PersonalSettings()
    if "selection" in tables:
        raise BadInput("has no place beside [selection] in one file: write two services", f"{path} [personal]")
    if STAGE in stages:
        raise BadInput("is the name of the stage that [personal] adds: choose another one", f"{path} [stage.{STAGE}]")
    features, table = _vectors(section, stages)
    loss = section.one_of("loss", HEAD_LOSSES)
    found = PersonalSettings(
        features=features,
        table=table,
        loss=loss,
        ridge=section.number("ridge", own.ridge, above_zero=True),
        bias=_flag(section, "bias", own.bias),
        prior=section.one_of("prior", PRIORS),
        explore=_exploration(section),
        memory_mb=section.whole("memory_mb", own.memory_mb),
        keep_days=section.number("keep_days", above_zero=True) if "keep_days" in section.table else None,
        durability=section.one_of("durability", _DURABILITY),
        retrain=_retraining(section, loss),
        warm_s=section.number("warm_s", own.warm_s),
    )
    if found.prior == MEAN and loss == LOGISTIC and not table:
        what = f"needs a table with loss {LOGISTIC!r}, because the vectors of single requests are not summed up"
        raise BadInput(what, section.where("prior"), found.prior)
    if feedback is None:
        raise BadInput("learns from feedback: add a section [feedback]", f"{path} [personal]")
    if found.durability == "store" and not feedback.store:
        raise BadInput("needs `store` in [feedback]", section.where("durability"), found.durability)
    return found


def _vectors(section: Section, stages: Collection[str]) -> tuple[str, str]:
    """Return the stage that computes item vectors, or the file that has them."""
    features = section.text("features", "") if "features" in section.table else ""
    table = section.text("table") if "table" in section.table else ""
    if features and table:
        what = "is one source of item vectors, and table is another: keep one of them"
        raise BadInput(what, section.where("features"), features)
    if not features and not table:
        what = "missing: name the stage that gives item vectors, or give a table of them"
        raise BadInput(what, section.where("features"))
    if features and features not in stages:
        raise BadInput("is no stage", section.where("features"), features, known=stages)
    if table.startswith(IN_REGISTRY):
        return features, table
    if table and Path(table).suffix != ".npz":
        what = "must be a file of numpy.savez, NAME.npz, with ids and vectors, or registry:NAME@ALIAS"
        raise BadInput(what, section.where("table"), table)
    return features, str(section.path.parent / table) if table else ""


def _exploration(section: Section) -> Exploration:
    if "explore" not in section.table:
        return Exploration()
    explore = section.below("explore")
    explore.only(("policy", "alpha", "share"))
    policy = explore.one_of("policy", EXPLORING)
    if policy == GREEDY and "alpha" in explore.table:
        raise BadInput(f"is for other policies than {GREEDY!r}", explore.where("alpha"), explore.table["alpha"])
    share = explore.number("share", 0.0)
    if share > 1.0:
        raise BadInput("must be 0 to 1", explore.where("share"), share)
    return Exploration(policy, explore.number("alpha", ALPHAS[policy]), share)


def _retraining(section: Section, loss: str) -> Retraining | None:
    if "retrain" not in section.table:
        return None
    retrain = section.below("retrain")
    retrain.only(("command", "metric"))
    fitting = [name for name, of in _METRICS.items() if of == loss]
    metric = retrain.one_of("metric", fitting)
    return Retraining(tuple(retrain.texts("command", [])), metric)


def _flag(section: Section, key: str, default: bool) -> bool:
    value = section.table.get(key, default)
    if not isinstance(value, bool):
        raise BadInput("must be true or false", section.where(key), value)
    return value
