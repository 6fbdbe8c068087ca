"""What others try on the server: other sites by way of the user's browser, other programs on its port."""

from __future__ import annotations

import http.client
import json
import re
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from browser import Shared, Site, another_login, serving, shared_server, staged

from conftest import Place
from mudroom.ext.web.api.endpoint import BODY_LIMIT
from mudroom.ext.web.api.table import BASE, ENDPOINTS
from mudroom.ext.web.server.app import STREAMS
from mudroom.ext.web.server.asset import ASSETS

PAGE = Path(__file__).parents[3] / "src/mudroom/ext/web/page"
SECRET = "the-secret-of-a-fork"


class Caller:
    """Somebody who asks, with what he has."""

    def __init__(self, site: Site, **headers: str) -> None:
        self.site, self.headers = site, headers

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.site.port, timeout=20)
        try:
            connection.request(method, path, body, {**self.headers, **headers})
            answer = connection.getresponse()
            return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()
        finally:
            connection.close()

    def status(self, method: str, path: str, body: Any = None, **headers: str) -> int:
        return self.ask(method, path, body, **headers)[0]

    def problem(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, str]:
        status, sent, answer = self.ask(method, path, body, **headers)
        assert sent["content-type"] == "application/json"
        assert sent["cache-control"] == "no-store"
        found = json.loads(answer)
        assert found["error"]
        return status, found["code"]


@pytest.fixture(scope="module")
def shared(shared_root: Path) -> Iterator[Shared]:
    with shared_server(shared_root, browser=None) as shared:
        yield shared


@pytest.fixture
def site(shared: Shared) -> Site:
    return shared.site


@pytest.fixture
def stranger(site: Site) -> Caller:
    return Caller(site)


@pytest.fixture
def program(site: Site) -> Caller:
    return Caller(site, Authorization=f"Bearer {site.told['token']}")


@pytest.fixture
def browser(site: Site, shared: Shared) -> Caller:
    """One that is logged in."""
    _status, sent, _body = Caller(site).ask("GET", another_login(shared.around).partition(f":{site.port}")[2])
    key = sent["location"].removeprefix("./#k=")
    return Caller(site, **{"Cookie": sent["set-cookie"].partition(";")[0], "X-Mudroom-Csrf": key})


@pytest.fixture
def thief(browser: Caller) -> Caller:
    """A server at another port of this host, which is sent the cookie and nothing else."""
    return Caller(browser.site, Cookie=browser.headers["Cookie"])


def filled(path: str) -> str:
    return BASE + re.sub(r"{\w+}", "x", path)


def test_nothing_of_the_api_is_for_strangers(stranger: Caller, thief: Caller, browser: Caller) -> None:
    for one in ENDPOINTS:
        assert stranger.problem(one.method, filled(one.path)) == (401, "unauthorized")
        assert stranger.status(one.method, filled(one.path), Authorization="Bearer x") == 401
        assert thief.problem(one.method, filled(one.path)) == (401, "unauthorized")
    for path in ("/events", "/openapi.json", "/agents", "/nothing", ""):
        for caller in (stranger, thief):
            assert caller.problem("GET", BASE + path) == (401, "unauthorized")
    assert stranger.status("POST", "/link") == thief.status("POST", "/link") == 401
    assert browser.status("POST", "/link") == 403


