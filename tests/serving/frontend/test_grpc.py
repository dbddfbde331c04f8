"""The gRPC listener, over real sockets.

The protocol's own definition, as tritonclient ships it, is the reference for messages.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import struct
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import trustme
from tritonclient.grpc import service_pb2, service_pb2_grpc

import mark
from mark.domain.errors import BadInput
from mark.models.call import Reply
from mark.serving.frontend.auth import INFER, METRICS, Auth, Grant
from mark.serving.frontend.grpc_messages import CLASSES, BadMessage, call_of, response_of
from mark.serving.frontend.limits import HttpLimits
from mark.serving.frontend.tls import TlsFiles
from tests.serving.conftest import Run, serving
from tests.serving.frontend import raw_grpc
from tests.serving.place import RT_MAX_S, Place, Twice


def infer_request(rows: Sequence[Sequence[float]] = ((1.0, 2.0),), **more: Any) -> Any:
    request = service_pb2.ModelInferRequest(model_name="twice", **more)
    request.inputs.add(name="x", datatype="FP32", shape=[len(rows), 2])
    request.raw_input_contents.append(np.array(rows, dtype="<f4").tobytes())
    return request


async def failure(call: Any) -> tuple[grpc.StatusCode, str, dict[str, str]]:
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await call
    said = error.value
    return said.code(), said.details() or "", {key: str(value) for key, value in said.trailing_metadata() or ()}


async def waiting(place: Place, call: asyncio.Future[Any]) -> None:
    """Wait until a batch waits for the held worker; a call that ended before raises its result."""
    while not place.pool.waiting:
        assert not call.done(), call.result()
        await asyncio.sleep(0)


# Messages


@pytest.mark.parametrize("name", [name for name in CLASSES if name.endswith(("Request", "Response"))])
def test_every_message_has_the_protocols_fields(name: str) -> None:
    """They are compared by number, name, type and label, including nested messages."""

    def fields(descriptor: Any) -> dict[int, Any]:
        return {
            field.number: (
                field.name,
                field.type,
                field.is_repeated,
                fields(field.message_type) if field.message_type else None,
            )
            for field in descriptor.fields
        }

    theirs = service_pb2.DESCRIPTOR.message_types_by_name[name]
    assert fields(CLASSES[name].DESCRIPTOR) == fields(theirs)


def test_the_service_has_the_protocols_name_and_methods() -> None:
    service = service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"]
    assert service.full_name == "inference.GRPCInferenceService"
    ours = {name.removesuffix("Request") for name in CLASSES if name.endswith("Request")}
    assert ours <= {method.name for method in service.methods}
    assert len(ours) == 7


CONTENTS: dict[str, tuple[str, list[Any]]] = {
    "BOOL": ("bool_contents", [True, False]),
    "INT8": ("int_contents", [-128, 127]),
    "INT16": ("int_contents", [-32768, 32767]),
    "INT32": ("int_contents", [-(2**31), 2**31 - 1]),
    "INT64": ("int64_contents", [-(2**63), 2**63 - 1]),
    "UINT8": ("uint_contents", [0, 255]),
    "UINT16": ("uint_contents", [0, 65535]),
    "UINT32": ("uint_contents", [0, 2**32 - 1]),
    "UINT64": ("uint64_contents", [0, 2**64 - 1]),
    "FP32": ("fp32_contents", [0.5, -1.5]),
    "FP64": ("fp64_contents", [0.1, -1e300]),
    "BYTES": ("bytes_contents", [b"", b"\xff\x00"]),
}


def typed(datatype: str, field: str, values: list[Any]) -> Any:
    theirs = service_pb2.ModelInferRequest(model_name="m")
    tensor = theirs.inputs.add(name="x", datatype=datatype, shape=[len(values)])
    getattr(tensor.contents, field).extend(values)
    return CLASSES["ModelInferRequest"].FromString(theirs.SerializeToString())


@pytest.mark.parametrize("datatype", CONTENTS)
def test_typed_contents_are_what_their_raw_bytes_would_be(datatype: str) -> None:
    field, values = CONTENTS[datatype]
    call = call_of(typed(datatype, field, values))
    assert call.json_bytes is not None
    if datatype == "BYTES":
        expected = b"".join(struct.pack("<I", len(value)) + value for value in values)
    else:
        numpys = {"BOOL": "?", "FP32": "<f4", "FP64": "<f8"}
        expected = np.array(values, numpys.get(datatype) or datatype.lower()).tobytes()
    assert bytes(call.body[call.json_bytes :]) == expected
    (given,) = json.loads(bytes(call.body[: call.json_bytes]))["inputs"]
    assert given == {
        "name": "x",
        "datatype": datatype,
        "shape": [2],
        "parameters": {"binary_data_size": len(expected)},
    }


@pytest.mark.parametrize(
    ("datatype", "field", "values", "said"),
    [
        ("INT8", "int_contents", [128], "a value does not fit INT8"),
        ("UINT16", "uint_contents", [65536], "a value does not fit UINT16"),
        ("FP32", "fp64_contents", [1.0], "the contents of FP32 are fp32_contents, not fp64_contents"),
        ("FP16", "fp32_contents", [1.0], "FP16 cannot be in contents"),
        ("", "fp32_contents", [1.0], "no datatype cannot be in contents"),
    ],
)
def test_contents_that_are_not_of_their_datatype_are_refused(
    datatype: str, field: str, values: list[Any], said: str
) -> None:
    with pytest.raises(BadMessage, match=said):
        call_of(typed(datatype, field, values))


def test_what_a_request_asks_for_reaches_the_model_s_side() -> None:
    theirs = infer_request(id="mine")
    theirs.parameters["sequence_id"].int64_param = 3
    theirs.outputs.add(name="y").parameters["classification"].int64_param = 2
    call = call_of(CLASSES["ModelInferRequest"].FromString(theirs.SerializeToString()))
    said = json.loads(bytes(call.body[: call.json_bytes]))
    assert said["id"] == "mine"
    assert said["outputs"] == [{"name": "y", "parameters": {"classification": 2, "binary_data": True}}]
    assert said["parameters"] == {"binary_data_output": True}


def test_shared_memory_and_both_ways_at_once_are_refused() -> None:
    theirs = infer_request()
    theirs.inputs[0].contents.fp32_contents.append(1.0)
    with pytest.raises(BadMessage, match="has both contents and raw_input_contents"):
        call_of(CLASSES["ModelInferRequest"].FromString(theirs.SerializeToString()))
    theirs = infer_request()
    theirs.raw_input_contents.append(b"")
    with pytest.raises(BadMessage, match="1 inputs, and 2 raw_input_contents"):
        call_of(CLASSES["ModelInferRequest"].FromString(theirs.SerializeToString()))
    theirs = service_pb2.ModelInferRequest(model_name="twice")
    theirs.inputs.add(name="x", datatype="FP32", shape=[1]).parameters["shared_memory_region"].string_param = "r"
    with pytest.raises(BadMessage, match="shared_memory_region is not supported"):
        call_of(CLASSES["ModelInferRequest"].FromString(theirs.SerializeToString()))


def test_an_answer_without_binary_tensors_is_none() -> None:
    with pytest.raises(ValueError, match="no binary tensors"):
        response_of(Reply(200, "application/json", b'{"model_name": "m", "outputs": []}'))


# The listener


def test_an_inference_names_its_answerer(run: Run) -> None:
    async def main() -> None:
        async with Place() as place:
            call = place.stub.ModelInfer(
                infer_request([[1.0, 2.0], [3.0, 4.0]], id="mine"), metadata=[("x-request-id", "r-1")]
            )
            got = await call
            assert (got.model_name, got.model_version, got.id) == ("twice", "1", "mine")
            (output,) = got.outputs
            assert (output.name, output.datatype, list(output.shape)) == ("y", "FP32", [2, 2])
            assert np.frombuffer(got.raw_output_contents[0], "<f4").tolist() == [2.0, 4.0, 6.0, 8.0]
            assert dict(await call.trailing_metadata()) == {"x-request-id": "r-1", "mark-answered-by": "instance"}
            ((request, answer),) = place.told
            assert (request.id, request.items, answer.reply.status, answer.made_by) == ("r-1", 2, 200, "instance")

    run(main())


def test_calls_that_come_together_share_a_batch(run: Run) -> None:
    async def main() -> None:
        async with Place() as place:
            place.pool.held = True
            calls = [asyncio.ensure_future(place.stub.ModelInfer(infer_request([[n, 0.0]]))) for n in range(5)]
            while place.replica.bouncer.queued + len(place.pool.calls) < 5:
                await asyncio.sleep(0)
            place.pool.held = False
            place.pool.release()
            got = [np.frombuffer((await call).raw_output_contents[0], "<f4")[0] for call in calls]
            assert got == [0.0, 2.0, 4.0, 6.0, 8.0]
            assert place.metrics.batch_items.counts[0] <= 1  # the rest waited, and went in one batch

    run(main())


def test_health_and_metadata(run: Run) -> None:
    async def main() -> None:
        async with Place() as place:
            stub = place.stub
            assert (await stub.ServerLive(service_pb2.ServerLiveRequest())).live
            assert (await stub.ServerReady(service_pb2.ServerReadyRequest())).ready
            assert (await stub.ModelReady(service_pb2.ModelReadyRequest(name="twice", version="1"))).ready
            said = await stub.ServerMetadata(service_pb2.ServerMetadataRequest())
            assert (said.name, said.version) == ("mark", mark.__version__)
            of = await stub.ModelMetadata(service_pb2.ModelMetadataRequest(name="twice"))
            assert (of.name, list(of.versions), of.platform) == ("twice", ["1"], "python")
            assert [(each.name, each.datatype, list(each.shape)) for each in of.inputs] == [("x", "FP32", [-1, 2])]
            place.server.draining = True
            assert not (await stub.ServerReady(service_pb2.ServerReadyRequest())).ready
            assert not (await stub.ModelReady(service_pb2.ModelReadyRequest(name="twice"))).ready

    run(main())


def test_the_repository_index_can_be_asked_for_what_is_ready(run: Run) -> None:
    async def main() -> None:
        async with Place() as place:
            ask, ready = place.stub.RepositoryIndex, service_pb2.RepositoryIndexRequest(ready=True)
            (model,) = (await ask(ready)).models
            assert (model.name, model.version, model.state, model.reason) == ("twice", "1", "READY", "")
            place.server.draining = True
            assert not (await ask(ready)).models
            (model,) = (await ask(service_pb2.RepositoryIndexRequest())).models
            assert (model.state, model.reason) == ("UNAVAILABLE", "draining")

    run(main())


def test_what_is_not_here_is_not_found(run: Run) -> None:
    async def main() -> None:
        async with Place() as place:
            request = infer_request()
            request.model_name = "other"
            code, said, _ = await failure(place.stub.ModelInfer(request))
            assert (code, said) == (grpc.StatusCode.NOT_FOUND, "no model 'other'; the model here is twice")
            request = infer_request(model_version="9")
            code, said, _ = await failure(place.stub.ModelInfer(request))
            assert (code, said) == (grpc.StatusCode.NOT_FOUND, "no version '9' of twice, but 1")
            ready = service_pb2.ModelReadyRequest(name="twice", version="9")
            assert (await failure(place.stub.ModelReady(ready)))[0] == grpc.StatusCode.NOT_FOUND
            load = place.stub.RepositoryModelLoad(service_pb2.RepositoryModelLoadRequest(model_name="twice"))
            assert (await failure(load))[0] == grpc.StatusCode.UNIMPLEMENTED

    run(main())


def test_a_request_refused_by_the_model_is_an_invalid_argument(run: Run) -> None:
    async def main() -> None:
        async with Place() as place:
            request = infer_request()
            request.inputs[0].name = "z"
            code, said, trailing = await failure(place.stub.ModelInfer(request))
            assert (code, said) == (grpc.StatusCode.INVALID_ARGUMENT, "the model has no input 'z'; it has x")
            assert trailing["mark-answered-by"] == "instance"
            request = infer_request()
            request.raw_input_contents.append(b"")
            assert (await failure(place.stub.ModelInfer(request)))[0] == grpc.StatusCode.INVALID_ARGUMENT

    run(main())


def test_a_model_that_fails_is_an_internal_error(run: Run) -> None:
    class Fails(Twice):
        def predict(self, batch: list[Any]) -> Any:
            raise RuntimeError("no")

    async def main() -> None:
        async with Place(Fails()) as place:
            code, said, _ = await failure(place.stub.ModelInfer(infer_request()))
            assert (code, said) == (grpc.StatusCode.INTERNAL, "the model failed: RuntimeError")

    run(main())


@pytest.mark.parametrize(
    ("reply", "code", "said"),
    [
        (Reply(418, "text/html", b"<html>"), grpc.StatusCode.INTERNAL, "status 418"),
        (Reply(400, "application/json", memoryview(b'{"error": "no"}')), grpc.StatusCode.INVALID_ARGUMENT, "no"),
        (Reply(404, "application/json", b"[]"), grpc.StatusCode.NOT_FOUND, "status 404"),
        (Reply(200, "application/json", b"{}"), grpc.StatusCode.INTERNAL, "the answer cannot be said by gRPC"),
        (Reply(200, "any", b"{}", 2), grpc.StatusCode.INTERNAL, "the answer cannot be said by gRPC"),
        (Reply(200, "any", b"[", 1), grpc.StatusCode.INTERNAL, "the answer cannot be said by gRPC"),
    ],
)
def test_whatever_another_server_answers_the_call_ends(
    run: Run, reply: Reply, code: grpc.StatusCode, said: str
) -> None:
    """Functions are other people's servers, and an odd answer must not fail other requests of its batch."""

    async def main() -> None:
        async with Place() as place:
            place.pool.held = True
            call = asyncio.ensure_future(failure(place.stub.ModelInfer(infer_request())))
            await waiting(place, call)
            place.pool.waiting.clear()
            place.replica.worker_done(0, [reply], 0.001)
            assert (await call)[:2] == (code, said)

    run(main())


