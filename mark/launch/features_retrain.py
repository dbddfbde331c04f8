"""Make a new version of the features stage's model, and promote it in the registry if it is better.

The user's command makes the model from the logged inputs and rewards. Both models then compute vectors for the inputs.
If the new model is promoted, its heads are built from the same observations, and servers load them when they start.
"""

from __future__ import annotations

import csv
import multiprocessing
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from mark.config.pipeline_config import PipelineConfig
from mark.domain.errors import BadInput
from mark.launch.personal_serving import features_graph, personal_serving
from mark.models.loading import home, in_one_line, load
from mark.models.model import predicted
from mark.models.registry import ModelVersion, Registry
from mark.models.registry_place import PREFIX, open_objects, open_registry, parse_reference
from mark.models.registry_unpacked import FILES, cache_folder, unpack
from mark.models.registry_unpacked import PREFIX as UNPACKED
from mark.personal.learner import PersonalObservation
from mark.personal.retrain import LEAST, Retrained, try_vectors
from mark.personal.settings import PersonalSettings
from mark.serving.learned.journal import Journals
from mark.serving.learned.shared import LearnedSnapshot
from mark.serving.learned.stored import LearnedStore
from mark.serving.personal.heads import PersonalHeads
from mark.serving.personal.left import state_left
from mark.serving.personal.logged_inputs import LoggedInput, logged_inputs
from mark.serving.personal.notes import HeadFact
from mark.serving.personal.served import PersonalServing
from mark.serving.personal.stage import vector_in
from mark.studies.rating_file import TIME, RatingColumns

_BATCH = 64
_PROFILE = "profile.csv"
_WRITER = "retrain"  # in the name of a snapshot in the store
Vectors = NDArray[np.float32]


def retrain_features(
    config: PipelineConfig,
    settings: PersonalSettings,
    folder: Path,
    held_out: float,
    place: str | None,
    run: Callable[[dict[str, str]], None],
    progress: Callable[[float], None] | None,
) -> Retrained:
    """Make, judge and register a model, and promote it if it is better. Raises BadInput.

    `folder` is the feedback log, `place` the registry. `run` calls the user's command with environment variables.
    """
    where = f"{config.source} [stage.{settings.features}] model"
    registry = open_registry(place, Path(config.source).resolve().parent)
    name, alias = _alias(config, settings, where)
    present = registry.find(name, alias)
    source = unpack(registry, present, cache_folder())
    serving = personal_serving(config, {settings.features: f"{UNPACKED}{source}"})
    assert serving is not None, "there is a section [personal]"
    assert settings.retrain is not None, "there is a command"
    state, vector = state_left(folder, serving)  # before the log, which has each observation first
    # A kill may have left lines of deleted keys.
    logged = logged_inputs(folder, settings)
    found = [one for one in logged if one is None or one.fact.at_s > state.deleted_s(one.fact.key)]
    known = [one for one in found if one is not None and _text(one.input) is not None]
    known.sort(key=lambda one: (one.fact.at_s, one.fact.key))
    unlogged, begin = len(found) - len(known), len(known) - round(held_out * len(known))
    before, after = known[:begin], known[begin:]
    if len(known) < LEAST:
        what = f"has {len(known)} observations with their inputs, and {unlogged} without: {LEAST} are needed at least"
        raise BadInput(what, str(folder))
    if not before or not after:
        raise BadInput(f"leaves no observation to {'judge' if before else 'train'}", "--held-out", held_out)
    with tempfile.TemporaryDirectory(prefix="mark-retrain-") as work:
        files, ratings = Path(work, "model"), Path(work, "ratings.csv")
        shutil.copytree(source / FILES, files)
        _write(ratings, before)
        run({"MARK_RATINGS": str(ratings), "MARK_MODEL_PATH": str(source / FILES), "MARK_OUT": str(files)})
        inputs = [one.input for one in known]
        both = [
            _vectors(present.content.model, home, inputs, f"{name}: {what}")
            for home, what in ((source / FILES, "the present model"), (files, "the new model"))
        ]
        pairs = [(_seen(one, old), _seen(one, new)) for one, old, new in zip(known, *both, strict=True)]
        metric = settings.retrain.metric
        trial = try_vectors(settings, metric, pairs[: len(before)], pairs[len(before) :], progress)
        metrics = {metric: trial.error(trial.new), f"{metric}_before": trial.error(trial.present)}
        new = _registered(registry, name, present, files, metrics, Path(work))
        same = new.content.files == present.content.files
        why_not = "it is the present model" if same else trial.refusal()
        if why_not is None:
            heads = _heads(config, serving, unpack(registry, new, cache_folder()), pairs, known, state.deleted())
            _keep(config, folder, LearnedSnapshot(vector, heads.freeze()()))
            registry.promote(name, new.full, alias, expect=present.full)
    keys = len({one.fact.key for one in known})
    return Retrained(str(present), str(new), alias, keys, trial, why_not, f"{PREFIX}{name}@{alias}", True, unlogged)


