"""How a browser gets in, how long it stays, and who else finds the server that runs."""

from __future__ import annotations

import http.client
import http.server
import json
import os
import re
import stat
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
from browser import MUDROOM, Site, environment, mudroom, serving

import forked
from conftest import Place
from mudroom.errors import MudroomError
from mudroom.ext.web.server.login import CODE_LIFE, CODES, CookieKey, Login
from mudroom.ext.web.server.registry import RunningServer, ServerRegistry, new_code


class Answer:
    def __init__(self, answer: http.client.HTTPResponse) -> None:
        self.status, self.headers = answer.status, answer.headers
        self.text = answer.read().decode()

    @property
    def cookie(self) -> str:
        return str(self.headers["set-cookie"]).partition(";")[0]

    @property
    def browser(self) -> dict[str, str]:
        """What the page sends after this login."""
        return {"Cookie": self.cookie, "X-Mudroom-Csrf": self.headers["location"].removeprefix("./#k=")}


def ask(site: Site, path: str, method: str = "GET", **headers: str) -> Answer:
    """As a browser would: without the token."""
    connection = http.client.HTTPConnection("127.0.0.1", site.port, timeout=20)
    try:
        connection.request(method, path, None, headers)
        return Answer(connection.getresponse())
    finally:
        connection.close()


def way_in(address: str) -> str:
    """What of an address is sent."""
    return re.sub(r"^http://127\.0\.0\.1:\d+", "", address)


def link(place: Place, *words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(mudroom(place, "serve", "--json", *words))
    return found


def test_an_address_counts_once(site: Site) -> None:
    path = way_in(site.told["login"])
    for early in (
        ask(site, path, "HEAD"),
        ask(site, path, "POST"),
        ask(site, path, Host="evil.example"),
        ask(site, path, **{"Sec-Purpose": "prefetch;prerender"}),
        ask(site, path, **{"Sec-Fetch-Site": "cross-site"}),
    ):
        assert early.status >= 400
        assert "set-cookie" not in early.headers
    entered = ask(site, path)
    assert (entered.status, entered.text) == (303, "")
    assert re.fullmatch("./#k=[0-9a-f]{64}", entered.headers["location"])
    words = entered.headers["set-cookie"].split("; ")
    assert {"HttpOnly", "SameSite=strict", "Path=/"} == set(words[1:])
    me = ask(site, "/api/v1/me", **entered.browser)
    assert me.status == 200
    assert entered.browser["X-Mudroom-Csrf"] not in me.text
    assert ask(site, "/api/v1/me", Cookie=entered.cookie).status == 401
    key = "k=" + entered.browser["X-Mudroom-Csrf"]
    assert ask(site, "/api/v1/me?" + key, Cookie=entered.cookie).status == 200
    assert ask(site, "/api/v1/me?" + key).status == 401
    again = ask(site, path)
    assert (again.status, "set-cookie" in again.headers) == (403, False)
    assert "mudroom serve --link" in again.text
    assert "<script" not in again.text
    assert "script-src" not in again.headers["content-security-policy"]
    assert ask(site, "/login").status == ask(site, "/login?code=").status == ask(site, "/login?code=%ff").status == 403


def test_a_proxy_that_speaks_tls_has_a_cookie_for_tls(site: Site) -> None:
    entered = ask(site, way_in(site.told["login"]), **{"X-Forwarded-Proto": "https"})
    assert "; Secure" in entered.headers["set-cookie"]


def test_a_browser_stays_logged_in_over_a_restart_until_it_is_forgotten(place: Place) -> None:
    with serving(place) as site:
        port, token = site.port, site.told["token"]
        browser = ask(site, way_in(site.told["login"])).browser
        me = json.loads(ask(site, "/api/v1/me", **browser).text)
    with serving(place, "--port", str(port)) as site:
        assert site.told["token"] != token
        assert json.loads(ask(site, "/api/v1/me", **browser).text) == me  # the page that is open goes on, too
        assert ask(site, "/api/v1/projects/none/undo", "POST", **browser).status in (400, 404)
        assert mudroom(place, "serve", "--forget") == "every browser is logged out, and none is notified\n"
        assert ask(site, "/api/v1/me", **browser).status == 401
        assert ask(site, way_in(link(place, "--link")["login"])).status == 303
    with serving(place) as site:
        assert ask(site, "/api/v1/me", **browser).status == 401


def test_a_second_one_finds_the_first(place: Place, site: Site) -> None:
    for words in (["--link"], [], ["--port", "0"], ["--port", str(site.port)]):
        found = link(place, *words)
        assert (found["url"], found["token"]) == (site.url, site.told["token"])
        assert ask(site, way_in(found["login"])).status == 303
    text = mudroom(place, "serve", "--link")
    assert text.startswith(site.url + "login?code=")
    assert site.told["token"] not in text
    assert f"process {site.process.pid} runs already" in text
    assert f"  token: {site.told['token']}\n" in mudroom(place, "serve", "--link", "--token")
    for words in (["--port", "1"], ["--root", "/"], ["--url-prefix", "/x"], ["--host-name", "box.example"]):
        mudroom(place, "serve", *words, expected=125)
    for name in ("key", "lock", "server.json"):
        assert stat.S_IMODE((place.state / "serve" / name).stat().st_mode) == 0o600
    assert stat.S_IMODE((place.state / "serve").stat().st_mode) == 0o700


def test_without_one_there_is_no_address(place: Place) -> None:
    mudroom(place, "serve", "--link", expected=125)
    assert not place.state.exists()


def test_one_that_was_killed_is_in_nobodys_way(place: Place) -> None:
    words = ["serve", "--port", "0", "--json"]
    with forked.popen(words, cwd=place.project, env=environment(place), stdout=subprocess.PIPE, text=True) as process:
        Site(process)
        process.kill()
    told = place.state / "serve/server.json"
    assert told.exists()
    mudroom(place, "serve", "--link", expected=125)
    with serving(place) as another:
        assert another.get("/me")
    assert not told.exists()


def test_somebody_else_on_our_port_is_told_nothing(place: Place, tmp_path: Path) -> None:
    """Another user has taken the port when the server was gone: he is not told the token, and not believed."""
    asked: list[str] = []

    class Other(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(f"{self.path} {self.headers}")
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"0" * 64)

        def log_message(self, *args: Any) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Other) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        registry = ServerRegistry(os.fsencode(tmp_path / "serve"))
        assert registry.acquire()
        registry.publish(RunningServer(1, server.server_address[1], "the-token", "", []))
        assert registry.find_running() is None
        server.shutdown()
        thread.join()
    assert len(asked) == 1
    assert "the-token" not in asked[0]


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b"\xff", b'{"pid": 1, "port": 99999, "token": "t", "prefix": "", "names": []}']
)
def test_a_file_that_says_nothing_is_nobody(tmp_path: Path, text: bytes) -> None:
    registry = ServerRegistry(os.fsencode(tmp_path))
    (tmp_path / "server.json").write_bytes(text)
    (tmp_path / "server.json").chmod(0o600)
    assert registry.find_running() is None