@pytest.mark.parametrize(
    ("metadata_", "code"),
    [
        ([("mark-deadline-ms", "0.0001")], grpc.StatusCode.DEADLINE_EXCEEDED),
        ([("mark-deadline-ms", "soon")], grpc.StatusCode.INVALID_ARGUMENT),
        ([("mark-deadline-ms", "nan")], grpc.StatusCode.INVALID_ARGUMENT),
    ],
)
def test_the_deadline_in_metadata_counts(run: Run, metadata_: Any, code: grpc.StatusCode) -> None:
    async def main() -> None:
        async with Place() as place:
            call = place.stub.ModelInfer(infer_request(), metadata=metadata_, timeout=60.0)
            assert (await failure(call))[0] == code

    run(main())


def test_the_sooner_of_grpcs_deadline_and_the_header_counts(run: Run) -> None:
    async def main() -> None:
        async with Place() as place:
            await place.stub.ModelInfer(infer_request(), timeout=0.5)
            await place.stub.ModelInfer(infer_request(), timeout=0.5, metadata=[("mark-deadline-ms", "100")])
            await place.stub.ModelInfer(infer_request())
            left_s = [request.deadline_s - request.arrived_s for request, _ in place.told]
            assert 0.3 < left_s[0] <= 0.51, "gRPC rounds up what is left"
            assert left_s[1:] == pytest.approx([0.1, RT_MAX_S])

    run(main())


