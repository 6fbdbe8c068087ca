"""Logins: ``mudroom serve`` prints an address with a code that is valid once and becomes a cookie.

1. The token, which is constant while the server runs, is for programs (``Authorization: Bearer``). It is not in any
   address, because histories and logs keep addresses.
2. A code is part of an address, is valid once, and expires. Its cookie is not readable by scripts (HttpOnly), is sent
   by our own pages only (SameSite=Strict), and expires. Browsers send it to servers on this host's other ports, too: so
   it counts only together with the page's key. The page receives that key once, in the fragment of the address to which
   it is redirected, and stores it where only its own origin can read it.
3. A cookie is signed with a key that outlives the server (``cookie_key.py``), and checked with the key of that moment:
   a browser stays logged in over a restart, and replacing the key ends all logins at once.
4. Each request with a cookie needs the page's key. That key is derived from the cookie, and is not stored here.
5. A fork's address (``fork_proxy.py``) has codes and cookies of its own. Neither counts at another fork's, nor here.
"""

from __future__ import annotations

import hmac
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING

from starlette.responses import RedirectResponse, Response

from mudroom.core.tree.path import show
from mudroom.errors import MudroomError
from mudroom.stage import disk, private_file

if TYPE_CHECKING:
    from starlette.requests import Request

CSRF = "x-mudroom-csrf"
"""The header with the page's key: another site's page cannot send it without permission, and does not know the key."""
KEY = "k"
"""The query parameter with the page's key, where a page cannot send headers (EventSource, images), and its name in the
fragment after a login."""
CODE_LIFE = 600
"""Seconds until a code expires."""
COOKIE_LIFE = 7 * 24 * 3600
"""Seconds until a cookie expires; for the browser it is a session cookie (no Max-Age)."""
CODES = 16
"""Maximum valid codes at a time; the oldest is dropped."""
REFUSED_POLICY = "default-src 'none'; style-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"

Headers = Sequence[tuple[bytes, bytes]]


class Login:
    """``_lock`` guards the codes."""

    def __init__(
        self,
        port: int,
        token: str,
        key: Callable[[], bytes | None] | None = None,
        prefix: str = "",
        clock: Callable[[], float] = time.time,
    ) -> None:
        """``key``: returns the current key, or None if it cannot be read; then no cookie is valid. Default: this
        object's own key. ``prefix``: the path prefix that a browser sees, as ``/x``. ``clock``: seconds."""
        own = secrets.token_bytes(32)
        self._token, self._key, self._clock = token.encode(), key or (lambda: own), clock
        self._port, self._prefix = port, prefix
        self.cookie = f"mudroom-{port}"
        """Browsers do not separate two ports' cookies (RFC 6265, 8.5), so the name has the port."""
        self._lock = threading.Lock()
        self._codes: dict[str, float] = {}
        self._refused = (files("mudroom.ext.web") / "page" / "used.html").read_bytes()

    def new_code(self, zone: str = "") -> str:
        """Return a code for the page, or for a fork's host (``ForkAddress.zone``)."""
        code, now = secrets.token_urlsafe(24), self._clock()
        with self._lock:
            valid = [(old, until) for old, until in self._codes.items() if until > now]
            self._codes = dict([*valid, (f"{zone}/{code}", now + CODE_LIFE)][-CODES:])
        return code

    def enter(self, request: Request) -> Response:
        """Answer ``GET /login?code=``: set a cookie and redirect to the page with its key, or show a page that explains
        the refusal. A fragment is neither sent to a server (RFC 9110, 7.1) nor in a Referer."""
        purpose = request.headers.get("sec-purpose", "") + request.headers.get("purpose", "")
        if "prefetch" in purpose or not self._use_code(request.query_params.get("code", "")):
            return Response(self._refused, 403, {"content-security-policy": REFUSED_POLICY}, "text/html; charset=utf-8")
        value = self._new_cookie()
        if value is None:
            return Response("the key of mudroom serve cannot be read\n", 503, media_type="text/plain")
        answer = RedirectResponse(f"./#{KEY}={self.csrf_of(value)}", 303)
        # set by a proxy that is reached by TLS; a client that sets it without a proxy harms only itself
        secure = request.headers.get("x-forwarded-proto", "").lower() == "https"
        path = self._prefix + "/"
        answer.set_cookie(self.cookie, value, httponly=True, samesite="strict", path=path, secure=secure)
        return answer

    def _use_code(self, code: str, zone: str = "") -> bool:
        with self._lock:
            return self._codes.pop(f"{zone}/{code}", 0.0) > self._clock()

    def _new_cookie(self, purpose: str = "cookie") -> str | None:
        key = self._key()
        if key is None:
            return None
        body = f"{int(self._clock()) + COOKIE_LIFE:x}.{secrets.token_urlsafe(18)}"
        return f"{body}.{self._sign(key, purpose, body.encode())}"

    def enter_fork(self, zone: str, code: str) -> str:
        """Return a cookie for a fork's host, with its attributes; empty if the code does not count there. All ports of
        the fork get it, and no other fork (RFC 6265, 4.1.2.3). A link from elsewhere sends it, too (Lax)."""
        value = self._new_cookie(f"fork {zone}") if self._use_code(code, zone) else None
        return "" if value is None else f"{self.cookie}={value}; Domain={zone}; Path=/; HttpOnly; SameSite=Lax"

    def knows_fork(self, headers: Headers, zone: str) -> bool:
        return self._cookie_in(headers, f"fork {zone}") is not None

    def _sign(self, key: bytes, purpose: str, body: bytes) -> str:
        return hmac.new(key, b"mudroom %s %d\0%s" % (purpose.encode(), self._port, body), sha256).hexdigest()

    def bearer(self, headers: Headers) -> bool | None:
        """Return whether the request has the right token; None if it has none."""
        tokens = [value for value in header_values(headers, b"authorization") if value[:7].lower() == b"bearer "]
        if not tokens:
            return None
        return len(tokens) == 1 and hmac.compare_digest(tokens[0][7:].strip(), self._token)

    def browser(self, headers: Headers) -> bytes | None:
        """Return the request's valid login cookie, or None."""
        return self._cookie_in(headers, "cookie")

    def _cookie_in(self, headers: Headers, purpose: str) -> bytes | None:
        key, now = self._key(), self._clock()
        if key is None:
            return None
        name = self.cookie.encode()
        for line in header_values(headers, b"cookie"):
            for pair in line.split(b";"):
                cookie_name, _equals, value = pair.strip().partition(b"=")
                if cookie_name == name and self._is_valid(key, value, now, purpose):
                    return value
        return None

    def _is_valid(self, key: bytes, value: bytes, now: float, purpose: str) -> bool:
        body, _dot, mac = value.rpartition(b".")
        if not hmac.compare_digest(mac, self._sign(key, purpose, body).encode()):
            return False
        return int(body.partition(b".")[0], 16) > now

    def knows(self, headers: Headers) -> bool:
        has_token = self.bearer(headers)
        return self.browser(headers) is not None if has_token is None else has_token

    def csrf(self, headers: Headers) -> str:
        """Return the page's key that this browser must send; empty if it is not logged in."""
        value = self.browser(headers)
        return "" if value is None else self.csrf_of(value.decode("latin-1"))

    def csrf_of(self, cookie: str) -> str:
        """Return the page's key for a cookie of ours; empty if there is no key to sign with."""
        key = self._key()
        return "" if key is None else self._sign(key, "csrf", cookie.encode("latin-1"))

    def proof(self, nonce: str) -> str:
        """Return a proof that this server knows its token. Only a client that knows the token can check it."""
        return proof_of(self._token.decode(), nonce)


