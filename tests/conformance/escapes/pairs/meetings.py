"""Places to meet: sockets, fifos and files in every directory, names without a directory, and objects of IPC."""

from __future__ import annotations

import ctypes
import os
import socket
import struct
from collections.abc import Generator
from typing import Any

from ..call import call  # noqa: TID252 - the package has another name inside
from .pair import PLACES, Part, World, below, directory, read_from, register, socket_of

_RIGHTS = "unix(7), SCM_RIGHTS"
_RARE = {
    "run": "only root writes there", "run_user": "only with a login", "mqueue": "no file system for this",
    "dev": "only root writes there", "cgroup": "no file system for this",
}  # fmt: skip


def serve(listener: socket.socket, descriptors: list[int]) -> Generator[None, None, None]:
    """Hand these to whoever connects."""
    connected = []
    while True:
        try:
            connected.append(listener.accept()[0])
            socket.send_fds(connected[-1], [b"x"], descriptors)
        except BlockingIOError:
            pass
        yield


def give_socket(place: str, kind: str) -> Part:
    def give(world: World) -> Generator[None, None, Any]:
        listener = socket_of(kind)
        listener.bind(below(directory(world.places[place]), world.name(f"{kind}-{place}")))
        listener.listen()
        yield from serve(listener, [world.held["file"]])

    return give


def take_socket(place: str, kind: str) -> Part:
    def take(world: World) -> Generator[None, None, Any]:
        taker = socket_of(kind)
        while True:
            try:
                taker.connect(below(directory(world.places[place]), world.name(f"{kind}-{place}")))
                break
            except BlockingIOError:
                yield
        while True:
            try:
                return read_from(socket.recv_fds(taker, 1, 1)[1][0])
            except BlockingIOError:
                yield

    return take


def give_datagram(place: str) -> Part:
    def give(world: World) -> Generator[None, None, Any]:
        sender, where = socket_of("dgram"), directory(world.places[place])
        while True:
            try:
                sender.connect(below(where, world.name(f"dgram-{place}")))
                socket.send_fds(sender, [b"x"], [world.held["file"]])
            except (FileNotFoundError, ConnectionRefusedError, BlockingIOError):
                pass
            yield

    return give


def take_datagram(place: str) -> Part:
    def take(world: World) -> Generator[None, None, Any]:
        taker = socket_of("dgram")
        taker.bind(below(directory(world.places[place]), world.name(f"dgram-{place}")))
        while True:
            try:
                return read_from(socket.recv_fds(taker, 1, 1)[1][0])
            except BlockingIOError:
                yield

    return take


def give_fifo(place: str) -> Part:
    def give(world: World) -> Generator[None, None, Any]:
        path = below(directory(world.places[place]), world.name(f"fifo-{place}"))
        os.mkfifo(path, 0o600)
        end = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        os.write(end, world.secret.encode())
        while True:
            yield

    return give


def take_fifo(place: str) -> Part:
    def take(world: World) -> Generator[None, None, Any]:
        yield
        end = os.open(below(directory(world.places[place]), world.name(f"fifo-{place}")), os.O_RDONLY | os.O_NONBLOCK)
        return os.read(end, 200).decode()

    return take


def give_file(place: str) -> Part:
    def give(world: World) -> Generator[None, None, Any]:
        path = below(directory(world.places[place]), world.name(f"plain-{place}"))
        with open(path, "w") as stream:
            stream.write(world.secret)
        while True:
            yield

    return give


def take_file(place: str) -> Part:
    def take(world: World) -> Generator[None, None, Any]:
        yield
        with open(below(directory(world.places[place]), world.name(f"plain-{place}"))) as stream:
            return stream.read()

    return take


for _place, _path in PLACES.items():
    _why = _RARE.get(_place, "")
    _at = _path.replace("{home}", "~").replace("{", "the ").replace("}", "")
    for _kind in ("stream", "seqpacket"):
        register(f"{_kind}_{_place}", "sockets with a name", f"a {_kind} socket in {_at} carries a descriptor",
                 give_socket(_place, _kind), take_socket(_place, _kind), source=_RIGHTS, control=_why)  # fmt: skip
    register(f"dgram_{_place}", "sockets with a name", f"a datagram socket in {_at} carries a descriptor",
             give_datagram(_place), take_datagram(_place), source=_RIGHTS, control=_why)  # fmt: skip
    register(f"fifo_{_place}", "fifos", f"a fifo in {_at}", give_fifo(_place), take_fifo(_place),
             source="fifo(7)", control=_why)  # fmt: skip
    register(f"file_{_place}", "files", f"a file in {_at}", give_file(_place), take_file(_place),
             control=_why)  # fmt: skip


# --- names without a directory ---


def give_abstract(kind: str) -> Part:
    def give(world: World) -> Generator[None, None, Any]:
        listener = socket_of(kind)
        listener.bind(f"\0{world.name(kind)}")
        listener.listen()
        yield from serve(listener, [world.held["file"]])

    return give


def take_abstract(kind: str) -> Part:
    def take(world: World) -> Generator[None, None, Any]:
        taker = socket_of(kind)
        taker.connect(f"\0{world.name(kind)}")
        while True:
            try:
                return read_from(socket.recv_fds(taker, 1, 1)[1][0])
            except BlockingIOError:
                yield

    return take


def give_abstract_datagram(world: World) -> Generator[None, None, Any]:
    sender = socket_of("dgram")
    while True:
        try:
            sender.connect(f"\0{world.name('dgram')}")
            socket.send_fds(sender, [b"x"], [world.held["file"]])
        except (ConnectionRefusedError, BlockingIOError, PermissionError):
            pass
        yield


