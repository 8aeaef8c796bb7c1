"""A headless Chromium driven over its debugging pipe: no driver, no websocket, no port, nothing to install.

The protocol is JSON with a zero byte behind each message; the browser reads file descriptor 3 and writes 4.
"""

import atexit
import base64
import fcntl
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--remote-debugging-pipe",
)  # fmt: skip

KEYS = {
    "Enter": ("\r", 13),
    "Tab": ("", 9),
}  # what they write, and their code: by it the browser knows what to do itself


def _high(descriptor: int) -> int:
    """Move a descriptor out of the way of 3 and 4."""
    moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 10)
    os.close(descriptor)
    return moved


class Browser:
    """One browser with one page; what the page complained of is in `complaints`."""

    def __init__(self, folder: Path) -> None:
        assert CHROMIUM is not None
        to_browser, self._write = (_high(end) for end in os.pipe())
        self._read, from_browser = (_high(end) for end in os.pipe())
        # The browser wants its pipe as descriptors 3 and 4: a shell puts them there, whatever numbers they have here.
        command = f'exec "$0" "$@" 3<&{to_browser} 4>&{from_browser}'
        self._process = subprocess.Popen(
            ["bash", "-c", command, CHROMIUM, *FLAGS, f"--user-data-dir={folder}", "about:blank"],
            pass_fds=(to_browser, from_browser), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(to_browser)
        os.close(from_browser)
        self._number = 0
        self._buffer = b""
        self._session: str | None = None
        self.loaded = False
        self.complaints: list[str] = []
        self.requests: list[str] = []
        atexit.register(self._process.kill)  # also when the next lines fail
        target = next(one for one in self.send("Target.getTargets")["targetInfos"] if one["type"] == "page")
        self._session = self.send("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def close(self) -> None:
        self._session = None
        os.close(self._write)  # it leaves when its pipe is closed
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        atexit.unregister(self._process.kill)
        os.close(self._read)

    def send(self, method: str, **params: Any) -> dict[str, Any]:
        """Send one command and return its answer; events that come first are taken in."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            piece = os.read(self._read, 1 << 20)
            assert piece, "the browser is gone"
            self._buffer += piece
        raw, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(raw)
        self._take_in(message.get("method", ""), message.get("params", {}))
        return message

    def _take_in(self, method: str, params: dict[str, Any]) -> None:
        if method == "Page.loadEventFired":
            self.loaded = True
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(str(params["exceptionDetails"].get("exception", params["exceptionDetails"])))
        elif method in {"Log.entryAdded", "Runtime.consoleAPICalled"}:
            self.complaints.append(str(params.get("entry", params.get("args"))))
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])

    def open(self, url: str) -> None:
        self.loaded = False
        self.send("Page.navigate", url=url)
        self.wait_until_loaded()

    def wait_until_loaded(self) -> None:
        while not self.loaded:
            self._next()

    def look(self, width: int, height: int = 900, *, dark: bool = False, script: bool = True, media: str = "") -> None:
        """Say how the page is looked at."""
        self.send("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", media=media, features=[scheme])
        self.send("Emulation.setScriptExecutionDisabled", value=not script)

    def ask(self, expression: str) -> Any:
        """Return what an expression is in the page."""
        answer = self.send(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True, userGesture=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def key(self, key: str) -> None:
        text, code = KEYS.get(key, (key if len(key) == 1 else "", 0))
        self.send("Input.dispatchKeyEvent", type="keyDown", key=key, text=text, windowsVirtualKeyCode=code)
        self.send("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def mouse(self, kind: str, x: float, y: float, *, shift: bool = False) -> None:
        held = 8 if shift else 0
        self.send(
            "Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1, clickCount=1, modifiers=held
        )

    def picture(self, path: Path, *, whole: bool = False, clip: dict[str, float] | None = None) -> bytes:
        more: dict[str, Any] = {} if clip is None else {"clip": {"scale": 1, **clip}}
        shot = self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole, **more)
        content = base64.b64decode(shot["data"])
        path.write_bytes(content)
        return content

    def pdf(self) -> bytes:
        return base64.b64decode(self.send("Page.printToPDF", preferCSSPageSize=True, printBackground=True)["data"])
