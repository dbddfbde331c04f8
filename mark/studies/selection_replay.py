"""Selection policies on a log of answers: the error, calls and dollars that each would have had."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from mark.config.pipeline_config import PipelineConfig
from mark.config.pipeline_file import load_pipeline
from mark.domain.errors import BadInput
from mark.domain.pipeline import Lineage
from mark.domain.service import FeedbackSettings
from mark.models.policy_loading import PolicyFailed, load_policy
from mark.selection.answer_log import SCORE
from mark.selection.policies import policy_of
from mark.selection.query import Selection
from mark.selection.replay import LoggedQuery, PolicyReplay, replay
from mark.selection.settings import CASCADE, POLICIES, SelectionSettings
from mark.selection.state import Judge, SelectionState
from mark.studies.answer_files import AnswerLog
from mark.studies.answer_scan import AnswerScan, CandidateRecord


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """Names and numbers of the command line. `service` is a pipeline file with `[selection]`.

    Without `policies` the file's own policy is replayed. A missing number is taken from the file.
    """

    log: str
    service: str | None = None
    policies: tuple[str, ...] = ()
    correct_usd: float | None = None
    threshold: float | None = None
    half_life: float | None = None
    seed: int = 0
    window: int = 1000


@dataclass(slots=True)
class SelectionReplay:
    """The results of candidates and policies on the queries of a log."""

    log: str
    queries: int
    candidates: dict[str, CandidateRecord]
    policies: dict[str, PolicyReplay]
    notes: list[str] = field(default_factory=list)

    @property
    def best(self) -> str:
        """The candidate with the smallest error in hindsight."""
        return min(self.candidates, key=lambda name: self.candidates[name].error)

    def regret(self, policy: str) -> float:
        """Return the policy's mean loss minus the best candidate's; below zero the policy is better."""
        return self.policies[policy].error - self.candidates[self.best].error


def replay_log(request: ReplayRequest, progress: Callable[[float], None] | None = None) -> SelectionReplay:
    """Replay the policies on the log, each with a generator of the same seed. Raises BadInput."""
    config = None if request.service is None else _pipeline(request.service)
    of_file = None if config is None else config.selection
    settings = {name: _settings(name, request, of_file) for name in _policies(request, of_file)}
    feedback = None if config is None else config.feedback
    log = AnswerLog(request.log, (feedback or FeedbackSettings("")).horizon_s)
    scan = AnswerScan(log, config)
    for name, one in settings.items():
        _check_scores(name, one, scan)
    names = tuple(scan.records)
    # All are made before the first replay, so that a policy that does not load shows within seconds.
    selections = {name: _selection(name, one, names, request) for name, one in settings.items()}
    found = {}
    for done, (name, selection) in enumerate(selections.items()):
        queries = _shown(scan.queries(selection.settings.loss), scan.rows, done, len(selections), progress)
        found[name] = _replayed(name, queries, selection, request.window)
    result = SelectionReplay(request.log, scan.rows, scan.records, found)
    result.notes += scan.notes(any(one.by_key for one in settings.values())) + _policy_notes(result)
    return result


def lineage_of(found: SelectionReplay) -> Lineage:
    """Return the candidates that each query asked, in the replay of one policy. Raises BadInput without a query."""
    names = list(found.candidates)
    (one,) = found.policies.values()
    if not one.queries:
        raise BadInput("no query is left of which it is known whom it asks", "--out")
    patterns = sorted(one.calls.items(), key=lambda pattern: (-pattern[1], pattern[0]))
    calls = [[int(at in asked) for at in range(len(names))] for asked, _ in patterns]
    return Lineage(tuple(names), np.array(calls, dtype=np.int64), np.array([n for _, n in patterns], dtype=np.int64))


def _pipeline(file: str) -> PipelineConfig:
    config = load_pipeline(file)
    if config.selection is None:
        raise BadInput("has no section [selection]", file)
    return config


def _policies(request: ReplayRequest, of_file: SelectionSettings | None) -> tuple[str, ...]:
    """Return the policies by name. Raises BadInput for an unknown one, and for options that no policy uses."""
    names = request.policies or (() if of_file is None else (of_file.policy,))
    if not names:
        raise BadInput(f"is needed without --service: some of {', '.join(POLICIES)}, module:Class", "--policy")
    for name in names:
        if name not in POLICIES and (":" not in name or name.startswith(tuple(f"{one}:" for one in POLICIES))):
            raise BadInput(f"must be {', '.join(POLICIES)}, or module:Class", "--policy", name, known=POLICIES)
    for option, value in (("--correct-usd", request.correct_usd), ("--threshold", request.threshold)):
        if value is not None and all(name in POLICIES and name != CASCADE for name in names):
            raise BadInput(f"is for policy {CASCADE!r}, and --policy has {', '.join(names)}", option, value)
    if request.correct_usd is not None and request.threshold is not None:
        what = "says when the next candidate is asked, and so does --threshold: keep one of them"
        raise BadInput(what, "--correct-usd", request.correct_usd)
    return names


def _settings(name: str, request: ReplayRequest, of_file: SelectionSettings | None) -> SelectionSettings:
    """Return the file's settings with the options. Raises BadInput for a cascade without a rule to go on."""
    found = replace(SelectionSettings(name) if of_file is None else of_file, policy=name)
    if request.half_life is not None:
        found = replace(found, half_life=request.half_life)
    own = name == CASCADE or name not in POLICIES
    if own and (request.correct_usd is not None or request.threshold is not None):
        found = replace(found, correct_usd=request.correct_usd, threshold=request.threshold)
    if name == CASCADE and found.correct_usd is None and found.threshold is None:
        what = "a cascade needs --correct-usd (dollars that a correct answer is worth) or --threshold (a score)"
        raise BadInput(what, "--policy", name)
    return found


