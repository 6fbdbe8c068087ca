"""Access control, in front of all routes.

1. The Host header must name this server, with its port. A name that an attacker resolves to 127.0.0.1 (DNS rebinding)
   does not. This holds for every request, public or not. Another loopback port is accepted if it was named: it is
   forwarded here (``ssh -L``).
2. The origin that a browser reports (Origin, Sec-Fetch-Site; the Fetch standard) must be ours: requests from other
   sites are refused. A link to the page is accepted: without a login it shows no data.
3. All paths except public ones need the token (``Authorization: Bearer``) or a login cookie. With a cookie, each
   request needs the page's key as well: browsers send cookies to every port on a host (RFC 6265, 8.5), so a server on
   another port may have the cookie.
4. A connection from another user on this machine gets public paths only, and no login: that user should not have our
   secrets. If a proxy is named this does not apply, because the proxy may run as another user.
5. The path checked here is the path routed: a proxy's prefix is removed here, once, and no later code uses another form
   of the path.
6. A host of a fork is another origin, for which none of this counts (``fork_proxy.py``).
7. A browser that requests a service worker gets one that unregisters itself: a former user of this port may have
   installed one, which would answer in our place. Only at ``PUSH_WORKER`` it gets the page's, which shows notifications
   and answers no request; it unregisters itself, too, where it is registered for more than its own folder.

Refused requests are answered in one line and never reach the application.
"""

from __future__ import annotations

import hmac
import re
import sys
from asyncio import StreamReader, StreamWriter
from collections.abc import Awaitable, Callable, Collection, Iterable, MutableMapping, Set
from typing import Any, NamedTuple, Protocol

import msgspec

from mudroom.api import show
from mudroom.ext.web.server.login import CSRF, KEY, Login, header_values
from mudroom.ext.web.server.sandboxed_peer import SANDBOXED
from mudroom.ext.web.shape import ProblemShape

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
Raw = list[tuple[bytes, bytes]]

HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)
"""Headers in every answer, unless the application sets them."""
_OWN = (b"same-origin", b"none")
"""Values for Sec-Fetch-Site: our own page, or an address typed by the user."""
_CODES = {400: "bad-request", 401: "unauthorized", 404: "not-found", 500: "failed"}
"""A Problem's code, by status; else ``forbidden``."""


STRANGER = "stranger"
"""Key in a request's state: the connection's other user (``server.py``), or None."""
_LOGIN = frozenset({"/login"})
_NEW_LINK = "mudroom serve --link prints a new address"


WORKER = b"""\
oninstall = () => skipWaiting();
onactivate = (event) => event.waitUntil(registration.unregister().then(() => clients.matchAll({ type: "window" }))
  .then((windows) => Promise.all(windows.map((one) => one.navigate(one.url)))));
"""
"""Replaces any installed service worker: https://w3c.github.io/ServiceWorker/ fetches the script again at each
navigation, past every cache, and installs it if it differs."""
_WORKER = [(b"content-type", b"text/javascript; charset=utf-8"), (b"service-worker-allowed", b"/")]
"""For scripts below any path: without this header a worker is rejected if its scope is not below its script."""


PUSH_WORKER = "/push/worker.js"


class RefusedRequest(NamedTuple):
    status: int
    why: str
    hint: str = ""


class Hosts(NamedTuple):
    """Accepted header values, in lower case."""

    names: frozenset[bytes]
    origins: frozenset[bytes]
    port: int
    proxied: bool = False
    """Whether there are names other than this machine's."""
    ports: frozenset[int] = frozenset()
    """The loopback ports that lead here."""


class ForkServers(Protocol):
    """Answers for the hosts of forks (``fork_proxy.py``)."""

    def address(self, headers: Raw, /) -> Any:
        """Return the fork that a request names, or None."""

    async def serve(self, scope: Scope, receive: Receive, send: Send, address: Any, /) -> None: ...

    async def tunnel(self, scope: Scope, address: Any, client: StreamReader, answer: StreamWriter, /) -> None:
        """Serve a WebSocket to its end."""

    def close(self) -> None: ...


