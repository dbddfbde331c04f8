"""`lstm`: a vanilla LSTM that forecasts all steps at once, as in the MArk paper; its held-out errors are its quantiles.

The paper (section 4.2) says no more than that: one layer of 64 units reads the window, and one linear layer says the
most likely log rate of the 60 steps ahead. Trained on the absolute error, it is the median.
"""

from __future__ import annotations

import numpy as np
from torch import Tensor, nn

from mark_predictors.network import UNITS, Encoder, NetworkPredictor, Shape, WindowBatch


class Lstm(NetworkPredictor):
    """Implements `Trainable`."""

    name = "lstm"
    levels = np.array([0.5])

    def network(self, shape: Shape) -> nn.Module:
        return _Network(shape)


class _Network(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self._horizon = shape.horizon
        self.encoder = Encoder()
        self.out = nn.Linear(UNITS, 2 * shape.horizon)

    def forward(self, batch: WindowBatch) -> Tensor:
        every: Tensor = self.out(self.encoder(batch)).unflatten(-1, (self._horizon, 2))
        newest = batch.ahead[:, :, :, :1]  # the forecast is a change of the newest value
        change = every[:, :, batch.horizon]
        return (newest + change)[..., None]
