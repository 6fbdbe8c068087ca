"""What shows, from outside, that a deed was done: one directory with what the deeds are aimed at, and its watch."""

from __future__ import annotations

import os
import select
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import ExitStack, suppress

from mudroom.certify.deed import GATE, GROUP, PERMITTED
from mudroom.certify.row import Canary as Kind
from mudroom.certify.windows_witness import Witness
from mudroom.typing import Any

TWINS: Mapping[str, Kind] = {
    "plain_write": "tree", "plain_read": "secret", "chmod": "tree", "look_up_permitted": "service",
    "own_terminal": "claim", "connect_unix": "connection", "connect_tcp": "connection", "child": "claim",
    "through_bridge": "bridge",
}  # fmt: skip
"""Canaries of twins that are another deed."""
_SLEEP = ("/bin/sleep", "600") if os.name == "posix" else (sys.executable, "-c", "import time; time.sleep(600)")
ANOTHER_PACKAGE = "S-1-15-2-1-2-3-4-5-6-7"
"""SID of a container that is none of ours."""
_SLICE = 0.05
"""Seconds of one wait for a connection."""
_SOON = 0.1
"""Seconds in which a signal that was sent arrives, and a process that was started writes."""


class Canary:
    """``path`` is made, with a file to write, a secret, and a directory. Owner: the caller, within one row."""

    def __init__(self, path: str, kind: Kind, service: str = "", port: int = 0, witness: Witness | None = None) -> None:
        """``port``: of the server at another address of this machine, or of the gate; 0: any, or the port of an own
        one. ``witness``: on Windows."""
        self._path, self._kind, self._service, self._witness = path, kind, service, witness
        self.nonce = os.urandom(12).hex()
        self._left = b""
        """The pid that a process wrote into the FIFO."""
        os.makedirs(path + "/d", exist_ok=True)
        for name, text in (("target", "target"), ("secret", self.nonce), (self.nonce, "")):
            with open(f"{path}/{name}", "w", encoding="ascii") as stream:
                stream.write(text)
        self._root = path + "/d"
        self._files = ExitStack()
        self.port = self._udp_port = self._victim_pid = self._port_6 = self._port_other = self._port_multicast = 0
        self._address, self._scope = "", 0
        self._servers: list[socket.socket] = []
        self._victim: subprocess.Popen[bytes] | None = None
        self._fifo = self._master = -1
        self._terminal, self._handle = "", 0
        self._pipe, self._gate = "", 0
        self._reached = threading.Event()
        self._key = f"Software\\mudroom-{os.urandom(12).hex()}"
        self._open(port)
        self._before = self._look()
        self._inode = os.stat(self._root).st_ino

    def _open(self, port: int) -> None:
        if self._kind == "connection":
            if hasattr(socket, "AF_UNIX"):  # not on Windows
                unix = self._serve(socket.socket(socket.AF_UNIX))
                _bind_in(self._path, unix)
                unix.listen()
            self._address, self._scope = other_address()
            family = socket.AF_INET6 if ":" in self._address else socket.AF_INET
            self.port = self._bound(socket.AF_INET, socket.SOCK_STREAM, "127.0.0.1")
            self._udp_port = self._bound(socket.AF_INET, socket.SOCK_DGRAM, "127.0.0.1")
            self._port_6 = self._bound(socket.AF_INET6, socket.SOCK_STREAM, "::1")
            self._port_other = self._bound(family, socket.SOCK_STREAM, self._address, port)
            self._port_multicast = self._bound(socket.AF_INET, socket.SOCK_DGRAM, GROUP)
        elif self._kind == "resolver" and sys.platform != "darwin":
            unix = self._serve(socket.socket(socket.AF_UNIX))
            _bind_in(self._path, unix, "resolver")
            unix.listen()
        elif self._kind == "death":
            self._victim = subprocess.Popen(_SLEEP, stdin=subprocess.DEVNULL)
            self._victim_pid = self._victim.pid
        elif self._kind == "arguments":
            self._victim = subprocess.Popen(
                [self.nonce, "600"], executable="/bin/sleep", env={}, stdin=subprocess.DEVNULL
            )
            self._victim_pid = self._victim.pid
        elif self._kind == "service" and sys.platform != "darwin":
            os.mkdir(self._path + "/services")
            for name in (self._service, PERMITTED):
                unix = self._files.enter_context(socket.socket(socket.AF_UNIX))
                _bind_in(self._path + "/services", unix, name)
                unix.listen()
        elif self._kind == "terminal":
            import tty  # Windows has none

            self._master, side = os.openpty()
            tty.setraw(side)
            self._terminal = os.ttyname(side)
            for descriptor in (self._master, side):
                self._files.callback(os.close, descriptor)
        elif self._kind == "handle":
            assert self._witness is not None
            descriptor = os.open(self._path + "/target", os.O_WRONLY)
            self._files.callback(os.close, descriptor)
            self._handle = self._witness.inheritable(descriptor)
        elif self._kind in ("bridge", "listener"):
            self._listen_as_a_gate()
            self._gate = port or self.port
        elif self._kind == "pipe":
            assert self._witness is not None
            self._pipe = f"mudroom-{os.urandom(12).hex()}"
            self._files.callback(self._witness.make_pipe(self._pipe, ANOTHER_PACKAGE))
        elif self._kind == "process" and self._witness is None:
            os.mkfifo(self._path + "/fifo")
            self._fifo = os.open(self._path + "/fifo", os.O_RDONLY | os.O_NONBLOCK)
            self._files.callback(os.close, self._fifo)

    def _listen_as_a_gate(self) -> None:
        """Listen at the address of a gate, and answer each connection with a byte. The port is free on 127.0.0.1, where
        a relay takes it."""
        with socket.socket() as inside, ExitStack() as made:
            inside.bind(("127.0.0.1", 0))
            server = made.enter_context(socket.socket())
            try:
                server.bind((GATE, inside.getsockname()[1]))
            except OSError:
                return  # as ``_bound``
            server.listen()
            made.pop_all()
        self.port = server.getsockname()[1]
        over = threading.Event()
        thread = threading.Thread(target=self._answer, args=(server, over), daemon=True)
        for end in (server.close, thread.join, over.set):  # the last comes first
            self._files.callback(end)
        thread.start()

    def _answer(self, server: socket.socket, over: threading.Event) -> None:
        server.settimeout(_SLICE)
        while not over.is_set():
            with suppress(OSError):  # a time-out, or a client that has gone
                client, _address = server.accept()
                self._reached.set()
                with client:
                    client.sendall(b"x")

    def _serve(self, server: socket.socket) -> socket.socket:
        server.setblocking(False)
        self._servers.append(self._files.enter_context(server))
        return server

    def _bound(self, family: int, kind: int, address: str, port: int = 0) -> int:
        """Return the port of a new server, or 0 if this machine has no such address: a deed then does not work where
        nothing confines, and its row is not shown."""
        server = socket.socket(family, kind)
        try:
            if address == GROUP:
                server.bind(("", port))
                member = socket.inet_aton(GROUP) + socket.inet_aton("127.0.0.1")
                server.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
            else:
                scope = self._scope if address == self._address else 0
                server.bind((address, port, 0, scope) if scope else (address, port))
        except OSError:
            server.close()
            return 0
        if kind == socket.SOCK_STREAM:
            server.listen()
        return int(self._serve(server).getsockname()[1])

    def __enter__(self) -> Canary:
        return self

    def __exit__(self, *_error: object) -> None:
        self._files.close()
        if self._kind == "key" and self.is_done(""):
            assert self._witness is not None
            self._witness.remove_key(self._key)
        if self._victim is not None:
            self._victim.kill()
            self._victim.wait()

    def watch(self, root: str) -> None:
        """Watch ``root``, a directory, instead of one of this canary's own."""
        self._root, self._inode = root, os.stat(root).st_ino

    def facts(self) -> dict[str, Any]:
        """Return what a deed is told."""
        return {
            "outside": self._path,
            "mark": "mark",
            "root": self._root,
            "port": self.port,
            "udp": self._udp_port,
            "port_6": self._port_6,
            "port_other": self._port_other,
            "port_multicast": self._port_multicast,
            "address": self._address,
            "scope": self._scope,
            "victim": self._victim_pid,
            "service": self._service,
            "services": self._path + "/services",
            "terminal": self._terminal,
            "handle": self._handle,
            "key": self._key,
            "gate": self._gate,
            "pipe": self._pipe,
        }

    def is_done(self, evidence: str) -> bool:
        """Return whether the deed was done. ``evidence``: its own word, which counts for secrets and claims."""
        match self._kind:
            case "tree" | "handle":
                return self._look() != self._before
            case "key":
                assert self._witness is not None
                return self._witness.has_key(self._key)
            case "secret" | "arguments":
                return self.nonce in evidence
            case "bridge":
                return self._reached.wait(_SOON)
            case "claim" | "reading" | "service" | "resolver" | "listener" | "pipe":
                return bool(evidence)
            case "terminal":
                return bool(select.select([self._master], [], [], 0)[0])
            case "works":
                return evidence == "7"
            case "root":
                return not os.path.isdir(self._root) or os.stat(self._root).st_ino != self._inode
            case "connection":
                return bool(select.select(self._servers, [], [], 0)[0])
            case "death":
                assert self._victim is not None
                with suppress(subprocess.TimeoutExpired):
                    self._victim.wait(_SOON)
                return self._victim.returncode is not None
            case "process":
                return self._is_there()

    def _is_there(self) -> bool:
        """Return whether a process holds the FIFO open: fifo(7), a read without a writer is an end of file. On
        Windows a file, which it would not let anybody remove."""
        if self._witness is not None:
            with suppress(FileNotFoundError), open(self._path + "/held", "rb") as stream:
                self._left = stream.read(64) or self._left
            return self._witness.is_held(self._path + "/held")
        select.select([self._fifo], [], [], _SOON)
        try:
            self._left = os.read(self._fifo, 64) or self._left
            os.read(self._fifo, 64)
        except BlockingIOError:
            return True
        return False

    @property
    def was_there(self) -> bool:
        """Whether a process has been there."""
        return bool(self._left)

    def end_left(self) -> None:
        """End the process that a control, which is mudroom's own, has left. A confined one is not believed its pid."""
        if self._left:
            with suppress(OSError):
                os.kill(int(self._left), getattr(signal, "SIGKILL", signal.SIGTERM))

    def _look(self) -> dict[str, tuple[object, ...]]:
        """Return names, kinds, modes, times and contents of all that is below the directory."""
        rows: dict[str, tuple[object, ...]] = {}
        for top, directories, files in os.walk(self._path):
            for name in (*directories, *files):
                path = os.path.join(top, name)
                info = os.lstat(path)
                content = b""
                if stat.S_ISREG(info.st_mode):
                    with open(path, "rb") as stream:
                        content = stream.read(4096)
                rows[path] = (info.st_mode, info.st_ino, info.st_nlink, info.st_mtime_ns, content)
        stream_path = self._path + "/target:mark"  # an alternate stream of NTFS is in no listing
        if os.name == "nt" and os.path.lexists(stream_path):
            rows[stream_path] = ()
        return rows


def other_address() -> tuple[str, int]:
    """Return an address of this machine besides 127.0.0.1, and its scope: the address by which others are reached,
    found by connect(2) of UDP, which sends nothing; without a network one of loopback's own. inet6(4) of macOS: a
    link-local address is one of an interface, whose number is its scope (sin6_scope_id)."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp, suppress(OSError):
        udp.connect(("192.0.2.1", 9))  # RFC 5737: of no machine
        return str(udp.getsockname()[0]), 0
    if sys.platform == "darwin":
        return "fe80::1", socket.if_nametoindex("lo0")
    return "127.0.0.2", 0


def _bind_in(directory: str, unix: socket.socket, name: str = "s") -> None:
    """Bind a socket to a name in a directory whose path may be too long for it (unix(4): 104 bytes)."""
    before = os.open(".", os.O_RDONLY)
    try:
        os.chdir(directory)
        unix.bind(name)
    finally:
        os.fchdir(before)
        os.close(before)
