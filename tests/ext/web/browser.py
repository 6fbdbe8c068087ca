"""A browser on the page of a running ``mudroom serve``: fixtures for tests that look at what a user sees.

1. Every page is watched: an error in a script, a request that leaves the server, or anything that the content security
   policy had to stop fails the test, whatever it was about.
2. The tests of one file share a server, and a browser that is logged in to it (``Shared``): both are as they were at
   the beginning for each of them. A test that does something to a login, to a port or to what a browser keeps has its
   own: it uses the fixture ``own_site``.
3. What is done is done by Playwright, which waits until something can be clicked. What comes of it comes when it
   comes: it is waited for (``wait_for``, ``comes``), and not read once.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, Protocol

import pytest

import conftest
import forked
from conftest import is_shared

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Locator, Page, Route, ViewportSize

    from conftest import Place

MUDROOM = [sys.executable, "-m", "mudroom"]
PATIENCE = 30_000
"""Milliseconds until a page has to show what is waited for: the machine may be busy."""


class Around(Protocol):
    """Where ``mudroom`` is started, and what it has there."""

    @property
    def project(self) -> Path: ...
    @property
    def home(self) -> Path: ...
    @property
    def state(self) -> Path: ...


def environment(place: Around) -> dict[str, str]:
    """For ``mudroom`` as a user of ``place`` would start it."""
    return conftest.environment(place, PYTHONPATH=os.pathsep.join(sys.path))


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


def mudroom(place: Around, *words: str, expected: int = 0, **more: Any) -> str:
    """Run the real command in the project; its stdout."""
    done = forked.run(
        words,
        cwd=place.project,
        env=environment(place),
        timeout=80,
        **more,
    )
    assert done.returncode == expected, done.stderr + done.stdout
    return str(done.stdout)


def staged(place: Around, script: str, fork: str = "try-1") -> None:
    """What a shell script changes, in a fork."""
    mudroom(place, "exec", "--fork", fork, "--json", "--", "sh", "-c", script)


def another_login(place: Around) -> str:
    """An address that counts once, of the server that runs."""
    return str(json.loads(mudroom(place, "serve", "--link", "--json"))["login"])


@contextmanager
def serving(place: Around, *words: str, stderr: int | IO[str] = subprocess.PIPE) -> Iterator[Site]:
    """Ends it as a user would, and wants nothing on its stderr."""
    process = forked.popen(
        ["serve", "--port", "0", "--json", *words],
        cwd=place.project,
        env=environment(place),
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
    )
    try:
        yield Site(process)
        process.send_signal(signal.SIGTERM)
        _out, err = process.communicate(timeout=60)
        assert (process.returncode, err or "") == (0, "")
    finally:
        process.kill()
        process.communicate()


CLOSING = 20
"""Seconds until a Chromium that was told to end is killed: it was seen to wait for ever, and no limit of a test counts
when the fixtures of its file are ended."""


def kill_marked(word: str) -> None:
    """Kill the processes with this word on their command line. Chromium ignores switches that it does not know."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if word.encode() in path.read_bytes().split(b"\0"):
                os.kill(int(path.parent.name), signal.SIGKILL)
        except OSError:
            pass  # it has ended, or is another user's


LAUNCHING = 60
"""Seconds until the driver of a Chromium that has not begun is killed: it was seen to wait for ever."""


def kill_drivers() -> None:
    """Kill the drivers of browsers that this process has started. A wait for one ends with an error then."""
    for child in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
        if b"playwright/driver/node" in Path(f"/proc/{child}/cmdline").read_bytes():
            os.kill(int(child), signal.SIGKILL)


@contextmanager
def killed_after(seconds: float, kill: Callable[[], None]) -> Iterator[None]:
    late = threading.Timer(seconds, kill)
    late.start()
    try:
        yield
    finally:
        late.cancel()


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
        mark = f"--mudroom-test={os.getpid()}-{os.urandom(8).hex()}"
        with killed_after(LAUNCHING, kill_drivers):
            browser = playwright.chromium.launch(executable_path=where, args=[mark, *words], chromium_sandbox=not root)
        yield browser
        with killed_after(CLOSING, lambda: kill_marked(mark)):
            browser.close()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """For the tests of one file."""
    with browsing() as browser:
        yield browser


HOME = "main:not(.alone):not([aria-busy='true'])"
"""What is there when the page has been let in, and has asked for what it shows."""
SIZE: ViewportSize = {"width": 1280, "height": 800}


class Surroundings(NamedTuple):
    project: Path
    home: Path
    state: Path


class Shared:
    """What the tests of a file share: a home and a state directory, of which no vault is left from one to the next; the
    server on it; and a browser that is logged in.

    A browser that keeps something else than its login when a test has ended is not used again."""

    def __init__(self, around: Surroundings, site: Site, said: Path, browser: Browser | None) -> None:
        """``said``: where its stderr goes. ``browser``: None, and there are no windows."""
        self.around, self.site, self._said, self._browser = around, site, said, browser
        self._context: BrowserContext | None = None
        self._kept: object = None

    def lend(self, place: Place) -> None:
        place.home, place.state = self.around.home, self.around.state

    def take_back(self, place: Place) -> None:
        """Fails if the server has said anything, or is not there any more."""
        vaults = self.around.state / "vaults"
        for number in range(10):  # a request of a closed page may still run, and make the vault anew
            if not vaults.exists():
                break
            vaults.rename(place.root / f"vaults-{number}")
            if self.site.process.poll() is None:
                self.site.get("/projects")
        assert not vaults.exists()
        said = self._said.read_text()
        os.truncate(self._said, 0)
        assert (self.site.process.poll(), said) == (None, "")

    def window(self) -> Page:
        """Another one of the browser."""
        if self._context is None:
            assert self._browser is not None
            self._context = self._browser.new_context(viewport=SIZE, reduced_motion="reduce")
            first = self._context.new_page()
            first.goto(another_login(self.around))
            first.wait_for_selector(HOME)
            self._kept = self._context.storage_state()
            first.goto("about:blank")  # and it stays: chromium begins anew without a window, which takes it a second
        return self._context.new_page()

    def close(self) -> None:
        """The windows of the test that has ended."""
        if self._context is None:
            return
        if self._context.storage_state() == self._kept:
            for each in self._context.pages[1:]:
                each.close()
        else:
            self._context.close()
            self._context = None


