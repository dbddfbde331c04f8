"""The workloads as models of ours."""

from __future__ import annotations

from typing import Any

import numpy as np
import work

import mark


class Echo(mark.Model):
    def predict(self, batch: list[Any]) -> list[Any]:
        return work.echo(batch)


class Product(mark.Model):
    def predict(self, batch: list[Any]) -> list[Any]:
        if isinstance(batch[0], bytes):  # /invocations
            return work.products(batch)
        return list(work.product(np.stack(batch).reshape(len(batch), work.WIDTH)))
