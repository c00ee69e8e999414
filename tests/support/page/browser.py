"""Chromium without a window, driven by its DevTools protocol over pipes."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from queue import Empty, Queue
from types import TracebackType
from typing import Any, Self, cast

from tests.support.waiting import wait_for

LIMIT = 60.0
"""Seconds that a test waits for an answer of the browser."""

_NAMES = ("chromium", "chromium-browser", "google-chrome")


def find_chromium() -> str:
    """Return the path of a browser; empty for none."""
    return next((path for name in _NAMES if (path := shutil.which(name))), "")


class BrowserError(Exception):
    """The browser refused a command, or a script in its page failed."""


class Browser:
    """A browser with one page; a context manager.

    Attributes:
        faults: what the page's console reports: refused resources, errors of scripts.
        requested: addresses that the page asked for.
    """

    def __init__(self, program: str) -> None:
        self.faults: list[str] = []
        self.requested: list[str] = []
        # Processes of the browser write there until they notice its end.
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        ours, theirs = os.pipe(), os.pipe()
        # The browser reads from descriptor 3 and writes to 4.
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--remote-debugging-pipe"]
        shell = 'exec "$0" "$@" 3<&"$IN" 4>&"$OUT"'
        self._process = subprocess.Popen(
            ["bash", "-c", shell, program, *options, f"--user-data-dir={self._profile.name}", "about:blank"],
            pass_fds=(ours[0], theirs[1]),
            env={**os.environ, "IN": str(ours[0]), "OUT": str(theirs[1])},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(ours[0])
        os.close(theirs[1])
        self._to = os.fdopen(ours[1], "wb", buffering=0)
        self._from = os.fdopen(theirs[0], "rb", buffering=0)
        self._number = 0
        self._session = ""
        self._messages: Queue[dict[str, Any]] = Queue()
        threading.Thread(target=self._read, name="browser", daemon=True).start()

    def __enter__(self) -> Self:
        page = wait_for("the first page", self._first_page, LIMIT)
        attached = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait(LIMIT)
        self._to.close()
        self._profile.cleanup()

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command, and return its answer."""
        self._number += 1
        number = self._number
        message = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        self._to.write(json.dumps(message).encode() + b"\0")
        answer = self._await(lambda received: received.get("id") == number)
        if "error" in answer:
            raise BrowserError(f"{method}: {answer['error']}")
        return answer["result"]

    def show(self, address: str, *, width: int = 1300, height: int = 1000, dark: bool = False) -> None:
        """Load a page, and wait until it is there."""
        self.faults.clear()
        self.requested.clear()
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.prefer(dark=dark)
        self.call("Page.navigate", url=address)
        self.wait_for_load()

    def wait_for_load(self) -> None:
        """Wait until a page has been loaded."""
        self._await(lambda received: received.get("method") == "Page.loadEventFired")

    def resize(self, width: int, height: int = 1000) -> None:
        """Change the size of the window."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def prefer(self, *, dark: bool = False, media: str = "screen") -> None:
        """Show the page as for a user with these preferences."""
        features = [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]
        self.call("Emulation.setEmulatedMedia", media=media, features=features)

    def evaluate(self, script: str) -> Any:
        """Return the value of an expression in the page, which may be a promise."""
        answer = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise BrowserError(str(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def press(self, key: str) -> None:
        """Send a key of the keyboard."""
        codes = {"Tab": 9, "Enter": 13}
        text = {"text": "\r"} if key == "Enter" else {}
        common = {"key": key, "code": key, "windowsVirtualKeyCode": codes[key]}
        self.call("Input.dispatchKeyEvent", type="keyDown", **common, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def screenshot(self, file: Path, *, whole: bool = True) -> None:
        """Save a picture of the page."""
        clip: dict[str, Any] = {}
        if whole:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            clip = {"clip": {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}}
        taken = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole, **clip)
        file.write_bytes(base64.b64decode(taken["data"]))

    def _first_page(self) -> dict[str, Any] | None:
        """Return the page that a browser opens at its start; None before."""
        return next((each for each in self.call("Target.getTargets")["targetInfos"] if each["type"] == "page"), None)

    def _read(self) -> None:
        buffer = b""
        while chunk := self._from.read(1 << 16):
            *whole, buffer = (buffer + chunk).split(b"\0")
            for message in whole:
                self._messages.put(json.loads(message))

    def _await(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        end = time.monotonic() + LIMIT
        while True:
            try:
                message = self._messages.get(timeout=max(0.0, end - time.monotonic()))
            except Empty:
                raise BrowserError(f"no answer in {LIMIT:.0f} s") from None
            self._note(message)
            if wanted(message):
                return message

    def _note(self, message: dict[str, Any]) -> None:
        parameters = cast("dict[str, Any]", message.get("params", {}))
        match message.get("method"):
            case "Log.entryAdded":
                self.faults.append(str(parameters["entry"]["text"]))
            case "Runtime.exceptionThrown":
                self.faults.append(str(parameters["exceptionDetails"]))
            case "Network.requestWillBeSent":
                self.requested.append(str(parameters["request"]["url"]))
            case _:
                return
