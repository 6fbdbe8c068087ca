"""Unix sockets: servers of the host, by path and by abstract name, and sockets that can be pointed at them."""

from __future__ import annotations

import errno
import glob
import os
import socket
import stat
import struct
from ctypes import c_int

from .attempt import World, attempt, register
from .call import HIGH, address, buffer, call
from .deed import get

AF_UNIX, STREAM, DGRAM, RAW, SEQPACKET = socket.AF_UNIX, 1, 2, 3, 5
_DOCKER = "docker.sock, D-Bus, ssh-agent: Landlock says nothing of them before ABI 9"


def _send(kind: int, where: str, world: World) -> None:
    with socket.socket(AF_UNIX, kind) as ours:
        ours.connect(where)
        ours.send(world.mark.encode())


def _pair(kind: int, family: int = AF_UNIX) -> socket.socket:
    ours, _theirs = socket.socketpair(family, kind)
    return ours


for _name, _kind in (("stream", STREAM), ("dgram", DGRAM), ("seqpacket", SEQPACKET)):
    register(
        f"unix_{_name}",
        "unix sockets",
        f"a {_name} server of the host is connected to, by path",
        lambda world, kind=_kind, name=_name: _send(kind, world.sockets[name], world),  # type: ignore[misc]
        source=_DOCKER,
    )
for _name, _kind in (("stream", STREAM), ("dgram", DGRAM)):
    register(
        f"abstract_{_name}",
        "unix sockets",
        f"an abstract {_name} server of the host is connected to",
        lambda world, kind=_kind, name=f"abstract-{_name}": _send(  # type: ignore[misc]
            kind, "\0" + world.sockets[name], world
        ),
        source="unix(7): abstract names belong to the network namespace",
    )


@attempt("unix sockets", "an abstract name of the host is taken already: the namespace is shared", "unix(7)",
         proof="claim")  # fmt: skip
def abstract_squat(world: World) -> str:
    with socket.socket(AF_UNIX, STREAM) as ours:
        try:
            ours.bind("\0" + world.sockets["abstract-stream"])
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return "taken"
            raise
    raise OSError(errno.ENOENT, "the name is free")


@attempt("unix sockets", "a datagram is sent to a path", _DOCKER)
def dgram_sendto(world: World) -> None:
    with socket.socket(AF_UNIX, DGRAM) as ours:
        ours.sendto(world.mark.encode(), world.sockets["dgram"])


@attempt("unix sockets", "a pair of datagram sockets is dissolved and pointed at a server",
         "connect(2), AF_UNSPEC; net/unix/af_unix.c")  # fmt: skip
def pair_reconnect(world: World) -> None:
    ours = _pair(DGRAM)
    from .call import libc

    libc.connect(ours.fileno(), struct.pack("<H14x", 0), 16)
    ours.connect(world.sockets["dgram"])
    ours.send(world.mark.encode())


@attempt("unix sockets", "one of a pair is connected elsewhere without more ado", "unix(7)")
def pair_connect(world: World) -> None:
    ours = _pair(DGRAM)
    ours.connect(world.sockets["dgram"])
    ours.send(world.mark.encode())


@attempt("unix sockets", "one of a pair sends to another address", "sendto(2)")
def pair_sendto(world: World) -> None:
    _pair(DGRAM).sendto(world.mark.encode(), world.sockets["dgram"])


@attempt("unix sockets", "one of a pair sends to another address by sendmsg", "sendmsg(2)")
def pair_sendmsg(world: World) -> None:
    _pair(DGRAM).sendmsg([world.mark.encode()], [], 0, world.sockets["dgram"])


@attempt("unix sockets", "one of a pair sends to another address by sendmmsg", "sendmmsg(2)")
def pair_sendmmsg(world: World) -> None:
    ours = _pair(DGRAM)
    name = buffer(struct.pack("<H", AF_UNIX) + world.sockets["dgram"].encode() + b"\0")
    data = buffer(world.mark.encode())
    vector = buffer(struct.pack("<QQ", address(data), len(world.mark)))
    head = struct.pack("<QI4xQQQQI4xI4x", address(name), len(name) - 1, address(vector), 1, 0, 0, 0, 0)
    call("sendmmsg", ours.fileno(), head, 1, 0)


@attempt("unix sockets", "a raw unix pair is a datagram pair by another name", "net/unix/af_unix.c, unix_create")
def pair_raw(world: World) -> None:
    both = (c_int * 2)()
    call("socketpair", AF_UNIX, RAW, 0, both)
    socket.socket(fileno=both[0]).sendto(world.mark.encode(), world.sockets["dgram"])