def take_abstract_datagram(world: World) -> Generator[None, None, Any]:
    taker = socket_of("dgram")
    taker.bind(f"\0{world.name('dgram')}")
    while True:
        try:
            return read_from(socket.recv_fds(taker, 1, 1)[1][0])
        except BlockingIOError:
            yield


for _kind in ("stream", "seqpacket"):
    register(f"abstract_{_kind}", "abstract sockets", f"an abstract {_kind} socket carries a descriptor",
             give_abstract(_kind), take_abstract(_kind), source="unix(7), network_namespaces(7)")  # fmt: skip
register("abstract_dgram", "abstract sockets", "an abstract datagram socket carries a descriptor",
         give_abstract_datagram, take_abstract_datagram, source="unix(7), network_namespaces(7)")  # fmt: skip


# --- System V and POSIX ---


def _key(world: World) -> int:
    return int(world.key[-6:], 16) | 0x1000000


def give_shm(world: World) -> Generator[None, None, Any]:
    where = call("shmat", call("shmget", _key(world), 4096, 0o1600), 0, 0)
    ctypes.memmove(where, world.secret.encode(), len(world.secret))
    while True:
        yield


def take_shm(world: World) -> Generator[None, None, Any]:
    yield
    return ctypes.string_at(call("shmat", call("shmget", _key(world), 0, 0), 0, 0)).decode()


def give_message(world: World) -> Generator[None, None, Any]:
    text = struct.pack("<q", 1) + world.secret.encode()
    call("msgsnd", call("msgget", _key(world), 0o1600), text, len(world.secret), 0o4000)
    while True:
        yield


def take_message(world: World) -> Generator[None, None, Any]:
    yield
    area = ctypes.create_string_buffer(512)
    queue = call("msgget", _key(world), 0)
    size = call("msgrcv", queue, area, 500, 1, 0o4000)
    call("msgctl", queue, 0, 0)
    return area.raw[8 : 8 + size].decode()


def give_semaphores(world: World) -> Generator[None, None, Any]:
    call("semctl", call("semget", _key(world), 1, 0o1600), 0, 16, world.word >> 1)
    while True:
        yield


def take_semaphores(world: World) -> Generator[None, None, Any]:
    yield
    semaphores = call("semget", _key(world), 0, 0)
    found = call("semctl", semaphores, 0, 12) << 1 | 1
    call("semctl", semaphores, 0, 0, 0)
    return found


def give_queue(world: World) -> Generator[None, None, Any]:
    attributes = struct.pack("<8q", 0, 2, 128, 0, 0, 0, 0, 0)
    queue = call("mq_open", world.name("queue"), os.O_CREAT | os.O_RDWR | os.O_NONBLOCK, 0o600, attributes)
    call("mq_timedsend", queue, world.secret, len(world.secret), 0, 0)
    while True:
        yield


def take_queue(world: World) -> Generator[None, None, Any]:
    yield
    area = ctypes.create_string_buffer(128)
    queue = call("mq_open", world.name("queue"), os.O_RDONLY | os.O_NONBLOCK, 0, 0)
    size = call("mq_timedreceive", queue, area, 128, 0, 0)
    call("mq_unlink", world.name("queue"))
    return area.raw[:size].decode()


register("sysv_shm", "ipc", "a shared memory segment by its key", give_shm, take_shm, source="ipc_namespaces(7)")
register("sysv_msg", "ipc", "a message queue by its key", give_message, take_message, source="ipc_namespaces(7)")
register("sysv_sem", "ipc", "a semaphore by its key", give_semaphores, take_semaphores, source="ipc_namespaces(7)")
register("posix_mq", "ipc", "a POSIX message queue by its name", give_queue, take_queue, source="mq_overview(7)")


def give_key(ring: int) -> Part:
    def give(world: World) -> Generator[None, None, Any]:
        key = call("add_key", "user", world.name(f"key{-ring}"), world.secret, len(world.secret), ring)
        call("keyctl", 5, key, 0x3F3F0000)
        while True:
            yield

    return give


def take_key(ring: int) -> Part:
    def take(world: World) -> Generator[None, None, Any]:
        yield
        key = call("keyctl", 10, ring, "user", world.name(f"key{-ring}"), 0)
        area = ctypes.create_string_buffer(200)
        size = call("keyctl", 11, key, area, 200, 0)
        call("keyctl", 9, key, ring, 0, 0)
        return area.raw[:size].decode()

    return take


register("user_keyring", "ipc", "a key in the user's keyring", give_key(-4), take_key(-4), source="user-keyring(7)",
         control="a user's keyring need not be searchable from a process without a login")  # fmt: skip
register("session_keyring", "ipc", "a key in the session's keyring", give_key(-3), take_key(-3),
         source="session-keyring(7)", control="a session's keyring need not be there")  # fmt: skip


def take_walk(world: World) -> Generator[None, None, Any]:
    """Look for the giver's file in mudroom's own state, by its name."""
    yield
    refused: OSError | None = None

    def note(error: OSError) -> None:
        nonlocal refused
        refused = error

    for top, _directories, names in os.walk(world.state, onerror=note):
        if world.name("held") in names:
            with open(os.path.join(top, world.name("held"))) as stream:
                return stream.read()
    if refused:
        raise refused
    return None


def give_nothing(_world: World) -> Generator[None, None, Any]:
    while True:
        yield


register("state_walk", "files", "the giver's file is looked for in mudroom's own state", give_nothing, take_walk,
         control="without mudroom there is no state")  # fmt: skip
