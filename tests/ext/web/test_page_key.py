"""What a browser has besides its cookie, which is sent to every port of a host; and what others have left in it."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from browser import HOME, Site, serving, watch

from clients import free_port
from conftest import Place
from mudroom.ext.web.server.guard import PUSH_WORKER
from tiers import each

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.usefixtures("own_site")
ASK = "(path) => fetch(path).then((answer) => answer.status)"
WORKER = b"""
self.addEventListener("install", () => self.skipWaiting());
self.addEventListener("activate", (event) => event.waitUntil(clients.claim()));
self.addEventListener("fetch", (event) => event.request.mode === "navigate" &&
  event.respondWith(new Response("<title>theirs</title>", { headers: { "content-type": "text/html" } })));
"""
PLANT = b"""<script>
navigator.serviceWorker.register("SCRIPT", { scope: "/" }).then(() => navigator.serviceWorker.ready)
  .then(() => { document.title = "planted" });
</script>"""


class Theirs(http.server.BaseHTTPRequestHandler):
    """What another listens with, and what browsers send him."""

    cookies: list[str]
    script: str

    def do_GET(self) -> None:
        self.cookies.append(self.headers.get("cookie", ""))
        script = self.path.endswith(".js")
        self.send_response(200)
        self.send_header("Content-Type", "text/javascript" if script else "text/html")
        self.send_header("Service-Worker-Allowed", "/")
        self.end_headers()
        self.wfile.write(WORKER if script else PLANT.replace(b"SCRIPT", self.script.encode()))

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def another(port: int = 0, script: str = "/x/sw.js") -> Iterator[tuple[int, list[str]]]:
    """A server of somebody else: its port, and the cookies that it is sent. ``script``: where its worker is."""
    cookies: list[str] = []
    kind = type("Another", (Theirs,), {"cookies": cookies, "script": script})
    with http.server.ThreadingHTTPServer(("127.0.0.1", port), kind) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server.server_address[1], cookies
        server.shutdown()
        thread.join()


def test_a_cookie_that_another_port_is_sent_opens_nothing(site: Site, page: Page) -> None:
    with another() as (port, cookies):
        page.context.new_page().goto(f"http://127.0.0.1:{port}/")
    (cookie,) = page.context.cookies()
    assert f"{cookie.get('name')}={cookie.get('value')}" in cookies[0]
    assert page.evaluate(ASK, "api/v1/me") == page.evaluate(ASK, "api/v1/projects") == 401  # with the cookie alone


def test_the_key_is_taken_out_of_the_address_and_kept(site: Site, page: Page) -> None:
    assert page.url == site.url
    page.reload()
    page.wait_for_selector(HOME)
    with page.expect_event("request", lambda asked: "/events" in asked.url) as heard:
        page.reload()
    answer = heard.value.response()
    assert answer is not None
    assert answer.status == 200
    second = page.context.new_page()
    second.goto(site.url + "#/new")
    second.get_by_role("heading", name="New session").wait_for()


@pytest.mark.deep
def test_a_browser_without_its_key_is_told_how_to_log_in(site: Site, page: Page) -> None:
    page.wait_for_selector(HOME)
    page.evaluate("localStorage.clear()")
    page.reload()
    page.wait_for_selector("main.alone h1")
    assert "mudroom serve --link" in page.inner_text("main")


@pytest.mark.deep
def test_a_link_with_a_key_that_is_none_logs_nobody_out(site: Site, page: Page) -> None:
    page.wait_for_selector(HOME)
    page.goto("about:blank")
    page.goto(site.url + "#k=0123")
    page.wait_for_selector(HOME)
    assert page.url == site.url


@pytest.mark.deep
@each("script", ["/x/sw.js", PUSH_WORKER])
def test_what_somebody_else_on_our_port_has_left_is_removed(place: Place, chromium: Browser, script: str) -> None:
    """A service worker of his answers in our place, for as long as it is there; also if it has the path of ours."""
    context = chromium.new_context()
    page = context.new_page()
    with another(free_port(), script) as (port, _cookies):
        page.goto(f"http://127.0.0.1:{port}/")
        page.wait_for_function("document.title === 'planted'")
        page.goto("about:blank")
    wrong: list[str] = []
    with serving(place, "--port", str(port)) as site:
        page.goto(site.url)
        page.wait_for_function("document.title.includes('mudroom')")  # his answer first, then ours by itself
        watch(page, site.url, wrong)
        page.goto(site.told["login"])
        page.wait_for_selector(HOME)
        assert page.evaluate("navigator.serviceWorker.getRegistrations().then((all) => all.length)") == 0
        context.close()
    assert wrong == []


@pytest.mark.deep
def test_one_that_the_page_finds_is_removed_by_it(site: Site, page: Page) -> None:
    page.wait_for_selector(HOME)
    page.add_init_script("""
      window.removed = 0;
      navigator.serviceWorker.getRegistrations = async () => [{ unregister: async () => { window.removed++; } }];
    """)
    page.reload()
    page.wait_for_function("window.removed === 1")