def test_a_cancelled_client_leaves_the_server_working(run: Run) -> None:
    async def main() -> None:
        async with Place() as place:
            place.pool.held = True
            call = asyncio.ensure_future(place.stub.ModelInfer(infer_request()))
            await waiting(place, call)
            call.cancel()
            await asyncio.wait([call])
            await place.stub.ServerLive(service_pb2.ServerLiveRequest())  # behind the cancellation, so that has come
            place.pool.held = False
            place.pool.release()
            assert [answer.made_by for _, answer in place.told] == ["instance"]
            assert (await place.stub.ModelInfer(infer_request())).model_name == "twice"

    run(main())


def test_a_call_cancelled_while_it_waits_is_not_computed(run: Run) -> None:
    async def main() -> None:
        async with Place() as place:
            place.pool.held = True
            first = asyncio.ensure_future(place.stub.ModelInfer(infer_request()))
            await waiting(place, first)
            calls = [first]
            for queued in (1, 2):
                calls.append(asyncio.ensure_future(place.stub.ModelInfer(infer_request())))
                while place.replica.bouncer.queued < queued:
                    await asyncio.sleep(0)
            left = calls.pop()
            left.cancel()
            await asyncio.wait([left])
            await place.stub.ServerLive(service_pb2.ServerLiveRequest())  # behind the cancellation, so that has come
            place.pool.held = False
            place.pool.release()
            await asyncio.gather(*calls)
            assert len(place.pool.calls) == 2
            assert place.metrics.refused == {"gone": 1}
            assert (await place.stub.ModelInfer(infer_request())).model_name == "twice"

    run(main())


