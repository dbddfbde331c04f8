"""A small convolutional network of torch: which of ten things is in the picture?"""

from __future__ import annotations

from typing import Any

import numpy as np

import mark


class Image(mark.Model):
    """Pictures of 16 x 16 pixels. The network's weights are drawn from a seed: it is here to be served."""

    inputs = (mark.TensorSpec("pixels", "FP32", (3, 16, 16)),)
    outputs = (mark.TensorSpec("scores", "FP32", (10,)),)

    def load(self) -> None:
        import torch
        from torch import nn

        torch.set_num_threads(1)
        torch.manual_seed(1)
        self._torch = torch
        self._network = nn.Sequential(
            *(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
            *(nn.Flatten(), nn.Linear(512, 10), nn.Softmax(dim=1)),
        ).eval()

    def predict(self, batch: list[Any]) -> Any:
        with self._torch.inference_mode():
            return self._network(self._torch.from_numpy(np.stack(batch))).numpy()
