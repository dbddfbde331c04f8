"""The common part of the torch predictors: inputs of a network, its training, and forecasts with the result.

Rates enter as log(rate + one request per step), relative to their mean over the first part of a window, so that ten
times the load looks the same. Time of day and of hour are not inputs. They are implied by the load an hour, a day and a
week before, which works as well for a trace that begins at another minute. An encoder (one LSTM layer) reads the
window, and at many steps of its second part a head forecasts the next steps, so that one pass trains on many origins
(forking sequences: Wen et al., A Multi-Horizon Quantile Recurrent Forecaster, 2017, arXiv:1711.11053).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mark.domain.arrays import FloatArray, IntArray
from mark.domain.load import LEVELS, Forecast, Load
from mark.domain.time import DAY_S
from mark.traffic.forecast.fallback import LastValue
from mark.traffic.forecast.predictor import Epoch, State
from mark_predictors.load_history import ObservedHistory, error_quantiles

UNITS = 64
WINDOW = 240  # steps
_LEAD = 120  # steps of a window before its first origin; rates are relative to their mean over these
_EVERY = 10  # steps between the origins of a window
_LEAST_STEPS = 600  # observed; fewer are not enough for training
_HELD_OUT = 0.125  # the last part of the history: for early stopping, and for the errors that correct the quantiles
_EPOCHS = 40
_PATIENCE = 20  # epochs without a lower validation loss
_BATCH = 8  # windows
_LEAST_BATCHES = 16  # in an epoch, even for a short history
_LEARNING_RATE = 3e-3  # of Adam at first; it falls as half a cosine
_LARGEST_LOG = 7.0  # a rate above a thousand times the window's is cut before it becomes infinite
_PATHS = 200
_HOURS = 24  # that the usual value at this minute of the hour is averaged over

# Columns of a table: logs of rates first. NaN is unknown.
_VALUE, _DAY, _TWO_DAYS, _WEEK, _AROUND_DAY, _HOUR, _TWO_HOURS, _USUAL, _SURGE, _MEAN, _PEAK = range(11)
_LOGS = _SURGE + 1
_BY_DAY, _BY_HOUR = slice(_DAY, _HOUR), slice(_HOUR, _LOGS)
LAGS = _LOGS  # the first inputs of a head: the newest value and the load before the target
INPUTS = 2 * _LOGS + 1  # of the encoder, per step: logs, whether they are known, and the peak above the mean
AHEAD_INPUTS = 2 * LAGS  # of a head, per step ahead: the lags, and whether they are known


@dataclass(frozen=True, slots=True)
class Shape:
    """The parameters of a network.

    `horizon`: known steps ahead; `hour`: steps; `weekly`: whether it uses a week before.
    """

    step_s: float
    horizon: int
    hour: int
    weekly: bool

    @classmethod
    def of(cls, history: Load) -> Shape:
        hour = max(1, min(60, round(3600.0 / history.step_s)))
        day = max(1, round(DAY_S / history.step_s))
        # The load a week before is used only if most of the history has one.
        return cls(history.step_s, min(day, max(12, hour)), hour, len(history) * history.step_s >= 21 * DAY_S)


@dataclass(frozen=True, slots=True)
class WindowBatch:
    """B windows as inputs of a network, with T origins in each and H steps ahead of every origin.

    Logs are relative to `reference`. Unknown inputs are 0, unknown truth is NaN.
    """

    inputs: Tensor  # (B, WINDOW, INPUTS)
    origins: Tensor  # (T,), the last step seen, within the window
    ahead: Tensor  # (B, T, H, AHEAD_INPUTS)
    horizon: Tensor  # (H,), steps ahead less one; at most the last that the network knows
    reference: Tensor  # (B,)
    truth: Tensor  # (B, T, H, 2), mean and peak


class Encoder(nn.Module):
    """One LSTM layer over a window; returns its state at each origin, (B, T, UNITS)."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(INPUTS, UNITS, batch_first=True)

    def forward(self, batch: WindowBatch) -> Tensor:
        mind: Tensor = self.lstm(batch.inputs)[0]
        return mind[:, batch.origins]


