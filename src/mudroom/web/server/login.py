"""From the address that ``mudroom serve`` prints to a browser that may ask: a code that counts once becomes a cookie.

1. The token, which never changes while the server runs, is for programs (``Authorization: Bearer``). It is in no
   address: those are kept in histories and logs.
2. A code is in an address, counts once, and not for long. The cookie that it becomes is not readable by scripts
   (HttpOnly), is sent by our own pages only (SameSite=Strict), and ends by itself.
   It is sent to whatever listens at another port of this host, too: so it counts together with a key alone, which the
   page is told once, behind the # of the address that it is sent to, and keeps where only its own origin reads it.
3. A cookie is signed with a key that outlives the server (``cookie_key.py``), and checked with the key of that moment:
   a browser stays logged in over a restart, and replacing the key ends all logins at once.
4. Each request that comes with a cookie has to bring that key. It is made of the cookie, and is kept nowhere here.
"""

from __future__ import annotations

import hmac
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING

from starlette.responses import RedirectResponse, Response

if TYPE_CHECKING:
    from starlette.requests import Request

CSRF = "x-mudroom-csrf"
"""The header with the page's key: no other site's page can send it unasked, nor knows what to send."""
KEY = "k"
"""The parameter with it, where a page can send no header (EventSource, pictures), and in the fragment at a login."""
CODE_LIFE = 600
"""Seconds in which the address has to be used."""
COOKIE_LIFE = 7 * 24 * 3600
"""Seconds that a browser is known for; to the browser itself it is one of this sitting (no Max-Age)."""
CODES = 16
"""Addresses that are open at a time; the oldest gives way."""
REFUSED_POLICY = "default-src 'none'; style-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"

Headers = Sequence[tuple[bytes, bytes]]


class Login:
    def __init__(
        self,
        port: int,
        token: str,
        key: Callable[[], bytes | None] | None = None,
        prefix: str = "",
        clock: Callable[[], float] = time.time,
    ) -> None:
        """``key``: the one that there is now; None: none can be had, and no cookie counts. Default: one of its own.
        ``prefix``: what a browser sees before our paths, as ``/x``. ``clock``: seconds."""
        own = secrets.token_bytes(32)
        self._token, self._key, self._clock = token.encode(), key or (lambda: own), clock
        self._port, self._prefix = port, prefix
        self.cookie = f"mudroom-{port}"
        """Browsers do not keep the cookies of two ports apart (RFC 6265, 8.5)."""
        self._lock = threading.Lock()
        self._codes: dict[str, float] = {}
        self._refused = (files("mudroom.web") / "page" / "used.html").read_bytes()

    def new_code(self) -> str:
        code, now = secrets.token_urlsafe(24), self._clock()
        with self._lock:
            alive = [(one, until) for one, until in self._codes.items() if until > now]
            self._codes = dict([*alive, (code, now + CODE_LIFE)][-CODES:])
        return code

    def enter(self, request: Request) -> Response:
        """What ``GET /login?code=`` gives: a cookie, and the way to the page with its key; or a page that says what to
        do. No server is sent a fragment (RFC 9110, 7.1), nor is it in what one site tells another."""
        purpose = request.headers.get("sec-purpose", "") + request.headers.get("purpose", "")
        if "prefetch" in purpose or not self._used(request.query_params.get("code", "")):
            return Response(self._refused, 403, {"content-security-policy": REFUSED_POLICY}, "text/html; charset=utf-8")
        value = self._new_cookie()
        if value is None:
            return Response("the key of mudroom serve cannot be read\n", 503, media_type="text/plain")
        answer = RedirectResponse(f"./#{KEY}={self.csrf_of(value)}", 303)
        # a proxy that is spoken to by TLS says so; whoever says it without a proxy harms nobody but himself
        secure = request.headers.get("x-forwarded-proto", "").lower() == "https"
        path = self._prefix + "/"
        answer.set_cookie(self.cookie, value, httponly=True, samesite="strict", path=path, secure=secure)
        return answer

    def _used(self, code: str) -> bool:
        with self._lock:
            return self._codes.pop(code, 0.0) > self._clock()

    def _new_cookie(self) -> str | None:
        key = self._key()
        if key is None:
            return None
        body = f"{int(self._clock()) + COOKIE_LIFE:x}.{secrets.token_urlsafe(18)}"
        return f"{body}.{self._signed(key, 'cookie', body.encode())}"

    def _signed(self, key: bytes, purpose: str, body: bytes) -> str:
        return hmac.new(key, b"mudroom %s %d\0%s" % (purpose.encode(), self._port, body), sha256).hexdigest()

    def bearer(self, headers: Headers) -> bool | None:
        """Whether the request brings the token; None: it brings none at all."""
        brought = [value for value in _all(headers, b"authorization") if value[:7].lower() == b"bearer "]
        if not brought:
            return None
        return len(brought) == 1 and hmac.compare_digest(brought[0][7:].strip(), self._token)

    def browser(self, headers: Headers) -> bytes | None:
        """The cookie of ours that the request brings, if it is known."""
        key, now = self._key(), self._clock()
        if key is None:
            return None
        name = self.cookie.encode()
        for line in _all(headers, b"cookie"):
            for pair in line.split(b";"):
                found, _equals, value = pair.strip().partition(b"=")
                if found == name and self._is_ours(key, value, now):
                    return value
        return None

    def _is_ours(self, key: bytes, value: bytes, now: float) -> bool:
        body, _dot, mac = value.rpartition(b".")
        if not hmac.compare_digest(mac, self._signed(key, "cookie", body).encode()):
            return False
        return int(body.partition(b".")[0], 16) > now

    def knows(self, headers: Headers) -> bool:
        brought = self.bearer(headers)
        return self.browser(headers) is not None if brought is None else brought

    def csrf(self, headers: Headers) -> str:
        """What this browser's page has to bring; empty: it is none that is known."""
        value = self.browser(headers)
        return "" if value is None else self.csrf_of(value.decode("latin-1"))

    def csrf_of(self, cookie: str) -> str:
        """The key that goes with a cookie of ours; empty: none can be had."""
        key = self._key()
        return "" if key is None else self._signed(key, "csrf", cookie.encode("latin-1"))

    def proof(self, nonce: str) -> str:
        """That this server knows its token, for one who knows it too, and to nobody else of any use."""
        return proof_of(self._token.decode(), nonce)


def proof_of(token: str, nonce: str) -> str:
    return hmac.new(token.encode(), b"mudroom whose\0" + nonce.encode("utf-8", "replace"), sha256).hexdigest()


def _all(headers: Headers, name: bytes) -> list[bytes]:
    return [value for key, value in headers if key.lower() == name]
