"""Notifications while the page is closed, in real browsers. No test can reach the push services of Chromium and Safari;
Firefox takes one on loopback, and decrypts what it is sent."""

from __future__ import annotations

import http.server
import json
import subprocess
import sys
import threading
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest
from browser import HOME, PATIENCE, Site, comes, environment, watch
from otherbrowsers import Window, firefox
from push_service import Browser, Service, service

from conftest import Place

if TYPE_CHECKING:
    from playwright.sync_api import Browser as Chromium
    from playwright.sync_api import BrowserContext, Page

pytestmark = [pytest.mark.usefixtures("own_site"), pytest.mark.deep]
SWITCH = "Notify this device when the page is closed"
PATCHED = """
import socket, sys
port = int(sys.argv.pop())
from mudroom.ext.web.push import desk, sender
sender.connect = lambda host: socket.create_connection(("127.0.0.1", port))
desk.PAUSE = 0.0
from mudroom.cli import main
main()
"""
SUBSCRIBE = """(given) => {
  const told = { endpoint: given.endpoint, keys: { p256dh: given.key, auth: given.secret } };
  const made = { toJSON: () => told, unsubscribe: async () => true };
  let kept = null;
  PushManager.prototype.subscribe = async (options) => { window.asked = options; return (kept = made); };
  PushManager.prototype.getSubscription = async () => kept;
}"""
NOTED = """() => navigator.serviceWorker.getRegistration("push/").then((one) => one.getNotifications())
  .then((all) => all.map(({ title, body, tag, data }) => ({ title, body, tag, data })))"""
SCOPES = "() => navigator.serviceWorker.getRegistrations().then((all) => all.map((one) => new URL(one.scope).pathname))"


