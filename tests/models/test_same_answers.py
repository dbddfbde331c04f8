"""The same rows get the same answer, by any protocol and in any batch."""

from __future__ import annotations

import csv
import io
import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import joblib
import numpy as np
import orjson
import pandas as pd
import pytest

import mark
from mark.models.answering import answer
from mark.models.call import Call, Reply
from mark.models.loading import load
from mark.serving.frontend.grpc_messages import CLASSES, call_of, response_of
from tests.late_imports import bring
from tests.models.calls import error, oip, one, sagemaker, tensor

if TYPE_CHECKING:
    import torch
    from skl2onnx import to_onnx
    from sklearn.compose import make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder


Rows = list[dict[str, Any]]
CITIES = ["Bonn", "Ulm", "Köln", "007", "nan", ""]


class Told(mark.Model):
    """Describes each item as a Python model sees it."""

    columns = ("age", "rooms", "city")

    def predict(self, batch: list[Any]) -> list[str]:
        return [repr([(type(value).__name__, value) for value in item.values()]) for item in batch]


class Undeclared(mark.Model):
    """A model without inputs and without columns: its items are as the protocol gives them."""

    def predict(self, batch: list[Any]) -> list[str]:
        return [f"{item['city']!r} {float(item['age'])!r} {int(item['rooms'])!r}" for item in batch]


def rows(rng: random.Random, count: int) -> Rows:
    return [
        {
            "age": rng.choice([math.nan, round(rng.uniform(18, 80), 3), 30.0]),
            "rooms": rng.randrange(1, 9),
            "city": rng.choice(CITIES),
        }
        for _ in range(count)
    ]


# --- ways to send a table, and the expected answers


def as_instances(table: Rows) -> Call:
    said = [{k: None if v != v else v for k, v in row.items()} for row in table]
    return sagemaker(json.dumps({"instances": said}).encode())


def as_lists(table: Rows) -> Call:
    said = [[None if v != v else v for v in row.values()] for row in table]
    return sagemaker(json.dumps({"inputs": said}, ensure_ascii=False).encode())


def as_csv(table: Rows) -> Call:
    file = io.StringIO()
    csv.writer(file, quoting=csv.QUOTE_NONNUMERIC).writerows(row.values() for row in table)
    return sagemaker(file.getvalue().encode(), "text/csv")


def as_oip_json(table: Rows) -> Call:
    shape = [len(table)]
    # JSON cannot express NaN, nor the protocol null: they are sent as binary (see `as_oip_binary`).
    ages = [row["age"] for row in table]
    return oip(
        tensor("age", shape, "FP64", data=ages),
        tensor("rooms", shape, "INT64", data=[row["rooms"] for row in table]),
        tensor("city", shape, "BYTES", data=[row["city"] for row in table]),
    )


def _grpc_message(table: Rows, *, raw: bool) -> Any:
    message = CLASSES["ModelInferRequest"](model_name="m")
    for name, datatype, field in (
        ("age", "FP64", "fp64_contents"),
        ("rooms", "INT64", "int64_contents"),
        ("city", "BYTES", "bytes_contents"),
    ):
        values = [row[name].encode() if name == "city" else row[name] for row in table]
        given = message.inputs.add(name=name, datatype=datatype, shape=[len(table), 1])
        if not raw:
            getattr(given.contents, field).extend(values)
        elif name == "city":
            message.raw_input_contents.append(b"".join(len(v).to_bytes(4, "little") + v for v in values))
        else:
            message.raw_input_contents.append(np.array(values, "<f8" if name == "age" else "<i8").tobytes())
    return message


def as_oip_binary(table: Rows) -> Call:
    call = call_of(_grpc_message(table, raw=True))  # a binary client of HTTP sends the same
    return Call(call.protocol, call.content_type, bytes(call.body), call.json_bytes)


def as_grpc(table: Rows) -> Call:
    return call_of(_grpc_message(table, raw=False))


def answers(reply: Reply) -> list[Any]:
    assert reply.status == 200, bytes(reply.body)
    if reply.json_bytes is not None:
        (raw,) = (response := response_of(reply)).raw_output_contents
        if response.outputs[0].datatype == "BYTES":
            found, at = [], 0
            while at < len(raw):
                size = int.from_bytes(raw[at : at + 4], "little")
                found.append(raw[at + 4 : at + 4 + size].decode())
                at += 4 + size
            return found
        kinds = {"BOOL": "?", "FP32": "<f4", "FP64": "<f8", "INT64": "<i8"}
        return np.frombuffer(raw, kinds[response.outputs[0].datatype]).reshape(response.outputs[0].shape).tolist()
    said = orjson.loads(reply.body)
    if isinstance(said, list):
        return said
    return said["predictions"] if "predictions" in said else said["outputs"][0]["data"]


