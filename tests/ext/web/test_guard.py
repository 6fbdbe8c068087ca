"""Who is answered on loopback: ours, and nobody whom another page sent."""

from __future__ import annotations

import asyncio
import json
from collections.abc import MutableMapping
from typing import Any

import pytest

from mudroom.ext.web.server.guard import PUSH_WORKER, RequestGuard, hosts_of, own_hosts
from mudroom.ext.web.server.login import COOKIE_LIFE, Login
from tiers import each

TOKEN = "secret-token"
PORT = 8765
OWN = ("host", f"127.0.0.1:{PORT}")
BEARER = ("authorization", f"Bearer {TOKEN}")
KEY = b"k" * 32
PUBLIC, DOORS = {"/public", "/door"}, {"/door"}


def make_login(port: int = PORT, key: bytes | None = KEY, now: float = 1e9) -> Login:
    return Login(port, TOKEN, lambda: key, clock=lambda: now)


def cookie_of(login: Login) -> str:
    value = login._new_cookie()
    assert value is not None
    return f"{login.cookie}={value}"


COOKIE = ("cookie", cookie_of(make_login()))


def key_of(*headers: tuple[str, str]) -> tuple[str, str]:
    return ("x-mudroom-csrf", make_login().csrf([(name.encode(), value.encode("latin-1")) for name, value in headers]))


async def inner(scope: Any, _receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"referrer-policy", b"own")]})
    await send({"type": "http.response.body", "body": b"in " + scope["path"].encode()})


def ask(
    path: str,
    *headers: tuple[str, str],
    method: str = "GET",
    prefix: str = "",
    names: tuple[str, ...] = (),
    app: Any = inner,
    login: Login | None = None,
    query: str = "",
    push_worker: bytes = b"",
) -> tuple[int, dict[bytes, bytes], bytes]:
    guard = RequestGuard(app, hosts_of(PORT, names), login or make_login(), PUBLIC, DOORS, prefix, None, push_worker)
    sent: list[MutableMapping[str, Any]] = []

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    async def receive() -> MutableMapping[str, Any]:
        return {}

    raw = [(name.encode(), value.encode("latin-1")) for name, value in headers]
    scope = {"type": "http", "method": method, "path": path, "query_string": query.encode(), "headers": raw}
    asyncio.run(guard(scope, receive, send))
    return sent[0]["status"], dict(sent[0]["headers"]), sent[1]["body"]


@each("host", [f"127.0.0.1:{PORT}", f"localhost:{PORT}", f"LOCALHOST:{PORT}", f"[::1]:{PORT}"])
def test_our_own_hosts(host: str) -> None:
    assert ask("/public", ("host", host))[0] == 200


@each(
    "host",
    [
        "evil.example", f"evil.example:{PORT}", "127.0.0.1", "127.0.0.1:1", f"127.0.0.1.evil.example:{PORT}", "",
        f"localhost:{PORT}.evil.example", f"127.0.0.1:{PORT}@evil.example", f"0.0.0.0:{PORT}", f"127.1:{PORT}",
        f"localhost.:{PORT}", f"127.0.0.1:{PORT} ", f"127.0.0.1:0{PORT}",
    ],
)  # fmt: skip
def test_a_name_that_was_made_to_lead_here(host: str) -> None:
    for path in ("/public", "/"):
        status, _headers, body = ask(path, ("host", host), BEARER)
        assert (status, b"in" in body.split()) == (421, False)


def test_one_host_and_no_more() -> None:
    assert ask("/public")[0] == 421
    assert ask("/public", OWN, OWN)[0] == 421
    assert ask("/public", OWN, ("Host", "evil.example"))[0] == 421


@each(
    ("name", "value", "status"),
    [
        ("origin", f"http://127.0.0.1:{PORT}", 200),
        ("origin", f"http://localhost:{PORT}", 200),
        ("origin", "http://evil.example", 403),
        ("origin", "null", 403),
        ("origin", "", 403),
        ("origin", f"https://127.0.0.1:{PORT}", 403),
        ("origin", "http://127.0.0.1", 403),
        ("origin", f"http://127.0.0.1:{PORT}.evil.example", 403),
        ("sec-fetch-site", "same-origin", 200),
        ("sec-fetch-site", "none", 200),
        ("sec-fetch-site", "cross-site", 403),
        ("sec-fetch-site", "same-site", 403),
        ("sec-fetch-site", "anything", 403),
    ],
)
def test_another_site_is_not_answered(name: str, value: str, status: int) -> None:
    assert ask("/public", OWN, (name, value))[0] == status
    assert ask("/", OWN, BEARER, (name, value))[0] == status


