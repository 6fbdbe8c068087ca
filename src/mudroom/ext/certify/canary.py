"""Canaries, which show from outside that a deed was done: a directory with the deeds' aims, and a watch of one kind.

Rules of this file:
1. A kind is a row in ``KINDS``: the function that puts it up, and the permitted twins' deeds that it sees.
2. That function returns the facts that a deed is told beside its directory, and how the effect is looked for. No other
   code knows the kinds.
3. The stack in a kind's ``Site`` ends all that it opens, starts or serves.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress

from mudroom.ext.certify.deed import GATE, GROUP, PERMITTED
from mudroom.ext.certify.row import CanaryKind
from mudroom.ext.certify.windows_witness import Witness
from mudroom.typing import Any, NamedTuple

# --- This machine's servers that deeds are aimed at. Each is closed by the stack that is handed in ---


_SLICE = 0.05
"""Seconds of each wait for a connection."""
_TRIES = 20
"""Ports that are tried for a gate: a port that is free on 127.0.0.1 may be in TIME_WAIT at the gate's address."""


def port_of(server: socket.socket | None) -> int:
    """Return a server's port, or 0 if there is no server: a deed then does not work where nothing confines, and its row
    is not shown."""
    return int(server.getsockname()[1]) if server is not None else 0


def listen_tcp(
    stack: ExitStack, family: int, address: tuple[str, int] | tuple[str, int, int, int]
) -> socket.socket | None:
    """Return a TCP server, or None if this machine has no such address, or no such family (``ipv6.disable=1``)."""
    try:
        server = stack.enter_context(socket.socket(family))
        server.bind(address)
    except OSError:
        return None
    server.listen()
    server.setblocking(False)
    return server


def receive_udp(stack: ExitStack, address: str, group: str = "") -> socket.socket | None:
    """Return a UDP server, or None if this machine has no such address. ``group``: a multicast group, which it joins on
    loopback."""
    server = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
    try:
        server.bind((address, 0))
        if group:
            member = socket.inet_aton(group) + socket.inet_aton("127.0.0.1")
            server.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
    except OSError:
        return None
    server.setblocking(False)
    return server


def listen_unix(stack: ExitStack, directory: str, name: str) -> socket.socket:
    server = stack.enter_context(socket.socket(socket.AF_UNIX))
    before = os.open(".", os.O_RDONLY)
    try:
        # The whole path may be too long for a socket (unix(4): 104 bytes), so it is bound by its name alone.
        os.chdir(directory)
        server.bind(name)
    finally:
        os.fchdir(before)
        os.close(before)
    server.listen()
    server.setblocking(False)
    return server


def listen_everywhere(stack: ExitStack, address: str, scope: int, port: int) -> dict[str, socket.socket | None]:
    """Return a server for each way to reach this machine, by the fact that tells its port. ``address``, ``scope`` and
    ``port`` (0: any) are for the server that is not on loopback."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return {
        "port": listen_tcp(stack, socket.AF_INET, ("127.0.0.1", 0)),
        "udp": receive_udp(stack, "127.0.0.1"),
        "port_6": listen_tcp(stack, socket.AF_INET6, ("::1", 0)),
        "port_other": listen_tcp(stack, family, (address, port, 0, scope) if scope else (address, port)),
        "port_multicast": receive_udp(stack, "", GROUP),
    }


def other_address() -> tuple[str, int]:
    """Return an address of this machine besides 127.0.0.1, and its scope: the address by which others are reached, or
    without a network one of loopback's own."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp, suppress(OSError):
        udp.connect(("192.0.2.1", 9))  # sends nothing: UDP; RFC 5737: no machine's address
        return str(udp.getsockname()[0]), 0
    if sys.platform == "darwin":
        # inet6(4) on macOS: a link-local address belongs to an interface, whose number is its scope (sin6_scope_id).
        return "fe80::1", socket.if_nametoindex("lo0")
    return "127.0.0.2", 0


