"""Servers in forks, as a browser meets them: the user's way in, and what a hostile page of one fork can do."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import pytest
from browser import HOME, PATIENCE, another_login, browsing, mudroom, serving
from fork_server import forks_served, host_of
from otherbrowsers import Window, firefox, webkit

from clocks import give_way

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from conftest import Place

pytestmark = pytest.mark.deep

HOSTILE = """
<script>
const at = document.location;
async function tried(what, act) {
  try { return [what, await act()]; } catch (error) { return [what, "refused: " + error.name]; }
}
const project = at.hostname.split("--")[1];
const loaded = (tag, source) => new Promise((done) => {
  const one = document.createElement(tag);
  one.onload = () => done("loaded");
  one.onerror = () => done("failed");
  one.src = source;
  document.body.append(one);
});
const socket = (url) => new Promise((done) => {
  const one = new WebSocket(url);
  one.onopen = () => done("open");
  one.onerror = () => done("failed");
});
window.attack = async (page, other) => Object.fromEntries(await Promise.all([
  tried("own", async () => (await (await fetch("/x")).json()).name),
  tried("api", async () => (await fetch(page + "/api/v1/me", { credentials: "include" })).status),
  tried("api unread", async () => (await fetch(page + "/api/v1/me", { credentials: "include", mode: "no-cors" })).type),
  tried("other", async () => (await fetch(other + "/x", { credentials: "include" })).status),
  tried("other script", () => loaded("script", other + "/page")),
  tried("other frame", () => loaded("iframe", other + "/page").then(() => frames[0].document.title)),
  tried("other socket", () => socket(other.replace("http", "ws") + "/ws")),
  tried("page socket", () => socket(page.replace("http", "ws") + "/api/v1/events")),
  tried("own socket", () => socket("ws://" + at.host + "/ws")),
  tried("cookies", async () => {
    for (const domain of ["localhost", project, other.slice(7).split(":")[0], "127.0.0.1"])
      for (const path of ["/", "/x"])
        document.cookie = "to-" + domain + "=1; path=" + path + "; domain=" + domain;
    return document.cookie;
  }),
]));
</script>
"""


def entered(page: Page, address: str, title: str) -> None:
    page.goto(address)
    page.wait_for_function("title => document.title == title", arg=title, timeout=PATIENCE)


def test_a_hostile_page_of_a_fork(place: Place) -> None:
    """It reaches neither the page, nor another fork, nor what the browser has of them."""
    forks = (("dev", 3000), ("evil", 3000))
    with forks_served(place, *forks, page=HOSTILE) as site, browsing() as chromium:
        context = chromium.new_context()
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.goto(site.told["login"])
        page.wait_for_selector(HOME)
        # the user's way: a link on the card of the fork
        page.goto(f"{site.url}#/p/{site.project}")
        with context.expect_page() as opening:
            page.get_by_role("link", name=host_of(place, site, "dev").partition(":")[0]).click()
        tab = opening.value
        tab.wait_for_url(f"http://{host_of(place, site, 'dev')}/", timeout=PATIENCE)
        # an address that is typed, with its path
        dev, evil = (f"http://{host_of(place, site, fork)}" for fork in ("dev", "evil"))
        entered(tab, dev + "/page", "dev")
        entered(tab, dev.replace("//", "//3000.") + "/page", "dev")
        seen = json.loads(tab.evaluate("async () => (await fetch('/x')).text()"))
        assert "mudroom" not in dict(seen["headers"]).get("cookie", "")
        other = context.new_page()
        entered(other, evil + "/page", "evil")
        found: dict[str, Any] = other.evaluate("([page, other]) => attack(page, other)", [site.url.rstrip("/"), dev])
        assert found.pop("cookies").startswith("wide=1")
        assert found == {
            "own": "evil",
            "api": "refused: TypeError",
            "api unread": "refused: TypeError",
            "other": "refused: TypeError",
            "other script": "failed",
            "other frame": "refused: SecurityError",
            "other socket": "failed",
            "page socket": "failed",
            "own socket": "open",
        }
        seen = json.loads(tab.evaluate("async () => (await fetch('/x')).text()"))
        assert "to-" not in dict(seen["headers"])["cookie"], "no page of a fork sets a cookie for another"
        # the browser keeps no cookie of a fork for the page, nor for all of localhost
        domains = {(cookie["name"], cookie["domain"]) for cookie in context.cookies()}
        zones = {fork: host_of(place, site, fork).partition(":")[0] for fork in ("dev", "evil")}
        login = f"mudroom-{site.port}"
        assert {one for one in domains if one[0] == login} == {
            (login, "127.0.0.1"), (login, f".{zones['dev']}"), (login, f".{zones['evil']}")
        }  # fmt: skip
        assert not any(name[:3] == "to-" for name, _domain in domains)
        # the address that is easier to type leads there
        typed = dev.replace("--", ".")
        entered(other, typed + "/page", "dev")
        assert other.url == dev + "/page"
        # and the page is as it was: its API answers it
        page.reload()
        page.wait_for_selector(HOME)
        # another browser, that is not logged in, is sent to the page and gets nothing
        stranger = chromium.new_context().new_page()
        stranger.goto(dev + "/page")
        stranger.wait_for_selector("main.alone h1")
        assert stranger.url.startswith(site.url)
        mudroom(place, "serve", "--forget")
        page.goto(another_login(place))
        entered(tab, dev + "/page", "dev")  # let in anew by the page's new login


@pytest.mark.alone  # a browser begins late where all else begins, too
@pytest.mark.parametrize("browser", [firefox, webkit], ids=["firefox", "webkit"])
def test_other_browsers(place: Place, browser: Callable[[], AbstractContextManager[Window]]) -> None:
    """They find the address, are let in, open a WebSocket, and keep no cookie of one fork for another."""
    forks = (("dev", 3000), ("evil", 3000), ("db", 3000))
    with forks_served(place, *forks, page=HOSTILE) as site, browser() as window:
        dev, evil, short = (f"http://{host_of(place, site, fork)}" for fork in ("dev", "evil", "db"))
        for address, title in ((dev, "dev"), (short, "db"), (evil, "evil")):
            status, found = site.ask("POST", f"/visit?to={address.partition('//')[2]}/page")
            assert status == 200
            window.go(found["address"])
            assert window.call("() => document.title") == title
        found = window.call("([page, other]) => attack(page, other)", [site.url.rstrip("/"), dev])
        assert (found["own"], found["own socket"], found["other"]) == ("evil", "open", "refused: TypeError")
        window.go(dev.replace("--", ".") + "/page")
        assert window.call("() => [location.origin, document.title]") == [dev, "dev"]
        seen = json.loads(window.call("async () => (await fetch('/x')).text()"))
        assert "to-" not in dict(seen["headers"]).get("cookie", "")


@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
def test_a_dev_server_with_hot_reload(place: Place) -> None:
    """Vite accepts the host, and its client hears of a change by a WebSocket."""
    project = place.project
    (project / "package.json").write_text('{"private": true, "type": "module"}')
    (project / "index.html").write_text('<p id="said"></p><script type="module" src="/said.js"></script>')
    (project / "said.js").write_text(SAID.replace("WORD", "first"))
    words = ["npm", "install", "--no-audit", "--no-fund", "vite@8"]
    done = subprocess.run(words, cwd=project, capture_output=True, text=True, timeout=240, check=False)
    if done.returncode:
        pytest.skip("npm installs nothing here")
    serve = ["exec", "--fork", "dev", "--background", "--json", "--", "node_modules/.bin/vite", "--host", "127.0.0.1"]
    mudroom(place, *serve, "--port", "5173", "--strictPort")
    with serving(place) as site, browsing() as chromium:
        page = chromium.new_context().new_page()
        page.set_default_timeout(PATIENCE)
        page.goto(site.told["login"])
        page.wait_for_selector(HOME)
        while "http://dev." not in (shown := mudroom(place, "ps")):
            give_way()
        address = next(word.strip("()") for word in shown.split() if "http://" in word)
        assert address == f"http://{host_of(place, site, 'dev')}/"
        with page.expect_console_message(lambda said: "[vite] connected" in said.text):
            page.goto(address)
        page.wait_for_function("document.getElementById('said')?.textContent == 'first'")
        page.evaluate("window.kept = true")
        changed = SAID.replace("WORD", "second")
        while page.evaluate("document.getElementById('said').textContent") != "second":  # its watcher may begin late
            script = f"cat > said.js <<'END'\n{changed}\nEND"
            mudroom(place, "exec", "--fork", "dev", "--json", "--", "sh", "-c", script)
        assert page.evaluate("window.kept"), "replaced, and not loaded anew"
    mudroom(place, "ps", "--end", "--all")


SAID = """
document.getElementById("said").textContent = "WORD";
if (import.meta.hot) import.meta.hot.accept();
"""