class NetworkPredictor(ABC):
    """Implements `Trainable` for a network that gives quantiles of relative logs at `levels`.

    Quantiles and paths are corrected by the errors on held-out load, because those on the training load are too small.
    Without training (fewer than 600 observed steps), and before the first observation, the forecast is that of
    `last-value`. `epochs` is the maximum. Training uses a GPU if there is one; forecasting uses the CPU. On a CPU the
    seed determines everything; on a GPU sums may differ in their last digits.
    """

    name: str
    levels: FloatArray
    version = 1

    def __init__(self, seed: int = 0, *, epochs: int = _EPOCHS) -> None:
        self._seed, self._epochs = seed, epochs
        self._history = ObservedHistory(Load(0.0, 60.0, np.empty(0), np.empty(0)))
        self._untrained = LastValue()
        self._learned: _Learned | None = None
        self._training: _Training | None = None

    @abstractmethod
    def network(self, shape: Shape) -> nn.Module:
        """Return a new network: Batch -> (B, T, H, 2, len(levels)), ascending."""

    def fit(self, history: Load) -> None:
        """Train, unless a restored state was learned from steps of the same length."""
        if self._learned is None or self._learned.shape.step_s != history.step_s:
            for _ in self.training(history):
                pass
        self._history = ObservedHistory(history)
        self._untrained.fit(history)

    def update(self, observed: Load) -> None:
        self._history.append(observed)
        self._untrained.update(observed)

    def predict(self, steps: int) -> Forecast:
        seen, learned = self._history, self._learned
        if learned is None or learned.shape.step_s != seen.step_s or not np.isfinite(seen.observed[0]).any():
            return replace(self._untrained.predict(steps), predictor=self.name)
        table = _Table(seen, learned.shape, len(seen) - WINDOW, len(seen) + steps, torch.device("cpu"))
        batch = table.batch(np.array([0]), np.array([WINDOW - 1]), steps)
        with torch.no_grad(), _one_thread():
            predicted = learned.net(batch)[0, 0].numpy().astype(np.float64)
        logs = learned.quantiles(predicted)
        reference = float(batch.reference[0])
        mean, peak = _rates(logs.transpose(1, 2, 0), reference, seen.step_s)
        paths = learned.paths(logs[:, 0])
        return Forecast(
            seen.end_s,
            seen.step_s,
            LEVELS,
            mean,
            np.maximum(mean, peak),
            self.name,
            None if paths is None else _rates(paths, reference, seen.step_s),
        )

    def training(self, history: Load, checkpoint: State | None = None) -> Iterator[Epoch]:
        self._learned = self._training = None
        if np.count_nonzero(np.isfinite(history.mean_rps + history.peak_rps)) < _LEAST_STEPS:
            return
        shape = Shape.of(history)
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        table = _Table(ObservedHistory(history), shape, 0, len(history), device)
        training = _Training(self._fresh(shape).to(device), table, self.levels, self._seed, self._epochs)
        if checkpoint is not None:
            training.resume(checkpoint)
        self._training = training
        while not training.finished:
            yield training.epoch()
        self._learned = training.learned()
        self._training = None

    def checkpoint(self) -> State:
        if self._training is None:
            raise ValueError("no training is under way")
        return self._training.checkpoint()

    def state(self) -> State:
        if self._learned is None:
            raise ValueError(f"not trained: fewer than {_LEAST_STEPS} steps were observed")
        return self._learned.state()

    def restore(self, state: State) -> None:
        try:
            step_s, horizon, hour, weekly = (float(value) for value in state["shape"])
            shape = Shape(step_s, int(horizon), int(hour), bool(weekly))
            net = self._fresh(shape)
            _put(net, state, "net/")
            corrections, ranks = np.array(state["corrections"]), np.array(state["ranks"])
            fits = corrections.shape == (shape.horizon, 2, len(LEVELS)) and ranks.shape[1:] == (shape.horizon,)
            if not fits:
                raise ValueError
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise ValueError(f"not a state of {self.name}") from error
        self._learned = _Learned(shape, net.eval(), corrections, ranks)

    def _fresh(self, shape: Shape) -> nn.Module:
        # Layers draw their first weights from torch's global generator: it is seeded here and restored.
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(self._seed)
            return self.network(shape)


