"""Running servers as models: Open Inference Protocol v2, TensorFlow Serving and SageMaker containers."""

from __future__ import annotations

import base64
import ssl
from collections.abc import Mapping
from typing import Any

import orjson
import urllib3

from mark.domain.errors import BadInput, MarkError
from mark.models.columns import columns, rows
from mark.models.loading import in_one_line, only
from mark.models.metadata import EXTENSIONS
from mark.models.model import DATATYPES, Model, TensorSpec
from mark.models.tensors import NAMES, Array, BadCall, from_bytes, from_json, size_of, to_bytes

_CONNECT_S, _ANSWER_S = 5.0, 60.0
_JSON = "application/json"


class ServerFailed(MarkError):
    """The server of a model did not answer, or not by its protocol."""


class ServerModel(Model):
    """A model that another process serves. `headers` go with every request, for example a key."""

    known: dict[str, tuple[str, ...]] = {}  # noqa: RUF012

    def __init__(self, url: str, reference: str, options: dict[str, str]) -> None:
        self._options = only(options, self.known, reference)
        self._url, self._reference = url, reference
        self.headers: Mapping[str, str] = {}
        self._pool = _pool()

    def trust_any_certificate(self) -> None:
        """Accept any certificate, because bouncers on AWS use self-signed ones."""
        context = urllib3.util.create_urllib3_context(cert_reqs=ssl.CERT_NONE)
        urllib3.disable_warnings(urllib3.exceptions.InsecureRequestWarning)  # it would be printed for every request
        self._pool = _pool(ssl_context=context, assert_hostname=False)

    def load(self) -> None:
        """Connect to the server. Raises BadInput if it does not answer, or is not ready."""
        try:
            self._meet()
        except ServerFailed as error:
            raise BadInput(str(error), self._reference) from error

    def _meet(self) -> None:
        raise NotImplementedError

    def _ask(self, url: str, body: bytes | None = None, **headers: str) -> urllib3.BaseHTTPResponse:
        sent = {**self.headers, **{name.replace("_", "-"): value for name, value in headers.items()}}
        for again in (True, False):
            try:
                response = self._pool.request("GET" if body is None else "POST", url, body=body, headers=sent)
                break
            except urllib3.exceptions.ProtocolError as error:  # the server has just closed a kept connection
                if not again:
                    raise ServerFailed(f"{url}: {in_one_line(error)}") from error
            except urllib3.exceptions.HTTPError as error:
                raise ServerFailed(f"{url}: {in_one_line(error)}") from error
        if response.status != 200:
            raise ServerFailed(
                f"{url} answered {response.status}: {' '.join(response.data[:200].decode(errors='replace').split())}"
            )
        return response

    def _ask_json(self, url: str, body: bytes | None = None) -> Any:
        response = self._ask(url, body, content_type=_JSON, accept=_JSON)
        try:
            return orjson.loads(response.data)
        except orjson.JSONDecodeError as error:
            raise ServerFailed(f"{url} answered no JSON: {error}") from error


def _pool(**tls: Any) -> urllib3.PoolManager:
    timeout = urllib3.Timeout(connect=_CONNECT_S, read=_ANSWER_S)
    return urllib3.PoolManager(maxsize=1, retries=False, timeout=timeout, **tls)  # connections are kept open


class OipServer(ServerModel):
    """A model of an Open Inference Protocol v2 server. Tensors are binary if the server supports them."""

    def predict(self, batch: list[Any]) -> Any:
        """Send one request for the batch. Raises ServerFailed."""
        inputs, parts = [], []
        for name, tensor in columns(batch, [spec.name for spec in self.inputs]).items():
            said: dict[str, Any] = {"name": name, "shape": tensor.shape, "datatype": NAMES[tensor.dtype]}
            if self._binary:
                part = bytes(to_bytes(tensor))
                said["parameters"] = {"binary_data_size": len(part)}
                parts.append(part)
            else:
                said["data"] = [_jsonable(each) for each in tensor.ravel().tolist()]
            inputs.append(said)
        head = orjson.dumps({"inputs": inputs, "parameters": {"binary_data_output": self._binary}})
        headers = {"content_type": _JSON}
        if self._binary:
            headers = {
                "content_type": "application/octet-stream",
                "inference_header_content_length": str(len(head)),
            }
        response = self._ask(f"{self._url}/infer", b"".join([head, *parts]), **headers)
        json_bytes = response.headers.get("inference-header-content-length")
        try:
            outputs = _outputs(response.data, len(response.data) if json_bytes is None else int(json_bytes))
            return rows(outputs, len(batch), self.outputs)
        except (BadCall, ValueError, TypeError, KeyError, AttributeError) as error:
            raise ServerFailed(f"{self._url} gave an answer that cannot be read: {in_one_line(error)}") from error

    def _meet(self) -> None:
        said = self._ask_json(self._url)
        if not isinstance(said, dict):
            raise ServerFailed(f"{self._url} answered no metadata")
        self.platform = str(said.get("platform", "") or self.platform)
        self.inputs, self.outputs = _specs(said.get("inputs")), _specs(said.get("outputs"))
        server = self._ask_json(self._url[: self._url.rindex("/v2/models/") + len("/v2")])
        self._binary = set(EXTENSIONS) <= set(server.get("extensions") or () if isinstance(server, dict) else ())