def answer_as_a_gate(stack: ExitStack) -> tuple[int, threading.Event]:
    """Listen at a gate's address, and answer each connection with a byte. Return the port, 0 as in ``port_of``, and the
    event that a connection sets."""
    reached, over = threading.Event(), threading.Event()
    server = next(filter(None, (_listening_as_a_gate() for _try in range(_TRIES))), None)
    if server is None:
        return 0, reached
    thread = threading.Thread(target=_answer, args=(server, reached, over), daemon=True)
    for end in (server.close, thread.join, over.set):  # the last comes first
        stack.callback(end)
    thread.start()
    return port_of(server), reached


def _listening_as_a_gate() -> socket.socket | None:
    """Return a server at a gate's address, at a port that is free on 127.0.0.1, where a relay takes it. Return None if
    that port cannot be had."""
    with socket.socket() as inside:
        inside.bind(("127.0.0.1", 0))
        server = socket.socket()
        try:
            server.bind((GATE, inside.getsockname()[1]))
            server.listen()
        except OSError:
            server.close()
            return None
        return server


def _answer(server: socket.socket, reached: threading.Event, over: threading.Event) -> None:
    server.settimeout(_SLICE)
    while not over.is_set():
        with suppress(OSError):  # a time-out, or a client that has gone
            client, _address = server.accept()
            reached.set()
            with client:
                client.sendall(b"x")


ANOTHER_PACKAGE = "S-1-15-2-1-2-3-4-5-6-7"
"""The SID of a container that is not mudroom's."""
_SLEEP = ("/bin/sleep", "600") if os.name == "posix" else (sys.executable, "-c", "import time; time.sleep(600)")
_SOON = 0.1
"""Seconds in which a signal arrives, and a started process writes."""


class Site(NamedTuple):
    """A canary's ground: ``path`` has a file to write, a secret, and a directory."""

    path: str
    stack: ExitStack
    """Ends the servers, processes and descriptors there. Owner: the caller, within one row."""
    nonce: str
    """The secret."""
    key: str
    """An unused name, for a registry key or a pipe."""
    root: str
    """The directory that a deed renames."""
    service: str = ""
    port: int = 0
    """The port of the server at this machine's other address, or of the gate; 0: any, or a port of its own."""
    witness: Witness | None = None


class CanaryWatch(NamedTuple):
    """A canary that has been put up."""

    is_done: Callable[[str], bool]
    """Return whether the deed was done. The argument is the deed's own word, which counts for secrets and claims."""
    facts: Mapping[str, Any] = {}
    left: Callable[[], bytes] = bytes
    """Return the pid that a process has left there; empty: none has been there."""


class Canary(NamedTuple):
    """``facts`` is what a deed is told."""

    nonce: str
    facts: Mapping[str, Any]
    is_done: Callable[[str], bool]
    left: Callable[[], bytes]

    @property
    def port(self) -> int:
        return int(self.facts.get("port", 0))

    def end_left(self) -> None:
        """End the process that a control, which is mudroom's own, has left. A confined process's pid is not
        believed."""
        if pid := self.left():
            with suppress(OSError):
                os.kill(int(pid), getattr(signal, "SIGKILL", signal.SIGTERM))


def put_up(
    stack: ExitStack,
    path: str,
    kind: CanaryKind,
    *,
    root: str = "",
    service: str = "",
    port: int = 0,
    witness: Witness | None = None,
) -> Canary:
    """Make ``path`` and a canary in it, which stands until the stack ends. ``root``: a directory to watch instead of
    the canary's own."""
    nonce, key = os.urandom(12).hex(), f"Software\\mudroom-{os.urandom(12).hex()}"
    site = Site(path, stack, nonce, key, root or path + "/d", service, port, witness)
    os.makedirs(path + "/d", exist_ok=True)
    for name, text in (("target", "target"), ("secret", nonce), (nonce, "")):
        with open(f"{path}/{name}", "w", encoding="ascii") as stream:
            stream.write(text)
    watch = KINDS[kind].put_up(site)
    facts = {"outside": path, "mark": "mark", "root": site.root, "key": key, **watch.facts}
    return Canary(nonce, facts, watch.is_done, watch.left)


# --- kinds: the deed's own word, and files ---


def _claim(_site: Site) -> CanaryWatch:
    return CanaryWatch(bool)


