"""Any browser as a test drives all of them: a window to go somewhere with, to call functions in, to point and type at.

1. Firefox speaks WebDriver BiDi by itself, over a WebSocket (https://w3c.github.io/webdriver-bidi/). WebKitGTK has a
   driver that speaks WebDriver over HTTP (https://w3c.github.io/webdriver/). Actions are the same in both. Chromium is
   driven by Playwright, as ``ext/web/browser.py`` starts it.
2. What a user does is done by pointer and keys, where he sees it; functions only look, and wait (``LOOKING``).
   Where something is pointed at, nothing was drawn anew for a while: what has just moved is missed.
3. Each has a profile in a directory of its own, and is ended by its process.
4. What must never happen on a page is kept in ``wrong``: an error in a script, a message of one, anything that the
   content security policy has stopped, and, but for WebKit, a request to somewhere else.
   In WebKit nobody watches while a page loads: WebDriver has no scripts that run before those of a page, and
   MiniBrowser (seen in WebKitGTK 2.50) writes its console nowhere when a driver has it. What goes wrong by then is only
   found if something is not there afterwards.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from browser import browsing

from clients import free_port

if TYPE_CHECKING:
    from playwright.sync_api import Page
    from websockets.sync.client import ClientConnection

Found = TypeVar("Found")
PATIENCE = 30_000
"""Milliseconds until a page has to show what is waited for."""
START = 60.0
"""Seconds in which a browser has to be there: the machine may be busy."""
MINI = "usr/lib/*/webkit2gtk-4.1/MiniBrowser"
WATCHING = """() => {
  if (window.wrong) return;
  window.wrong = [];
  const keep = (...what) => window.wrong.push(what.join(" "));
  addEventListener("error", (event) => keep("an error:", event.message ?? event.target.outerHTML), true);
  addEventListener("unhandledrejection", (event) => keep("a promise that nobody heard:", event.reason));
  addEventListener("securitypolicyviolation", (event) => keep("policy:", event.violatedDirective, event.blockedURI));
  for (const kind of ["warn", "error"]) console[kind] = (...words) => keep(kind + ":", ...words);
}"""
LOOKING = """async (css, text, limit) => {
  const until = performance.now() + limit;
  const rest = () => new Promise((done) => setTimeout(done, 30));
  const quiet = async () => {
    let moves = 0;
    const watching = new MutationObserver((all) => { moves += all.length; });
    watching.observe(document.body, { childList: true, subtree: true, attributes: true });
    await rest();
    await rest();
    watching.disconnect();
    return moves === 0;
  };
  const names = (one) => [one.getAttribute("aria-label"), one.title, one.innerText, one.textContent];
  const named = (one) => names(one).map((name) => (name ?? "").trim());
  const place = (one) => {
    const { left, top, width, height } = one.getClientRects()[0]; // of a link over two lines, the first
    return [left + width / 2, top + height / 2];
  };
  let why = "is not there";
  for (; performance.now() < until; await rest()) {
    const all = [...document.querySelectorAll(css)].filter((one) => !one.disabled && one.checkVisibility());
    const about = (one) => named(one).some((name) => name.includes(text));
    const found = all.find((one) => named(one).includes(text)) ?? all.find(about);
    if (!found) continue;
    found.scrollIntoView({ block: "center" });
    const before = place(found);
    why = "is drawn again and again";
    if (!(await quiet()) || !found.isConnected) continue;
    const [x, y] = place(found);
    why = "moves, or something is above it";
    if (x !== before[0] || y !== before[1]) continue;
    if (found.contains(document.elementFromPoint(x, y))) return [x, y, found.innerText];
  }
  throw new Error(`${css} ${JSON.stringify(text)} ${why}: ${document.body.innerText.slice(0, 2000)}`);
}"""
WAITING = """async (...given) => {
  const until = performance.now() + LIMIT;
  while (performance.now() < until) {
    const found = await (WANTED)(...given);
    if (found) return found;
    await new Promise((done) => setTimeout(done, 30));
  }
  throw new Error("never: " + String(WANTED));
}"""


class Window(ABC):
    """One window of a browser."""

    wrong: list[str]

    @abstractmethod
    def go(self, address: str) -> None: ...

    @abstractmethod
    def reload(self) -> None: ...

    @abstractmethod
    def call(self, function: str, *given: object) -> Any:
        """What a JavaScript function, or its promise, comes to: JSON."""

    @abstractmethod
    def perform(self, source: Mapping[str, object]) -> None:
        """The actions of one device: https://w3c.github.io/webdriver/#actions"""

    @abstractmethod
    def picture(self) -> bytes:
        """A PNG of what is seen."""

    def see(self, css: str, text: str = "") -> str:
        """Wait for an element of that name, or with that text, to be seen; all of its text."""
        return str(self._found(css, text)[2])

    def wait(self, function: str, *given: object) -> Any:
        """Until it comes to something; that."""
        return self.call(WAITING.replace("LIMIT", str(PATIENCE)).replace("WANTED", function), *given)

    def hear(self, text: str) -> None:
        """Wait until that is in ``wrong``: what a page does wrong is told by itself, not with an answer."""
        until = time.monotonic() + PATIENCE / 1000
        while not any(text in one for one in self.wrong):
            assert time.monotonic() < until, f"{text!r} is not told, but {self.wrong}"
            self.call("() => new Promise((done) => setTimeout(done, 30))")

    def click(self, css: str, text: str = "") -> None:
        x, y, _text = self._found(css, text)
        moves = [{"type": "pointerMove", "x": round(x), "y": round(y)}, {"type": "pointerDown", "button": 0}]
        self.perform({"type": "pointer", "id": "mouse", "actions": [*moves, {"type": "pointerUp", "button": 0}]})

    def type(self, text: str) -> None:
        keys = [{"type": kind, "value": key} for key in text for kind in ("keyDown", "keyUp")]
        self.perform({"type": "key", "id": "keyboard", "actions": keys})

    def _found(self, css: str, text: str) -> tuple[float, float, str]:
        x, y, shown = self.call(LOOKING, css, text, PATIENCE)
        return x, y, shown


