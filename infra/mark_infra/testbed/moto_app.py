"""moto as AWS on loopback, in this process: its WSGI app, with clean errors, behind waitress.

moto's gaps raise exceptions or return pages of HTML, which an SDK takes for network faults and retries. Here they
become errors of the requested service, in its own protocol.
"""

from __future__ import annotations

import io
import json
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack
from http.client import responses
from typing import Any, Protocol
from urllib.parse import parse_qs
from xml.sax.saxutils import escape

from moto.moto_api._internal.models import moto_api_backend
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from waitress import wasyncore  # type: ignore[import-untyped]
from waitress.server import create_server  # type: ignore[import-untyped]

from mark_infra.testbed.account import AccountRefusal
from mark_infra.testbed.aws_request import AwsRequest, read_request

log = logging.getLogger(__name__)

ACCOUNT = "123456789012"  # moto's, always
_THREADS = 32  # many, because each long poll of SQS holds one
_LONGEST_END_S = 5.0

StartResponse = Callable[..., Any]
Environ = dict[str, Any]
# Answers a request in place of moto; None leaves it to moto.
Answer = Callable[[Mapping[str, Any]], dict[str, Any]]

# Go's transport may lose an answer that arrives before its SDK has finished the request (aws-sdk-go-v2 #2737). The SDK
# then repeats the call, which gets a 409 because the first call has created the resource. So answers to Go wait.
_OF_GO, _NOT_BEFORE_S = "aws-sdk-go", 0.02


class RequestGate(Protocol):
    """Decides about requests before moto sees them."""

    def refusal(self, request: AwsRequest) -> AccountRefusal | None:
        """Return why the request is refused, or None."""

    def delay_s(self, request: AwsRequest) -> float:
        """Return the control seconds for which the finished answer is held back."""


class OneAtATime:
    """A WSGI app around moto that serialises requests which moto cannot handle concurrently.

    Of several writers of a key with `If-None-Match: *` only one may succeed, as on S3, but moto looks for the key and
    then writes it. And moto copies the contents of all objects to list a bucket's versions: thirty concurrent lists of
    400 MB took 12 GB.
    """

    def __init__(self, app: Callable[[Environ, StartResponse], Iterable[bytes]]) -> None:
        self._app, self._puts, self._lists = app, threading.Lock(), threading.Lock()

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        with ExitStack() as held:
            if "HTTP_IF_NONE_MATCH" in environ:
                held.enter_context(self._puts)
            if "versions" in parse_qs(environ.get("QUERY_STRING", ""), keep_blank_values=True):
                held.enter_context(self._lists)
            return self._app(environ, start_response)


