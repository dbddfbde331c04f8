"""A network that learns next to nothing, quickly."""

from __future__ import annotations

import numpy as np
import torch
from mark_predictors.network import NetworkPredictor, Shape, WindowBatch


class Constant(NetworkPredictor):
    """Learns a number for each step ahead and ignores its inputs, so that training is much faster than an LSTM's."""

    name = "constant"
    levels = np.array([0.5])

    def network(self, shape: Shape) -> torch.nn.Module:
        return _Number(shape.horizon)


class _Number(torch.nn.Module):
    def __init__(self, horizon: int) -> None:
        super().__init__()
        self.logs = torch.nn.Parameter(torch.zeros(horizon, 2, 1))

    def forward(self, batch: WindowBatch) -> torch.Tensor:
        windows, origins, steps, _ = batch.ahead.shape
        return self.logs[batch.horizon].expand(windows, origins, steps, 2, 1)
