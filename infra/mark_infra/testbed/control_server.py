"""The testbed's control server: `mark testbed status|interrupt|down` call the daemon through it, with its token."""

from __future__ import annotations

import hmac
import json
import threading
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Protocol

from mark.domain.errors import BadInput, MarkError

_MOST_BYTES = 1 << 16


class Testbed(Protocol):
    """The controlled testbed."""

    ends: threading.Event

    def status(self) -> dict[str, Any]: ...
    def interrupt(self, share: float, seed: int) -> list[str]: ...
    def set_capacity(self, offer: str, count: int) -> None: ...


class ControlServer:
    """An HTTP server on a free port of loopback. A context: it starts on entry."""

    def __init__(self, testbed: Testbed, token: str) -> None:
        self.token = token

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer({"/status": lambda _: testbed.status()})

            def do_POST(self) -> None:
                self._answer(
                    {
                        "/interrupt": lambda asked: testbed.interrupt(float(asked["share"]), int(asked["seed"])),
                        "/capacity": lambda asked: testbed.set_capacity(str(asked["offer"]), int(asked["count"])),
                        "/down": lambda _: testbed.ends.set(),
                    }
                )

            def _answer(self, routes: dict[str, Any]) -> None:
                said = self.headers.get("authorization", "")
                length = self.headers.get("content-length") or "0"
                if not hmac.compare_digest(said.encode(), f"Bearer {token}".encode()):
                    self._say(401, {"error": "needs the testbed's token"})
                elif self.path not in routes:
                    self._say(404, {"error": f"no such path: {self.path}"})
                elif not length.isdecimal() or len(length) > 9:
                    self._say(400, {"error": "content-length is no number of bytes"})
                elif int(length) > _MOST_BYTES:
                    self._say(413, {"error": "too large"})
                else:
                    try:
                        self._say(200, routes[self.path](json.loads(self.rfile.read(int(length)) or b"{}")))
                    except BadInput as error:
                        self._say(400, {"error": str(error)})
                    except (KeyError, TypeError, ValueError) as error:
                        self._say(400, {"error": f"{type(error).__name__}: {error}"})
                    except Exception as error:
                        self._say(500, {"error": f"{type(error).__name__}: {error}"})

            def _say(self, status: int, body: object) -> None:
                text = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, name="control", daemon=True)

    def __enter__(self) -> ControlServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class Remote:
    """A running testbed, from the file that its daemon wrote. Raises BadInput if there is none."""

    def __init__(self, file: Path) -> None:
        try:
            said = json.loads(file.read_text())
            self.pid = int(said["pid"])
            self.endpoint: str = said["endpoint"]
            self._url, self._token, self._folder = said["url"], said["token"], file.parent
        except FileNotFoundError:
            raise BadInput("no testbed runs here: mark testbed up SERVICE...", "state", str(file.parent)) from None
        except OSError as error:
            raise BadInput(f"cannot be read ({error})", str(file)) from None
        except (ValueError, KeyError, TypeError):
            raise BadInput("was not written by a testbed", str(file)) from None
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def ask(self, path: str, body: object = None, timeout_s: float = 30.0) -> Any:
        """Send a request. Raises MarkError with the daemon's message, BadInput if the daemon is gone."""
        request = urllib.request.Request(
            self._url + path,
            None if body is None else json.dumps(body).encode(),
            {"authorization": f"Bearer {self._token}", "content-type": "application/json"},
        )
        try:
            with self._opener.open(request, timeout=timeout_s) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                why = json.loads(error.read() or b"{}").get("error", f"status {error.code}")
            if error.code == 400:
                raise BadInput(why, "testbed") from None
            raise MarkError(f"the testbed: {why}") from None
        except OSError as error:
            raise BadInput(f"the testbed does not answer ({error})", "state", str(self._folder)) from None