class RequestGuard:
    def __init__(
        self,
        app: App,
        hosts: Hosts,
        login: Login,
        public: Set[str],
        doors: Collection[str] = (),
        prefix: str = "",
        forks: ForkServers | None = None,
        push_worker: bytes = WORKER,
    ) -> None:
        """``public``: paths that need no token. ``doors``: public paths that other sites may link to. ``prefix``: a
        proxy's path prefix, whether the proxy removes it or not. ``forks``: answers for the hosts of forks.
        ``push_worker``: the script at ``PUSH_WORKER``."""
        self._app, self._login, self._public, self._doors = app, login, public, doors
        self._hosts, self._prefix = hosts, prefix
        self.proxied, self.forks, self._push_worker = hosts.proxied, forks, push_worker

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # neither lifespan nor websockets are served
        if self.forks is not None and (fork := self.forks.address(scope["headers"])) is not None:
            await self.forks.serve(scope, receive, send, fork)
            return
        scope = {**scope, "path": self._path(scope["path"]), "root_path": ""}
        refused = self._check_host(scope) or (None if _is_worker(scope) else self.refusal(scope))
        if refused is None and _is_worker(scope):
            await _send(send, 200, _WORKER, self._push_worker if scope["path"] == PUSH_WORKER else WORKER)
        elif refused is not None:
            await _answer(send, scope["path"], refused)
        elif scope["path"] == "":
            await _answer(send, "", RefusedRequest(308, "the page is below this"), self._prefix.encode() + b"/")
        else:
            await self._pass(_without_key(scope), receive, send)

    def _path(self, path: str) -> str:
        before, _prefix, after = path.partition(self._prefix) if self._prefix else (path, "", "")
        return after if not before and (after[:1] in ("", "/")) else path

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def sending(message: MutableMapping[str, Any]) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                headers = list(message.get("headers", ()))
                names = {name.lower() for name, _value in headers}
                message["headers"] = [*headers, *((name, value) for name, value in HEADERS if name not in names)]
            await send(message)

        try:
            await self._app(scope, receive, sending)
        except Exception as error:
            log_fault(scope["method"], scope["path"], error)
            if begun:
                raise  # too late for another answer: the connection ends within this one
            await _answer(send, scope["path"], RefusedRequest(500, "mudroom failed", "its output has the error"))

    def refusal(self, scope: Scope) -> RefusedRequest | None:
        """Return why a request is refused; None if it may pass."""
        headers: Raw = scope["headers"]
        path = scope["path"]
        if any(origin.lower() not in self._hosts.origins for origin in header_values(headers, b"origin")):
            return RefusedRequest(403, "the request comes from another site")
        if any(site not in _OWN for site in header_values(headers, b"sec-fetch-site")) and not self._is_link(scope):
            return RefusedRequest(403, "the request comes from another site")
        if path and not path.startswith("/"):
            return RefusedRequest(
                400, "the request target is not a path"
            )  # RFC 9112, 3.2: absolute forms are for proxies
        if header_values(headers, b"transfer-encoding") and header_values(headers, b"content-length"):
            return RefusedRequest(400, "the request has two lengths")  # RFC 9112, 6.1: request smuggling
        stranger = scope.get("state", {}).get(STRANGER)
        if stranger == SANDBOXED and path not in self._public - _LOGIN:
            return RefusedRequest(403, f"the request comes from {SANDBOXED}", "ask for it outside of the sandbox")
        if stranger is not None and not self._hosts.proxied and path not in self._public - _LOGIN:
            return RefusedRequest(
                403,
                f"the request comes from another user of this machine ({stranger})",
                "for a proxy: --host-name NAME",
            )
        if path in self._public or not path:
            return None
        return self._check_login(scope)

    def _check_host(self, scope: Scope) -> RefusedRequest | None:
        hosts = header_values(scope["headers"], b"host")
        if len(hosts) == 1 and hosts[0].lower() in self._hosts.names:
            return None
        forwarded = _FORWARDED.fullmatch(hosts[0]) if len(hosts) == 1 else None
        hint = "--host-name NAME serves another"
        if forwarded is not None:  # a forwarded port: say how to configure it
            hint = f"forwarded? the same port on both sides, {self._hosts.port}, "
            hint += f"or mudroom serve --host-name localhost:{forwarded[1].decode()}"
        return RefusedRequest(421, "this is not the host that is served here", hint)

    def _is_link(self, scope: Scope) -> bool:
        """Return whether the user has followed a link to the page. https://www.w3.org/TR/fetch-metadata/"""
        headers: Raw = scope["headers"]
        expected = {b"sec-fetch-mode": b"navigate", b"sec-fetch-dest": b"document"}
        is_navigation = all(header_values(headers, name) == [value] for name, value in expected.items())
        return is_navigation and scope["method"] == "GET" and scope["path"] in self._doors

    def _check_login(self, scope: Scope) -> RefusedRequest | None:
        headers: Raw = scope["headers"]
        has_token = self._login.bearer(headers)
        if has_token is True:
            return None
        expected = "" if has_token is False else self._login.csrf(headers)
        if not expected:
            return RefusedRequest(401, "the token is missing or wrong", _NEW_LINK)
        keys = header_values(headers, CSRF.encode()) + (_split_query(scope)[0] if scope["method"] == "GET" else [])
        if len(keys) != 1 or not hmac.compare_digest(keys[0], expected.encode()):
            return RefusedRequest(401, "the page's key is missing or wrong", _NEW_LINK)
        return None