@each(
    ("header", "status"),
    [
        (BEARER, 200),
        (("authorization", f"bearer {TOKEN}"), 200),
        (COOKIE, 200),
        (("cookie", f"x=y; {COOKIE[1]}; a"), 200),
        (("cookie", f"mudroom-{PORT}=of another port's server; {COOKIE[1]}"), 200),
        (("authorization", TOKEN), 401),
        (("authorization", "Bearer "), 401),
        (("authorization", f"Bearer {TOKEN}x"), 401),
        (("authorization", f"Basic {TOKEN}"), 401),
        (("authorization", "Bearer \xe9"), 401),
        (("authorization", f"Bearer {TOKEN[:-1]}"), 401),
        (("cookie", f"mudroom-{PORT}={TOKEN}"), 401),
        (("cookie", COOKIE[1].replace(str(PORT), "1", 1)), 401),
        (("cookie", f"mudroom-{PORT}"), 401),
        (("cookie", f"mudroom-{PORT}="), 401),
        (("cookie", f"mudroom-{PORT}=..\xe9"), 401),
        (("cookie", f"mudroom-{PORT}=\xe9.\xff.\x80"), 401),
        (("cookie", COOKIE[1] + "0"), 401),
        (("cookie", COOKIE[1].replace(".", ".0", 1)), 401),
        (("cookie", cookie_of(make_login(port=1)).replace("-1=", f"-{PORT}=")), 401),
        (("cookie", cookie_of(make_login(key=b"x" * 32))), 401),
        (("cookie", cookie_of(make_login(now=1e9 - COOKIE_LIFE))), 401),
        (("x-token", TOKEN), 401),
    ],
)
def test_the_token(header: tuple[str, str], status: int) -> None:
    found, headers, _body = ask("/", OWN, header, key_of(header))
    assert found == status
    assert (b"www-authenticate" in headers) == (status == 401)


def test_a_wrong_token_is_not_made_good_by_a_cookie_nor_by_a_second_one() -> None:
    wrong = ("authorization", "Bearer wrong")
    assert ask("/", OWN, COOKIE, wrong)[0] == 401
    assert ask("/", OWN, BEARER, wrong)[0] == ask("/", OWN, BEARER, BEARER)[0] == 401
    assert ask("/", OWN, COOKIE, key_of(COOKIE), ("authorization", "Basic eA=="))[0] == 200  # of a proxy before us


def test_without_a_key_no_cookie_counts() -> None:
    nobody = make_login(key=None)
    assert ask("/", OWN, COOKIE, login=nobody)[0] == 401
    assert ask("/", OWN, BEARER, login=nobody)[0] == 200
    assert nobody._new_cookie() is None


