"""`lstm-quantile`: an LSTM that gives all quantiles of all steps together, similar to MQ-RNN (arXiv:1711.11053).

For every step ahead a small network joins the LSTM's state with the load at the same time before: an hour, a day and a
week ago. The median is a mixture of these values and the newest one, moved a little; the other quantiles are sums of
non-negative steps away from it, so they never cross. The loss is the pinball loss at LEVELS.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mark.domain.load import LEVELS
from mark_predictors.network import AHEAD_INPUTS, LAGS, UNITS, Encoder, NetworkPredictor, Shape, WindowBatch

_MEDIAN = len(LEVELS) // 2


class LstmQuantile(NetworkPredictor):
    """Implements `Trainable`."""

    name = "lstm-quantile"
    levels = LEVELS

    def network(self, shape: Shape) -> nn.Module:
        return _Network(shape)


class _Network(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.encoder = Encoder()
        self.mind = nn.Linear(UNITS, UNITS)
        self.ahead = nn.Linear(AHEAD_INPUTS, UNITS)
        self.horizon = nn.Embedding(shape.horizon, UNITS)
        self.joined = nn.Linear(UNITS, UNITS)
        self.mixture = nn.Linear(UNITS, LAGS)
        self.moves = nn.Linear(UNITS, 2 * len(LEVELS))
        # Begin with a median near the mixture and quantiles some per cent apart.
        nn.init.normal_(self.horizon.weight, std=0.1)
        moves = torch.full((2, len(LEVELS)), -3.0)
        moves[:, 0] = 0.0
        self.moves.bias = nn.Parameter(moves.flatten())
        nn.init.normal_(self.moves.weight, std=0.02)

    def forward(self, batch: WindowBatch) -> Tensor:
        mind = self.mind(self.encoder(batch))[:, :, None]
        both = torch.relu(mind + self.ahead(batch.ahead) + self.horizon(batch.horizon))
        both = torch.relu(self.joined(both))
        mixture = (torch.softmax(self.mixture(both), dim=-1) * batch.ahead[..., :LAGS]).sum(dim=-1)
        moves = self.moves(both).unflatten(-1, (2, len(LEVELS)))
        median = mixture[..., None, None] + moves[..., :1]
        apart = nn.functional.softplus(moves[..., 1:])
        below = median - apart[..., :_MEDIAN].cumsum(dim=-1).flip(-1)
        above = median + apart[..., _MEDIAN:].cumsum(dim=-1)
        return torch.cat([below, median, above], dim=-1)