def test_a_request_of_a_client_that_left_is_not_computed(run: Run) -> None:
    """The request comes by HTTP, to the same backend."""
    body = b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [7, 7]}]}'
    head = b"POST /v2/models/twice/infer HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body)

    async def main() -> None:
        async with Place() as place:
            place.pool.held = True
            first = asyncio.ensure_future(place.stub.ModelInfer(infer_request()))
            await waiting(place, first)
            writers = []
            for queued in (1, 2, 3):
                _, writer = await asyncio.open_connection("127.0.0.1", place.client.base_url.port)
                writer.write(head + body)
                writers.append(writer)
                while place.replica.bouncer.queued < queued:
                    await asyncio.sleep(0)
            for writer in writers[:2]:
                writer.close()
            while len(place.http.connections) > 1:
                await asyncio.sleep(0)
            place.pool.held = False
            place.pool.release()
            await first
            while len(place.told) < 4:
                await asyncio.sleep(0)
            assert len(place.pool.calls) == 2
            assert place.metrics.refused == {"gone": 2}
            writers[2].close()

    run(main())


def test_refusals_say_when_to_come_back(run: Run) -> None:
    async def main() -> None:
        async with Place() as place:
            place.pool.held = True
            first = asyncio.ensure_future(place.stub.ModelInfer(infer_request()))
            await waiting(place, first)
            place.replica.bouncer.drain(0.0, 0.0)
            code, said, trailing = await failure(place.stub.ModelInfer(infer_request()))
            assert (code, said) == (grpc.StatusCode.UNAVAILABLE, "draining: nothing new is taken")
            assert int(trailing["retry-after"]) >= 1
            assert "mark-answered-by" not in trailing
            place.pool.release()
            await first

    run(main())


