"""Deeds: acts that are forbidden to a confined command, as functions that try them. They run inside a sandbox.

Rules of this file:
1. It stands alone: ``python -I -S -c`` with its text runs it (``main``). It imports the standard library only. If a
   deed is a call that only macOS has, on other systems it does something that a stand-in for that call can refuse.
2. A deed is told everything about the host: a command that gets out knows where to go. It returns evidence, or None if
   its effect shows by itself. An OSError is a refusal.
3. A deed says nothing about its own success: that is looked for from outside (``trial.py``).
"""

import errno
import os
import signal
import socket

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from mudroom.typing import Any, Protocol

    class Place(Protocol):
        @property
        def outside(self) -> str:
            """A host directory, with ``target``, ``secret`` and the directory ``d``."""

        @property
        def mark(self) -> str:
            """Text to write."""


UP = "../" * 30
PATIENCE = 2
"""Seconds for a connection: less than a row has, as a sandbox may drop it without an answer."""
GATE = "127.0.0.2"
"""The address at which a Windows host's gate listens for the bridge (``session/confinement/loopback.py``)."""
LEFT = 20
"""Seconds until a process that was left behind ends by itself."""


def put(path: str, place: "Place") -> None:
    """Write the mark over the file's content."""
    with open(path, "w") as stream:
        stream.write(place.mark)


def get(path: str) -> str:
    """Return a file's content, without waiting for pipes and devices."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    try:
        return os.read(descriptor, 1 << 16).decode("latin-1")
    finally:
        os.close(descriptor)


# --- files: as in the Linux escape suite ---


def plain_write(place: "Place") -> None:
    put(f"{place.outside}/target", place)


def plain_read(place: "Place") -> str:
    return get(f"{place.outside}/secret")


def plain_create(place: "Place") -> None:
    put(f"{place.outside}/new", place)


def truncate(place: "Place") -> None:
    os.truncate(f"{place.outside}/target", 0)


def unlink(place: "Place") -> None:
    os.unlink(f"{place.outside}/target")


def rmdir(place: "Place") -> None:
    os.rmdir(f"{place.outside}/d")


def mkdir(place: "Place") -> None:
    os.mkdir(f"{place.outside}/new")


def symlink(place: "Place") -> None:
    os.symlink("x", f"{place.outside}/new")


def mkfifo(place: "Place") -> None:
    os.mkfifo(f"{place.outside}/new")


def symlink_write(place: "Place") -> None:
    os.symlink(f"{place.outside}/target", "symlink_write")
    put("symlink_write", place)


def symlink_read(place: "Place") -> str:
    os.symlink(f"{place.outside}/secret", "symlink_read")
    return get("symlink_read")


def symlink_chain(place: "Place") -> None:
    os.symlink(place.outside, "chain1")
    os.symlink("chain1", "chain2")
    os.symlink("./chain2/d/..", "chain3")
    put("chain3/new", place)


def ancestor_replaced(place: "Place") -> None:
    os.mkdir("ancestor")
    os.rename("ancestor", "ancestor-away")
    os.symlink(place.outside, "ancestor")
    put("ancestor/target", place)


def hard_link(place: "Place") -> None:
    os.link(f"{place.outside}/target", "hard_link")
    put("hard_link", place)


def hard_link_read(place: "Place") -> str:
    os.link(f"{place.outside}/secret", "hard_link_read")
    return get("hard_link_read")


def rename_out(place: "Place") -> None:
    put("rename_out", place)
    os.rename("rename_out", f"{place.outside}/new")


def rename_in(place: "Place") -> None:
    os.rename(f"{place.outside}/target", "rename_in")


def rename_parent(place: "Place") -> None:
    os.rename(f"{place.outside}/d", f"{place.outside}/moved")


def dots(place: "Place") -> None:
    put(UP + place.outside.lstrip("/") + "/target", place)


# --- further deeds, for certification only ---


def chmod(place: "Place") -> None:
    os.chmod(f"{place.outside}/target", 0o666)


def set_times(place: "Place") -> None:
    os.utime(f"{place.outside}/target", (1, 1))


def rename_root(place: "Any") -> None:
    """Rename the directory that holds the writable files: a link could take its place."""
    os.rename(place.root, place.root + "-away")


def listing(place: "Place") -> str:
    return " ".join(sorted(os.listdir(place.outside)))


def reading(place: "Place") -> str:
    """Return which of four acts are permitted, as 1 and 0. The first three are named in rules that contradict each
    other; the last is refused."""
    acts = (
        lambda: get(f"{place.outside}/secret"),
        lambda: os.chmod(f"{place.outside}/target", 0o600),
        lambda: os.utime(f"{place.outside}/d", (1, 1)),
        lambda: os.chmod(f"{place.outside}/secret", 0o600),
    )
    return "".join(map(_permitted, acts))


def _permitted(act: "Callable[[], object]") -> str:
    try:
        act()
    except PermissionError:
        return "0"
    return "1"


def connect_tcp(place: "Any") -> None:
    with socket.socket() as tcp:
        tcp.settimeout(PATIENCE)
        tcp.connect(("127.0.0.1", place.port))


def send_udp(place: "Any") -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.sendto(b"x", ("127.0.0.1", place.udp))


def connect_ipv6(place: "Any") -> None:
    with socket.socket(socket.AF_INET6) as tcp:
        tcp.settimeout(PATIENCE)
        tcp.connect(("::1", place.port_6))


def connect_other(place: "Any") -> None:
    """Connect to another address of this machine than loopback's. "socket": the interface name in a link-local address
    has no effect without the scope number."""
    with socket.socket(socket.AF_INET6 if ":" in place.address else socket.AF_INET) as tcp:
        tcp.settimeout(PATIENCE)
        place_there = (place.address, place.port_other)
        tcp.connect((*place_there, 0, place.scope) if ":" in place.address else place_there)


QUERY = b"\0\1\1\0\0\1\0\0\0\0\0\0\x09localhost\0\0\1\0\1"
"""RFC 1035: a query for localhost's address."""


