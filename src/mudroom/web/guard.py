"""Who may ask for what: in front of everything that is served.

1. The Host header has to be ours, with our port: a name that an attacker lets resolve to 127.0.0.1 (DNS rebinding) is
   not. It is asked of every request, public or not.
2. What a browser says about who is asking (Origin, Sec-Fetch-Site; the Fetch standard) has to be ours, too: no other
   page has a request answered.
3. Everything but what is public wants the token: ``Authorization: Bearer``, or the cookie that a page has been given.

Refused requests are answered in one line and never reach the application.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)
"""With every answer, unless the application says otherwise."""
_OWN = (b"same-origin", b"none")
"""Of Sec-Fetch-Site: our own page, or somebody who has typed the address."""


class Guard:
    def __init__(self, app: App, port: int, token: str, is_public: Callable[[str], bool]) -> None:
        """``is_public``: of a path, whether it is answered without the token."""
        self._app, self._token, self._is_public = app, token, is_public
        self.hosts = frozenset(own_hosts(port))
        self.cookie = f"mudroom-{port}"
        """Browsers do not keep the cookies of two ports apart (RFC 6265, 8.5)."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # no answer: neither lifespan nor websockets are served
        why = self.refusal(scope)
        if why is not None:
            await _answer(send, *why)
            return
        await self._app(scope, receive, _with_headers(send))

    def refusal(self, scope: Scope) -> tuple[int, str] | None:
        """Status and reason; None: it may pass."""
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        hosts = _all(headers, b"host")
        if len(hosts) != 1 or hosts[0].lower() not in self.hosts:
            return 421, "this is not the host that is served here"
        for origin in _all(headers, b"origin"):
            if origin.lower() not in {b"http://" + host for host in self.hosts}:
                return 403, "another site is asking"
        if any(site not in _OWN for site in _all(headers, b"sec-fetch-site")):
            return 403, "another site is asking"
        if self._is_public(scope["path"]) or self._knows_token(headers):
            return None
        return 401, "the token is missing, or another one"

    def _knows_token(self, headers: list[tuple[bytes, bytes]]) -> bool:
        given = [one[7:] for one in _all(headers, b"authorization") if one[:7].lower() == b"bearer "]
        for line in _all(headers, b"cookie"):
            pairs = (pair.strip().partition(b"=") for pair in line.split(b";"))
            given += [value for name, _equals, value in pairs if name == self.cookie.encode()]
        return any(hmac.compare_digest(one.strip(), self._token.encode()) for one in given)


def own_hosts(port: int) -> Collection[bytes]:
    """What a Host header may say: RFC 9110, 7.2; without a port it is that of http."""
    names = (b"127.0.0.1", b"localhost", b"[::1]")
    return [*(b"%s:%d" % (name, port) for name in names), *(names if port == 80 else ())]


def _all(headers: list[tuple[bytes, bytes]], name: bytes) -> list[bytes]:
    return [value for key, value in headers if key.lower() == name]


async def _answer(send: Send, status: int, text: str) -> None:
    body = text.encode() + b"\n"
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"%d" % len(body)), *HEADERS]
    headers += [(b"www-authenticate", b'Bearer realm="mudroom"')] if status == 401 else []
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _with_headers(send: Send) -> Send:
    async def sending(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            given = list(message.get("headers", ()))
            names = {name.lower() for name, _value in given}
            message["headers"] = [*given, *((name, value) for name, value in HEADERS if name not in names)]
        await send(message)

    return sending