TOLD = "wrong: "
TELLING = WATCHING.replace("window.wrong.push(", f"tell('{TOLD}' + ").replace(
    "() => {", "() => { const tell = console.info.bind(console);", 1
)
"""By the console, which is heard over the end of a document."""


class Chromium(Window):
    KEYS: Mapping[str, str] = {"\ue00c": "Escape"}

    def __init__(self, page: Page) -> None:
        self.wrong, self._page, self._site = [], page, ""
        page.set_default_timeout(START * 1000)
        page.add_init_script(f"({TELLING})()")
        page.on("console", lambda said: self._heard(said.type, said.text))
        page.on("request", lambda asked: self._asked(asked.url))

    def _heard(self, kind: str, text: str) -> None:
        if kind in ("warning", "error") or text.startswith(TOLD):
            self.wrong.append(text)

    def _asked(self, address: str) -> None:
        if not address.startswith((self._site, "data:")):
            self.wrong.append("asks for " + address)

    def go(self, address: str) -> None:
        self._site = self._site or "/".join(address.split("/")[:3]) + "/"
        self._page.goto(address)

    def reload(self) -> None:
        self._page.reload()

    def call(self, function: str, *given: object) -> Any:
        return self._page.evaluate(f"async (given) => (await ({function})(...given)) ?? null", list(given))

    def perform(self, source: Mapping[str, Any]) -> None:
        mouse, keyboard = self._page.mouse, self._page.keyboard
        for one in source["actions"]:
            key = self.KEYS.get(one.get("value", ""), one.get("value", ""))
            match one["type"]:
                case "pointerMove":
                    mouse.move(one["x"], one["y"])
                case "pointerDown":
                    mouse.down()
                case "pointerUp":
                    mouse.up()
                case "keyDown":
                    keyboard.down(key)
                case "keyUp":
                    keyboard.up(key)

    def picture(self) -> bytes:
        return self._page.screenshot()


