"""A real browser, headless, driven by its DevTools protocol."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import shutil
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Navigated(Exception):
    """The page navigated away during a call."""


class Browser:
    """One tab. `complaints` are the errors and warnings of its console: exceptions, refused scripts, failed loads."""

    def __init__(self, profile: Path) -> None:
        assert CHROMIUM is not None
        self._loop = asyncio.new_event_loop()
        self._id = 0
        self.complaints: list[str] = []
        command = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0"]
        command += [
            "--no-proxy-server",
            "--hide-scrollbars",
            "--disable-dev-shm-usage",
            f"--user-data-dir={profile}",
            "about:blank",
        ]
        surroundings = {"PATH": "/usr/bin:/bin", "TZ": "UTC", "HOME": str(profile)}
        self._process = subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=surroundings,
        )
        try:
            self._run(self._connect())
        except BaseException:
            self._end()
            raise

    def close(self) -> None:
        self._run(self._session.close())
        self._end()

    def _end(self) -> None:
        self._process.terminate()
        self._process.wait(20.0)
        assert self._process.stderr is not None
        self._process.stderr.close()
        self._loop.close()

    def _run(self, coroutine: Any) -> Any:
        return self._loop.run_until_complete(asyncio.wait_for(coroutine, 30.0))

    async def _connect(self) -> None:
        assert self._process.stderr is not None
        address = None
        while address is None:
            line = await self._loop.run_in_executor(None, self._process.stderr.readline)
            assert line, "the browser ended"
            address = re.search(r"ws://(\S+?)/", line)
        self._session = aiohttp.ClientSession()
        async with self._session.get(f"http://{address[1]}/json/list") as answer:
            pages = [each for each in await answer.json() if each["type"] == "page"]
        self._socket = await self._session.ws_connect(pages[0]["webSocketDebuggerUrl"], max_msg_size=0)
        for domain in ("Page", "Runtime", "Log"):
            await self._send(f"{domain}.enable")

    def send(self, method: str, **params: Any) -> Any:
        return self._run(self._send(method, **params))

    async def _send(self, method: str, **params: Any) -> Any:
        self._id += 1
        mine = self._id
        await self._socket.send_json({"id": mine, "method": method, "params": params})
        while True:
            said = json.loads((await self._socket.receive()).data)
            if said.get("id") == mine:
                if said.get("error", {}).get("message") == "Inspected target navigated or closed":
                    raise Navigated
                assert "error" not in said, said["error"]
                return said["result"]
            self._hear(said)

    def _hear(self, said: dict[str, Any]) -> None:
        if said["method"] == "Runtime.exceptionThrown":
            details = said["params"]["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description", details["text"]))
        elif said["method"] == "Log.entryAdded" and said["params"]["entry"]["level"] in ("error", "warning"):
            entry = said["params"]["entry"]
            self.complaints.append(f"{entry['text']} {entry.get('url', '')}")
        elif said["method"] == "Runtime.consoleAPICalled" and said["params"]["type"] in ("error", "warning"):
            self.complaints.append(str(said["params"]["args"]))

    def open(self, url: str, width: int = 1360, height: int = 900, *, dark: bool = False) -> None:
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])
        self.send("Page.navigate", url="about:blank")  # a URL that differs only in its hash would load nothing
        self.send("Page.navigate", url=url)
        self.until(f"location.href === new URL({json.dumps(url)}).href && document.readyState === 'complete'")

    def value(self, script: str) -> Any:
        """Return the value of a JavaScript expression."""
        found = self.send("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def until(self, condition: str, within_s: float = 60.0) -> None:
        """Wait until a JavaScript expression holds."""
        until_s = time.monotonic() + within_s
        while time.monotonic() < until_s:
            with suppress(Navigated):
                if self.value(f"Boolean({condition})"):
                    return
                self.value("new Promise(requestAnimationFrame)")
        raise AssertionError(f"not within {within_s} s: {condition}; {self.complaints}")

    def text(self, selector: str) -> str:
        found = self.value(f"document.querySelector({json.dumps(selector)}).innerText")
        assert isinstance(found, str)
        return found

    def screenshot(self, whole: bool = True) -> bytes:
        size = self.send("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        more = {"clip": clip, "captureBeyondViewport": True} if whole else {}
        return base64.b64decode(self.send("Page.captureScreenshot", format="png", **more)["data"])
