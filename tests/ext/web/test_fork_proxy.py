"""Addresses of forks: who is let in, what passes, and what a server in a fork cannot do."""

from __future__ import annotations

import json
import socket
from typing import Any

from browser import Site
from fork_server import Answer, ask, forks_served, host_of, send, serve_in

from conftest import Place

NAVIGATION = {"Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "document", "Sec_Fetch_Site": "none"}


def bearer(site: Site) -> str:
    return f"Bearer {site.told['token']}"


def told(answer: Answer) -> dict[str, Any]:
    assert answer.status == 200, answer.body
    found: dict[str, Any] = json.loads(answer.body)
    return found


def let_in(site: Site, host: str, target: str = "/") -> Answer:
    """What a browser gets that is logged in to the page, and opens an address."""
    status, found = site.ask("POST", f"/visit?to={host}{target}")
    assert status == 200, found
    name, slash, path = found["address"].removeprefix("http://").partition("/")
    return ask(site, name, slash + path, **NAVIGATION)


def cookie_of(answer: Answer) -> str:
    assert answer.status == 303, answer.body
    (cookie,) = answer.all("set-cookie")
    return cookie.partition(";")[0]


def test_a_server_in_a_fork_has_an_address(place: Place) -> None:
    with forks_served(place, ("dev", 3000), ("other", 3000)) as site:
        host = host_of(place, site, "dev")
        # a program with the token
        seen = told(ask(site, host, "/a%2fb//c?d=%20e&&f", Authorization=bearer(site), X_Mudroom_Fork="x", X_Own="1"))
        assert (seen["name"], seen["method"], seen["path"]) == ("dev", "GET", "/a%2fb//c?d=%20e&&f")
        names = [name for name, _value in seen["headers"]]
        assert dict(seen["headers"])["host"] == host and "x-own" in names
        assert not {"authorization", "x-mudroom-fork"} & set(names)
        assert told(ask(site, host_of(place, site, "dev", 3000), Authorization=bearer(site)))["name"] == "dev"
        assert told(ask(site, host.upper(), Authorization=bearer(site)))["name"] == "dev"
        assert told(ask(site, host_of(place, site, "other"), Authorization=bearer(site)))["name"] == "other"
        assert told(ask(site, host, "/", "POST", "x=1", Authorization=bearer(site)))["body"] == "x=1"
        head = ask(site, host, "/", "HEAD", Authorization=bearer(site))
        assert (head.status, head.body) == (200, b"") and int(head.all("content-length")[0]) > 100
        chunked = f"POST / HTTP/1.1\r\nHost: {host}\r\nAuthorization: {bearer(site)}\r\nTransfer-Encoding: chunked\r\n"
        chunked += "Connection: close\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
        assert told(Answer(send(site, chunked.encode())))["body"] == "abcde"

        # a browser
        first = ask(site, host, "/there?x=1", **NAVIGATION)
        assert (first.status, first.all("location")) == (
            303, [f"http://127.0.0.1:{site.port}/#/visit/{host.replace(':', '%3A')}%2Fthere%3Fx%3D1"]
        )  # fmt: skip
        entered = let_in(site, host, "/there%3Fx%3D1")
        assert entered.all("location") == ["/there?x=1"]
        cookie = cookie_of(entered)
        assert ask(site, host, "/.mudroom/enter?code=" + cookie, **NAVIGATION).status == 403
        seen = told(
            ask(site, host, "/there?x=1", Cookie=f"{cookie}; a=b", Sec_Fetch_Site="none", Authorization="Bearer x")
        )
        assert ("cookie", "a=b") in [tuple(pair) for pair in seen["headers"]]
        assert dict(seen["headers"])["authorization"] == "Bearer x"
        assert told(ask(site, host_of(place, site, "dev", 3000), Cookie=cookie, Sec_Fetch_Site="same-origin"))
        assert ask(site, host_of(place, site, "other"), Cookie=cookie, Sec_Fetch_Site="none").status == 401
        typed = ask(site, host.replace("--", "."), "/there?x=1", Cookie=cookie, Sec_Fetch_Site="none")
        assert (typed.status, typed.all("location")) == (308, [f"http://{host}/there?x=1"])
        assert ask(site, host, Cookie=cookie).status == 401, "a browser that does not say where a request comes from"

        # what it answers
        answer = ask(site, host, Cookie=cookie, Sec_Fetch_Site="none")
        assert answer.all("set-cookie") == ["wide=1; Path=/", "own=2; HttpOnly"]
        assert (answer.all("clear-site-data"), answer.all("origin-agent-cluster")) == ([], ["?1"])
        check_strangers(place, site, host, cookie)
        check_requests(place, site, host, cookie)
        check_streams(site, host, cookie)
        check_ports(place, site)


def check_strangers(place: Place, site: Site, host: str, cookie: str) -> None:
    """Pages of other sites, of another fork among them, and the page's own API."""
    other = f"http://{host_of(place, site, 'other')}"
    for site_of in (
        {"Origin": "http://evil.example", "Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "cross-site"},
        {"Origin": "null", "Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
        {"Origin": other, "Sec_Fetch_Site": "same-site"},
        {"Origin": other},
        {"Origin": f"http://{host.partition(':')[0]}:1"},
        {"Origin": f"https://{host}"},
        {"Origin": f"http://{host}.evil.example"},
        {"Origin": f"http://evil.example/{host}"},
        {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate", "Sec_Fetch_Dest": "iframe"},
        {"Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "websocket", "Origin": other},
    ):
        for method in ("GET", "POST", "OPTIONS"):
            assert ask(site, host, "/", method, Cookie=cookie, **site_of).status == 403, site_of
    upgrade = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec_WebSocket_Key": "x"}
    assert ask(site, host, Cookie=cookie, Origin=other, **upgrade).status == 403
    assert ask(site, host, Origin=f"http://{host}", **upgrade).status == 401
    # a link may be followed, a form not be sent
    link = {**NAVIGATION, "Sec_Fetch_Site": "cross-site"}
    assert told(ask(site, host, Cookie=cookie, **link))["name"] == "dev"
    assert ask(site, host, "/", "POST", "x", Cookie=cookie, Origin=other, **link).status == 403
    # another port of the same fork may ask
    assert told(ask(site, host, Cookie=cookie, Origin=f"http://3000.{host}", Sec_Fetch_Site="same-site"))
    # nothing of the page is there for a fork's origin, nor with its cookie
    page, api = f"127.0.0.1:{site.port}", "/api/v1/me"
    assert ask(site, page, api, Origin=f"http://{host}", Authorization=bearer(site)).status == 403
    assert ask(site, page, api, Cookie=cookie).status == 401
    assert ask(site, page, f"/login?code={cookie}").status == 403
    seen = told(ask(site, host, api, Cookie=cookie, Sec_Fetch_Site="same-origin"))
    assert seen["path"] == api, "on its host every path is the fork's"
    code = json.loads(ask(site, page, "/link", "POST", Authorization=bearer(site)).body)["code"]
    assert ask(site, host, f"/.mudroom/enter?code={code}", **NAVIGATION).status == 403
    status, found = site.ask("POST", f"/visit?to={host}/")
    assert (
        ask(site, host_of(place, site, "other"), "/." + found["address"].partition("/.")[2], **NAVIGATION).status == 403
    )
    code = found["address"].partition("code=")[2].partition("&")[0]
    assert status == 200 and ask(site, page, f"/login?code={code}").status == 403
    for elsewhere in (
        "evil.example",
        f"127.0.0.1:{site.port}",
        f"a.b.localhost.evil.example:{site.port}",
        "a.b.localhost:1",
    ):
        assert site.ask("POST", f"/visit?to={elsewhere}/")[0] == 404
    for target in ("//evil.example", "/%5Cevil.example", "http://evil.example"):
        status, found = site.ask("POST", f"/visit?to={host}/")
        there = found["address"].partition(f":{site.port}")[2].partition("&to=")[0] + "&to=" + target
        assert ask(site, host, there, **NAVIGATION).all("location") == ["/"]


def check_requests(place: Place, site: Site, host: str, cookie: str) -> None:
    """Hosts and requests that mean one thing here and another inside."""
    name, _colon, port = host.partition(":")
    for wrong in (
        f"{name}.:{port}",
        f"{name}:1",
        name,
        f"x@{host}",
        f"{host}@evil.example",
        f"{name}.evil.example:{port}",
        f"a.{host}",
        f"99999.{host}",
        f"03000.{host}",
        f"0.{host}",
        f"{host}/",
        f"{host} ",
        f"{name}:{port}0",
        f"localhost.{host}",
        f"dev--.localhost:{port}",
        f"dev..localhost:{port}",
        f"dev.localhost:{port}",
        f"[{name}]:{port}",
        f"dev%2d{host[4:]}",
        f"-1.{host}",
    ):
        answer = ask(site, wrong, Authorization=bearer(site))
        assert answer.status in (400, 421) or wrong == f"{host} ", (wrong, answer.status)
    gone = ask(site, f"none--{host.partition('--')[2]}", Authorization=bearer(site))
    assert (gone.status, b"has the name none" in gone.body) == (404, True)
    assert ask(site, f"dev--none.localhost:{port}", Authorization=bearer(site)).status == 404
    for target in (f"http://{host}/", f"http://127.0.0.1:{port}/api/v1/me", "*", "x", "@evil.example/"):
        assert ask(site, host, target, Authorization=bearer(site)).status == 400, target
    start = f"POST / HTTP/1.1\r\nHost: {host}\r\nAuthorization: {bearer(site)}\r\n"
    second = f"GET /second HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    for smuggled in (
        f"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n{second}",
        f"Content-Length: 5\r\nContent-Length: {len(second) + 5}\r\n\r\n0\r\n\r\n{second}",
        f"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n{second}",
        f"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n{second}",
        f"Content-Length: +5\r\n\r\n0\r\n\r\n{second}",
        f"Host: evil.example\r\nContent-Length: 0\r\n\r\n{second}",
        f"X: a\rTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{second}",
        f"X: a\0b\r\n\r\n{second}",
    ):
        raw = send(site, (start + smuggled).encode())
        assert raw.startswith(b"HTTP/1.1 400 ") and raw.count(b"HTTP/1.1") == 1, (smuggled, raw)
    # two requests in one connection: the second is asked for its own login
    both = send(site, f"GET / HTTP/1.1\r\nHost: {host}\r\nAuthorization: {bearer(site)}\r\n\r\n{second}".encode())
    assert both.count(b"HTTP/1.1 200") == both.count(b"HTTP/1.1 401") == 1
    body = f"Content-Length: 3\r\nCookie: {cookie}\r\nOrigin: http://{host}\r\n"
    body += "Upgrade: websocket\r\nConnection: Upgrade\r\n\r\nabc"
    assert send(site, (start.replace("POST", "GET") + body).encode()).startswith(b"HTTP/1.1 400 ")
    assert told(ask(site, host, Authorization=bearer(site), Connection="close, x-own", X_Own="1"))
    assert "x-own" not in dict(
        told(ask(site, host, Authorization=bearer(site), Connection="close, X-Own", X_Own="1"))["headers"]
    )


def check_streams(site: Site, host: str, cookie: str) -> None:
    own = f"Host: {host}\r\nCookie: {cookie}\r\nOrigin: http://{host}\r\n"
    with socket.create_connection(("127.0.0.1", site.port), 20) as connection:
        connection.sendall(f"GET /events HTTP/1.1\r\n{own}\r\n".encode())
        seen = b""
        while b"data: 2\n" not in seen:
            seen += connection.recv(1000)
        assert b"content-type: text/event-stream" in seen
    with socket.create_connection(("127.0.0.1", site.port), 20) as connection:
        upgrade = "Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: eA==\r\n"
        connection.sendall(f"GET /ws HTTP/1.1\r\n{own}{upgrade}\r\nearly".encode())
        seen = b""
        while not seen.endswith(b"helloEARLY"):
            seen += connection.recv(1000)
        assert seen.startswith(b"HTTP/1.1 101 ") and b"sec-websocket-accept: " in seen
        connection.sendall(b"abc")
        assert connection.recv(3, socket.MSG_WAITALL) == b"ABC"


def check_ports(place: Place, site: Site) -> None:
    """The address without a number keeps its port; only what the fork serves is reached."""
    serve_in(place, "dev", 2000)
    host = host_of(place, site, "dev")
    assert told(ask(site, host, Authorization=bearer(site)))["name"] == "dev"
    (fork,) = place.state.glob("vaults/*/forks/dev")
    assert json.loads((fork / "ports").read_text())[0] == 3000
    assert told(ask(site, f"2000.{host}", Authorization=bearer(site)))["name"] == "dev"
    for port, status in ((3128, 403), (53, 403), (1, 403), (site.port, 502), (3001, 502)):
        answer = ask(site, f"{port}.{host}", Authorization=bearer(site))
        assert answer.status == status, answer.body
    assert b"nothing in dev serves port 3001 (served: 2000, 3000)" in answer.body
