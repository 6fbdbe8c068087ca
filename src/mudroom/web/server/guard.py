"""Who may ask for what: in front of everything that is served.

1. The Host header has to be ours, with our port: a name that an attacker lets resolve to 127.0.0.1 (DNS rebinding) is
   not. It is asked of every request, public or not. Another port of loopback is ours where it is named: one that is
   forwarded here (``ssh -L``).
2. What a browser says about who is asking (Origin, Sec-Fetch-Site; the Fetch standard) has to be ours, too: no other
   page has a request answered. It may have a link to the page, which tells nothing without a login.
3. Everything but what is public wants the token: ``Authorization: Bearer``, or the cookie that a page has been given.
   With a cookie, each request has to bring the page's key: browsers send cookies to every port of a host (RFC 6265,
   8.5), so who has the cookie alone may be whoever listens at another one.
4. Whoever is known to be another user of this machine has what is public, and no login: what he knows of ours, he
   should not. Unless a proxy is named, which may be another user.
5. The path that is judged here is the very one that is routed by: what is before it (a proxy's prefix) is taken off
   here, once, and nothing behind looks at another form of it.

6. A browser that looks for a service worker here is given one that removes itself: whoever once had this port may have
   left his, and it would answer in our place.

Refused requests are answered in one line and never reach the application.
"""

from __future__ import annotations

import hmac
import re
import sys
from collections.abc import Awaitable, Callable, Collection, Iterable, MutableMapping, Set
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from mudroom.core.tree.path import show
from mudroom.web.server.login import CSRF, KEY
from mudroom.web.shape import ProblemShape

if TYPE_CHECKING:
    from mudroom.web.server.login import Login

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
"""With every answer, unless the application says otherwise."""
_OWN = (b"same-origin", b"none")
"""Of Sec-Fetch-Site: our own page, or somebody who has typed the address."""
_CODES = {400: "bad-request", 401: "unauthorized", 404: "not-found", 500: "failed"}
"""Of a Problem, by the status; else ``forbidden``."""


STRANGER = "stranger"
"""In a request's state: the id of the other user whose connection it is (``peer.py``); None: nobody else's."""
_LOGIN = frozenset({"/login"})
_ANEW = "mudroom serve --link prints a new address"


WORKER = b"""\
oninstall = () => skipWaiting();
onactivate = (event) => event.waitUntil(registration.unregister().then(() => clients.matchAll({ type: "window" }))
  .then((windows) => Promise.all(windows.map((one) => one.navigate(one.url)))));
"""
"""In place of any that a browser knows from here: https://w3c.github.io/ServiceWorker/ asks for it anew at each
navigation, past every cache, and it takes over when it is another one than before."""
_WORKER = [(b"content-type", b"text/javascript; charset=utf-8"), (b"service-worker-allowed", b"/")]
"""Wherever it is from: without leave, one that is not above what it is for is not taken."""


class RefusedRequest(NamedTuple):
    status: int
    why: str
    hint: str = ""


class Hosts(NamedTuple):
    """As they stand in a request, in small letters."""

    names: frozenset[bytes]
    origins: frozenset[bytes]
    port: int
    proxied: bool = False
    """Whether there are others than this machine's."""


class RequestGuard:
    def __init__(
        self,
        app: App,
        hosts: Hosts,
        login: Login,
        public: Set[str],
        doors: Collection[str] = (),
        prefix: str = "",
    ) -> None:
        """``public``: paths that are answered without the token. ``doors``: those of them that other sites may link to.
        ``prefix``: what a proxy has put before all paths, or has put there and taken off again."""
        self._app, self._login, self._public, self._doors = app, login, public, doors
        self._hosts, self._prefix = hosts, prefix
        self.proxied = hosts.proxied

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # no answer: neither lifespan nor websockets are served
        scope = {**scope, "path": self._path(scope["path"]), "root_path": ""}
        why = self._elsewhere(scope) or (None if _is_worker(scope) else self.refusal(scope))
        if why is None and _is_worker(scope):
            await _say(send, 200, _WORKER, WORKER)
        elif why is not None:
            await _answer(send, scope["path"], why)
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
                given = list(message.get("headers", ()))
                names = {name.lower() for name, _value in given}
                message["headers"] = [*given, *((name, value) for name, value in HEADERS if name not in names)]
            await send(message)

        try:
            await self._app(scope, receive, sending)
        except Exception as error:
            log_fault(scope["method"], scope["path"], error)
            if begun:
                raise  # too late for another answer: the connection ends in the middle of this one
            await _answer(send, scope["path"], RefusedRequest(500, "mudroom failed", "its output says at what"))

    def refusal(self, scope: Scope) -> RefusedRequest | None:
        """None: it may pass."""
        headers: Raw = scope["headers"]
        path = scope["path"]
        if any(origin.lower() not in self._hosts.origins for origin in _all(headers, b"origin")):
            return RefusedRequest(403, "another site is asking")
        if any(site not in _OWN for site in _all(headers, b"sec-fetch-site")) and not self._is_link(scope):
            return RefusedRequest(403, "another site is asking")
        if path and not path.startswith("/"):
            return RefusedRequest(400, "a request has a path")  # RFC 9112, 3.2: the forms for proxies
        if _all(headers, b"transfer-encoding") and _all(headers, b"content-length"):
            return RefusedRequest(400, "a request has one length")  # RFC 9112, 6.1: two readers, two ends
        other = scope.get("state", {}).get(STRANGER)
        if other is not None and not self._hosts.proxied and path not in self._public - _LOGIN:
            return RefusedRequest(
                403, f"another user of this machine is asking ({other})", "--host-name NAME: a proxy may"
            )
        if path in self._public or not path:
            return None
        return self._unknown(scope)

    def _elsewhere(self, scope: Scope) -> RefusedRequest | None:
        hosts = _all(scope["headers"], b"host")
        if len(hosts) == 1 and hosts[0].lower() in self._hosts.names:
            return None
        forwarded = _FORWARDED.fullmatch(hosts[0]) if len(hosts) == 1 else None
        hint = "--host-name NAME serves another"
        if forwarded is not None:  # somebody sits elsewhere, and is told what to do there or here
            hint = f"forwarded? the same port on both sides, {self._hosts.port}, "
            hint += f"or mudroom serve --host-name localhost:{forwarded[1].decode()}"
        return RefusedRequest(421, "this is not the host that is served here", hint)

    def _is_link(self, scope: Scope) -> bool:
        """Somebody has followed a link to the page. https://www.w3.org/TR/fetch-metadata/"""
        headers: Raw = scope["headers"]
        wanted = {b"sec-fetch-mode": b"navigate", b"sec-fetch-dest": b"document"}
        followed = all(_all(headers, name) == [value] for name, value in wanted.items())
        return followed and scope["method"] == "GET" and scope["path"] in self._doors

    def _unknown(self, scope: Scope) -> RefusedRequest | None:
        headers: Raw = scope["headers"]
        brought = self._login.bearer(headers)
        if brought is True:
            return None
        expected = "" if brought is False else self._login.csrf(headers)
        if not expected:
            return RefusedRequest(401, "the token is missing, or another one", _ANEW)
        found = _all(headers, CSRF.encode()) + (_parted(scope)[0] if scope["method"] == "GET" else [])
        if len(found) != 1 or not hmac.compare_digest(found[0], expected.encode()):
            return RefusedRequest(401, "the page's key is missing, or another one", _ANEW)
        return None