def _works(_site: Site) -> CanaryWatch:
    return CanaryWatch("7".__eq__)


def _secret(site: Site) -> CanaryWatch:
    return CanaryWatch(lambda evidence: site.nonce in evidence)


def _tree(site: Site) -> CanaryWatch:
    before = _snapshot(site.path)
    return CanaryWatch(lambda _evidence: _snapshot(site.path) != before)


def _root(site: Site) -> CanaryWatch:
    inode = os.stat(site.root).st_ino
    return CanaryWatch(lambda _evidence: not os.path.isdir(site.root) or os.stat(site.root).st_ino != inode)


def _handle(site: Site) -> CanaryWatch:
    assert site.witness is not None
    descriptor = os.open(site.path + "/target", os.O_WRONLY)
    site.stack.callback(os.close, descriptor)
    return _tree(site)._replace(facts={"handle": site.witness.inheritable(descriptor)})


def _snapshot(path: str) -> dict[str, tuple[object, ...]]:
    """Return names, kinds, modes, times and contents below a directory."""
    rows: dict[str, tuple[object, ...]] = {}
    for top, directories, files in os.walk(path):
        for name in (*directories, *files):
            below = os.path.join(top, name)
            info = os.lstat(below)
            content = b""
            if stat.S_ISREG(info.st_mode):
                with open(below, "rb") as stream:
                    content = stream.read(4096)
            rows[below] = (info.st_mode, info.st_ino, info.st_nlink, info.st_mtime_ns, content)
    stream_path = path + "/target:mark"  # a listing does not show NTFS alternate streams
    if os.name == "nt" and os.path.lexists(stream_path):
        rows[stream_path] = ()
    return rows


# --- kinds: servers ---


def _connection(site: Site) -> CanaryWatch:
    address, scope = other_address()
    made = listen_everywhere(site.stack, address, scope, site.port)
    servers = [server for server in made.values() if server is not None]
    if os.name == "posix":
        servers.append(listen_unix(site.stack, site.path, "s"))
    return CanaryWatch(
        lambda _evidence: bool(select.select(servers, [], [], 0)[0]),
        {"address": address, "scope": scope, **{name: port_of(server) for name, server in made.items()}},
    )


def _resolver(site: Site) -> CanaryWatch:
    if sys.platform != "darwin":
        listen_unix(site.stack, site.path, "resolver")
    return _claim(site)


def _service(site: Site) -> CanaryWatch:
    services = site.path + "/services"
    if sys.platform != "darwin":
        os.mkdir(services)
        for name in (site.service, PERMITTED):
            listen_unix(site.stack, services, name)
    return CanaryWatch(bool, {"service": site.service, "services": services})


def _bridge(site: Site) -> CanaryWatch:
    port, reached = answer_as_a_gate(site.stack)
    return CanaryWatch(lambda _evidence: reached.wait(_SOON), {"port": port, "gate": site.port or port})


def _listener(site: Site) -> CanaryWatch:
    return _bridge(site)._replace(is_done=bool)


def _pipe(site: Site) -> CanaryWatch:
    assert site.witness is not None
    name = f"mudroom-{os.urandom(12).hex()}"
    site.stack.callback(site.witness.make_pipe(name, ANOTHER_PACKAGE))
    return CanaryWatch(bool, {"pipe": name})