@pytest.fixture(scope="module")
def shared_words() -> list[str]:
    """Of the command line of the server that the tests of a file share."""
    return []


@pytest.fixture(scope="module")
def shared_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("shared")
    (root / "home").mkdir()
    return root


@pytest.fixture(scope="module")
def shared(shared_root: Path, shared_words: list[str], chromium: Browser) -> Iterator[Shared]:
    with shared_server(shared_root, *shared_words, browser=chromium) as shared:
        yield shared


@contextmanager
def shared_server(root: Path, *words: str, browser: Browser | None) -> Iterator[Shared]:
    around, said = Surroundings(root, root / "home", root / "state"), root / "stderr"
    with said.open("a") as stderr, serving(around, *words, stderr=stderr) as site:
        yield Shared(around, site, said, browser)


@pytest.fixture
def own_site() -> None:
    """Whoever uses it has a server and a browser of its own."""


@pytest.fixture
def site(request: pytest.FixtureRequest, place: Place) -> Iterator[Site]:
    if is_shared(request):
        yield request.getfixturevalue("shared").site
        return
    with serving(place) as found:
        yield found


OpenPage = Callable[..., "Page"]


@pytest.fixture
def open_page(request: pytest.FixtureRequest, place: Place, chromium: Browser, site: Site) -> Iterator[OpenPage]:
    """``open_page(width=390, color_scheme="dark")``: a window that is logged in, at the list of projects. Another
    one in a test is of another browser."""
    shared: Shared | None = request.getfixturevalue("shared") if is_shared(request) else None
    contexts: list[BrowserContext] = []
    pages: list[Page] = []
    wrong: list[str] = []

    def opened(width: int = 1280, height: int = 800, enlarged: int = 1, **media: Any) -> Page:
        first = not pages
        if shared and first and enlarged == 1:
            page, address = shared.window(), site.url
        else:
            contexts.append(chromium.new_context(device_scale_factor=enlarged, viewport=SIZE, reduced_motion="reduce"))
            page, address = contexts[-1].new_page(), site.told["login"]
            if shared or not first:  # it counts once
                address = another_login(place)
        page.set_default_timeout(PATIENCE)
        page.set_viewport_size({"width": width, "height": height})
        if media:
            page.emulate_media(reduced_motion="reduce", **media)
        watch(page, site.url, wrong)
        page.goto(address)
        pages.append(page)
        page.wait_for_selector(HOME)
        return page

    yield opened
    for context in contexts:
        context.close()
    if shared:
        shared.close()
    assert wrong == []


def refusing_once(page: Page, pattern: str) -> list[str]:
    """The first request of that address gets no answer. Gives the addresses that are asked for."""
    asked: list[str] = []

    def answer(route: Route) -> None:
        asked.append(route.request.url)
        if len(asked) == 1:
            route.abort()
        else:
            route.continue_()

    page.route(pattern, answer)
    return asked


def watch(page: Page, url: str, wrong: list[str]) -> None:
    """What must never happen on a page of ours is added to ``wrong``."""
    page.on("pageerror", lambda error: wrong.append(f"an error in a script: {error}"))
    page.on("console", lambda said: wrong.append(said.text) if "Content Security Policy" in said.text else None)
    page.on("request", lambda asked: None if asked.url.startswith(url) else wrong.append(f"asks for {asked.url}"))


@pytest.fixture
def page(open_page: OpenPage) -> Page:
    return open_page()


VIEWS = {
    "projects": ("", "Projects"),
    "project": ("p/{project}", ""),
    "review": ("p/{project}/f/try-1/review", "Review"),
    "conflicts": ("p/{project}/f/try-1/conflicts", "Conflicts"),
    "watch": ("p/{project}/f/try-1/watch", "Watch"),
    "try": ("p/{project}/try/t1", "Candidates"),
    "new": ("new", "New session"),
}
"""Each with its address and its title; that of a project is its path."""


def go(page: Page, site: Site, view: str) -> None:
    """To one of ``VIEWS``, and until it is there: the last one is for a moment."""
    address, title = VIEWS[view]
    page.goto(f"{site.url}#/{address.format(project=site.project)}")
    title = title or str(site.get(f"/projects/{site.project}")["path"])
    page.wait_for_function("title => document.title.endsWith(`${title} · mudroom`)", arg=title)
    page.locator("main:not([aria-busy=true]) h1").first.wait_for(state="attached")


def comes(page: Page, look: Callable[[], object], wanted: object) -> None:
    """Wait until what ``look`` finds is ``wanted``."""
    until = time.monotonic() + PATIENCE / 1000
    while (found := look()) != wanted:
        assert time.monotonic() < until, f"{found!r} is there, and not {wanted!r}"
        page.wait_for_timeout(20)


def hold(page: Page) -> None:
    """Whatever the page asks for from now on goes out when the test waits for something next: who does two things
    before that does them at once, for the page."""
    page.route("**/api/v1/**", lambda route: route.continue_())


def usable(one: Locator) -> Locator:
    """It, when it can be used: nothing that is disabled takes the keyboard."""
    return one.and_(one.page.locator(":enabled"))
