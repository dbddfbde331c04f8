"""Make a new table of item vectors from the servers' observations, and promote it in the registry if it is better.

A model behind `features` is retrained by `mark.launch.features_retrain`. The user's command makes the table; without a
command a matrix factorisation does. Servers that start afterwards build every head again from its key's observations,
so a promotion or a roll-back loses none of them.
"""

from __future__ import annotations

import csv
import os
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from mark.config.pipeline_config import PipelineConfig
from mark.config.pipeline_file import load_pipeline
from mark.domain.errors import BadInput
from mark.launch.features_retrain import retrain_features
from mark.launch.personal_serving import TABLE, personal_serving, table_file
from mark.models.registry import NONE, ModelVersion, Registry, hash_of
from mark.models.registry_place import open_registry, parse_reference
from mark.personal.learner import PersonalObservation
from mark.personal.retrain import LEAST, LOG_LOSS, RMSE, Retrained, fitted_table, split_by_time, try_table
from mark.personal.settings import IN_REGISTRY, LOGISTIC, PersonalSettings
from mark.personal.table import ItemTable, item_table
from mark.serving.personal.left import observations_left
from mark.studies.rating_file import TIME, RatingColumns

ALIAS = "production"
_FILE = "items.npz"  # in a version
_STDERR = 2


@dataclass(frozen=True, slots=True)
class RetrainRequest:
    """A request to retrain a service's table or model; `held_out` is the share of observations that judge the new one.

    Without `log` the service file names the folder.
    """

    service: str
    log: Path | None = None
    held_out: float = 0.2
    registry: str | None = None
    name: str | None = None  # of the table in the registry, if the service file names a file


def retrain(request: RetrainRequest, progress: Callable[[float], None] | None = None) -> Retrained:
    """Make, judge and register a table or model, and promote it if it is better. Raises BadInput."""
    config = load_pipeline(request.service, heads_alone=True)
    settings, feedback = config.personal, config.feedback
    where = f"{config.source} [personal]"
    if settings is None or feedback is None:
        raise BadInput("has no section [personal]", config.source)
    folder = Path(feedback.log) if request.log is None else request.log
    if settings.table:
        name, alias, is_served = _reference(request, config)
    if not folder.is_dir():
        raise BadInput("no such folder", "--log" if request.log else f"{config.source} [feedback] log", str(folder))
    if not settings.table:
        if request.name is not None:
            raise BadInput("is of a table, and the service file names the model", "--name", request.name)
        run = partial(_run, config, settings)
        return retrain_features(config, settings, folder, request.held_out, request.registry, run, progress)
    serving = personal_serving(config, {})
    assert serving is not None, "there is a section [personal]"
    assert serving.table is not None, "there is a table"
    before, after = split_by_time(observations_left(folder, serving), request.held_out)
    if (count := len(before) + len(after)) < LEAST:
        raise BadInput(f"has {count} observations: {LEAST} are needed at least", str(folder))
    if not before or not after:
        raise BadInput(f"leaves no observation to {'judge' if before else 'train'}", "--held-out", request.held_out)
    registry = open_registry(request.registry, Path(config.source).resolve().parent)
    own = table_file(config, f"{where} table")
    present = _registered(registry, name, alias, own, is_served)
    with tempfile.TemporaryDirectory(prefix="mark-retrain-") as work:
        path = Path(work, _FILE)
        table = _made(config, settings, before, serving.table, own, path)
        metric = settings.retrain.metric if settings.retrain else LOG_LOSS if settings.loss == LOGISTIC else RMSE
        trial = try_table(settings, metric, before, after, serving.table, table, progress)
        if present is None:
            present = registry.register(name, f"{TABLE}{_FILE}", {_FILE: own})
            registry.promote(name, present.full, alias, expect=NONE)
        metrics = (
            {metric: trial.error(trial.new), f"{metric}_before": trial.error(trial.present)} if trial.judged else {}
        )
        new = registry.register(name, f"{TABLE}{_FILE}", {_FILE: path}, metrics=metrics, parent=present.full)
    same = new.content.files[_FILE] == present.content.files[_FILE]
    why_not = "it is the present table" if same else trial.refusal()
    if why_not is None:
        registry.promote(name, new.full, alias, expect=present.full)
    keys = len({one.key for part in (before, after) for one in part})
    return Retrained(str(present), str(new), alias, keys, trial, why_not, f"{IN_REGISTRY}{name}@{alias}", is_served)