@dataclass(frozen=True, slots=True)
class _Learned:
    """A trained network, the corrections of its quantiles, and the ranks that make paths of them.

    `corrections` (horizon, 2, 19) are added to its relative logs. `ranks` (P, horizon) are the levels, as shares, at
    which held-out load ran through the quantiles: each column holds every rank once, so that paths drawn along the rows
    have the quantiles as their marginals (Clark et al., The Schaake shuffle, 2004).
    """

    shape: Shape
    net: nn.Module
    corrections: FloatArray
    ranks: FloatArray

    def quantiles(self, predicted: FloatArray) -> FloatArray:
        """Return relative logs at LEVELS, (H, 2, 19), from the network's output (H, 2, levels)."""
        known, steps = self.shape.horizon, len(predicted)
        logs = np.sort(predicted + self.corrections[np.minimum(np.arange(steps), known - 1)], axis=-1)
        if steps > known:
            # Beyond the trained horizon uncertainty grows with the square root of time, as in a random walk.
            wider = np.sqrt(np.arange(known + 1, steps + 1) / known)[:, None, None]
            middle = logs[known:, :, len(LEVELS) // 2, None]
            logs[known:] = middle + wider * (logs[known:] - middle)
        return np.asarray(logs)

    def paths(self, logs: FloatArray) -> FloatArray | None:
        """Return equally likely futures (P, H) with the marginals `logs` (H, 19), within the outermost levels."""
        if len(self.ranks) == 0:
            return None
        steps = len(logs)
        ranks = self.ranks[:, np.minimum(np.arange(steps), self.shape.horizon - 1)]
        return np.stack([np.interp(ranks[:, h], LEVELS, logs[h]) for h in range(steps)], axis=1)

    def state(self) -> State:
        shape = np.array([self.shape.step_s, self.shape.horizon, self.shape.hour, self.shape.weekly], dtype=np.float64)
        return {"shape": shape, "corrections": self.corrections, "ranks": self.ranks, **_arrays(self.net, "net/")}


class _Training:
    """A training in progress: epochs, the best weights so far, and the state for resuming."""

    def __init__(self, net: nn.Module, table: _Table, levels: FloatArray, seed: int, epochs: int) -> None:
        self._net, self._table, self._seed, self._epochs = net, table, seed, epochs
        self._levels = torch.tensor(levels, dtype=torch.float32, device=table.device)
        self._split = round(len(table) * (1.0 - _HELD_OUT))
        self._optimizer = torch.optim.Adam(net.parameters(), _LEARNING_RATE)
        self._best = _arrays(net, "best/")
        self._done, self._lowest, self._lowest_at = 0, math.inf, 0

    @property
    def finished(self) -> bool:
        return self._done >= self._epochs or self._done - self._lowest_at >= _PATIENCE

    def epoch(self) -> Epoch:
        # Each epoch has a separate generator, so that a resumed training makes the same draws.
        rng = np.random.default_rng((self._seed, self._done))
        for group in self._optimizer.param_groups:
            group["lr"] = _LEARNING_RATE * 0.5 * (1.0 + math.cos(math.pi * self._done / self._epochs))
        latest = self._split - WINDOW
        batches = max(_LEAST_BATCHES, latest // (WINDOW - _LEAD) // _BATCH)
        losses = []
        with _one_thread():
            for _ in range(batches):
                starts = rng.integers(0, latest, _BATCH)
                origins = np.arange(_LEAD - 1 + rng.integers(_EVERY), WINDOW, _EVERY)
                batch = self._table.batch(starts, origins, until=self._split)
                loss = pinball(self._net(batch), batch.truth, self._levels)
                self._optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                nn.utils.clip_grad_norm_(self._net.parameters(), 1.0)
                self._optimizer.step()
                losses.append(loss.item())
            validation, _, _ = self._validate()
        self._done += 1
        if validation < self._lowest:
            self._lowest, self._lowest_at = validation, self._done
            self._best = _arrays(self._net, "best/")
        return Epoch(self._done, self._epochs, float(np.mean(losses)), validation)

    def learned(self) -> _Learned:
        """Return the best weights, with corrections from their errors on the held-out part."""
        _put(self._net, self._best, "best/")
        with _one_thread():
            _, predicted, truth = self._validate()
        none = np.empty((0, self._table.shape.horizon))
        corrections = _corrections(predicted, truth)
        if len(self._levels) > 1:
            # The network has its own quantiles, so a correction from only a few held-out days counts less.
            days = (len(self._table) - self._split) * self._table.shape.step_s / DAY_S
            corrections *= days / (2.0 + days)
        found = _Learned(self._table.shape, self._net.cpu().eval(), corrections, none)
        complete = np.isfinite(truth[:, :, 0]).all(axis=1)
        if np.count_nonzero(complete) < 20:
            return found  # too few complete stretches to learn which steps vary together
        logs = np.stack([found.quantiles(one)[:, 0] for one in predicted[complete]])
        return replace(found, ranks=_ranks(logs, truth[complete, :, 0]))

    def checkpoint(self) -> State:
        moments = self._optimizer.state_dict()["state"]
        return {
            "progress": np.array([self._done, self._lowest, self._lowest_at], dtype=np.float64),
            **_arrays(self._net, "net/"),
            **self._best,
            **{f"adam/{i}/{name}": value.cpu().numpy() for i, one in moments.items() for name, value in one.items()},
        }

    def resume(self, checkpoint: State) -> None:
        """Restore a checkpoint. Raises ValueError if it is of another network."""
        try:
            done, self._lowest, lowest_at = (float(value) for value in checkpoint["progress"])
            self._done, self._lowest_at = int(done), int(lowest_at)
            _put(self._net, checkpoint, "net/")
            self._best = {name: checkpoint[name] for name in self._best}
            moments: dict[int, dict[str, Tensor]] = {}
            for name, value in checkpoint.items():
                if name.startswith("adam/"):
                    _, place, moment = name.split("/")
                    moments.setdefault(int(place), {})[moment] = torch.tensor(value)
            groups = self._optimizer.state_dict()["param_groups"]
            self._optimizer.load_state_dict({"state": moments, "param_groups": groups})
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            raise ValueError("not a checkpoint of this network") from error

    def _validate(self) -> tuple[float, FloatArray, FloatArray]:
        """Return loss, predictions (N, H, 2, levels) and truth (N, H, 2) at origins over the held-out part."""
        starts = np.arange(self._split - _LEAD, len(self._table) - _LEAD, WINDOW - _LEAD)
        origins = np.arange(_LEAD - 1, WINDOW - 1, _EVERY)
        predicted, truth = [], []
        with torch.no_grad():
            for at in range(0, len(starts), _BATCH):
                batch = self._table.batch(starts[at : at + _BATCH], origins)
                predicted.append(self._net(batch).flatten(0, 1))
                truth.append(batch.truth.flatten(0, 1))
            every, known = torch.cat(predicted), torch.cat(truth)
            loss = pinball(every, known, self._levels).item()
        return loss, every.cpu().numpy().astype(np.float64), known.cpu().numpy().astype(np.float64)


class _Table:
    """Steps `begin` to `end` of a history, a row each; steps before the first and after the last are unknown."""

    def __init__(self, history: ObservedHistory, shape: Shape, begin: int, end: int, device: torch.device) -> None:
        self.shape, self.device = shape, device
        seen, day = len(history), history.season
        steps = np.arange(begin, end)
        rates = np.full((len(steps), _PEAK + 1), np.nan)

        def last(at: IntArray) -> FloatArray:
            """Return the newest mean rate by step `at`; NaN before the first and for unseen steps."""
            known = (at >= first) & (at < seen)
            return np.where(known, history.last[0, np.clip(at, 0, seen - 1)], np.nan)

        first = int(np.argmax(np.isfinite(history.observed[0]))) if np.isfinite(history.observed[0]).any() else seen
        past = np.arange(max(0, begin), min(end, seen))
        rates[past - begin, _MEAN], rates[past - begin, _PEAK] = history.observed[:, past]
        rates[:, _VALUE] = last(steps)
        # Steps beyond tomorrow's same time use the last known day.
        target = steps - np.maximum(0, (steps - seen) // day) * day
        rates[:, _DAY] = history.days_before(target, 1)[0]
        rates[:, _TWO_DAYS] = history.days_before(target, 2)[0]
        if shape.weekly:
            rates[:, _WEEK] = history.days_before(target, 7)[0]
        # Around the same time, without steps that are still to come.
        aside = 3 if shape.horizon + 3 < day else 0
        around = np.minimum(target + np.arange(-aside, aside + 1)[:, None], seen - 1 + day)
        rates[:, _AROUND_DAY] = np.mean([history.days_before(at, 1)[0] for at in around], axis=0)
        hourly = last(steps - shape.hour * np.arange(1, _HOURS + 1)[:, None])
        rates[:, _HOUR], rates[:, _TWO_HOURS] = hourly[:2]
        known = np.isfinite(hourly)
        count = np.maximum(1, known.sum(axis=0))
        least = 1.0 / history.step_s
        usual = np.exp(np.sum(np.log(np.where(known, hourly, 1.0 - least) + least), axis=0) / count) - least
        # Two averages, because surges in some hours separate them.
        rates[:, _USUAL] = np.where(known.any(axis=0), usual, np.nan)
        rates[:, _SURGE] = np.where(known.any(axis=0), np.where(known, hourly, 0.0).sum(axis=0) / count, np.nan)
        self._logs = torch.tensor(np.log(rates + least), dtype=torch.float32, device=device)

    def __len__(self) -> int:
        return len(self._logs)

    def batch(
        self, starts: IntArray, origins: IntArray, steps: int | None = None, until: int | None = None
    ) -> WindowBatch:
        """Return windows that begin at rows `starts` (B,), with `origins` (T,) in each.

        The truth of rows before `until`.
        """
        shape, end = self.shape, len(self)
        begin = torch.tensor(starts, device=self.device)
        seen = torch.tensor(origins, device=self.device)
        ahead = torch.arange(shape.horizon if steps is None else steps, device=self.device)
        window = self._logs[(begin[:, None] + torch.arange(WINDOW, device=self.device)).clamp(max=end - 1)]
        reference = window[:, :_LEAD, _VALUE].nanmean(dim=1)
        # If nothing was seen in the first part, use the mean of the whole window.
        reference = torch.where(reference.isnan(), window[:, :, _VALUE].nanmean(dim=1), reference).nan_to_num(0.0)
        logs = window[..., :_LOGS] - reference[:, None, None]
        above = window[..., _PEAK:] - window[..., _MEAN:_PEAK]
        known = logs.isfinite()
        known[..., _VALUE] = window[..., _MEAN].isfinite()  # a bridged value is not an observation
        inputs = torch.cat([logs.nan_to_num(0.0), known.float(), above.nan_to_num(0.0)], dim=-1)
        newest = begin[:, None] + seen
        rows = newest[..., None] + 1 + ahead
        target = self._logs[rows.clamp(max=end - 1)]
        # The same minute of the last hour that was seen, so a target further ahead looks back several hours.
        by_hour = self._logs[(rows - ahead // shape.hour * shape.hour).clamp(max=end - 1)]
        value = self._logs[newest.clamp(max=end - 1), _VALUE][..., None, None].expand(*rows.shape, 1)
        lags = torch.cat([value, target[..., _BY_DAY], by_hour[..., _BY_HOUR]], dim=-1) - reference[:, None, None, None]
        truth = target[..., _MEAN:] - reference[:, None, None, None]
        truth[rows >= (end if until is None else until)] = torch.nan
        features = torch.cat([lags.nan_to_num(0.0), lags.isfinite().float()], dim=-1)
        return WindowBatch(inputs, seen, features, ahead.clamp(max=shape.horizon - 1), reference, truth)


def pinball(predicted: Tensor, truth: Tensor, levels: Tensor) -> Tensor:
    """Return the mean quantile loss of `predicted` (..., Q) against the known `truth` (...); 0 if none is known."""
    known = truth.isfinite()
    error = truth[known][:, None] - predicted[known]
    return torch.maximum(levels * error, (levels - 1.0) * error).sum() / max(1, error.numel())


def _corrections(predicted: FloatArray, truth: FloatArray) -> FloatArray:
    """Return the corrections that put the right share of `truth` (N, H, 2) below each level: (H, 2, 19)."""
    errors = np.broadcast_to(truth[..., None] - predicted, (*truth.shape, len(LEVELS))).transpose(1, 2, 3, 0)
    every = error_quantiles(errors)  # each level's errors at all levels, of which the diagonal is needed
    return np.diagonal(every, axis1=2, axis2=3).copy()


def _ranks(logs: FloatArray, truth: FloatArray) -> FloatArray:
    """Return the levels at which `truth` (N, H) ran through the quantiles `logs` (N, H, 19), (P, H).

    At most 200 rows are used, spread evenly.
    """
    chosen = np.linspace(0, len(truth) - 1, min(_PATHS, len(truth))).astype(np.int64)
    logs, truth = logs[chosen], truth[chosen]
    below = np.count_nonzero(logs < truth[..., None], axis=-1)
    # Within a level, and beyond the outermost, order by the distance from the quantile below.
    nearest = np.take_along_axis(logs, np.maximum(below - 1, 0)[..., None], axis=-1)[..., 0]
    order = np.argsort(np.argsort(below + np.tanh(truth - nearest) * 0.5, axis=0), axis=0)
    return np.asarray((order + 0.5) / len(order))


def _rates(logs: FloatArray, reference: float, step_s: float) -> FloatArray:
    return np.maximum(0.0, np.exp(np.minimum(logs, _LARGEST_LOG) + reference) - 1.0 / step_s)


def _arrays(net: nn.Module, prefix: str) -> dict[str, NDArray[Any]]:
    return {prefix + name: value.detach().cpu().numpy().copy() for name, value in net.state_dict().items()}


def _put(net: nn.Module, state: State, prefix: str) -> None:
    """Load weights into a network. Raises KeyError or RuntimeError if the state is of another network."""
    net.load_state_dict({name: torch.tensor(state[prefix + name]) for name in net.state_dict()})


@contextmanager
def _one_thread() -> Iterator[None]:
    """Use one thread, because the layers are small: on busy cores, waiting threads cost ten times the work."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