def hosts_of(port: int, names: Iterable[str] = ()) -> Hosts:
    """Return the accepted values: loopback, and ``names`` (``NAME`` or ``NAME:PORT``), which name a proxy or another
    loopback port that is forwarded to ours."""
    lower_names = [name.lower().encode("ascii") for name in names]
    forwarded = [int(match[1]) for name in lower_names if (match := _FORWARDED.fullmatch(name))]
    own = [host for name_or_port in (port, *forwarded) for host in own_hosts(name_or_port)]
    named = [
        name_or_port for name in lower_names if not _FORWARDED.fullmatch(name) for name_or_port in _ports(name, port)
    ]
    schemes = [b"http://" + host for host in (*own, *named)] + [b"https://" + host for host in named]
    proxied = any(not _is_loopback(name) for name in named)
    return Hosts(frozenset([*own, *named]), frozenset(schemes), port, proxied, frozenset((port, *forwarded)))


_FORWARDED = re.compile(rb"(?i:localhost|127\.0\.0\.1|\[::1\]):([0-9]{1,5})")


def _is_loopback(name: bytes) -> bool:
    """Return whether a host, with or without a port, is this machine's loopback: RFC 6761, 6.3; RFC 1122, 3.2.1.3."""
    host = re.sub(rb":[0-9]+\Z", b"", name) if name.startswith(b"[") or name.count(b":") == 1 else name
    return re.fullmatch(rb"(.+\.)?localhost\.?|127\.[0-9.]+|\[?::1\]?", host) is not None


def is_forwarded(name: str) -> bool:
    """Return whether a name is a forwarded loopback port, and not a proxy."""
    return _FORWARDED.fullmatch(name.encode("ascii")) is not None


def own_hosts(port: int) -> Collection[bytes]:
    """Return the accepted Host headers: RFC 9110, 7.2; without a port, the header means port 80."""
    names = (b"127.0.0.1", b"localhost", b"[::1]")
    return [*(b"%s:%d" % (name, port) for name in names), *(names if port == 80 else ())]


def _ports(name: bytes, port: int) -> list[bytes]:
    if name.rpartition(b":")[2].isdigit():
        return [name]
    return [name, *(name + b":%d" % number for number in (80, 443, port))]


def log_fault(method: str, path: str, error: BaseException) -> None:
    """Write one line to stderr about a server fault: request, error and source line."""
    place, trace = "", error.__traceback__
    while trace is not None:
        place, trace = f"{trace.tb_frame.f_code.co_filename.rpartition('/')[2]}:{trace.tb_lineno}", trace.tb_next
    request, message = (
        show(f"{method} {path}"[:200].encode("utf-8", "replace")),
        show(str(error)[:500].encode("utf-8", "replace")),
    )
    sys.stderr.write(f"mudroom: {request}: {type(error).__name__}: {message} ({place})\n")
    sys.stderr.flush()


def _split_query(scope: Scope) -> tuple[list[bytes], list[bytes]]:
    """Return the page's keys in a query, and the other pairs unchanged."""
    name, pairs = KEY.encode() + b"=", scope["query_string"].split(b"&")
    keys = [pair.removeprefix(name) for pair in pairs if pair.startswith(name)]
    return keys, [pair for pair in pairs if not pair.startswith(name)]


def _without_key(scope: Scope) -> Scope:
    return {**scope, "query_string": b"&".join(_split_query(scope)[1])} if scope["method"] == "GET" else scope


def _is_worker(scope: Scope) -> bool:
    """Return whether a browser is fetching a service worker's script, for which it sends this header (Service Workers,
    "Update")."""
    return scope["method"] == "GET" and bool(header_values(scope["headers"], b"service-worker"))


async def _answer(send: Send, path: str, refused: RefusedRequest, location: bytes = b"") -> None:
    status, why, hint = refused
    if path.startswith("/api/"):
        kind, body = b"application/json", msgspec.json.encode(ProblemShape(why, _CODES.get(status, "forbidden"), hint))
    else:
        kind, body = b"text/plain; charset=utf-8", (f"{why} ({hint})\n" if hint else f"{why}\n").encode()
    headers = [(b"content-type", kind)]
    headers += [(b"www-authenticate", b'Bearer realm="mudroom"')] if status == 401 else []
    headers += [(b"location", location)] if location else []
    headers += [(b"connection", b"close")] if status == 400 else []
    await _send(send, status, headers, body)


async def _send(send: Send, status: int, headers: Raw, body: bytes) -> None:
    headers = [*headers, (b"content-length", b"%d" % len(body)), *HEADERS]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
