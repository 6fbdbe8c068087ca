"""The host's servers: they hear whoever gets to them, and keep what they were told."""

from __future__ import annotations

import os
import secrets
import selectors
import socket
import threading
from pathlib import Path

_PATIENCE = 0.05


class Listener:
    """Servers of every kind, attended by a thread. ``heard`` is all that came in."""

    def __init__(self, home: Path, tmp: Path) -> None:
        self.heard = bytearray()
        self._home = home
        self._selector = selectors.DefaultSelector()
        self._own: list[socket.socket] = []
        self._descriptors: list[int] = []
        self._idle = threading.Event()
        unique = secrets.token_hex(4)
        self.paths = {
            "stream": str(home / "stream"), "dgram": str(home / "dgram"), "seqpacket": str(home / "seqpacket"),
            "giver": str(home / "giver"), "short": str(tmp / "s"),
            "abstract-stream": f"esc-s-{unique}", "abstract-dgram": f"esc-d-{unique}",
        }  # fmt: skip
        kinds = {"dgram": socket.SOCK_DGRAM, "abstract-dgram": socket.SOCK_DGRAM, "seqpacket": socket.SOCK_SEQPACKET}
        for name, path in self.paths.items():
            where = "\0" + path if name.startswith("abstract") else path
            self._serve(socket.AF_UNIX, kinds.get(name, socket.SOCK_STREAM), where, gives=name == "giver")
        self.ports = {
            "tcp": self._serve(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", 0)),
            "tcp6": self._serve(socket.AF_INET6, socket.SOCK_STREAM, ("::1", 0)) if _has_ipv6() else 0,
            "udp": self._serve(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", 0)),
        }
        self._wake, wake = os.pipe()
        self._wake_write = wake
        self._selector.register(self._wake, selectors.EVENT_READ, None)
        self._over = False
        self._thread = threading.Thread(target=self._attend, daemon=True)
        self._thread.start()

    def _serve(self, family: int, kind: int, where: str | tuple[str, int], *, gives: bool = False) -> int:
        server = socket.socket(family, kind)
        server.bind(where)
        server.setblocking(False)
        listens = kind != socket.SOCK_DGRAM
        if listens:
            server.listen(64)
        self._own.append(server)
        self._selector.register(server, selectors.EVENT_READ, "give" if gives else "accept" if listens else "read")
        return int(server.getsockname()[1]) if family != socket.AF_UNIX else 0

    def hear(self, descriptor: int) -> None:
        """Listen to an open descriptor, too; it is ours from now on."""
        os.set_blocking(descriptor, False)
        self._descriptors.append(descriptor)
        self._selector.register(descriptor, selectors.EVENT_READ, "read")

    def _attend(self) -> None:
        while not self._over:
            ready = self._selector.select(_PATIENCE)
            if not ready:
                self._idle.set()
            for key, _events in ready:
                self._handle(key)

    def _handle(self, key: selectors.SelectorKey) -> None:
        if key.data in ("accept", "give"):
            assert isinstance(key.fileobj, socket.socket)
            peer, _address = key.fileobj.accept()
            if key.data == "give":
                directory = os.open(self._home, os.O_PATH | os.O_DIRECTORY)
                socket.send_fds(peer, [b"h"], [directory])
                os.close(directory)
            self._own.append(peer)
            self.hear(peer.fileno())
            self._descriptors.remove(peer.fileno())
        elif key.data == "read":
            try:
                data = os.read(key.fd, 65536)
            except OSError:
                data = b""
            self.heard += data
            if not data:
                self._selector.unregister(key.fileobj)

    def settle(self) -> None:
        """Return when all that has been sent has been heard."""
        self._idle.clear()
        self._idle.wait(10)

    def close(self) -> None:
        self._over = True
        os.write(self._wake_write, b"x")
        self._thread.join()
        self._selector.close()
        for one in self._own:
            one.close()
        for descriptor in (*self._descriptors, self._wake, self._wake_write):
            os.close(descriptor)


def _has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as ours:
            ours.bind(("::1", 0))
    except OSError:
        return False
    return True