@contextmanager
def serving_past(place: Place, port: int) -> Iterator[Site]:
    """A server whose messages all go to the service at this port of loopback."""
    words = [sys.executable, "-c", PATCHED, "serve", "--port", "0", "--json", str(port)]
    process = subprocess.Popen(
        words, cwd=place.project, env=environment(place), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        yield Site(process)
        process.terminate()
        _out, err = process.communicate(timeout=60)
        assert (process.returncode, err) == (0, "")
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def told() -> Iterator[Service]:
    with service() as found:
        yield found


@pytest.fixture
def site(place: Place, told: Service) -> Iterator[Site]:
    place.write("a", "1\n")
    with serving_past(place, told.port) as found:
        yield found


@pytest.fixture
def context(chromium: Chromium, site: Site) -> Iterator[BrowserContext]:
    found = chromium.new_context(permissions=["notifications"], reduced_motion="reduce")
    yield found
    found.close()


def opened(context: BrowserContext, site: Site, address: str, browser: Browser) -> Page:
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    page.add_init_script(f"({SUBSCRIBE})({json.dumps(browser.subscription())})")
    page.goto(address)
    page.wait_for_selector(HOME)
    return page


def to_switch(page: Page) -> None:
    page.keyboard.press("Q")
    page.get_by_role("checkbox", name=SWITCH).focus()


def test_a_device_is_switched_on_listed_and_removed_by_the_keyboard(
    site: Site, told: Service, context: BrowserContext
) -> None:
    browser, wrong = Browser(), list[str]()
    page = opened(context, site, site.told["login"], browser)
    watch(page, site.url, wrong)
    to_switch(page)
    page.keyboard.press("Space")
    switch = page.get_by_role("checkbox", name=SWITCH)
    comes(page, switch.is_checked, True)
    key = page.evaluate("window.asked.applicationServerKey")
    assert page.evaluate("window.asked.userVisibleOnly") is True and key == site.get("/devices")["key"]
    assert page.evaluate(SCOPES) == ["/push/"], "it controls no page"
    assert page.evaluate("navigator.serviceWorker.controller") is None
    assert browser.read(told.got[0][2])["title"] == "mudroom"
    # after a reload it is known, and the worker is still there
    page.reload()
    page.wait_for_selector(HOME)
    page.keyboard.press("Q")
    page.get_by_text("Devices that are notified").click()
    page.get_by_text("Chrome on Linux", exact=True).first.wait_for()
    assert page.evaluate(SCOPES) == ["/push/"]
    page.get_by_role("button", name="Remove Chrome on Linux").press("Enter")
    page.get_by_text("None.").wait_for()
    assert site.get("/devices")["devices"] == []
    assert wrong == []


def test_a_service_that_does_not_take_it_is_said_and_nothing_is_left(
    site: Site, told: Service, context: BrowserContext
) -> None:
    told.status = 403
    page = opened(context, site, site.told["login"], Browser())
    to_switch(page)
    page.keyboard.press("Space")
    page.get_by_text("the push service has not taken a message: push.example answered 403").wait_for()
    assert not page.get_by_role("checkbox", name=SWITCH).is_checked()
    comes(page, lambda: page.evaluate(SCOPES), [])
    assert site.get("/devices")["devices"] == []


def test_the_worker_shows_a_message_and_nothing_else(site: Site, context: BrowserContext) -> None:
    page = opened(context, site, site.told["login"], Browser())
    tools = page.context.new_cdp_session(page)
    registered: list[Any] = []
    tools.on("ServiceWorker.workerRegistrationUpdated", lambda event: registered.extend(event["registrations"]))
    tools.send("ServiceWorker.enable")
    to_switch(page)
    page.keyboard.press("Space")
    comes(page, page.get_by_role("checkbox", name=SWITCH).is_checked, True)
    (name,) = {one["registrationId"] for one in registered}
    origin = site.url.removesuffix("/")
    for said in ({"title": "A question", "body": "bot in work · shop", "tag": "p/q", "to": "#/"}, {}):
        data = json.dumps(said).ljust(1024)
        tools.send("ServiceWorker.deliverPushMessage", {"origin": origin, "registrationId": name, "data": data})
    wanted = [
        {"title": "A question", "body": "bot in work · shop", "tag": "p/q", "data": "#/"},
        {"title": "mudroom", "body": "", "tag": "queue", "data": "#/"},
    ]
    comes(page, lambda: sorted(page.evaluate(NOTED), key=lambda one: one["title"]), wanted)


@contextmanager
def push_server() -> Iterator[tuple[int, Service]]:
    """Firefox's push service: its port for Firefox (a WebSocket), and for senders."""
    from websockets.exceptions import ConnectionClosed
    from websockets.sync.server import ServerConnection, serve

    lines: list[ServerConnection] = []

    def heard(line: ServerConnection) -> Iterator[str | bytes]:
        with suppress(ConnectionClosed):  # without a word, if the browser is ended
            yield from line

    def talk(line: ServerConnection) -> None:
        lines.append(line)
        for text in heard(line):
            asked = json.loads(text)
            kind, channel = asked.get("messageType"), asked.get("channelID")
            if kind == "hello":
                line.send(json.dumps({"messageType": "hello", "uaid": "a" * 32, "status": 200, "use_webpush": True}))
            elif kind in ("register", "unregister"):
                told = {"messageType": kind, "channelID": channel, "status": 200}
                line.send(json.dumps(told | {"pushEndpoint": f"https://push.example/{channel}"}))

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            data = urlsafe_b64encode(body).decode().rstrip("=")
            channel, headers = self.path.removeprefix("/"), {"encoding": self.headers["Content-Encoding"]}
            told = {"messageType": "notification", "channelID": channel, "version": data[:20], "data": data}
            for line in lines:
                line.send(json.dumps(told | {"headers": headers}))
            self.send_response(201)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    with (
        serve(talk, "127.0.0.1", 0, subprotocols=["push-notification"]) as listening,  # type: ignore[list-item]
        http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as posting,
    ):
        threads = [threading.Thread(target=one.serve_forever, daemon=True) for one in (listening, posting)]
        for thread in threads:
            thread.start()
        yield listening.socket.getsockname()[1], Service(posting.server_address[1])
        posting.shutdown()
        listening.shutdown()


@pytest.mark.alone
@pytest.mark.slow
def test_firefox_subscribes_decrypts_and_shows(place: Place) -> None:
    with push_server() as (port, sent):
        prefs = {
            "dom.push.serverURL": f"ws://127.0.0.1:{port}/",
            "dom.push.testing.allowInsecureServerURL": True,
            "dom.push.connection.enabled": True,
            "permissions.default.desktop-notification": 1,
            "alerts.useSystemBackend": False,  # there is no desktop
        }
        with firefox(prefs) as window, serving_past(place, sent.port) as site:
            story(window, site)


def story(window: Window, site: Site) -> None:
    window.go(site.told["login"])
    window.see("h1", "Projects")
    window.call("() => document.querySelector('.asked').click()")
    window.see("label", SWITCH)
    window.click("label", SWITCH)
    window.see("summary", "Devices that are notified (1)")
    (device,) = site.get("/devices")["devices"]
    assert device["name"] == "Firefox on Linux" and device["problem"] == ""
    assert window.wait(f"() => ({NOTED})().then((all) => all.length && all)") == [
        {"title": "mudroom", "body": "This device is notified of what waits for you.", "tag": "hello", "data": "#/"}
    ]