def _check_scores(name: str, settings: SelectionSettings, scan: AnswerScan) -> None:
    """Raise BadInput if a score is missing: a cascade goes on by the score of every candidate but the last."""
    if settings.policy != CASCADE:
        return
    for candidate, one in list(scan.records.items())[:-1]:
        if one.unscored:
            what = "must not be blank: a cascade asks the next candidate by this score"
            raise BadInput(what, f"{one.unscored} {candidate}.{SCORE}")


def _selection(name: str, settings: SelectionSettings, names: Sequence[str], request: ReplayRequest) -> Selection:
    generator = np.random.default_rng(request.seed)
    if name in POLICIES:
        policy = policy_of(settings, len(names), generator)
    else:
        policy = load_policy(name, _folder_of(name, request.service), names, settings)
    return Selection(policy, SelectionState(names, settings), settings, generator.random)


def _folder_of(reference: str, service: str | None) -> Path:
    """Return the folder of a policy's module: the service file's if it has the module, otherwise the current one."""
    module = reference.partition(":")[0].partition(".")[0]
    beside = Path.cwd() if service is None else Path(service).resolve().parent
    found = (beside / module).is_dir() or (beside / f"{module}.py").is_file()
    return beside if found else Path.cwd()


def _replayed(name: str, queries: Iterator[LoggedQuery], selection: Selection, window: int) -> PolicyReplay:
    try:
        return replay(queries, selection, Judge(selection.state, selection.settings.champion), window)
    except PolicyFailed as error:
        raise BadInput(error.what, name) from error


def _shown(
    queries: Iterator[LoggedQuery], rows: int, done: int, policies: int, progress: Callable[[float], None] | None
) -> Iterator[LoggedQuery]:
    """Yield the queries and report to `progress` every 1,000 of them."""
    for at, query in enumerate(queries):
        if progress is not None and at % 1000 == 0:
            progress((done + at / rows) / policies)
        yield query


def _policy_notes(found: SelectionReplay) -> list[str]:
    notes = []
    for name, one in found.policies.items():
        if one.skipped:
            notes.append(f"{name}: {one.skipped:,} of {found.queries:,} queries are skipped")
        if one.unanswered:
            notes.append(f"{name}: {one.unanswered:,} queries have no answer, and count as wrong")
        if one.by_default:
            notes.append(f"{name}: {one.by_default:,} queries have the default as their answer")
    return notes