def dns_udp(_place: "Place") -> str:
    """Ask port 53 on loopback. Whether a server is there does not matter: the datagram has left the sandbox."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.sendto(QUERY, ("127.0.0.1", 53))
    return "sent"


def dns_tcp(_place: "Place") -> str:
    """Connect to port 53 on loopback; a refusal by the host shows that it was reached."""
    with socket.socket() as tcp:
        tcp.settimeout(PATIENCE)
        try:
            tcp.connect(("127.0.0.1", 53))
        except ConnectionRefusedError:
            return "refused by the host"
    return "connected"


GROUP = "224.0.0.251"
"""RFC 6762: multicast DNS."""


def send_multicast(place: "Any") -> None:
    """Send to the multicast DNS group, on loopback alone: RFC 1112, a time to live of 0 stays on the machine."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton("127.0.0.1"))
        udp.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, b"\0")  # one byte: ip(4) on macOS
        udp.sendto(QUERY, (GROUP, place.port_multicast))


def ask_resolver(place: "Place") -> str:
    """Connect to the socket through which the C library asks for names: mDNSResponder(8). Elsewhere another socket
    stands for it."""
    with socket.socket(socket.AF_UNIX) as unix:
        unix.settimeout(PATIENCE)
        unix.connect("/var/run/mDNSResponder" if _on_a_mac() else _short(f"{place.outside}/resolver"))
    return "connected"


def connect_unix(place: "Place") -> None:
    with socket.socket(socket.AF_UNIX) as unix:
        unix.settimeout(PATIENCE)
        unix.connect(_short(f"{place.outside}/s"))


def bind_unix(place: "Place") -> None:
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind(_short(f"{place.outside}/new"))


def _short(path: str) -> str:
    """Return the path in a form that a socket can have, at most 103 bytes on macOS: unix(4). For a longer path, enter
    its directory and return its name. A sandbox may refuse to enter the directory, so the path itself is preferred."""
    if len(os.fsencode(path)) <= 103:
        return path
    os.chdir(os.path.dirname(path))
    return os.path.basename(path)


def listen_tcp(_place: "Place") -> str:
    with socket.socket() as tcp:
        tcp.bind(("127.0.0.1", 0))
        tcp.listen()
    return "listening"


def serve(place: "Any") -> None:
    """Serve at a port at which programs of the host call."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", place.inside))
        server.listen()
        server.settimeout(PATIENCE)
        server.accept()[0].close()


def kill(place: "Any") -> None:
    os.kill(place.victim, signal.SIGTERM)


def daemon(place: "Place") -> None:
    """Leave a process behind, by a double fork with setsid(2), and return when it is there. It holds a FIFO open as
    long as it lives, and never comes back here."""
    read, write = os.pipe()
    if os.fork():
        os.close(write)
        os.read(read, 1)  # an end of file if it could not do it
        return
    try:
        os.setsid()
        if os.fork():
            return
        signal.alarm(LEFT)
        for descriptor in range(3):
            os.dup2(os.open(os.devnull, os.O_RDWR), descriptor)
        os.write(os.open(f"{place.outside}/fifo", os.O_WRONLY), b"%d" % os.getpid())
        os.write(write, b"x")
        signal.pause()
    finally:
        os._exit(0)


PERMITTED = "com.apple.system.notification_center"
"""A service that each command may ask for."""
_REFUSED = (1100, 159)
"""BOOTSTRAP_NOT_PRIVILEGED in servers/bootstrap.h; "Sandbox restriction" in `launchctl error`, launchctl(1)."""


def look_up(place: "Any") -> str:
    """Ask launchd for a service's port, as each client does first: bootstrap_look_up in servers/bootstrap.h. Elsewhere
    a socket with that name stands for the service."""
    return _looked_up(place, place.service)


def look_up_permitted(place: "Any") -> str:
    return _looked_up(place, PERMITTED)


def _looked_up(place: "Any", name: str) -> str:
    import ctypes

    if not _on_a_mac():
        with socket.socket(socket.AF_UNIX) as unix:
            unix.connect(_short(f"{place.services}/{name}"))
        return "found"
    library, found = ctypes.CDLL(None), ctypes.c_uint32()
    own = ctypes.c_uint32.in_dll(library, "bootstrap_port")
    if number := library.bootstrap_look_up(own, name.encode(), ctypes.byref(found)):
        raise OSError(1 if number in _REFUSED else number, "no port of a service")
    return "found"


def write_terminal(place: "Any") -> None:
    terminal = os.open(place.terminal, os.O_WRONLY | os.O_NOCTTY)
    os.write(terminal, place.mark.encode())


def own_terminal(_place: "Any") -> str:
    """Make a terminal, write to it, and return the text that arrived."""
    master, side = os.openpty()
    try:
        os.write(side, b"x")
        return os.read(master, 1).decode()
    finally:
        os.close(side)
        os.close(master)


def _on_a_mac() -> bool:
    import sys

    return str(sys.platform) == "darwin"


def arguments(place: "Any") -> str:
    """Return another process's arguments: sysctl(3), KERN_PROCARGS2 on macOS, or proc_pid_cmdline(5)."""
    import ctypes

    if not _on_a_mac():
        return get(f"/proc/{place.victim}/cmdline")
    library, size = ctypes.CDLL(None, use_errno=True), ctypes.c_size_t(1 << 16)
    buffer, names = ctypes.create_string_buffer(size.value), (ctypes.c_int * 3)(1, 49, place.victim)
    if library.sysctl(names, 3, buffer, ctypes.byref(size), None, ctypes.c_size_t(0)):
        raise OSError(ctypes.get_errno(), "no arguments")
    return buffer.raw[: size.value].decode("latin-1")