def _caller(site: Site) -> CanaryWatch:
    """Call at a free port of loopback until the row's end."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = port_of(free)
    served, over = threading.Event(), threading.Event()

    def call() -> None:
        while not over.wait(_SLICE):
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), _SLICE) as client:
                if client.getsockname() != client.getpeername():  # TCP's simultaneous open: it has met itself
                    served.set()

    thread = threading.Thread(target=call, daemon=True)
    for end in (thread.join, over.set):  # the last comes first
        site.stack.callback(end)
    thread.start()
    return CanaryWatch(lambda _evidence: served.wait(_SOON), {"inside": port})


# --- kinds: processes, terminals and the registry ---


def _started(site: Site, words: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    victim = subprocess.Popen(words, stdin=subprocess.DEVNULL, **options)
    site.stack.callback(victim.wait)
    site.stack.callback(victim.kill)  # the last comes first
    return victim


def _death(site: Site) -> CanaryWatch:
    victim = _started(site, _SLEEP)

    def has_ended(_evidence: str) -> bool:
        with suppress(subprocess.TimeoutExpired):
            victim.wait(_SOON)
        return victim.returncode is not None

    return CanaryWatch(has_ended, {"victim": victim.pid})


def _arguments(site: Site) -> CanaryWatch:
    victim = _started(site, [site.nonce, "600"], executable="/bin/sleep", env={})
    return _secret(site)._replace(facts={"victim": victim.pid})


def _process(site: Site) -> CanaryWatch:
    return _process_by_fifo(site) if site.witness is None else _process_by_lock(site, site.witness)


def _process_by_fifo(site: Site) -> CanaryWatch:
    """Watch a process that holds a FIFO open: fifo(7), a read without a writer is an end of file."""
    os.mkfifo(site.path + "/fifo")
    fifo = os.open(site.path + "/fifo", os.O_RDONLY | os.O_NONBLOCK)
    site.stack.callback(os.close, fifo)
    left = bytearray()

    def is_there(_evidence: str) -> bool:
        select.select([fifo], [], [], _SOON)
        try:
            left[:] = os.read(fifo, 64) or left
            os.read(fifo, 64)
        except BlockingIOError:
            return True
        return False

    return CanaryWatch(is_there, left=lambda: bytes(left))


def _process_by_lock(site: Site, witness: Witness) -> CanaryWatch:
    """Watch a process that holds a file open, which then cannot be removed."""
    held, left = site.path + "/held", bytearray()

    def is_there(_evidence: str) -> bool:
        with suppress(FileNotFoundError), open(held, "rb") as stream:
            left[:] = stream.read(64) or left
        return witness.is_held(held)

    return CanaryWatch(is_there, left=lambda: bytes(left))


def _terminal(site: Site) -> CanaryWatch:
    import tty  # Windows has none

    master, side = os.openpty()
    for descriptor in (master, side):
        site.stack.callback(os.close, descriptor)
    tty.setraw(side)
    return CanaryWatch(lambda _evidence: bool(select.select([master], [], [], 0)[0]), {"terminal": os.ttyname(side)})


def _key(site: Site) -> CanaryWatch:
    witness = site.witness
    assert witness is not None

    def remove() -> None:
        if witness.has_key(site.key):
            witness.remove_key(site.key)

    site.stack.callback(remove)
    return CanaryWatch(lambda _evidence: witness.has_key(site.key))


class Kind(NamedTuple):
    put_up: Callable[[Site], CanaryWatch]
    twins: Sequence[str] = ()
    """Permitted twins' deeds whose effect this kind sees, whatever kind their row has."""


KINDS: Mapping[CanaryKind, Kind] = {
    "tree": Kind(_tree, ("plain_write", "chmod")),
    "secret": Kind(_secret, ("plain_read",)),
    "connection": Kind(_connection, ("connect_unix", "connect_tcp")),
    "death": Kind(_death),
    "root": Kind(_root),
    "claim": Kind(_claim, ("own_terminal", "child")),
    "process": Kind(_process),
    "reading": Kind(_claim),
    "works": Kind(_works),
    "service": Kind(_service, ("look_up_permitted",)),
    "terminal": Kind(_terminal),
    "arguments": Kind(_arguments),
    "resolver": Kind(_resolver),
    "key": Kind(_key),
    "handle": Kind(_handle),
    "bridge": Kind(_bridge, ("through_bridge",)),
    "listener": Kind(_listener),
    "pipe": Kind(_pipe),
    "caller": Kind(_caller),
}
_OF_TWINS: Mapping[str, CanaryKind] = {twin: name for name, kind in KINDS.items() for twin in kind.twins}


def kind_of_twin(twin: str, kind: CanaryKind) -> CanaryKind:
    """Return the kind that sees a row's twin. ``twin``: empty where it is the row's own deed, which has this
    ``kind``."""
    return _OF_TWINS.get(twin, kind)
