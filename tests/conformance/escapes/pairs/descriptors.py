"""Descriptors of every kind, handed over wherever the two can meet: one bridge for all of them."""

from __future__ import annotations

import ctypes
import json
import os
import socket
from collections.abc import Callable, Generator, Iterator
from typing import Any

from ..call import call, libc
from .meetings import give_nothing
from .pair import Part, World, below, directory, read_from, register, socket_of

_MOST = 250
"""Descriptors in one message: SCM_MAX_FD is 253."""


# --- the bridge ---


def listeners(world: World) -> Iterator[socket.socket]:
    """A listener in every place that has room for it, and an abstract one."""
    for path in dict.fromkeys(world.places.values()):
        listener = socket_of("stream")
        try:
            listener.bind(below(directory(path), world.name("bridge")))
            listener.listen()
            yield listener
        except OSError:
            listener.close()
    try:
        listener = socket_of("stream")
        listener.bind(f"\0{world.name('bridge')}")
        listener.listen()
        yield listener
    except OSError:
        pass


def hand_over(world: World) -> Generator[None, None, bool]:
    """Give all descriptors to whoever connects. Return whether somebody has taken them."""
    try:
        found = list(listeners(world))
    except OSError:
        return False
    connected = []
    while True:
        for listener in found:
            try:
                connected.append(listener.accept()[0])
            except BlockingIOError:
                continue
            connected[-1].setblocking(True)
            names = list(world.held)
            for start in range(0, len(names), _MOST):
                part = names[start : start + _MOST]
                text = json.dumps(part).encode()
                header = len(text).to_bytes(4, "big")
                socket.send_fds(connected[-1], [header + text], [world.held[name] for name in part])
            connected[-1].shutdown(socket.SHUT_WR)
            connected[-1].settimeout(2)
            if connected[-1].recv(1):
                return True
        yield


def addresses(world: World) -> Iterator[str]:
    for path in dict.fromkeys(world.places.values()):
        try:
            place = directory(path)
        except OSError:
            continue
        yield below(place, world.name("bridge"))
    yield f"\0{world.name('bridge')}"
    for top, _directories, names in os.walk(world.state):
        if world.name("bridge") in names:
            yield below(directory(top), world.name("bridge"))


def take_over(world: World) -> Generator[None, None, None]:
    """Fill ``world.held`` with what the other side of the bridge gives."""
    while True:
        for address in addresses(world):
            try:
                taker = socket.socket(socket.AF_UNIX)
                taker.settimeout(2)
                taker.connect(address)
                _receive(taker, world)
            except OSError:
                continue
            if world.held:
                return
        yield


def _receive(taker: socket.socket, world: World) -> None:
    while True:
        data, descriptors, _flags, _address = socket.recv_fds(taker, 4, _MOST)
        if not data:
            break
        length = int.from_bytes(data, "big")
        text = b""
        while len(text) < length:
            text += taker.recv(length - len(text))
        world.held.update(zip(json.loads(text), descriptors, strict=True))
    taker.sendall(b"x")


# --- kinds ---


def make(world: World) -> dict[str, int]:
    """Return a descriptor of every kind: each leads to the secret, or to the giver."""
    name = world.name("held")
    with open(name, "w") as stream:
        stream.write(world.secret)
    held = {"file": os.open(name, os.O_RDWR), "path": os.open(name, os.O_PATH), "here": os.open(".", os.O_RDONLY)}
    ours, theirs = socket.socketpair()
    ours.sendall(world.secret.encode())
    reading, writing = os.pipe()
    os.write(writing, world.secret.encode())
    held |= {"socket": theirs.detach(), "kept": ours.detach(), "pipe": reading, "kept too": writing}
    memory = os.memfd_create("pair")
    os.write(memory, world.secret.encode())
    held["memfd"] = memory
    held["proc"] = os.open("/proc/self", os.O_RDONLY)
    try:
        held["pidfd"] = call("pidfd_open", os.getpid(), 0)
        held["mounts"] = os.open("/proc/self/ns/mnt", os.O_RDONLY)
        held["user"] = os.open("/proc/self/ns/user", os.O_RDONLY)
        master, slave = os.openpty()
        os.write(master, world.secret.encode() + b"\n")
        held |= {"terminal": slave, "kept also": master}
    except OSError:
        pass  # refused to the giver already
    return held


def given(kind: str, read: Callable[[World, int], Any]) -> Part:
    def take(world: World) -> Generator[None, None, Any]:
        while kind not in world.held:
            yield
        return read(world, world.held[kind])

    return take


def _reopened(_world: World, descriptor: int) -> str:
    with open(f"/proc/self/fd/{descriptor}") as stream:
        return stream.read()


def _through_directory(world: World, descriptor: int) -> str:
    return read_from(os.open(world.name("held"), os.O_RDONLY, dir_fd=descriptor))


def _climbed(world: World, descriptor: int) -> str:
    """Up and down again: what is above the giver's project, as its view has it."""
    above = os.open("..", os.O_RDONLY, dir_fd=descriptor)
    for entry in os.listdir(above):
        try:
            return read_from(os.open(f"{entry}/{world.name('held')}", os.O_RDONLY, dir_fd=above))
        except OSError:
            continue
    raise FileNotFoundError(2, "nothing above")


def _command_line(_world: World, descriptor: int) -> str:
    return os.read(os.open("cmdline", os.O_RDONLY, dir_fd=descriptor), 4096).decode()


def _signalled(world: World, descriptor: int) -> str:
    call("pidfd_send_signal", descriptor, 18, 0, 0)
    return f"claim {world.key}"


def _entered(world: World, descriptor: int) -> str:
    if libc.setns(descriptor, 0) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return f"claim {world.key}"


def _plain(_world: World, descriptor: int) -> str:
    return os.read(descriptor, 200).decode()


_FOREIGN = "a process of no other namespace needs it"
for _kind, _held, _tries, _read, _control in (
    ("file", "file", "an open file", lambda _world, descriptor: read_from(descriptor), ""),
    ("path", "path", "a file that is opened by path only, opened again", _reopened, ""),
    ("directory", "here", "a directory, and a file through it", _through_directory, ""),
    ("climb", "here", "a directory, and what is above it", _climbed, ""),
    ("memfd", "memfd", "memory with a descriptor", lambda _world, descriptor: read_from(descriptor), ""),
    ("socket", "socket", "a connected socket", _plain, ""),
    ("pipe", "pipe", "a pipe", _plain, ""),
    ("proc", "proc", "its directory of /proc", _command_line, ""),
    ("pidfd", "pidfd", "a descriptor of its process, and a signal by it", _signalled, ""),
    ("terminal", "terminal", "its terminal", _plain, ""),
    ("mount_namespace", "mounts", "its mount namespace is entered", _entered, _FOREIGN),
    ("user_namespace", "user", "its user namespace is entered", _entered, _FOREIGN),
):
    register(f"descriptor_{_kind}", "descriptors, by whatever place there is", _tries, give_nothing,
             given(_held, _read), source="unix(7), SCM_RIGHTS", control=_control)  # fmt: skip