def _alias(config: PipelineConfig, settings: PersonalSettings, where: str) -> tuple[str, str]:
    """Return name and alias of the model. Raises BadInput if the features stage cannot be retrained."""
    if config.driver is not None or features_graph(config, settings.features).names != (settings.features,):
        what = "gets its input from a driver or another stage, which the log does not have"
        raise BadInput(what, f"{config.source} [personal] features", settings.features)
    if settings.retrain is None or not settings.retrain.command:
        raise BadInput("needs a command, because mark trains no model", f"{config.source} [personal] retrain")
    model = next(stage.model for stage in config.stages if stage.name == settings.features)
    if not model.startswith(PREFIX):
        what = (
            f"must be an alias of a registry, which a promotion can move: mark models register {model} --name NAME "
            f"--alias production, then write {PREFIX}NAME@production"
        )
        raise BadInput(what, where, model)
    name, which = parse_reference(model.removeprefix(PREFIX), where)
    if which.startswith("sha256:"):
        raise BadInput("names one version for ever: name an alias, which a promotion can move", where, model)
    return name, which


def _text(item: Any) -> str | None:
    """Return the item as JSON; None if it has bytes or another value that JSON lacks."""
    try:
        return orjson.dumps(item, option=orjson.OPT_SERIALIZE_NUMPY).decode()
    except TypeError:
        return None


def _write(path: Path, observations: Sequence[LoggedInput]) -> None:
    columns = RatingColumns()
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow((columns.key, columns.item, columns.reward, TIME))
        rows.writerows((one.fact.key, _text(one.input), one.fact.reward, one.fact.at_s) for one in observations)


def _seen(one: LoggedInput, vector: Vectors) -> PersonalObservation:
    return PersonalObservation(one.fact.key, one.fact.item, vector, one.fact.reward or 0.0, one.fact.at_s)


def _registered(
    registry: Registry, name: str, present: ModelVersion, files: Path, metrics: dict[str, float], work: Path
) -> ModelVersion:
    """Register the files as a new version that keeps the reference and profile of the present version."""
    profile = None
    if registry.fetch_profile(present, work / _PROFILE):
        profile = present.content.profiled, (work / _PROFILE).read_bytes()
    kept = {path.relative_to(files).as_posix(): path for path in sorted(files.rglob("*")) if path.is_file()}
    kept = {path: file for path, file in kept.items() if "__pycache__" not in path}
    return registry.register(name, present.content.model, kept, profile=profile, metrics=metrics, parent=present.full)


def _heads(
    config: PipelineConfig,
    serving: PersonalServing,
    unpacked: Path,
    pairs: Sequence[tuple[PersonalObservation, PersonalObservation]],
    logged: Sequence[LoggedInput],
    deleted: Mapping[str, float],
) -> PersonalHeads:
    """Return heads for the new model. They learn from all logged observations, except observations of deleted keys."""
    new = personal_serving(config, {serving.settings.features: f"{UNPACKED}{unpacked}"})
    assert new is not None, "there is a section [personal]"
    heads = PersonalHeads(new.settings, new.version, now=time.monotonic)
    for key, at_s in deleted.items():
        heads.apply(HeadFact(key, at_s).to_json())
    for one, (_, seen) in zip(logged, pairs, strict=True):
        heads.apply(replace(one.fact, version=new.version, vector=seen.vector).to_json())
    return heads


def _keep(config: PipelineConfig, folder: Path, snapshot: LearnedSnapshot) -> None:
    """Put the snapshot where servers read it at their start. Raises BadInput."""
    data = snapshot.to_bytes()
    try:
        Journals(folder).put_snapshot(data)
    except OSError as error:
        raise BadInput(
            f"cannot be written ({error.strerror})", f"{config.source} [feedback] log", str(folder)
        ) from None
    if config.feedback is not None and config.feedback.store:
        store = LearnedStore(open_objects(config.feedback.store, "[feedback] store"), config.name)
        store.put_snapshot(data, _WRITER, time.time())


def _vectors(reference: str, folder: Path, items: Sequence[Any], where: str) -> Vectors:
    """Return the model's vectors as rows. A process of its own, because both models may be modules of one name."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        try:
            return pool.submit(_predicted, reference, str(folder), list(items)).result()
        except BrokenProcessPool:
            raise BadInput("its process ended", where) from None
        except Exception as error:  # of the model's code
            raise BadInput(f"fails: {in_one_line(error)}", where) from None


def _predicted(reference: str, folder: str, items: list[Any]) -> Vectors:
    os.chdir(home(reference, Path(folder)))
    model = load(reference, Path(folder))
    batches = (items[at : at + _BATCH] for at in range(0, len(items), _BATCH))
    rows = [vector_in(one) for batch in batches for one in predicted(model, batch)]
    if len({len(row) for row in rows}) > 1:
        raise ValueError("its vectors have different lengths")
    return np.stack(rows)