class Firefox(Window):
    def __init__(self, line: ClientConnection) -> None:
        self.wrong, self._line, self._sent = [], line, 0
        self._site = "data:"
        """Where all requests have to go: where it was sent first."""
        self._ask("session.new", capabilities={})
        self._ask("session.subscribe", events=["log.entryAdded", "network.beforeRequestSent"])
        self._ask("script.addPreloadScript", functionDeclaration=TELLING)
        self._context = self._ask("browsingContext.getTree")["contexts"][0]["context"]
        self._ask("browsingContext.setViewport", context=self._context, viewport={"width": 1280, "height": 800})

    def _ask(self, method: str, **params: object) -> Any:
        self._sent += 1
        self._line.send(json.dumps({"id": self._sent, "method": method, "params": params}))
        while True:
            told = json.loads(self._line.recv(START))
            if told["type"] == "event":
                self._heard(told["method"], told["params"])
            elif told["id"] == self._sent:
                assert told["type"] == "success", told
                return told["result"]

    def _heard(self, kind: str, told: dict[str, Any]) -> None:
        if kind == "network.beforeRequestSent" and not told["request"]["url"].startswith((self._site, "data:")):
            self.wrong.append("asks for " + told["request"]["url"])
        elif kind == "log.entryAdded" and (told["level"] in ("warn", "error") or told["text"].startswith(TOLD)):
            self.wrong.append(told["text"])

    def go(self, address: str) -> None:
        if self._site == "data:":
            self._site = "/".join(address.split("/")[:3]) + "/"
        self._ask("browsingContext.navigate", context=self._context, url=address, wait="complete")

    def reload(self) -> None:
        self._ask("browsingContext.reload", context=self._context, wait="complete")

    def call(self, function: str, *given: object) -> Any:
        words = f"async () => JSON.stringify((await ({function})(...{json.dumps(given)})) ?? null)"
        target = {"context": self._context}
        told = self._ask("script.callFunction", functionDeclaration=words, target=target, awaitPromise=True)
        if told["type"] == "exception":
            raise AssertionError(told["exceptionDetails"]["text"])
        return json.loads(told["result"]["value"])

    def perform(self, source: Mapping[str, object]) -> None:
        self._ask("input.performActions", context=self._context, actions=[source])

    def picture(self) -> bytes:
        return base64.b64decode(self._ask("browsingContext.captureScreenshot", context=self._context)["data"])


class WebKit(Window):
    def __init__(self, port: int, browser: str) -> None:
        self._port, self._session = port, ""
        options = {"binary": browser, "args": ["--automation"]}
        wanted = {"capabilities": {"alwaysMatch": {"webkitgtk:browserOptions": options}}}
        self._session = "/" + self._ask("POST", "", wanted)["sessionId"]
        self._ask("POST", "/window/rect", {"x": 0, "y": 0, "width": 1280, "height": 900})
        self._ask("POST", "/timeouts", {"script": 2 * PATIENCE})

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        line = http.client.HTTPConnection("127.0.0.1", self._port, timeout=START)
        try:
            line.request(method, f"/session{self._session}{path}", None if body is None else json.dumps(body))
            answer = line.getresponse()
            told = json.loads(answer.read())["value"]
            assert answer.status == 200, told
            return told
        finally:
            line.close()

    @property
    def wrong(self) -> list[str]:  # type: ignore[override]
        """Of the document that there is, from when it had been loaded."""
        return list(self.call("() => window.wrong ?? ['nobody watches']"))

    def go(self, address: str) -> None:
        self._ask("POST", "/url", {"url": address})
        self.call(WATCHING)

    def reload(self) -> None:
        self._ask("POST", "/refresh", {})
        self.call(WATCHING)

    def call(self, function: str, *given: object) -> Any:
        words = f"""const done = arguments[arguments.length - 1];
          (async () => ({function})(...{json.dumps(given)}))()
            .then((found) => done([found ?? null]), (error) => done(String(error)));"""
        told = self._ask("POST", "/execute/async", {"script": words, "args": []})
        if isinstance(told, str):
            raise AssertionError(told)
        return told[0]

    def perform(self, source: Mapping[str, object]) -> None:
        self._ask("POST", "/actions", {"actions": [source]})

    def picture(self) -> bytes:
        return base64.b64decode(self._ask("GET", "/screenshot"))

    def end(self) -> None:
        self._ask("DELETE", "")


