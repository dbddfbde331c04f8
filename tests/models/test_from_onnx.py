"""Graphs in ONNX."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mark
from mark.domain.errors import BadInput
from mark.models.answering import answer, warm_up
from mark.models.loading import load
from tests.models.calls import Echo, oip, one, outputs, sagemaker, tensor

onnx = pytest.importorskip("onnx", reason="install mark with [dev]")
pytest.importorskip("onnxruntime", reason="install mark with [dev]")


def _graph(folder: Path, nodes: list[Any], inputs: list[Any], outputs: list[Any]) -> mark.Model:
    helper = onnx.helper
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info(*each) for each in inputs], outputs)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(made, folder / "m.onnx")
    return load("onnx:m.onnx", folder)


def _double(folder: Path, length: Any) -> mark.Model:
    info = ("x", onnx.TensorProto.FLOAT, [length, 2])
    out = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [length, 2])
    return _graph(folder, [onnx.helper.make_node("Add", ["x", "x"], ["y"])], [info], [out])


@pytest.mark.parametrize("length", ["n", 1], ids=["any batch", "batch of one"])
def test_a_batch_runs_whatever_the_graph_takes(tmp_path: Path, length: Any) -> None:
    """Names and shapes are the graph's; a batch fixed at one is run item by item with the same results."""
    model = _double(tmp_path, length)
    warm_up(model)
    assert model.inputs == [mark.TensorSpec("x", "FP32", (2,))]
    assert model.outputs == [mark.TensorSpec("y", "FP32", (2,))]
    replies = answer(model, [oip(tensor(shape=[2, 2], data=[1, 2, 3, 4])), oip(tensor(data=[5, 6])), oip(tensor("z"))])
    assert [outputs(reply) for reply in replies[:2]] == [
        [{"name": "y", "datatype": "FP32", "shape": [2, 2], "data": [2, 4, 6, 8]}],
        [{"name": "y", "datatype": "FP32", "shape": [1, 2], "data": [10, 12]}],
    ]
    assert replies[2].status == 400


def test_another_fixed_batch_is_refused(tmp_path: Path) -> None:
    """It could only be filled with invented items."""
    with pytest.raises(BadInput, match="make it dynamic"):
        _double(tmp_path, 4)


def test_text_and_several_outputs(tmp_path: Path) -> None:
    """BYTES are the graph's strings; two outputs are two tensors of the reply."""
    proto, helper = onnx.TensorProto, onnx.helper
    infos = [
        helper.make_tensor_value_info("t2", proto.STRING, ["n"]),
        helper.make_tensor_value_info("n2", proto.INT64, ["n"]),
    ]
    nodes = [helper.make_node("Identity", ["t"], ["t2"]), helper.make_node("Add", ["n", "n"], ["n2"])]
    model = _graph(tmp_path, nodes, [("t", proto.STRING, ["n"]), ("n", proto.INT64, ["n"])], infos)
    call = oip(tensor("n", [2], "INT64", data=[1, 2]), tensor("t", [2], "BYTES", data=["é", "b"]))
    assert [(each["name"], each["data"]) for each in outputs(one(model, call))] == [("t2", ["é", "b"]), ("n2", [2, 4])]


def test_an_estimator_by_skl2onnx(tmp_path: Path) -> None:
    """Agrees with scikit-learn itself; its list of dictionaries is a vector by class."""
    skl2onnx = pytest.importorskip("skl2onnx", reason="install mark with [dev]")
    from sklearn.linear_model import LogisticRegression

    data = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    estimator = LogisticRegression().fit(data, data[:, 0] > 0)
    (tmp_path / "m.onnx").write_bytes(skl2onnx.to_onnx(estimator, data[:1]).SerializeToString())
    model = load("onnx:m.onnx", tmp_path)
    rows = "\n".join(",".join(map(str, row)) for row in data.tolist())
    reply = one(model, sagemaker(rows.encode(), "text/csv", "text/csv"))
    answered = np.loadtxt(io.BytesIO(bytes(reply.body)), delimiter=",")
    assert np.array_equal(answered[:, 0], estimator.predict(data))
    assert np.allclose(answered[:, 1:], estimator.predict_proba(data), atol=1e-5)
    assert Echo(model.inputs).inputs[0].shape == (3,)