def hosts_of(port: int, names: Iterable[str] = ()) -> Hosts:
    """Of loopback, and of ``names`` (``NAME`` or ``NAME:PORT``): what a proxy is called by, or another port of loopback
    that is forwarded to ours."""
    given = [name.lower().encode("ascii") for name in names]
    forwarded = [int(found[1]) for name in given if (found := _FORWARDED.fullmatch(name))]
    own = [host for one in (port, *forwarded) for host in own_hosts(one)]
    named = [one for name in given if not _FORWARDED.fullmatch(name) for one in _ports(name, port)]
    schemes = [b"http://" + host for host in (*own, *named)] + [b"https://" + host for host in named]
    proxied = any(not _is_loopback(name) for name in named)
    return Hosts(frozenset([*own, *named]), frozenset(schemes), port, proxied)


_FORWARDED = re.compile(rb"(?i:localhost|127\.0\.0\.1|\[::1\]):([0-9]{1,5})")


def _is_loopback(name: bytes) -> bool:
    """Whether it is a name of this machine alone, with a port or without: RFC 6761, 6.3; RFC 1122, 3.2.1.3."""
    host = re.sub(rb":[0-9]+\Z", b"", name) if name.startswith(b"[") or name.count(b":") == 1 else name
    return re.fullmatch(rb"(.+\.)?localhost\.?|127\.[0-9.]+|\[?::1\]?", host) is not None


def is_forwarded(name: str) -> bool:
    """Whether it is a port of somebody's loopback that leads to ours, and no proxy."""
    return _FORWARDED.fullmatch(name.encode("ascii")) is not None


def own_hosts(port: int) -> Collection[bytes]:
    """What a Host header may say: RFC 9110, 7.2; without a port it is that of http."""
    names = (b"127.0.0.1", b"localhost", b"[::1]")
    return [*(b"%s:%d" % (name, port) for name in names), *(names if port == 80 else ())]


def _ports(name: bytes, port: int) -> list[bytes]:
    if name.rpartition(b":")[2].isdigit():
        return [name]
    return [name, *(name + b":%d" % one for one in (80, 443, port))]


def log_fault(method: str, path: str, error: BaseException) -> None:
    """One line on stderr, for whoever started the server: what of ours has failed, and where."""
    place, trace = "", error.__traceback__
    while trace is not None:
        place, trace = f"{trace.tb_frame.f_code.co_filename.rpartition('/')[2]}:{trace.tb_lineno}", trace.tb_next
    asked, said = (
        show(f"{method} {path}"[:200].encode("utf-8", "replace")),
        show(str(error)[:500].encode("utf-8", "replace")),
    )
    sys.stderr.write(f"mudroom: {asked}: {type(error).__name__}: {said} ({place})\n")
    sys.stderr.flush()


def _parted(scope: Scope) -> tuple[list[bytes], list[bytes]]:
    """The keys in a query, and all else that is there, as it is."""
    name, pairs = KEY.encode() + b"=", scope["query_string"].split(b"&")
    keys = [pair.removeprefix(name) for pair in pairs if pair.startswith(name)]
    return keys, [pair for pair in pairs if not pair.startswith(name)]


def _without_key(scope: Scope) -> Scope:
    return {**scope, "query_string": b"&".join(_parted(scope)[1])} if scope["method"] == "GET" else scope


def _is_worker(scope: Scope) -> bool:
    """Browsers ask for the script of a service worker with this header (Service Workers, "Update")."""
    return scope["method"] == "GET" and bool(_all(scope["headers"], b"service-worker"))


def _all(headers: Raw, name: bytes) -> list[bytes]:
    return [value for key, value in headers if key.lower() == name]


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
    await _say(send, status, headers, body)


async def _say(send: Send, status: int, headers: Raw, body: bytes) -> None:
    headers = [*headers, (b"content-length", b"%d" % len(body)), *HEADERS]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
