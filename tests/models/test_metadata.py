"""The metadata of the protocol."""

from __future__ import annotations

import mark
from mark.models.metadata import metadata, server_metadata


def test_a_model_describes_itself_with_the_batch() -> None:
    """Shapes begin with -1, versions appear where there are some."""

    @mark.model(inputs=[mark.TensorSpec("x", "FP32", (3, -1))], outputs=[mark.TensorSpec("y", "BYTES")], name="m")
    def made(batch: list[object]) -> list[object]:
        return batch

    assert metadata(made, ["1", "2"]) == {
        "name": "m",
        "versions": ["1", "2"],
        "platform": "python",
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 3, -1]}],
        "outputs": [{"name": "y", "datatype": "BYTES", "shape": [-1]}],
    }
    assert "versions" not in metadata(made)


def test_the_server_describes_itself() -> None:
    """Clients look for the binary extension here."""
    assert server_metadata() == {"name": "mark", "version": mark.__version__, "extensions": ["binary_tensor_data"]}
