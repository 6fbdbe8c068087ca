"""Where the server of a state directory is to be found: one for each, and others find it.

1. Who holds the lock is the server. It is let go of by the kernel, however that process ends.
2. What the file says counts only when who answers there has proved that he knows its token. He is not told the token
   before: another user may have taken the port when the server was gone.
"""

from __future__ import annotations

import fcntl
import hmac
import http.client
import json
import os
import secrets

import msgspec

from mudroom.errors import MudroomError
from mudroom.policy import private
from mudroom.web.server.cookie_key import write_own
from mudroom.web.server.login import proof_of

_LIMIT = 1 << 16
_PATIENCE = 5
"""Seconds for one answer."""


class RunningServer(msgspec.Struct):
    pid: int
    """For people; nothing is done with it."""
    port: int
    token: str
    prefix: str
    names: list[str]


class ServerRegistry:
    """The one place at which a server of this state directory stands."""

    def __init__(self, directory: bytes) -> None:
        self._directory, self._path = directory, directory + b"/server.json"
        self._lock: int | None = None

    def acquire(self) -> bool:
        """Whether we are the server from now on; False: another process is. Raises MudroomError."""
        try:
            os.makedirs(self._directory, 0o700, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            lock = os.open(self._directory + b"/lock", flags, 0o600)
        except OSError as error:
            raise MudroomError(f"{os.fsdecode(self._directory)} cannot be used: {error.strerror}") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return False
        self._lock = lock
        return True

    def publish(self, where: RunningServer) -> None:
        write_own(self._path, msgspec.json.encode(where))

    def release(self) -> None:
        """Nothing is said any more of where we were."""
        try:
            os.unlink(self._path)
        except OSError:
            pass  # it is gone, or will prove nothing
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def find_running(self) -> RunningServer | None:
        """Who serves this state directory now, proved. None: nobody, or nobody who answers."""
        data = private.read(self._path, _LIMIT)
        try:
            where = msgspec.json.decode(data or b"", type=RunningServer)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return None
        nonce = secrets.token_urlsafe(24)
        answer = _ask(where, "GET", f"/whose?nonce={nonce}", {})
        proved = hmac.compare_digest(answer, proof_of(where.token, nonce).encode())
        return where if proved else None


def new_code(where: RunningServer) -> str:
    """Return a login code of a server that ``find_running`` returned. Raise MudroomError if it gives none."""
    try:
        return str(json.loads(_ask(where, "POST", "/link", {"Authorization": f"Bearer {where.token}"}))["code"])
    except (ValueError, LookupError, TypeError) as error:
        raise MudroomError(f"the server on port {where.port} gives no address", "end it, and start it anew") from error


def _ask(where: RunningServer, method: str, path: str, headers: dict[str, str]) -> bytes:
    """What is answered with 200; else nothing."""
    connection = http.client.HTTPConnection("127.0.0.1", where.port, timeout=_PATIENCE)
    try:
        connection.request(method, where.prefix + path, None, headers)
        answer = connection.getresponse()
        return answer.read(_LIMIT) if answer.status == 200 else b""
    except (OSError, http.client.HTTPException, ValueError):
        return b""
    finally:
        connection.close()