def test_too_many_items_exhaust_the_resource(run: Run) -> None:
    async def main() -> None:
        async with Place() as place:
            code, _, _ = await failure(place.stub.ModelInfer(infer_request([[0.0, 0.0]] * 100)))
            assert code == grpc.StatusCode.RESOURCE_EXHAUSTED

    run(main())


def test_messages_are_limited_also_when_they_are_compressed(run: Run) -> None:
    async def main() -> None:
        async with Place(body_bytes=100_000) as place:
            for compression in (grpc.Compression.NoCompression, grpc.Compression.Gzip):
                small = place.stub.ModelInfer(infer_request(), compression=compression)
                assert (await small).model_name == "twice"
                large = infer_request([[0.0, 0.0]] * 100_000)
                assert len(gzip.compress(large.SerializeToString())) < 10_000
                code, _, _ = await failure(place.stub.ModelInfer(large, compression=compression))
                assert code == grpc.StatusCode.RESOURCE_EXHAUSTED

    run(main())


def test_bytes_that_are_no_message_are_refused(run: Run) -> None:
    async def main() -> None:
        async with Place() as place:
            call = place.channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
            code, said, _ = await failure(call(b"\xff\xff\xff"))
            assert (code, said) == (grpc.StatusCode.INVALID_ARGUMENT, "the message is no ModelInferRequest")
            assert (await place.stub.ModelInfer(infer_request())).model_name == "twice"

    run(main())


def test_inference_needs_a_key_and_health_does_not(run: Run) -> None:
    keys = {"k" * 16: Grant("one", frozenset((INFER,))), "m" * 16: Grant("two", frozenset((METRICS,)))}

    async def main() -> None:
        async with Place(auth=Auth(keys)) as place:
            bearer = [("authorization", "Bearer " + "k" * 16)]
            other = [("x-api-key", "m" * 16)]
            assert (await place.stub.ModelInfer(infer_request(), metadata=bearer)).model_name == "twice"
            assert (await failure(place.stub.ModelInfer(infer_request())))[0] == grpc.StatusCode.UNAUTHENTICATED
            call = place.stub.ModelInfer(infer_request(), metadata=other)
            assert (await failure(call))[:2] == (
                grpc.StatusCode.PERMISSION_DENIED,
                "this key is for something else",
            )
            for closed in (
                place.stub.ServerMetadata(service_pb2.ServerMetadataRequest()),
                place.stub.ModelMetadata(service_pb2.ModelMetadataRequest(name="twice")),
                place.stub.ModelReady(service_pb2.ModelReadyRequest(name="twice")),
            ):
                assert (await failure(closed))[0] == grpc.StatusCode.UNAUTHENTICATED
            assert (await place.stub.ServerReady(service_pb2.ServerReadyRequest())).ready
            assert (await place.stub.ServerLive(service_pb2.ServerLiveRequest())).live

    run(main())