@each("method", ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT", "get", "Q"])
def test_a_cookie_alone_is_worth_nothing(method: str) -> None:
    good = key_of(COOKIE)
    assert ask("/", OWN, COOKIE, good, method=method)[0] == ask("/", OWN, BEARER, method=method)[0] == 200
    other = key_of(("cookie", cookie_of(make_login())))
    for bad in ([], [("x-mudroom-csrf", "")], [("x-mudroom-csrf", "\xe9")], [other], [good, good]):
        assert ask("/", OWN, COOKIE, *bad, method=method)[0] == 401
    assert ask("/", OWN, good, method=method)[0] == 401


async def told_query(scope: Any, _receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": scope["query_string"]})


def test_a_get_may_bring_the_key_in_its_query_and_nobody_behind_sees_it() -> None:
    key = key_of(COOKIE)[1]
    for query, left in (("k={}", b""), ("a=%20b&k={}&c", b"a=%20b&c"), ("a=1&&k={}&kk=2", b"a=1&&kk=2")):
        status, _headers, body = ask("/", OWN, COOKIE, query=query.format(key), app=told_query)
        assert (status, body) == (200, left)
    assert ask("/", OWN, BEARER, query="a=b&kk=k", app=told_query)[2] == b"a=b&kk=k"
    for bad in ("", "k=", "k", "k=x", "k={0}&k={0}", "k={0}x", "K={0}", "%6b={0}", "a=k={0}"):
        assert ask("/", OWN, COOKIE, query=bad.format(key))[0] == 401, bad
    assert ask("/", OWN, COOKIE, key_of(COOKIE), query=f"k={key}")[0] == 401
    for method in ("POST", "HEAD", "DELETE"):
        assert ask("/", OWN, COOKIE, query=f"k={key}", method=method)[0] == 401


@each("path", ["/", "/public", "/sw.js", "/any/where", "/api/v1/me", "/x/y.js"])
def test_a_service_worker_that_somebody_has_left_is_given_one_that_ends_it(path: str) -> None:
    script = ("service-worker", "script")
    for more in ([], [("sec-fetch-site", "same-origin")], [COOKIE], [("authorization", "Bearer x")]):
        status, headers, body = ask(path, OWN, script, *more, prefix="/x")
        assert (status, headers[b"content-type"]) == (200, b"text/javascript; charset=utf-8")
        assert (headers[b"cache-control"], int(headers[b"content-length"])) == (b"no-store", len(body))
        assert headers[b"service-worker-allowed"] == b"/"
        assert b"registration.unregister()" in body
    assert ask(path, ("host", "evil.example"), script)[0] == 421
    assert b"unregister" not in ask(path, OWN, script, method="POST")[2]


def test_one_service_worker_is_served_at_one_path() -> None:
    def script(path: str, *headers: tuple[str, str], method: str = "GET") -> tuple[int, dict[bytes, bytes], bytes]:
        return ask(path, OWN, *headers, method=method, prefix="/x", push_worker=b"ours")

    worker = ("service-worker", "script")
    for path in (PUSH_WORKER, "/x" + PUSH_WORKER):
        status, headers, body = script(path, worker)
        assert (status, body, headers[b"cache-control"]) == (200, b"ours", b"no-store")
        assert headers[b"content-security-policy"] == b"default-src 'none'; frame-ancestors 'none'"
    for path in (
        "/push/worker.js/",
        "/push//worker.js",
        "/PUSH/worker.js",
        "/v-1/push/worker.js",
        "/x/x/push/worker.js",
    ):
        assert b"registration.unregister()" in script(path, worker)[2], path
    assert script(PUSH_WORKER)[0] == 401, "without the header it is a path as any"
    assert script(PUSH_WORKER, worker, method="POST")[2] != b"ours"
    assert script(PUSH_WORKER, worker, ("host", "evil.example"))[0] == 421


def test_what_the_page_knows_does_not_hang_on_other_cookies() -> None:
    good = key_of(COOKIE)
    assert ask("/", OWN, ("cookie", "a=b; " + COOKIE[1]), good, method="POST")[0] == 200
    assert ask("/", OWN, ("cookie", "a=b"), COOKIE, good, method="POST")[0] == 200


def test_other_sites_may_link_to_a_door_and_do_nothing_else() -> None:
    site, mode, dest = ("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate"), ("sec-fetch-dest", "document")
    assert ask("/door", OWN, site, mode, dest)[0] == 200
    for path, *headers in (
        ("/public", site, mode, dest),
        ("/x", site, mode, dest, BEARER),
        ("/door", site, mode),
        ("/door", site, mode, ("sec-fetch-dest", "iframe")),
        ("/door", site, ("sec-fetch-mode", "cors"), dest),
        ("/door", site, mode, dest, ("origin", "null")),
    ):
        assert ask(str(path), OWN, *headers)[0] == 403
    assert ask("/door", OWN, site, mode, dest, method="POST")[0] == 403


def test_what_is_public_is_public_by_its_very_path() -> None:
    for path in ("/public/", "/public/../x", "//public", "/Public", "/publicx", "/public\n", "/public\0", "/./public"):
        assert ask(path, OWN)[0] == 401
    for path in ("http://127.0.0.1:8765/public", "*", "public"):
        assert ask(path, OWN)[0] == ask(path, OWN, BEARER)[0] == 400


def test_a_prefix_is_taken_off_whether_or_not_a_proxy_has_done_so() -> None:
    for path in ("/a/b/public", "/public"):
        assert ask(path, OWN, prefix="/a/b")[::2] == (200, b"in /public")
    status, headers, _body = ask("/a/b", OWN, prefix="/a/b")
    assert (status, headers[b"location"]) == (308, b"/a/b/")
    for path in ("/a/bpublic", "/a/public", "/x/a/b/public", "/a/b/a/b/public", "/A/B/public"):
        assert ask(path, OWN, prefix="/a/b")[0] == 401


def test_names_of_a_proxy() -> None:
    names = ("Box.example", "other.example:8443")
    for host in ("box.example", "BOX.example:443", "box.example:80", f"box.example:{PORT}", "other.example:8443"):
        for scheme in ("http", "https"):
            origin = ("origin", f"{scheme}://{host.lower()}")
            assert ask("/public", ("host", host), origin, names=names)[0] == 200
            assert ask("/public", OWN, origin, names=names)[0] == 200  # the proxy writes Host anew
    for host in ("other.example", "box.example:8443", "x.box.example", "box.example.evil.example"):
        assert ask("/public", ("host", host), names=names)[0] == 421
        assert ask("/public", OWN, ("origin", f"https://{host}"), names=names)[0] == 403


@each(
    ("name", "proxied"),
    [
        *((name, False) for name in ("localhost", "LOCALHOST", "127.0.0.1", "127.1.2.3:80", "[::1]", "x.localhost:99")),
        *((name, True) for name in ("box", "localhost.example", "127.0.0.1.example", "[::2]", "notlocalhost:1")),
    ],
)
def test_a_name_of_loopback_is_no_proxys(name: str, proxied: bool) -> None:
    """By it other users of the machine are told from its own: naming it must not let them in."""
    assert hosts_of(PORT, (name,)).proxied is proxied


def test_a_port_that_is_forwarded_here() -> None:
    """It is this machine's loopback to who asks, by whatever it calls that; nobody else's connection comes by it."""
    names = ("localhost:8080",)
    assert not hosts_of(PORT, names).proxied
    for host in ("localhost:8080", "127.0.0.1:8080", "[::1]:8080", f"localhost:{PORT}"):
        assert ask("/public", ("host", host), ("origin", f"http://{host}"), names=names)[0] == 200
    for host in ("localhost:8081", "localhost", "x.localhost:8080", "127.0.0.2:8080"):
        assert ask("/public", ("host", host), names=names)[0] == 421
    assert ask("/public", OWN, ("origin", "https://localhost:8080"), names=names)[0] == 403


@each(
    ("host", "forward"),
    [("localhost:8080", True), ("127.0.0.1:8080", True), ("[::1]:8080", True), ("LOCALHOST:8080", True)]
    + [
        (host, False)
        for host in ("localhost", "localhost:", "localhost:8080x", "evil.example:8080", "", "localhost:\xb3")
    ],
)
def test_who_comes_by_a_forwarded_port_is_told_how(host: str, forward: bool) -> None:
    status, _headers, body = ask("/public", ("host", host))
    assert status == 421
    assert (b"--host-name localhost:8080" in body, b"--host-name NAME" in body) == (forward, not forward)


def test_headers_of_ours_are_with_every_answer() -> None:
    for request in (("/public", OWN), ("/", OWN), ("/public", ("host", "evil.example")), ("/api/v1/x", OWN)):
        _status, headers, _body = ask(*request)
        assert headers[b"x-content-type-options"] == b"nosniff"
        assert headers[b"cache-control"] == b"no-store"
        assert b"frame-ancestors 'none'" in headers[b"content-security-policy"]
    assert ask("/public", OWN)[1][b"referrer-policy"] == b"own"


def test_the_api_says_no_in_its_own_words() -> None:
    for headers, status, code in (
        ([OWN], 401, "unauthorized"),
        ([OWN, COOKIE], 401, "unauthorized"),
        ([OWN, ("origin", "null")], 403, "forbidden"),
        ([("host", "evil.example")], 421, "forbidden"),
    ):
        found, sent, body = ask("/api/v1/x", *headers, method="POST")
        assert (found, json.loads(body)["code"], sent[b"content-type"]) == (status, code, b"application/json")
    assert ask("/x", OWN)[1][b"content-type"].startswith(b"text/plain")


def test_what_fails_is_told_here_and_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    async def failing(_scope: Any, _receive: Any, _send: Any) -> None:
        raise ValueError("secret\nof ours")

    status, _headers, body = ask("/x\x1b[2J", OWN, BEARER, app=failing)
    assert (status, b"secret" in body) == (500, False)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("mudroom: GET /x") and "ValueError" in line and "\x1b" not in line


def test_nothing_but_http_is_served() -> None:
    guard = RequestGuard(inner, hosts_of(PORT), make_login(), PUBLIC)
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> MutableMapping[str, Any]:
        return {}

    for kind in ("websocket", "lifespan"):
        asyncio.run(guard({"type": kind, "path": "/public", "headers": []}, receive, send))
    assert sent == []


def test_the_port_of_http_need_not_be_named() -> None:
    assert b"localhost" in own_hosts(80)
    assert b"localhost" not in own_hosts(8080)
