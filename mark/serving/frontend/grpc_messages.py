"""The Open Inference Protocol's messages over gRPC, and their conversion to its binary HTTP form.

The classes are made at run time in their own pool, because generated modules register their names for the whole
process, and protobuf would refuse another client of the same protocol as a second definition. Fields are numbered in
order, as in the protocol's own file.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable
from typing import Any

import orjson
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from mark.models.call import Call, Reply

SERVICE = "inference.GRPCInferenceService"

_TENSOR = "string name, string datatype, int64* shape"
_MESSAGES = {
    "ServerLiveRequest": "",
    "ServerLiveResponse": "bool live",
    "ServerReadyRequest": "",
    "ServerReadyResponse": "bool ready",
    "ServerMetadataRequest": "",
    "ServerMetadataResponse": "string name, string version, string* extensions",
    "ModelReadyRequest": "string name, string version",
    "ModelReadyResponse": "bool ready",
    "ModelMetadataRequest": "string name, string version",
    "ModelMetadataResponse": "string name, string* versions, string platform, Tensor* inputs, Tensor* outputs",
    "ModelInferRequest": "string model_name, string model_version, string id, Parameter* parameters, "
    "InputTensor* inputs, RequestedOutput* outputs, bytes* raw_input_contents",
    "ModelInferResponse": "string model_name, string model_version, string id, Parameter* parameters, "
    "OutputTensor* outputs, bytes* raw_output_contents",
    "RepositoryIndexRequest": "string repository_name, bool ready",
    "RepositoryIndexResponse": "ModelIndex* models",
    # Parts of the messages above; their names do not appear on the wire.
    "Tensor": _TENSOR,
    "InputTensor": f"{_TENSOR}, Parameter* parameters, Contents contents",
    "OutputTensor": f"{_TENSOR}, Parameter* parameters, Contents contents",
    "RequestedOutput": "string name, Parameter* parameters",
    "Contents": "bool* bool_contents, int32* int_contents, int64* int64_contents, uint32* uint_contents, "
    "uint64* uint64_contents, float* fp32_contents, double* fp64_contents, bytes* bytes_contents",
    "ModelIndex": "string name, string version, string state, string reason",
    "Parameter": "string key, Value value",  # an entry of a map
    "Value": "bool bool_param, int64 int64_param, string string_param, double double_param, uint64 uint64_param",
}
_ONE_OF = "Value"

# By datatype: the field of Contents, and the array type of its elements. FP16 lacks a field and is only sent raw.
_CONTENTS = {
    "BOOL": ("bool_contents", "B"),
    "INT8": ("int_contents", "b"),
    "INT16": ("int_contents", "h"),
    "INT32": ("int_contents", "i"),
    "INT64": ("int64_contents", "q"),
    "UINT8": ("uint_contents", "B"),
    "UINT16": ("uint_contents", "H"),
    "UINT32": ("uint_contents", "I"),
    "UINT64": ("uint64_contents", "Q"),
    "FP32": ("fp32_contents", "f"),
    "FP64": ("fp64_contents", "d"),
    "BYTES": ("bytes_contents", ""),
}
_LENGTH = struct.Struct("<I")


class BadMessage(ValueError):
    """A request with contradictory content; the text is one line."""


def call_of(request: Any) -> Call:
    """Return the call in a ModelInferRequest. Raises BadMessage."""
    raw = request.raw_input_contents
    if raw and len(raw) != len(request.inputs):
        raise BadMessage(f"{len(request.inputs)} inputs, and {len(raw)} raw_input_contents")
    inputs, parts = [], []
    for i, tensor in enumerate(request.inputs):
        parameters = _parameters(tensor.parameters)
        if "shared_memory_region" in parameters:
            raise BadMessage(f"input '{tensor.name}': shared_memory_region is not supported")
        if not raw:
            part = _raw(tensor)
        elif tensor.HasField("contents"):
            raise BadMessage(f"input '{tensor.name}': has both contents and raw_input_contents")
        else:
            part = raw[i]
        parts.append(part)
        parameters["binary_data_size"] = len(part)
        given = {"name": tensor.name, "datatype": tensor.datatype, "shape": list(tensor.shape)}
        inputs.append(given | {"parameters": parameters})
    asked: dict[str, Any] = {"inputs": inputs, "parameters": {"binary_data_output": True}}
    if request.id:
        asked["id"] = request.id
    if request.outputs:
        outputs = ((output.name, _parameters(output.parameters)) for output in request.outputs)
        asked["outputs"] = [{"name": name, "parameters": said | {"binary_data": True}} for name, said in outputs]
    head = orjson.dumps(asked)
    return Call("oip", "application/octet-stream", b"".join([head, *parts]), len(head))


def response_of(reply: Reply) -> Any:
    """Return the ModelInferResponse for a reply of status 200 to such a call. Raises ValueError for another reply."""
    if reply.json_bytes is None:
        raise ValueError("the answer has no binary tensors")
    body = memoryview(reply.body)
    said = orjson.loads(body[: reply.json_bytes])
    outputs, raw, at = [], [], reply.json_bytes
    for output in said["outputs"]:
        outputs.append(CLASSES["OutputTensor"](**{key: output[key] for key in ("name", "datatype", "shape")}))
        end = at + output["parameters"]["binary_data_size"]
        raw.append(bytes(body[at:end]))
        at = end
    return CLASSES["ModelInferResponse"](
        model_name=said["model_name"],
        model_version=said.get("model_version", ""),
        id=said.get("id", ""),
        outputs=outputs,
        raw_output_contents=raw,
    )


def metadata_of(said: dict[str, Any]) -> Any:
    """Return the ModelMetadataResponse with the content of `GET /v2/models/M`."""
    tensors = {key: [CLASSES["Tensor"](**each) for each in said.get(key, ())] for key in ("inputs", "outputs")}
    return CLASSES["ModelMetadataResponse"](
        name=said["name"], versions=said["versions"], platform=said.get("platform", ""), **tensors
    )


def _parameters(given: Iterable[Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for entry in given:
        kind = entry.value.WhichOneof("choice")
        if kind is not None:
            found[entry.key] = getattr(entry.value, kind)
    return found


def _raw(tensor: Any) -> bytes:
    """Return an input's typed contents in raw form."""
    where = f"input '{tensor.name}'"
    if tensor.datatype not in _CONTENTS:
        raise BadMessage(f"{where}: {tensor.datatype or 'no datatype'} cannot be in contents")
    field, code = _CONTENTS[tensor.datatype]
    others = [other.name for other, _ in tensor.contents.ListFields() if other.name != field]
    if others:
        raise BadMessage(f"{where}: the contents of {tensor.datatype} are {field}, not {others[0]}")
    values = getattr(tensor.contents, field)
    if tensor.datatype == "BYTES":
        return b"".join([part for value in values for part in (_LENGTH.pack(len(value)), value)])
    try:
        return array(code, values).tobytes()
    except OverflowError:
        raise BadMessage(f"{where}: a value does not fit {tensor.datatype}") from None


def _classes() -> dict[str, Any]:
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="inference.proto", package="inference", syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        if name == _ONE_OF:
            message.oneof_decl.add(name="choice")
        for number, said in enumerate(filter(None, fields.split(", ")), 1):
            kind, _, field_name = said.partition(" ")
            field = message.field.add(name=field_name, number=number)
            field.label = kinds.LABEL_REPEATED if kind.endswith("*") else kinds.LABEL_OPTIONAL
            kind = kind.removesuffix("*")
            if kind in _MESSAGES:
                field.type, field.type_name = kinds.TYPE_MESSAGE, f".inference.{kind}"
            else:
                field.type = kinds.Type.Value(f"TYPE_{kind.upper()}")
            if name == _ONE_OF:
                field.oneof_index = 0
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"inference.{name}")) for name in _MESSAGES
    }


CLASSES = _classes()