def set_uid(place: "Place") -> None:
    os.chmod(f"{place.outside}/target", 0o4755)


MANY, LONG = 64, 1 << 16


def open_many(_place: "Place") -> str:
    """Open more files than a limited command may."""
    opened: list[int] = []
    try:
        opened.extend(os.open(os.devnull, os.O_RDONLY) for _number in range(MANY))
    finally:
        for descriptor in opened:
            os.close(descriptor)
    return "opened"


def write_long(place: "Place") -> str:
    """Write a longer file than a limited command may: setrlimit(2), EFBIG where SIGXFSZ is ignored."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    left = LONG
    with open(f"{place.outside}/long", "wb", buffering=0) as stream:
        while left:
            left -= stream.write(bytes(left))
    return "written"


def shell(_place: "Place") -> str:
    """Return a shell's exit status: a command has to be able to start a shell."""
    return str(os.spawnv(os.P_WAIT, "/bin/sh", ["sh", "-c", "exit 7"]))


def git(_place: "Place") -> str:
    """Return 7 plus a common tool's exit status: 7 means success, as in ``shell``."""
    import subprocess

    null = subprocess.DEVNULL
    return str(7 + subprocess.run(["git", "--version"], stdout=null, stderr=null, check=False).returncode)


def command_shell(_place: "Place") -> str:
    """Return the exit status of the Windows shell."""
    return str(os.system("exit 7"))  # cmd.exe, as COMSPEC names it; the status is the exit code there


def own_python(_place: "Place") -> str:
    """Return 7, as ``shell`` does on success: this Python runs."""
    return "7"


def open_null(_place: "Place") -> str:
    """Open NUL, whose access list may not name an AppContainer."""
    os.close(os.open(os.devnull, os.O_RDWR))
    return "7"


def final_path(_place: "Place") -> str:
    """Ask for the current directory's path: GetFinalPathNameByHandle on Windows, without os.path.realpath's
    fallback."""
    import nt

    nt._getfinalpathname(".")  # type: ignore[attr-defined]
    return "7"


_NO_DEEDS = ("put", "get", "main", "tried")
DEEDS = {
    name: value
    for name, value in dict(globals()).items()
    if callable(value) and name not in _NO_DEEDS and not name.startswith("_")
}


# --- running a deed ---


class _Told:
    def __init__(self, facts: "dict[str, Any]") -> None:
        self.__dict__.update(facts)


def tried(deed: "Callable[[Any], Any]", facts: "dict[str, Any]", directory: str) -> "tuple[int, str]":
    """Return a deed's error number (0: no error) and its evidence. ``directory`` is new, and the deed's own."""
    try:
        os.makedirs(directory)
        os.chdir(directory)
        return 0, str(deed(_Told(facts)) or "")
    except OSError as error:
        # A socket's own time-out has no number.
        return error.errno or (errno.ETIMEDOUT if isinstance(error, TimeoutError) else -1), ""


def main(words: "list[str]") -> None:
    """Try the named deeds in turn: ``DEED DIRECTORY FACTS`` for each, as JSON. Print one line for each."""
    import json
    import sys

    for deed, directory, facts in json.loads(words[0]):
        number, evidence = tried(DEEDS[deed], facts, directory)
        sys.stdout.write(json.dumps([deed, number, evidence]) + "\n")
        sys.stdout.flush()