@attempt("unix sockets", "the same pair, asked for with bits that the kernel does not look at", "CVE-2019-10063")
def pair_high(world: World) -> None:
    both = (c_int * 2)()
    call("socketpair", HIGH | AF_UNIX, HIGH | DGRAM | socket.SOCK_CLOEXEC, HIGH, both)
    socket.socket(fileno=both[0]).sendto(world.mark.encode(), world.sockets["dgram"])


@attempt("unix sockets", "the same socket, asked for with bits that the kernel does not look at", "CVE-2019-10063")
def socket_high(world: World) -> None:
    ours = socket.socket(fileno=call("socket", HIGH | AF_UNIX, HIGH | STREAM, 0))
    ours.connect(world.sockets["stream"])
    ours.send(world.mark.encode())


@attempt("unix sockets", "a connected stream pair is connected again", "unix(7)", control="never",
         why="no kernel lets a stream be connected twice")  # fmt: skip
def pair_stream(world: World) -> None:
    ours = _pair(STREAM)
    from .call import libc

    libc.connect(ours.fileno(), struct.pack("<H14x", 0), 16)
    ours.connect(world.sockets["stream"])
    ours.send(world.mark.encode())


@attempt("unix sockets", "a server by way of a link in the project", _DOCKER)
def socket_link(world: World) -> None:
    os.symlink(world.sockets["stream"], "s-link")
    _send(STREAM, "s-link", world)


@attempt("unix sockets", "a server's socket is linked into the project", "link(2)")
def socket_hard_link(world: World) -> None:
    os.link(world.sockets["stream"], "s-hard")
    _send(STREAM, "s-hard", world)


@attempt("unix sockets", "a server by an O_PATH descriptor of its socket", "proc_pid_fd(5)")
def socket_descriptor(world: World) -> None:
    _send(STREAM, f"/proc/self/fd/{os.open(world.sockets['stream'], os.O_PATH)}", world)


@attempt("unix sockets", "a server by way of another process's root", "proc_pid_root(5)")
def socket_proc_root(world: World) -> None:
    failure: OSError | None = None
    for pid in (1, os.getppid(), world.victim):
        try:
            _send(STREAM, f"/proc/{pid}/root{world.sockets['short']}", world)
        except OSError as error:
            failure = error
    if failure:
        raise failure


@attempt("unix sockets", "whatever server is to be found in /run and /tmp", _DOCKER)
def socket_search(world: World) -> None:
    for top in ("/run", "/var/run", "/tmp", os.environ.get("XDG_RUNTIME_DIR", "/run/user")):
        for path in (*glob.glob(f"{top}/*"), *glob.glob(f"{top}/*/*")):
            if path == world.sockets["short"] and stat.S_ISSOCK(os.lstat(path).st_mode):  # nobody else's is disturbed
                _send(STREAM, path, world)


@attempt("unix sockets", "a server of the host hands over a directory", "unix(7), SCM_RIGHTS", proof="secret")
def passed_descriptor(world: World) -> str:
    with socket.socket(AF_UNIX, STREAM) as ours:
        ours.connect(world.sockets["giver"])
        _data, descriptors, _flags, _address = socket.recv_fds(ours, 1, 1)
        return get(f"/proc/self/fd/{descriptors[0]}/{os.path.relpath(world.outside + '/secret', world.home)}")


@attempt("unix sockets", "a socket that was inherited is spoken to", "unix(7)")
def inherited_socket(world: World) -> None:
    for number in os.listdir("/proc/self/fd"):
        try:
            if int(number) > 2 and stat.S_ISSOCK(os.fstat(int(number)).st_mode):
                os.write(int(number), world.mark.encode())
        except OSError:
            continue


@attempt("unix sockets", "a socket is bound outside", "unix(7)")
def bind_outside(world: World) -> None:
    with socket.socket(AF_UNIX, STREAM) as ours:
        os.chdir(world.outside)
        ours.bind("new")


@attempt("unix sockets", "a file is shown in the host's place by binding over its name", "unix(7)", control="never",
         why="bind never replaces a name: EADDRINUSE everywhere")  # fmt: skip
def bind_over(world: World) -> None:
    with socket.socket(AF_UNIX, STREAM) as ours:
        os.chdir(world.outside)
        ours.bind("target")
