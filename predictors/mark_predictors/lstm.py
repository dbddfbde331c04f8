"""`lstm`: a vanilla LSTM that forecasts all steps together, as in the MArk paper, with quantiles from held-out errors.

The paper (section 4.2) gives no further details: one layer of 64 units reads the window, and one linear layer gives the
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
