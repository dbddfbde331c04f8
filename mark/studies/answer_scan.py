"""The first reading of a log of answers: checks every row, and judges each candidate as if it answered alone."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from mark.config.pipeline_config import PipelineConfig, StageConfig
from mark.domain.catalog.tables import load_catalog
from mark.domain.errors import BadInput, Infeasible
from mark.planning.marginal_prices import planned_usd
from mark.planning.resolve import resolve
from mark.profiling.version_profiles import service_profiles
from mark.selection.answer_log import ANSWER, AnswerRow, query_of
from mark.selection.labels import loss_of, written_alike
from mark.selection.outcome import candidate_key
from mark.selection.replay import LoggedQuery, wilson
from mark.selection.settings import MOST_CANDIDATES, ZERO_ONE
from mark.studies.answer_files import CUT_OFF, AnswerLog

_MOST_ALIKE = 0.05  # of a candidate's answers
OTHER_VERSION = "of another version of a candidate"
_COUNTED = {CUT_OFF: "lines", OTHER_VERSION: "answers"}  # all other reasons are counted in observations


@dataclass(slots=True)
class CandidateRecord:
    """The record of a candidate as if it alone answered every query for which the log has its answer.

    `unscored` is the first row with an answer and no score, or ""; `unpriced` counts answers without a price in the
    log. `alike` counts wrong answers that are written like their labels, and `first_alike` describes the first.
    """

    answers: int = 0
    loss: float = 0.0
    usd: float = 0.0
    unscored: str = ""
    unpriced: int = 0
    alike: int = 0
    first_alike: str = ""

    @property
    def error(self) -> float:
        """The mean loss; NaN without an answer."""
        return self.loss / self.answers if self.answers else math.nan

    @property
    def usd_per_million(self) -> float:
        return 1e6 * self.usd / self.answers if self.answers else math.nan

    def error_interval(self) -> tuple[float, float]:
        """Return Wilson's 95 % interval of the error."""
        return wilson(self.error, self.answers)