def test_an_unauthenticated_call_is_refused_before_its_message_is_read(run: Run) -> None:
    async def main() -> None:
        async with Place(auth=Auth({"k" * 16: Grant("one", frozenset((INFER,)))})) as place:
            with raw_grpc.connect(place.port) as client:
                client.sendall(raw_grpc.begun(1))
                assert b"a key or a token is needed" in await asyncio.to_thread(raw_grpc.ended, client)

    run(main())


def test_slow_messages_are_cut_off_and_few_may_be_slow(run: Run) -> None:
    """There is room for one of two slow messages, the later, until its time-out; fast messages are not delayed."""

    async def main() -> None:
        async with Place(body_bytes=1 << 20, gathered_bytes=1 << 20, body_timeout_s=1.0) as place:
            with raw_grpc.connect(place.port) as first, raw_grpc.connect(place.port) as second:
                for client in (first, second):
                    client.sendall(raw_grpc.begun(1) + raw_grpc.message(1, b"x", said_bytes=1000))
                began_s = time.monotonic()
                waiting = [asyncio.to_thread(raw_grpc.ended, client) for client in (first, second)]
                ends = []
                for said in asyncio.as_completed(waiting):
                    assert b"the message took too long" in await said
                    ends.append(time.monotonic() - began_s)
                    assert (await place.stub.ModelInfer(infer_request())).model_name == "twice"
                assert ends[1] - ends[0] > 0.3  # 2 s, and 3 s
            assert not place.listener._slow
            assert not place.listener._cut_off

    run(main())


def test_a_flood_of_reset_calls_does_not_disturb_others(run: Run) -> None:
    """As in CVE-2023-44487, each reset costs its sender almost nothing."""
    content = infer_request().SerializeToString()
    flood = b"".join(
        raw_grpc.begun(stream)
        + raw_grpc.message(stream, content)
        + raw_grpc.frame(raw_grpc.RESET, 0, stream, b"\0\0\0\x08")
        for stream in range(1, 100_000, 2)
    )

    async def main() -> None:
        async with Place() as place:
            with raw_grpc.connect(place.port) as client, suppress(ConnectionError):
                flooding = asyncio.create_task(asyncio.to_thread(client.sendall, flood))
                for _ in range(20):
                    assert (await place.stub.ModelInfer(infer_request())).model_name == "twice"
                await flooding

    run(main())


def test_an_idle_client_may_ping_and_not_flood(run: Run) -> None:
    """Clients ping every ten seconds by default or configuration, without a call; the rate is limited."""

    async def main() -> None:
        async with Place(ping_s=0.2) as place:
            with raw_grpc.connect(place.port) as client:
                for _ in range(8):
                    client.sendall(raw_grpc.frame(raw_grpc.PING, 0, 0, b"12345678"))
                    assert await asyncio.to_thread(raw_grpc.frames, client, 1) == [raw_grpc.PING]
                    await asyncio.to_thread(time.sleep, 0.3)
                client.sendall(raw_grpc.frame(raw_grpc.PING, 0, 0, b"12345678") * 10)
                assert raw_grpc.GOAWAY in await asyncio.to_thread(raw_grpc.frames, client, 11)

    run(main())


@pytest.mark.slow
def test_a_client_that_pings_every_ten_seconds_keeps_its_connection(run: Run) -> None:
    """The test is ten times as fast: gRPC ends a connection at the third ping that comes too early."""
    options = [("grpc.keepalive_time_ms", 1_000), ("grpc.keepalive_permit_without_calls", 1)]
    options += [("grpc.http2.max_pings_without_data", 0)]

    async def main() -> None:
        async with (
            Place(ping_s=HttpLimits().ping_s / 10.0) as place,
            grpc.aio.insecure_channel(f"127.0.0.1:{place.port}", options) as channel,
        ):
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            assert (await stub.ModelInfer(infer_request())).model_name == "twice"
            states = []
            until_s = time.monotonic() + 5.5
            while (left_s := until_s - time.monotonic()) > 0.0:
                state = channel.get_state()
                states.append(state)
                with suppress(TimeoutError):
                    await asyncio.wait_for(channel.wait_for_state_change(state), left_s)
            assert states == [grpc.ChannelConnectivity.READY]

    run(main())