class MotoApp:
    """The WSGI app. `guard(service)` surrounds each request; `targets` answers JSON requests by X-Amz-Target.

    `gate` may refuse requests, and delay an answer by control seconds, of which `time_scale` make one of ours.
    """

    def __init__(
        self,
        guard: Callable[[str], AbstractContextManager[Any]],
        targets: Mapping[str, Answer],
        gate: RequestGate | None = None,
        time_scale: float = 1.0,
    ) -> None:
        self._guard, self._targets, self._gate, self._time_scale = guard, dict(targets), gate, time_scale
        self._ends = threading.Event()
        self._moto = OneAtATime(DomainDispatcherApplication(create_backend_app))

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        service = _service(environ)
        target = environ.get("HTTP_X_AMZ_TARGET", "")
        said: list[Any] = []
        request = None if self._gate is None else _request(environ, service)

        def start(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> None:
            said[:] = [status, headers]

        try:
            if self._gate is not None and request is not None:
                with self._guard(service):
                    refused = self._gate.refusal(request)
                if refused is not None:
                    return _fail(environ, service, start_response, refused.status, refused.code, refused.message)
            if target in self._targets:
                body = json.dumps(self._targets[target](json.loads(_body(environ) or b"{}"))).encode()
                start("200 OK", [("Content-Type", "application/x-amz-json-1.1"), ("Content-Length", str(len(body)))])
            else:
                with self._guard(service):
                    body = b"".join(self._moto(environ, start))
        except NotImplementedError as error:
            return _fail(environ, service, start_response, 501, "NotImplemented", str(error))
        except Exception as error:
            # An error in moto about an unexpected request. A retry would not help, so it is not a 5xx.
            log.warning("moto on %s %s: %s: %s", service, target, type(error).__name__, error)
            return _fail(environ, service, start_response, 400, "InternalFailure", f"{type(error).__name__}: {error}")
        if self._gate is not None and request is not None and (delay_s := self._gate.delay_s(request)):
            self._ends.wait(delay_s / self._time_scale)
        if _OF_GO in environ.get("HTTP_USER_AGENT", ""):
            self._ends.wait(_NOT_BEFORE_S)
        status, headers = said
        # Flask marks moto's errors as HTML too, if moto sets no type, so look at the body.
        if int(status[:3]) >= 400 and body.lstrip()[:14].lower() == b"<!doctype html":
            return _fail(environ, service, start_response, 501, "NotImplemented", "moto does not know this request")
        start_response(status, headers)
        return [body]

    def end(self) -> None:
        """Answer delayed requests immediately."""
        self._ends.set()


class WsgiServer:
    """Serves a WSGI app on 127.0.0.1 until `stop`; `port` 0 chooses a free one."""

    def __init__(self, app: MotoApp, port: int = 0) -> None:
        logging.getLogger("waitress.queue").setLevel(logging.ERROR)  # a long poll is not an overload
        self._sockets: dict[int, Any] = {}
        self._server = create_server(
            app, map=self._sockets, host="127.0.0.1", port=port, threads=_THREADS, ident=None, asyncore_use_poll=True
        )
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="aws", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """The endpoint of AWS."""
        return f"http://127.0.0.1:{self._server.effective_port}"

    def stop(self) -> None:
        """Stop accepting requests; open ones have a few seconds. Clients lose their kept connections."""
        # First the threads, because they wake the server when they have answered.
        self._server.task_dispatcher.shutdown(timeout=_LONGEST_END_S)
        self._stopped.set()
        self._server.trigger.pull_trigger()
        self._thread.join(_LONGEST_END_S)
        # Only after the loop has ended, because it must not close the pipe that wakes it.
        if not self._thread.is_alive():
            wasyncore.close_all(self._sockets, ignore_all=True)

    def _run(self) -> None:
        while not self._stopped.is_set():
            wasyncore.loop(timeout=1.0, use_poll=True, map=self._sockets, count=1)


class Patches:
    """Attributes replaced in moto, which is shared by the process, and restored at the end."""

    def __init__(self) -> None:
        self._back = ExitStack()

    def put(self, owner: Any, name: str, value: Any) -> Any:
        """Replace an attribute (or the item of a dict); return its former value."""
        if isinstance(owner, dict):
            missing = name not in owner
            before = owner.get(name)
            owner[name] = value
            self._back.callback(owner.pop if missing else owner.__setitem__, name, *(() if missing else (before,)))
        else:
            missing = not hasattr(owner, name)
            before = getattr(owner, name, None)
            setattr(owner, name, value)
            self._back.callback(*((delattr, owner, name) if missing else (setattr, owner, name, before)))
        return before

    def undo(self) -> None:
        """Restore everything."""
        self._back.close()


def reset() -> None:
    """Clear moto's state, which belongs to the process."""
    moto_api_backend.reset()


def _service(environ: Environ) -> str:
    """Return the service in the signature's scope: Credential=KEY/DATE/REGION/SERVICE/aws4_request."""
    scope = environ.get("HTTP_AUTHORIZATION", "").partition("Credential=")[2].split(",")[0].split("/")
    return scope[3] if len(scope) > 3 else ""


def _request(environ: Environ, service: str) -> AwsRequest:
    """Read the request; its body can be read once more."""
    body = b""
    if service != "s3":  # objects for a bucket may be large and do not matter here
        body = _body(environ)
        environ["wsgi.input"] = io.BytesIO(body)
    key_id = environ.get("HTTP_AUTHORIZATION", "").partition("Credential=")[2].partition("/")[0]
    headers = {
        "x-amz-target": environ.get("HTTP_X_AMZ_TARGET", ""),
        "content-type": environ.get("CONTENT_TYPE", ""),
        "content-encoding": environ.get("HTTP_CONTENT_ENCODING", ""),
    }
    url = f"{environ.get('PATH_INFO', '')}?{environ.get('QUERY_STRING', '')}"
    return read_request(service, key_id, environ.get("REQUEST_METHOD", ""), url, headers, body)


def _body(environ: Environ) -> bytes:
    found: bytes = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    return found


def _fail(
    environ: Environ, service: str, start_response: StartResponse, status: int, code: str, message: str
) -> list[bytes]:
    """Answer with an error in the protocol of the request."""
    message = " ".join(message.split())[:500]
    content = environ.get("CONTENT_TYPE", "")
    headers = [("x-amzn-ErrorType", code)]
    if content.startswith("application/x-www-form-urlencoded"):
        inner = f"<Code>{code}</Code><Message>{escape(message)}</Message>"
        if service == "ec2":
            text = f"<Response><Errors><Error>{inner}</Error></Errors><RequestID>0</RequestID></Response>"
        else:
            text = f"<ErrorResponse><Error><Type>Sender</Type>{inner}</Error><RequestId>0</RequestId></ErrorResponse>"
        headers.append(("Content-Type", "text/xml"))
    elif service == "s3":
        text = f"<Error><Code>{code}</Code><Message>{escape(message)}</Message></Error>"
        headers.append(("Content-Type", "application/xml"))
    else:
        text = json.dumps({"__type": code, "message": message})
        headers.append(("Content-Type", "application/x-amz-json-1.1"))
    body = text.encode()
    start_response(f"{status} {responses[status]}", [*headers, ("Content-Length", str(len(body)))])
    return [body]