def _reference(request: RetrainRequest, config: PipelineConfig) -> tuple[str, str, bool]:
    """Return name and alias in the registry, and whether the service file has them. Raises BadInput."""
    assert config.personal is not None, "the section is there"
    table = config.personal.table
    if not table.startswith(IN_REGISTRY):
        return request.name or f"{config.name}-table", ALIAS, False
    if request.name is not None:
        raise BadInput("is said by the service file already", "--name", request.name)
    where = f"{config.source} [personal] table"
    name, which = parse_reference(table.removeprefix(IN_REGISTRY), where)
    if which.startswith("sha256:"):
        raise BadInput("names one version for ever: name an alias, which a promotion can move", where, table)
    return name, which, True


def _registered(registry: Registry, name: str, alias: str, own: Path, is_served: bool) -> ModelVersion | None:
    """Return the served version; None if a file is served and the alias is new.

    Raises BadInput if the alias names another table than the served one.
    """
    if not is_served and not (name in registry.names() and alias in registry.aliases(name)):
        return None
    found = registry.find(name, alias)
    if {hashed for hashed, _ in found.content.files.values()} != {hash_of(own)}:
        what = f'is another table than {name}@{alias}: write table = "{IN_REGISTRY}{name}@{alias}", or give --name'
        raise BadInput(what, "[personal] table", str(own))
    return found


def _made(
    config: PipelineConfig,
    settings: PersonalSettings,
    before: Sequence[PersonalObservation],
    present: ItemTable,
    own: Path,
    path: Path,
) -> ItemTable:
    """Make the new table and write it to `path`. Raises BadInput if the command fails."""
    if settings.retrain is None:
        if settings.loss == LOGISTIC:
            what = f"needs a command with loss {LOGISTIC!r}, because mark fits vectors by the squared loss only"
            raise BadInput(what, f"{config.source} [personal] retrain")
        table = fitted_table(before, present, settings.ridge)
        np.savez(path, ids=np.array(table.ids), vectors=table.vectors)
        return table
    ratings = path.with_name("ratings.csv")
    _write_ratings(ratings, before)
    _run(config, settings, {"MARK_RATINGS": str(ratings), "MARK_TABLE": str(own.absolute()), "MARK_OUT": str(path)})
    if not path.is_file():
        command = " ".join(settings.retrain.command)
        raise BadInput("wrote no table to the path in MARK_OUT", f"{config.source} [personal.retrain] command", command)
    return item_table(path.read_bytes(), "MARK_OUT")


def _run(config: PipelineConfig, settings: PersonalSettings, given: dict[str, str]) -> None:
    """Run the user's command with these environment variables. Raises BadInput if it fails."""
    assert settings.retrain is not None, "there is a command"
    where, command = f"{config.source} [personal.retrain] command", settings.retrain.command
    try:
        # The command's output goes to stderr, because our stdout may be JSON.
        done = subprocess.run(
            command, cwd=Path(config.source).resolve().parent, env=os.environ | given, stdout=_STDERR, check=False
        )
    except OSError as error:
        raise BadInput(f"cannot be started ({error.strerror})", where, command[0]) from None
    if done.returncode:
        raise BadInput(f"ended with exit code {done.returncode}", where, " ".join(command))


def _write_ratings(path: Path, observations: Sequence[PersonalObservation]) -> None:
    columns = RatingColumns()
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow((columns.key, columns.item, columns.reward, TIME))
        rows.writerows((one.key, one.item, one.reward, one.at_s) for one in observations)
