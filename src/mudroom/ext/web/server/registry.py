"""A state directory's running server: there is at most one, and other processes can find it.

1. The process that holds the lock is the server. The kernel releases the lock, however that process ends.
2. The file is trusted only if the server at its port proves that it knows the token. The token is not sent before:
   another user may have taken the port after the server ended.
"""

from __future__ import annotations

import hmac
import http.client
import json
import os
import secrets
import sys

import msgspec

from mudroom.errors import MudroomError
from mudroom.ext.web.server.login import proof_of, write_own
from mudroom.stage import disk, private_file
from mudroom.vault.lock import LOCK_EX, try_lock

_LIMIT = 1 << 16
_PATIENCE = 5
"""Seconds for one answer."""


class RunningServer(msgspec.Struct):
    pid: int
    """For messages only."""
    port: int
    token: str
    prefix: str
    names: list[str]


class ServerRegistry:
    """The running server's lock and file."""

    def __init__(self, directory: bytes) -> None:
        self._directory, self._path = directory, directory + b"/server.json"
        self._lock: int | None = None

    def acquire(self) -> bool:
        """Return whether this process is the server from now on; False if another process is. Raise MudroomError."""
        try:
            os.makedirs(self._directory, 0o700, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | disk.O_NOFOLLOW | disk.O_CLOEXEC
            lock = disk.open_path(self._directory + b"/lock", flags, 0o600)
        except OSError as error:
            raise MudroomError(f"{os.fsdecode(self._directory)} cannot be used: {error.strerror}") from error
        if not try_lock(lock, LOCK_EX):
            os.close(lock)
            return False
        self._lock = lock
        return True

    def publish(self, running: RunningServer) -> None:
        write_own(self._path, msgspec.json.encode(running))

    def release(self) -> None:
        """Remove the file and release the lock."""
        try:
            os.unlink(self._path)
        except OSError:
            pass  # already gone, or cannot be removed: then its proof fails
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def find_running(self) -> RunningServer | None:
        """Return this state directory's running server, proved, or None if no server answers."""
        data = private_file.read(self._path, _LIMIT)
        try:
            running = msgspec.json.decode(data or b"", type=RunningServer)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return None
        nonce = secrets.token_urlsafe(24)
        answer = _ask(running, "GET", f"/whose?nonce={nonce}", {})
        proved = hmac.compare_digest(answer, proof_of(running.token, nonce).encode())
        return running if proved else None


def ending(pid: int) -> str:
    """Return the command that ends a process. Without /f, taskkill cannot ask a Windows console program to end."""
    return f"taskkill /f /pid {pid}" if sys.platform == "win32" else f"kill {pid}"


def new_code(running: RunningServer) -> str:
    """Return a login code from a server that ``find_running`` returned. Raise MudroomError if it gives none."""
    try:
        return str(json.loads(_ask(running, "POST", "/link", {"Authorization": f"Bearer {running.token}"}))["code"])
    except (ValueError, LookupError, TypeError) as error:
        raise MudroomError(
            f"the server on port {running.port} gives no address",
            f"end it, and start another: {ending(running.pid)}; mudroom serve",
        ) from error


def _ask(running: RunningServer, method: str, path: str, headers: dict[str, str]) -> bytes:
    """Return the body of an answer with status 200; otherwise empty bytes."""
    connection = http.client.HTTPConnection("127.0.0.1", running.port, timeout=_PATIENCE)
    try:
        connection.request(method, running.prefix + path, None, headers)
        answer = connection.getresponse()
        return answer.read(_LIMIT) if answer.status == 200 else b""
    except (OSError, http.client.HTTPException, ValueError):
        return b""
    finally:
        connection.close()