def test_a_server_that_gives_no_code_is_an_error() -> None:
    with pytest.raises(MudroomError) as raised:
        new_code(RunningServer(4711, 1, "t", "", []))
    told = "the server on port 1 gives no address (end it, and start another: kill 4711; mudroom serve)"
    assert str(raised.value) == told


def test_codes_expire_and_are_few() -> None:
    now = [1000.0]
    login = Login(1, "t", clock=lambda: now[0])
    old = login.new_code()
    now[0] += CODE_LIFE
    assert not login._use_code(old)
    codes = [login.new_code() for _number in range(CODES + 1)]
    assert [login._use_code(one) for one in codes] == [False] + [True] * CODES
    assert not any(login._use_code(one) for one in codes)


def test_a_directory_of_others_gets_no_key(tmp_path: Path) -> None:
    place = tmp_path / "serve"
    place.mkdir()
    place.chmod(0o720)
    with pytest.raises(MudroomError) as raised:
        CookieKey(bytes(place)).prepare()
    assert str(raised.value) == (
        f"{place} belongs to another user, or others may write in it (rm -r {place} removes it; it is made again)"
    )
    assert not list(place.iterdir())


def test_only_a_key_that_is_ours_alone_counts(tmp_path: Path) -> None:
    key, path = CookieKey(os.fsencode(tmp_path / "serve")), tmp_path / "serve/key"
    assert key.key() is None
    key.prepare()
    first = key.key()
    assert first is not None
    key.prepare()
    assert key.key() == first
    key.renew()
    assert key.key() not in (first, None)
    path.chmod(0o640)
    assert key.key() is None
    path.chmod(0o600)
    path.write_bytes(b"x" * 31)
    assert key.key() is None
    path.write_bytes(b"x" * 33)
    assert key.key() is None
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert key.key() is None
    path.unlink()
    os.mkfifo(path, 0o600)
    assert key.key() is None
    path.unlink()
    path.parent.chmod(0o777)
    with pytest.raises(MudroomError, match="others may write"):
        key.prepare()
    assert os.listdir(path.parent) == []