class TfServer(ServerModel):
    """A model of TensorFlow Serving's REST interface, row format: an item is an element of `instances`."""

    platform = "tensorflow_savedmodel"

    def predict(self, batch: list[Any]) -> Any:
        """Send one request for the batch. Raises ServerFailed."""
        return _predictions(self._ask_json(f"{self._url}:predict", _instances(batch)), self._url)

    def _meet(self) -> None:
        self._ask_json(self._url)


class SagemakerServer(ServerModel):
    """A model of a SageMaker container. Each container has its own request format, which `send` selects.

    `json` (the default) sends a request for each item, and bytes unchanged. `instances` sends the batch as
    `{"instances": [...]}`. `csv` sends the batch as rows; the answer may be rows or a JSON list.
    """

    known = {"send": ("json", "instances", "csv")}  # noqa: RUF012

    def predict(self, batch: list[Any]) -> Any:
        """Send one request for the batch, or one for each item. Raises ServerFailed."""
        if self._options["send"] == "instances":
            return _predictions(self._ask_json(self._url, _instances(batch)), self._url)
        if self._options["send"] == "csv":
            return self._csv(batch)
        return [self._one(item) for item in batch]

    def _meet(self) -> None:
        self._ask(self._url.removesuffix("invocations") + "ping")

    def _one(self, item: Any) -> Any:
        if isinstance(item, bytes):
            response = self._ask(self._url, item, content_type="application/octet-stream")
        else:
            response = self._ask(self._url, _dumps(item), content_type=_JSON, accept=_JSON)
        if not response.headers.get("content-type", "").startswith(_JSON):
            return response.data
        try:
            return orjson.loads(response.data)
        except orjson.JSONDecodeError as error:
            raise ServerFailed(f"{self._url} answered no JSON: {error}") from error

    def _csv(self, batch: list[Any]) -> Any:
        (tensor,) = columns(batch, ()).values()
        lines = [",".join(map(str, row)) for row in tensor.reshape(len(batch), -1).tolist()]
        response = self._ask(self._url, "\n".join(lines).encode(), content_type="text/csv", accept="text/csv")
        try:
            if response.headers.get("content-type", "").startswith(_JSON):
                return list(orjson.loads(response.data))
            found = [[float(field) for field in line.split(b",")] for line in response.data.splitlines() if line]
        except (ValueError, TypeError) as error:
            raise ServerFailed(f"{self._url} answered no rows of numbers: {in_one_line(error)}") from error
        if len(found) == 1 < len(batch):  # XGBoost's container answers with one row of all results
            found = [[each] for each in found[0]]
        return [row[0] if len(row) == 1 else row for row in found]


def _specs(tensors: Any) -> list[TensorSpec]:
    """Return the specs in the metadata; an empty list unless the first length of every tensor is the batch's."""
    found = []
    for each in tensors if isinstance(tensors, list) else ():
        name, datatype, shape = (each.get(key) for key in ("name", "datatype", "shape"))
        if datatype not in DATATYPES or not shape or shape[0] != -1:
            return []
        found.append(TensorSpec(str(name), datatype, tuple(shape[1:])))
    return found


def _outputs(body: bytes, json_bytes: int) -> dict[str, Array]:
    rest = memoryview(body)[json_bytes:]
    found: dict[str, Array] = {}
    at = 0
    for output in orjson.loads(body[:json_bytes])["outputs"]:
        name, datatype, shape = output["name"], output["datatype"], output["shape"]
        size = size_of(shape, name)
        length = (output.get("parameters") or {}).get("binary_data_size")
        if length is None:
            found[name] = from_json(output["data"], datatype, shape, size, name)
        else:
            found[name] = from_bytes(rest[at : at + length], datatype, shape, size, name)
            at += length
    return found


def _predictions(answer: Any, url: str) -> list[Any]:
    predictions = answer.get("predictions") if isinstance(answer, dict) else None
    if not isinstance(predictions, list):
        raise ServerFailed(f"{url} answered without predictions")
    return predictions


def _instances(batch: list[Any]) -> bytes:
    return _dumps({"instances": batch})


def _dumps(value: Any) -> bytes:
    return orjson.dumps(value, default=_plain, option=orjson.OPT_SERIALIZE_NUMPY)


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"b64": base64.b64encode(value).decode()}  # TensorFlow Serving's form of bytes
    return value.tolist()


def _jsonable(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value