def proof_of(token: str, nonce: str) -> str:
    return hmac.new(token.encode(), b"mudroom whose\0" + nonce.encode("utf-8", "replace"), sha256).hexdigest()


def header_values(headers: Iterable[tuple[bytes, bytes]], name: bytes) -> list[bytes]:
    return [value for key, value in headers if key.lower() == name]


# --- the key of the cookies ---

_SIZE = 32


class CookieKey:
    """The key that signs login cookies: 32 random bytes in the state directory, so that logins outlive a restart. The
    file is read whenever the key is needed: replacing it ends every login at once, in a running server, too."""

    def __init__(self, directory: bytes) -> None:
        """``directory``: made together with the key. The constructor does not access it."""
        self.directory, self._path = directory, directory + b"/key"

    def key(self) -> bytes | None:
        """Return the key, or None if there is none or another user could know or have written it."""
        data = private_file.read(self._path, _SIZE + 1)
        return data if data is not None and len(data) == _SIZE else None

    def prepare(self) -> None:
        """Make a key if there is none. Raise MudroomError."""
        if self.key() is None:
            self.renew()

    def renew(self) -> None:
        """Replace the key, which ends all logins. Raise MudroomError."""
        write_own(self._path, secrets.token_bytes(_SIZE))


def write_own(path: bytes, data: bytes) -> None:
    """Write a file atomically, readable by this user alone, in a directory that only this user can write to. Raise
    MudroomError."""
    directory = os.path.dirname(path)
    temporary = path + b"." + secrets.token_hex(4).encode()
    try:
        os.makedirs(directory, 0o700, exist_ok=True)
        if not private_file.is_own_directory(directory):
            hint = f"rm -r {show(directory)} removes it; it is made again"
            raise MudroomError(f"{show(directory)} belongs to another user, or others may write in it", hint)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | disk.O_NOFOLLOW | disk.O_CLOEXEC
        with open(disk.open_path(temporary, flags, 0o600), "wb") as stream:
            stream.write(data)
            stream.flush()
            disk.rename_path(temporary, path)
    except OSError as error:
        raise MudroomError(f"{show(path)} cannot be written: {error.strerror}") from error