def test_the_browser_is_opened_by_a_file_that_only_we_can_read(place: Place, tmp_path: Path) -> None:
    """What a browser is started with is seen by everybody (ps)."""
    seen = tmp_path / "seen"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$@" > {seen}.new; mv {seen}.new {seen}\n')
    browser.chmod(0o755)
    with serving(place) as site:
        words = ["serve", "--link", "--open"]
        env = environment(place) | {"BROWSER": str(browser)}
        done = forked.run(words, cwd=place.project, env=env)
        (argument,) = seen.read_text().split()
        page = Path(argument.removeprefix("file://"))
        assert stat.S_IMODE(page.stat().st_mode) == 0o600
        address = done.stdout.splitlines()[0]
        assert f"url={address}" in page.read_text()
        code = address.partition("code=")[2]
        assert code not in argument
        assert ask(site, way_in(address)).status == 303


def test_the_browser_is_not_a_program_of_the_project(place: Place) -> None:
    ran = place.root / "ran"
    for name in ("xdg-open", "www-browser", "x-www-browser", "lynx", "w3m"):
        place.write(name, f"#!/bin/sh\necho {name} >> {ran}\n", 0o755)
    with serving(place):
        env = environment(place) | {"PATH": ".::/usr/bin:/bin", "BROWSER": "", "TERM": "xterm"}
        words = [*MUDROOM[:1], "-P", *MUDROOM[1:], "serve", "--link", "--open"]
        subprocess.run(words, cwd=place.project, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert not ran.exists(), ran.read_text()


def test_behind_a_proxy(place: Place) -> None:
    with serving(place, "--url-prefix", "/a/b/", "--host-name", "box.example", "--host-name", "m.localhost") as site:
        assert site.url == f"http://127.0.0.1:{site.port}/a/b/"
        assert site.get("/me")
        lines = mudroom(place, "serve", "--link").splitlines()
        code = lines[0].partition("?code=")[2]
        expected = [site.url, f"http://m.localhost:{site.port}/a/b/", "https://box.example/a/b/"]
        assert lines[:3] == [f"{one}login?code={code}" for one in expected]
        entered = ask(site, f"/a/b/login?code={code}", Host="box.example")
        assert entered.status == 303
        assert "; Path=/a/b/;" in entered.headers["set-cookie"]
        for prefix in ("/a/b", ""):  # some proxies take it off
            for host in ("box.example", f"127.0.0.1:{site.port}", f"m.localhost:{site.port}"):
                more = {"Host": host, "Origin": "https://box.example", **entered.browser}
                assert ask(site, prefix + "/api/v1/me", **more).status == 200
            page = ask(site, prefix + "/", Host="box.example").text
            for name in re.findall(r'(?:src|href)="([^"]+)"', page):
                assert not name.startswith(("/", "http"))
                assert ask(site, f"{prefix}/{name}").status == 200
        assert ask(site, "/a/b").headers["location"] == "/a/b/"
        assert ask(site, "/a/b/api/v1/me", Host="x.example", **entered.browser).status == 421


@pytest.mark.parametrize(
    "words",
    [
        ["--url-prefix", "/.."], ["--url-prefix", "/a//b"], ["--url-prefix", "/a b"], ["--url-prefix", "/a?b"],
        ["--url-prefix", "/%2e"], ["--host-name", ""], ["--host-name", "http://a.example"], ["--host-name", "a_b"],
        ["--host-name", "10.0.0.1"], ["--host-name", "*"], ["--host-name", "a.example:x"], ["--port", "-1"],
        ["--host-name", "localhost:0"], ["--host-name", "localhost:99999"], ["--host-name", "localhost:08"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_words_that_cannot_be(place: Place, words: list[str]) -> None:
    mudroom(place, "serve", *(f"{words[0]}={words[1]}",), expected=125)
    assert not place.state.exists()
