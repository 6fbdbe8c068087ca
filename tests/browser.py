"""A browser on the page of a running ``mudroom serve``: fixtures for tests that look at what a user sees.

Every page is watched: an error in a script, a request that leaves the server, or anything that the content security
policy had to stop fails the test, whatever it was about.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

    from conftest import Place

MUDROOM = [sys.executable, "-m", "mudroom"]
PATIENCE = 15_000
"""Milliseconds until a page has to show what is waited for: the machine may be busy."""


def environment(place: Place) -> dict[str, str]:
    """For ``mudroom`` as a user of ``place`` would start it."""
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join(sys.path),
        "HOME": str(place.home),
        "MUDROOM_STATE": str(place.state),
        "LC_ALL": "C.UTF-8",
        "MUDROOM_TRUST_POLICY": "1",
    }


class Site:
    """A server that runs, and its API as a program asks it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        self.process = process
        line = process.stdout.readline()
        if not line:
            raise AssertionError(process.communicate()[1])
        self.told: dict[str, Any] = json.loads(line)
        self.url: str = self.told["url"]
        self.port = int(self.url.rsplit(":", 1)[1].partition("/")[0])

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Status and answer of ``/api/v1`` + path."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        headers = {"Authorization": f"Bearer {self.told['token']}", "Content-Type": "application/json"}
        try:
            data = None if body is None else json.dumps(body)
            connection.request(method, self.url.partition(f":{self.port}")[2] + "api/v1" + path, data, headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()

    def get(self, path: str) -> Any:
        status, found = self.ask("GET", path)
        assert status == 200, found
        return found

    @property
    def project(self) -> str:
        """The id of the only project."""
        (found,) = self.get("/projects")
        return str(found["id"])

    def address(self, *parts: str) -> str:
        """Of a view: ``address("f", "try-1", "review")``, in the only project."""
        return f"{self.url}#/p/{self.project}/" + "/".join(parts)


def mudroom(place: Place, *words: str, expected: int = 0, **more: Any) -> str:
    """Run the real command in the project; its stdout."""
    done = subprocess.run(
        [*MUDROOM, *words],
        cwd=place.project,
        env=environment(place),
        capture_output=True,
        text=True,
        timeout=80,
        check=False,
        **more,
    )
    assert done.returncode == expected, done.stderr + done.stdout
    return str(done.stdout)


def staged(place: Place, script: str, fork: str = "try-1") -> None:
    """What a shell script changes, in a fork."""
    mudroom(place, "exec", "--fork", fork, "--json", "--", "sh", "-c", script)


@contextmanager
def serving(place: Place, *words: str) -> Iterator[Site]:
    """Ends it as a user would, and wants nothing on its stderr."""
    process = subprocess.Popen(
        [*MUDROOM, "serve", "--port", "0", "--json", *words],
        cwd=place.project,
        env=environment(place),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield Site(process)
        process.send_signal(signal.SIGTERM)
        _out, err = process.communicate(timeout=30)
        assert (process.returncode, err) == (0, "")
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def site(place: Place) -> Iterator[Site]:
    pytest.importorskip("starlette", reason="the extra web")
    with serving(place) as found:
        yield found


@contextmanager
def browsing(*words: str) -> Iterator[Browser]:
    """As long as it is there, no other event loop can run in this thread. ``words``: of its command line."""
    sync = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    where = shutil.which("chromium") or shutil.which("chromium-browser")
    if where is None:
        pytest.skip("chromium is not installed")
    with sync.sync_playwright() as playwright:
        # Its own sandbox does not work for root; no page of ours is to be trusted less than this test.
        root = os.geteuid() == 0
        browser = playwright.chromium.launch(executable_path=where, args=list(words), chromium_sandbox=not root)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """For the tests of one file."""
    with browsing() as browser:
        yield browser


HOME = "main:not(.alone):not([aria-busy='true'])"
"""What is there when the page has been let in, and has asked for what it shows."""
OpenPage = Callable[..., "Page"]


@pytest.fixture
def open_page(chromium: Browser, site: Site) -> Iterator[OpenPage]:
    """``open_page(width=390, color_scheme="dark")``: a window of its own, logged in, at the list of projects."""
    contexts: list[BrowserContext] = []
    wrong: list[str] = []

    def opened(width: int = 1280, height: int = 800, **options: Any) -> Page:
        if contexts:  # the address counts once; its cookie and the key are the browser's
            options["storage_state"] = contexts[0].storage_state()
        context = chromium.new_context(viewport={"width": width, "height": height}, reduced_motion="reduce", **options)
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        watch(page, site.url, wrong)
        page.goto(site.url if contexts else site.told["login"])
        contexts.append(context)
        page.wait_for_selector("main:not([aria-busy='true'])")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert wrong == []


def watch(page: Page, url: str, wrong: list[str]) -> None:
    """What must never happen on a page of ours is added to ``wrong``."""
    page.on("pageerror", lambda error: wrong.append(f"an error in a script: {error}"))
    page.on("console", lambda said: wrong.append(said.text) if "Content Security Policy" in said.text else None)
    page.on("request", lambda asked: None if asked.url.startswith(url) else wrong.append(f"asks for {asked.url}"))


@pytest.fixture
def page(open_page: OpenPage) -> Page:
    return open_page()
