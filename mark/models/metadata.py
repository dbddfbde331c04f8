"""The metadata of servers and models in the Open Inference Protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mark.domain.version import VERSION
from mark.models.model import Model, TensorSpec

EXTENSIONS = ("binary_tensor_data",)


def server_metadata() -> dict[str, Any]:
    """Return the answer to `GET /v2`."""
    return {"name": "mark", "version": VERSION, "extensions": list(EXTENSIONS)}


def metadata(model: Model, versions: Sequence[str] = ()) -> dict[str, Any]:
    """Return the answer to `GET /v2/models/M`.

    Clients may name `versions`. Shapes begin with the batch. A model with columns and `column_types` has an input for
    each column.
    """
    said: dict[str, Any] = {"name": model.name}
    columns = [TensorSpec(name, kind) for name, kind in zip(model.columns, model.column_types, strict=False)]
    if versions:
        said["versions"] = list(versions)
    return said | {
        "platform": model.platform,
        "inputs": [_tensor(spec) for spec in model.inputs or columns],
        "outputs": [_tensor(spec) for spec in model.outputs],
    }


def _tensor(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "datatype": spec.datatype, "shape": [-1, *spec.shape]}
