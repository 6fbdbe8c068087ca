"""Points of a server at which an effect stands until it is let go on: in this process, and in git's hooks."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

from clocks import give_way

WAIT = 60.0
_ASK = """exec 3<>/dev/tcp/127.0.0.1/{port}; echo "$point" >&3; read -r said <&3; exec 3>&-
[ "$said" = go ] || {{ kill -9 $PPID; exit 1; }}
"""
_HOOKS = {
    "pre-receive": "point=unpacked\n{ask}",
    "reference-transaction": """main=
while read -r _old _new ref; do [ "$ref" = refs/heads/main ] && main=1; done
[ "$1$main" = committed1 ] && echo x >> received
case $1$main in prepared1) point=locked;; committed1) point=moved;; *) exit 0;; esac
{ask}""",
    "post-receive": "point=reported\n{ask}",
}


class Stops:
    """``fault``: what happens at the point: empty: it stands, ``cut``: its connection is cut."""

    def __init__(self, is_sending: Callable[[], bool]) -> None:
        """``is_sending``: whether the effect is noted as ``sending`` now; only then a server stops."""
        self._is_sending = is_sending
        self._lock = threading.Lock()
        self._point, self.fault = "", ""
        self.standing: list[threading.Event] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def arm(self, point: str, fault: str = "") -> None:
        """Stop the next effect that comes to the point."""
        with self._lock:
            self._point, self.fault = point, fault

    def at(self, point: str) -> None:
        """Stand there if it is the point. Raise ConnectionError if the connection is to be cut."""
        with self._lock:
            if point != self._point or not (point == "data" or self._is_sending()):
                return
            self._point, go = "", threading.Event()
            self.standing.append(go)
        if self.fault:
            raise ConnectionError
        go.wait(WAIT)

    def wait(self, count: int, is_over: Callable[[], bool]) -> bool:
        """Wait until so many stand. Return False if it is over before."""
        limit = time.monotonic() + WAIT
        while len(self.standing) < count:
            assert time.monotonic() < limit, "nothing came to the point"
            if is_over():
                return len(self.standing) >= count
            give_way()
        return True

    def let_go(self) -> None:
        self.arm("")
        while self.standing:
            self.standing.pop(0).set()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(client,), daemon=True).start()

    def _answer(self, client: socket.socket) -> None:
        with client, client.makefile("r") as lines:
            said = b"go\n"
            try:
                self.at(lines.readline().strip())
            except ConnectionError:
                said = b"cut\n"
            try:
                client.sendall(said)
            except OSError:
                return  # it was killed

    def put_hooks(self, repository: Path) -> None:
        """Have a repository's hooks stop: ``unpacked``, ``locked``, ``moved`` and ``reported``. Its file ``received``
        gets a line each time that ``main`` is moved."""
        for name, script in _HOOKS.items():
            hook = repository / "hooks" / name
            hook.write_text("#!/bin/bash\n" + script.format(ask=_ASK.format(port=self.port)))
            hook.chmod(0o755)

    def command(self, at: Path) -> Path:
        """Return a program for sshd's ``ForceCommand``, which stops at ``read``."""
        at.write_text(
            f'#!/bin/bash\npoint=read\n{_ASK.format(port=self.port)}exec /bin/sh -c "$SSH_ORIGINAL_COMMAND"\n'
        )
        at.chmod(0o755)
        return at

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