WAYS: list[Callable[[Rows], Call]] = [as_instances, as_lists, as_csv, as_oip_json, as_oip_binary, as_grpc]


def compare(model: mark.Model, table: Rows, ways: list[Callable[[Rows], Call]]) -> None:
    """Compare all ways: each gives the same answer, row by row or together, even with another client's rows."""
    if any(row["age"] != row["age"] for row in table):
        ways = [way for way in ways if way is not as_oip_json]
    expected = answers(one(model, ways[0](table)))
    assert len(expected) == len(table)
    for way in ways[1:]:
        assert answers(one(model, way(table))) == expected, way.__name__
    calls = [way(table[:1]) for way in ways]
    for way, reply in zip(ways, answer(model, calls), strict=True):
        assert answers(reply)[:1] == expected[:1], f"{way.__name__} in a batch"


# Models


@pytest.fixture(scope="module", autouse=True)
def _libraries() -> None:
    bring(
        globals(),
        "torch",
        "skl2onnx:to_onnx",
        "sklearn.compose:make_column_transformer",
        "sklearn.impute:SimpleImputer",
        "sklearn.linear_model:LogisticRegression",
        "sklearn.pipeline:make_pipeline",
        "sklearn.preprocessing:OneHotEncoder",
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("models")
    rng = random.Random(1)
    table = pd.DataFrame(rows(rng, 300))
    columns = make_column_transformer(
        (SimpleImputer(), ["age"]), ("passthrough", ["rooms"]), (OneHotEncoder(handle_unknown="ignore"), ["city"])
    )
    target = np.where(table.city == "Ulm", "yes", "no")
    joblib.dump(make_pipeline(columns, LogisticRegression()).fit(table, target), place / "city.joblib")
    numbers = np.asarray([[1.0, 2.0], [2.0, 1.0], [3.0, 5.0], [0.0, 1.0]] * 9)
    classes = LogisticRegression().fit(numbers, np.arange(36) % 3)
    joblib.dump(classes, place / "numbers.joblib")
    (place / "zipmap.onnx").write_bytes(to_onnx(classes, numbers[:1].astype("float32")).SerializeToString())
    with pytest.warns(DeprecationWarning, match="torch.jit"):
        torch.jit.script(torch.nn.Linear(2, 1)).save(place / "linear.pt")
    return place


def table_model(folder: Path, name: str) -> mark.Model:
    found = {
        "told": Told,
        "undeclared": Undeclared,
        "sklearn": lambda: load("sklearn:city.joblib?pickle=trusted", folder),
        "probabilities": lambda: load("sklearn:city.joblib?pickle=trusted&method=predict_proba", folder),
    }
    return found[name]()


@pytest.mark.parametrize("name", ["told", "sklearn", "probabilities"])
def test_a_table_has_the_same_answer_by_every_protocol(folder: Path, name: str) -> None:
    """Text, NaN and whole numbers; text that looks like a number stays text."""
    model, rng = table_model(folder, name), random.Random(2)
    ways = WAYS if name != "told" else [way for way in WAYS if way is not as_csv]  # where 3 is 3.0
    for count in range(1, 21):
        table = rows(rng, count)
        if name == "probabilities":
            near = [
                np.asarray(answers(one(model, way(table)))).reshape(count, 2) for way in (as_instances, as_csv, as_grpc)
            ]
            assert all(np.array_equal(each, near[0]) for each in near)
        else:
            compare(model, table, ways)


def test_a_python_model_without_inputs_has_text_as_str(folder: Path) -> None:
    rng = random.Random(3)
    for count in range(1, 21):
        table = [row | {"age": 1.5} for row in rows(rng, count)]
        compare(Undeclared(), table, [as_instances, as_oip_json])


@pytest.mark.slow
@pytest.mark.parametrize("tables", [30, pytest.param(500, marks=pytest.mark.acceptance)])
@pytest.mark.parametrize("name", ["told", "sklearn"])
def test_many_tables_have_the_same_answer_by_every_protocol(folder: Path, name: str, tables: int) -> None:
    model, rng = table_model(folder, name), random.Random(4)
    ways = WAYS if name != "told" else [way for way in WAYS if way is not as_csv]
    for _ in range(tables):
        compare(model, rows(rng, rng.randrange(1, 12)), ways)


@pytest.mark.parametrize(
    ("reference", "name", "datatype"),
    [
        ("sklearn:numbers.joblib?pickle=trusted", "input", "FP64"),
        ("onnx:zipmap.onnx", "X", "FP32"),
        ("torch:linear.pt", "input", "FP32"),
    ],
)
def test_rows_of_numbers_have_the_same_answer_by_every_protocol(
    folder: Path, reference: str, name: str, datatype: str
) -> None:
    model, rng = load(reference, folder), random.Random(5)
    if reference.startswith("torch"):
        model.inputs = [mark.TensorSpec("input", "FP32", (2,))]  # TorchScript does not say them
    for count in range(1, 21):
        table = [[rng.randrange(9), round(rng.uniform(-3, 3), 2)] for _ in range(count)]
        message = CLASSES["ModelInferRequest"](model_name="m")
        message.inputs.add(name=name, datatype=datatype, shape=[count, 2])
        message.raw_input_contents.append(np.array(table, "<f8" if datatype == "FP64" else "<f4").tobytes())
        flat = [float(value) for row in table for value in row]
        by_grpc = response_of(one(model, call_of(message)))
        kinds = {"FP32": "<f4", "INT64": "<i8"}
        outputs = [
            np.frombuffer(raw, kinds[output.datatype]).reshape(output.shape).tolist()
            for output, raw in zip(by_grpc.outputs, by_grpc.raw_output_contents, strict=True)
        ]
        said = orjson.loads(one(model, oip(tensor(name, [count, 2], datatype, data=flat))).body)["outputs"]
        calls = [
            sagemaker(json.dumps({"instances": table}).encode()),
            sagemaker("\n".join(",".join(map(str, row)) for row in table).encode(), "text/csv"),
        ]
        by_rows = [answers(one(model, call)) for call in calls]
        assert by_rows[0] == by_rows[1]
        for at, expected in enumerate(outputs):
            given = np.asarray(said[at]["data"]).reshape(np.shape(expected))
            assert np.array_equal(given.astype("f4"), np.asarray(expected, "f4"))
            rows_said = [row[said[at]["name"]] if isinstance(row, dict) else row for row in by_rows[0]]
            assert np.array_equal(np.asarray(rows_said, "f4").reshape(np.shape(expected)), np.asarray(expected, "f4"))


def test_the_probabilities_of_a_zipmap_are_answered(folder: Path) -> None:
    model = load("onnx:zipmap.onnx", folder)
    assert [spec.name for spec in model.outputs] == ["output_label", "output_probability"]
    (row,) = answers(one(model, sagemaker(b'{"instances": [[1, 2]]}')))
    assert len(row["output_probability"]) == 3
    assert sum(row["output_probability"]) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (sagemaker(b'{"instances": [{"age": 3, "rooms": 1}]}'), "an item lacks city: its columns are age, rooms, city"),
        (sagemaker(b'{"age": 3, "rooms": 1, "city": "x", "b": 1}'), "an item has unknown b"),
        (sagemaker(b"[3, 1]"), "an item must be an object of age, rooms, city, or a list of these 3 values"),
        (sagemaker(b'[3, 1, ["x"]]'), "column 'city' must be a number or text, not ['x'] (list)"),
        (sagemaker(b"3,1,Ulm", "text/csv"), 'text/csv must be rows of numbers and of text in double quotes ("Ulm")'),
        (oip(tensor("age", [1], "FP64", data=[3.0])), "an item must be an object of age, rooms, city"),
        (oip(tensor("age", [1], "FP64", data=[3.0]), tensor("city", [1], "BYTES", data=["x"])), "an item lacks rooms"),
        (
            oip(*(tensor(name, [1, 2], "FP64", data=[3.0, 1.0]) for name in ("age", "rooms", "city"))),
            "input 'age': a column has one value an item, not shape [1, 2]",
        ),
    ],
)
def test_an_item_with_other_columns_is_refused_alone(folder: Path, call: Call, why: str) -> None:
    """This holds in a batch with others too, where it was once filled up with NaN and answered."""
    right = as_instances([{"age": 3.0, "rooms": 1, "city": "Ulm"}])
    for model in (Told(), table_model(folder, "sklearn")):
        refused, answered = answer(model, [call, right])
        assert refused.status == 400
        assert error(refused).startswith(why)
        assert answers(answered) == answers(one(model, right))