class AnswerScan:
    """The first reading of a log, which checks all of it and judges each candidate alone."""

    def __init__(self, log: AnswerLog, config: PipelineConfig | None) -> None:
        self._log, self._config = log, config
        settings = None if config is None or config.selection is None else config.selection
        loss, scale = (ZERO_ONE, 1.0) if settings is None else (settings.loss, settings.loss_scale)
        self.rows, self._complete, self._with_key = 0, 0, 0
        self.records: dict[str, CandidateRecord] = {}
        self._names: dict[str, str] = {}  # candidates by their names in the log
        self._usd: dict[str, float] = {}  # by candidate, for answers without a price in the log
        self._unknown: dict[str, str] = {}  # by candidate: why its price is not known
        for raw in log.candidates if config is None else ():
            self._name(raw, f"{log.name}:1")
        if config is not None:
            for stage in config.stages:
                self.records[stage.name] = CandidateRecord()
                self._names |= {stage.name: stage.name, candidate_key(stage.name, stage.model): stage.name}
                self._usd[stage.name] = self._price(config, stage)
        others = 0
        for row in log.rows():
            others += self._judge(row, loss, scale)
        self._left_out = log.left_out | Counter({OTHER_VERSION: others})
        self._check()

    def _price(self, config: PipelineConfig, stage: StageConfig) -> float:
        usd, why = instance_usd_per_call(config, stage)
        if usd is None:
            known = "counts as $0" if not stage.usd_per_call else "is usd_per_call alone"
            self._unknown[stage.name] = f"the price of {stage.name} {known}: {why}"
        return (usd or 0.0) + stage.usd_per_call

    def _judge(self, row: AnswerRow, loss: str, scale: float) -> int:
        """Count a row; return how many of its answers are left out."""
        self.rows += 1
        self._with_key += bool(row.key)
        others = 0
        for raw, reply in row.replies.items():
            name = self._name(raw, row.where)
            if name is None:
                others += 1
                continue
            one = self.records[name]
            one.answers += 1
            one.loss += loss_of(reply.label, row.label, loss, scale)
            if loss == ZERO_ONE and written_alike(reply.label, row.label):
                one.alike += 1
                one.first_alike = one.first_alike or f"{row.where}: {reply.label!r}, label {row.label!r}"
            one.usd += row.usd.get(raw, self._usd.get(name, 0.0))
            one.unpriced += raw not in row.usd
            if reply.score is None and not one.unscored:
                one.unscored = row.where
        for raw in row.usd:
            self._name(raw, row.where)
        self._complete += len(row.replies) - others == len(self.records)
        return others

    def _name(self, raw: str, where: str) -> str | None:
        """Return the candidate; None for another version of one. Raises BadInput for an unknown name."""
        known = self._names.get(raw)
        if known is not None:
            return known
        if self._config is None:
            if len(self.records) == MOST_CANDIDATES:
                raise BadInput(f"has more than {MOST_CANDIDATES} candidates", where, raw)
            # If the log has one version of each model, names need no digests.
            short = raw.partition("@")[0]
            name = raw if short in self.records else short
            self._names[raw], self.records[name] = name, CandidateRecord()
            return name
        stage, at, _ = raw.partition("@")
        if at and stage in self.records:
            return None
        what = f"is no candidate of {self._config.source} ({', '.join(self.records)})"
        raise BadInput(what, where, raw, known=self.records)

    def _check(self) -> None:
        name = self._log.name
        if not self.rows:
            told = "; ".join(f"{count} {why}" for why, count in self._left_out.items() if count)
            raise BadInput(f"has no row that can be replayed{f' ({told})' if told else ''}", name)
        for candidate, one in self.records.items():
            if not one.answers:
                versions = self._left_out[OTHER_VERSION]
                told = f", and {versions} answers {OTHER_VERSION}" if versions else ""
                raise BadInput(f"has no answer of this candidate (column {candidate}.{ANSWER}){told}", name, candidate)
            if one.alike > _MOST_ALIKE * one.answers:
                what = f"{one.alike} answers differ from their labels only in how they are written: write both alike"
                raise BadInput(what, f"{name} {candidate}.{ANSWER}", one.first_alike)
        if len(self.records) < 2:
            what = "has fewer than two candidates: a policy chooses among columns NAME.answer"
            raise BadInput(what, name, ", ".join(self.records))

    def queries(self, loss: str) -> Iterator[LoggedQuery]:
        """Yield the rows of the log, read again."""
        order = {name: at for at, name in enumerate(self.records)}
        places = {raw: order[name] for raw, name in self._names.items()}
        usd = [self._usd.get(name, 0.0) for name in order]
        return (query_of(row, places, usd, loss) for row in self._log.rows())

    def notes(self, by_key: bool) -> list[str]:
        """Return the notes that a reader of the result needs about the log."""
        found = [
            f"{count:,} {_COUNTED.get(why, 'observations')} {why}" for why, count in self._left_out.items() if count
        ]
        if self._complete < self.rows:
            found.append(
                f"{self.rows - self._complete:,} of {self.rows:,} rows lack the answer of a candidate: queries that "
                "ask it are skipped, which is biased unless the log asked everybody, or at random"
            )
        unpriced = [name for name, one in self.records.items() if one.unpriced]
        if unpriced and self._config is None:
            which = ", ".join(f"{name}.usd" for name in unpriced)
            found.append(f"prices that the log does not say ({which}) count as $0: --service FILE tells them")
        found += [self._unknown[name] for name in unpriced if name in self._unknown]
        if by_key and not self._with_key:
            found.append('the file has context = "key", and no row of the log has a key: there is one context')
        elif self._with_key and not by_key:
            found.append('keys of the log are not used: they are with [selection] context = "key" in --service')
        return found


def instance_usd_per_call(config: PipelineConfig, stage: StageConfig) -> tuple[float | None, str]:
    """Return the planned price of a call of the stage; (None, reason) if it is not known."""
    service = config.service(stage)
    profiles = service_profiles(service)
    if service.model not in profiles:
        return None, f"no profile has its model {service.model}"
    try:
        resolved = resolve(service, load_catalog(service.catalog), profiles)
    except Infeasible as error:
        return None, str(error)
    if not resolved.offers and resolved.function is None:
        return None, "nothing serves it"
    return planned_usd(resolved, {}), ""