def test_tls_by_the_same_files_and_clients_by_their_certificate(run: Run, tmp_path: Path) -> None:
    ca = trustme.CA()
    leaf, mine = ca.issue_cert("localhost"), ca.issue_cert("client")
    files = TlsFiles(tmp_path / "cert.pem", tmp_path / "key.pem", tmp_path / "ca.pem")
    leaf.private_key_pem.write_to_path(files.key)
    files.certificate.write_bytes(b"".join(part.bytes() for part in leaf.cert_chain_pems))
    ca.cert_pem.write_to_path(tmp_path / "ca.pem")
    certificate = b"".join(part.bytes() for part in mine.cert_chain_pems)

    async def live(port: int, *pair: bytes) -> bool:
        credentials = grpc.ssl_channel_credentials(ca.cert_pem.bytes(), *pair)
        async with grpc.aio.secure_channel(f"localhost:{port}", credentials) as channel:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
            return bool((await stub.ServerLive(service_pb2.ServerLiveRequest())).live)

    async def main() -> None:
        place = Place()
        port = await place.listener.start("127.0.0.1", 0, files)
        assert await live(port, mine.private_key_pem.bytes(), certificate)
        assert (await failure(live(port)))[0] == grpc.StatusCode.UNAVAILABLE
        await place.listener.close(0.0)

    run(main())


def test_files_and_ports_that_cannot_be_used_are_bad_input(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with Place() as place:
            second = Place()
            with pytest.raises(BadInput, match="cannot listen"):
                await second.listener.start("127.0.0.1", place.port, None)
            with pytest.raises(BadInput, match="no such file"):
                await second.listener.start("127.0.0.1", 0, TlsFiles(tmp_path / "a", tmp_path / "b"))

    run(main())


def test_a_drain_answers_calls_under_way_and_refuses_new_ones(run: Run) -> None:
    async def main() -> None:
        async with Place() as place:
            place.pool.held = True
            first = asyncio.ensure_future(place.stub.ModelInfer(infer_request()))
            await waiting(place, first)
            draining = asyncio.ensure_future(place.replica.drain(time.monotonic() + 10.0))
            await asyncio.sleep(0)
            code, _, _ = await failure(place.stub.ModelInfer(infer_request()))
            assert code == grpc.StatusCode.UNAVAILABLE
            closing = asyncio.ensure_future(place.listener.close(10.0))
            await asyncio.sleep(0)
            place.pool.release()
            assert (await first).model_name == "twice"
            await draining
            await closing

    run(main())


def test_sigterm_under_load_loses_no_call(tmp_path: Path) -> None:
    """It is a real process: each call has the model's answer, or was not accepted and is told so."""

    async def load(address: str, then: Callable[[], None]) -> dict[int, grpc.StatusCode]:
        codes: dict[int, grpc.StatusCode] = {}
        numbers = iter(range(250))  # whose log fits into a pipe without a reader
        async with grpc.aio.insecure_channel(address) as channel:
            stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)

            async def one_after_the_other() -> None:
                for number in numbers:
                    request = infer_request([[number, 0.0]], id=str(number))
                    request.model_name = "plain"
                    try:
                        got = await stub.ModelInfer(request, timeout=60.0, metadata=[("x-request-id", f"n{number}")])
                    except grpc.aio.AioRpcError as error:
                        codes[number] = error.code()
                        continue
                    assert got.id == str(number)
                    assert np.frombuffer(got.raw_output_contents[0], "<f4").tolist() == [2.0 * number, 0.0]
                    codes[number] = grpc.StatusCode.OK
                    if len(codes) == 100:
                        then()

            await asyncio.gather(*(one_after_the_other() for _ in range(16)))
        return codes

    with serving(tmp_path, "--log-requests") as (process, addresses, said):
        codes = asyncio.run(load(addresses.grpc, process.terminate))
        assert process.wait(20) == 0
    logged = [json.loads(line) for line in "".join(said).splitlines() if '"request_id": "n' in line]
    answered = {int(line["request_id"][1:]) for line in logged if line["status"] == 200}
    assert len(answered) >= 100
    assert {number for number, code in codes.items() if code == grpc.StatusCode.OK} == answered
    others = Counter(code for number, code in codes.items() if number not in answered)
    # Requests that arrive during the close are cancelled; their number depends on how long a busy machine takes for it.
    assert set(others) <= {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED}, others
    assert len(codes) == 250