def test_a_name_that_leads_here_is_not_ours(browser: Caller, program: Caller) -> None:
    for caller in (browser, program):
        for host in ("evil.example", f"evil.example:{caller.site.port}", f"127.0.0.1.evil.example:{caller.site.port}"):
            assert caller.problem("GET", BASE + "/me", Host=host) == (421, "forbidden")
            assert caller.status("GET", "/", Host=host) == 421


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"])
def test_a_form_of_another_site_is_not_answered(browser: Caller, thief: Caller, program: Caller, kind: str) -> None:
    path, form = BASE + "/projects/x/forks", '{"name": "a", "x": "=y"}'
    for site in ({"Origin": "http://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}):
        assert browser.problem("POST", path, form, **{"Content-Type": kind}, **site) == (403, "forbidden")
    # a browser that says nothing of the site, as old ones do
    assert thief.problem("POST", path, form, **{"Content-Type": kind}) == (401, "unauthorized")
    # nor is it understood, whoever sends it
    assert program.problem("POST", path, form, **{"Content-Type": kind}) == (415, "bad-request")


def test_a_script_of_another_site_is_not_answered(browser: Caller) -> None:
    right = {"Content-Type": "application/json"}
    other = f"http://127.0.0.1:{browser.site.port + 1}"
    for site in ({"Origin": "http://evil.example"}, {"Origin": other, "Sec-Fetch-Site": "same-site"}):
        for method in ("GET", "POST", "OPTIONS"):
            status, sent, _body = browser.ask(method, BASE + "/projects/x/forks", '{"name": "a"}', **right, **site)
            assert status == 403
            assert not any(name.startswith("access-control") for name in sent)
    assert browser.status("POST", BASE + "/projects/x/forks", '{"name": "a"}', **right) in (400, 404)


TRICKS = [
    "/projects/..%2f..", "/projects/../../me", "/projects/%2e%2e", "/projects/%2e%2e/forks/x/changes", "//projects",
    "/projects/x%00y", "/projects/" + "a" * 8000, "/projects/x/forks/..%2f..%2fkey/changes", "/projects//", "/Projects",
    "/projects/%ff%fe", "/projects/%0d%0aset-cookie:x", "/projects/%e2%80%ae", "/projects/x/forks/-/changes",
    "/projects/", "/projects;x", "/projects/.%2e/", "/jobs/../me", "/projects/x/forks/%5c..%5c/changes", "/jobs/%00",
    "/projects/%00",
]  # fmt: skip
FILES = [
    "/../state/secret", "/%2e%2e/%2e%2e/state/secret", "/vendor/../../guard.py", "/vendor%2f..%2f..%2fguard.py",
    "//app.js", "/vendor", "/vendor/", "/page/app.js", "/app.js/", "/app.js%00", "/.", "/login/", "/serve/key",
    "/" + "x" * 20_000, "/%61pp.js/x", "/index.html/../x",
]  # fmt: skip


def test_tricks_with_paths(place: Place, program: Caller, stranger: Caller) -> None:
    (place.state / "secret").write_text(SECRET)
    for trick in TRICKS:
        status, sent, body = program.ask("GET", BASE + trick)
        assert (status, sent["content-type"]) == (404, "application/json"), trick
        assert SECRET.encode() not in body
        assert stranger.status("GET", BASE + trick) == 401
    for path in FILES:
        assert program.status("GET", path) == 404, path
        assert stranger.status("GET", path) == 401, path
    assert stranger.status("GET", "/%61pp.js") == 200


@pytest.mark.parametrize("method", ["TRACE", "CONNECT", "OPTIONS", "PUT", "PATCH", "DELETE", "HEAD", "PROPFIND", "get"])
def test_methods_that_nothing_has(program: Caller, stranger: Caller, method: str) -> None:
    status, sent, body = program.ask(method, BASE + "/me")
    assert (status, sent["allow"], b"Bearer" in body) == (405, "GET", False)
    assert stranger.status(method, BASE + "/me") == 401
    assert stranger.status(method, "/login") == 405
    assert stranger.status(method, "/") == (200 if method == "HEAD" else 405)


def test_every_page_has_its_policy_and_no_script_of_its_own(stranger: Caller, browser: Caller) -> None:
    for name, one in ASSETS.items():
        status, sent, _body = stranger.ask("GET", "/" + name)
        assert (status, sent["content-type"], sent["x-content-type-options"]) == (200, one.media_type, "nosniff")
        assert sent["cross-origin-resource-policy"] == "same-origin"
        rules = dict(rule.partition(" ")[::2] for rule in sent["content-security-policy"].split("; "))
        assert rules["default-src"] == rules["frame-ancestors"] == rules["base-uri"] == rules["form-action"] == "'none'"
        assert rules["script-src"] == "'self'"
        assert "unsafe" not in sent["content-security-policy"]
        assert stranger.status("GET", "/" + name, **{"If-None-Match": sent["etag"]}) == 304
    for path in ("/login", "/nothing"):
        _status, sent, _body = browser.ask("GET", path)
        assert "default-src 'none'" in sent["content-security-policy"]
        assert sent["cache-control"] == "no-store"
    for file in PAGE.rglob("*.html"):
        text = file.read_text()
        assert not re.search(r"<script(?![^>]*\ssrc=)|\son\w+\s*=|\sstyle\s*=|<style|javascript:", text, re.I), file
        assert not re.search(r"(?:src|href)=\"(?:https?:)?//", text), file
    made = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function"
    for file in PAGE.glob("*.js"):
        assert not re.search(made, file.read_text()), file


def test_bodies(program: Caller) -> None:
    path, kind = BASE + "/projects/x/forks", {"Content-Type": "application/json"}
    odd = (b"", b"{", b"[]", b"\xff\xfe", b"[" * 100_000, b"null", b'{"name": "\\ud800"}', b'{"name": "a", "more": 1}')
    for body in odd:
        assert program.problem("POST", path, body, **kind)[1] in ("bad-request", "not-found")
    assert program.problem("POST", path, b" " * (BODY_LIMIT + 1), **kind) == (413, "bad-request")
    chunks = iter([b" " * (1 << 20)] * ((BODY_LIMIT >> 20) + 1))
    assert program.problem("POST", path, chunks, **kind) == (413, "bad-request")
    assert program.problem("GET", BASE + "/projects?x=1") == (400, "bad-request")


def raw(site: Site, data: bytes) -> bytes:
    """What is answered to it, as far as the connection lives."""
    found = b""
    with socket.create_connection(("127.0.0.1", site.port), timeout=20) as connection:
        try:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
            while piece := connection.recv(65536):
                found += piece
        except ConnectionError:
            pass  # what has not been read is thrown away with the connection
    return found


def test_what_is_no_request(site: Site) -> None:
    own = b"Host: 127.0.0.1:%d\r\n" % site.port
    for data, status in (
        (b"\x16\x03\x01\x02\x00\x01\x00", b"400"),
        (b"GET / HTTP/1.1\r\n\r\n", b"400"),
        (b"GET / HTTP/1.0\r\n\r\n", b"421"),
        (b"GET / HTTP/1.1\r\n" + own + own + b"\r\n", b"400"),
        (b"GET / HTTP/1.1\r\n" + own + b"X: " + b"a" * 200_000, b"400"),
        (b"GET http://evil.example/ HTTP/1.1\r\n" + own + b"\r\n", b"400"),
        (b"GET /\x00 HTTP/1.1\r\n" + own + b"\r\n", b"400"),
        (b"POST / HTTP/1.1\r\n" + own + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n" + own, b"400"),
        (b"OPTIONS * HTTP/1.1\r\n" + own + b"\r\n", b"400"),
        (b"GET / HTTP/1.1\r\n" + own + b"Connection: upgrade\r\nUpgrade: websocket\r\n\r\n", b"200"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"421"),
    ):
        answer = raw(site, data)
        assert answer.partition(b" ")[2][:3] in (status, b""), data[:60]
        assert answer.count(b"HTTP/1.1 ") <= 1 or b"HTTP/1.1 400" not in answer.partition(b"\n")[0]
    assert site.get("/me")


@contextmanager
def listening(site: Site, number: int) -> Iterator[list[http.client.HTTPResponse]]:
    """So many streams, each of which has begun."""
    with ExitStack() as stack:
        streams = []
        for _one in range(number):
            connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=20)
            stack.callback(connection.close)
            connection.request("GET", BASE + "/events", None, {"Authorization": f"Bearer {site.told['token']}"})
            streams.append(stack.enter_context(connection.getresponse()))
            assert streams[-1].getheader("content-type", "").startswith("text/event-stream")
            assert streams[-1].readline() == b"retry: 1000\n"
        yield streams


def test_pages_that_listen_do_not_hold_the_end_up(place: Place) -> None:
    with serving(place) as site, listening(site, 3) as streams:
        site.process.send_signal(signal.SIGTERM)
        assert site.process.wait(60) == 0
        assert all(b"event: end" in one.read() for one in streams)


def test_only_so_many_streams_are_open(site: Site) -> None:
    with listening(site, STREAMS):
        assert site.ask("GET", "/events")[0] == 503
        assert site.get("/me")
    with listening(site, 1):
        pass


def test_names_of_files_do_not_become_anything_else(place: Place, site: Site, program: Caller) -> None:
    place.write("a", "1")
    names = r"""touch '<script>alert(1)<b>' "$(printf 'a\033[2J\nb')" "$(printf '\377')" """
    staged(place, names)
    status, sent, body = program.ask("GET", f"{BASE}/projects/{site.project}/forks/try-1/changes")
    assert (status, sent["content-type"], sent["x-content-type-options"]) == (200, "application/json", "nosniff")
    shown = [row["path"] for row in json.loads(body)["rows"]]
    assert len(shown) == 3
    assert all(text.isprintable() for text in shown)