@contextmanager
def chromium() -> Iterator[Window]:
    with browsing() as browser, browser.new_context(viewport={"width": 1280, "height": 800}) as context:
        yield Chromium(context.new_page())


@contextmanager
def firefox(settings: Mapping[str, object] = MappingProxyType({})) -> Iterator[Window]:
    """``settings``: of ``about:config``."""
    client = pytest.importorskip("websockets.sync.client", reason="websockets is not installed")
    program = shutil.which("firefox-esr") or shutil.which("firefox")
    if program is None:
        pytest.skip("firefox is not installed")
    with ExitStack() as stack:
        home = _home(stack)
        lines = [f"user_pref({json.dumps(name)}, {json.dumps(value)});\n" for name, value in settings.items()]
        (home / "user.js").write_text("".join(lines))
        words = [program, "--headless", "--no-remote", "--profile", str(home), "--remote-debugging-port", "0"]
        process = _started(stack, words, home)
        (address,) = _until(lambda: re.findall(r"BiDi listening on (ws://\S+)", (home / SAID).read_text()), process)
        line = stack.enter_context(client.connect(address + "/session", max_size=None, compression=None, proxy=None))
        yield Firefox(line)


@contextmanager
def webkit() -> Iterator[Window]:
    browser = next(iter(sorted(map(str, Path("/").glob(MINI)))), None)
    missing = [name for name in ("WebKitWebDriver", "Xvfb") if shutil.which(name) is None]
    if missing or browser is None:
        pytest.skip(f"{' and '.join(missing) or 'MiniBrowser'} (of WebKitGTK) is not installed")
    with ExitStack() as stack:
        home, port = _home(stack), free_port()
        screen = _screen(stack, home)
        process = _started(stack, ["WebKitWebDriver", f"--port={port}"], home, DISPLAY=screen)
        _until(lambda: _listens(port), process)
        window = WebKit(port, browser)
        stack.callback(window.end)
        yield window


SAID = "said.txt"
"""In the home of a browser: its output."""


def _home(stack: ExitStack) -> Path:
    return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="browser-", ignore_cleanup_errors=True)))


def _started(stack: ExitStack, words: Sequence[str], home: Path, **more: str) -> subprocess.Popen[bytes]:
    """With nothing of ours but that home. It is ended with all that it has started."""
    place = {"HOME": str(home), "XDG_RUNTIME_DIR": str(home), "TMPDIR": str(home)}
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "MOZ_CRASHREPORTER_DISABLE": "1", **place, **more}
    with (home / SAID).open("ab") as said:
        process = subprocess.Popen(
            words, cwd=home, env=environment, stdin=subprocess.DEVNULL, stdout=said, stderr=said, start_new_session=True
        )
    stack.callback(_ended, process)
    return process


def _ended(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(10)


def _screen(stack: ExitStack, home: Path) -> str:
    """A screen that nobody looks at; what X calls it."""
    heard, told = os.pipe()
    with open(heard, encoding="ascii") as number:
        words = ["Xvfb", "-displayfd", "1", "-screen", "0", "1400x1000x24", "-nolisten", "tcp"]
        process = subprocess.Popen(words, cwd=home, stdout=told, stderr=subprocess.DEVNULL, start_new_session=True)
        os.close(told)
        stack.callback(_ended, process)
        return ":" + number.readline().strip()


def _listens(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def _until(found: Callable[[], Found], process: subprocess.Popen[bytes]) -> Found:
    until, pause = time.monotonic() + START, threading.Event()
    while not (what := found()):
        assert process.poll() is None, "the browser has ended"
        assert time.monotonic() < until, "the browser does not answer"
        pause.wait(0.05)
    return what
