"""Descriptors of every kind, handed over wherever the two can meet: one bridge for all of them."""

from __future__ import annotations

import ctypes
import json
import os
import socket
from collections.abc import Callable, Generator, Iterator
from typing import Any

from ..call import call, libc  # noqa: TID252 - the package has another name inside
from .meetings import give_nothing
from .pair import Part, World, below, directory, read_from, register, socket_of

_MOST = 250
"""Descriptors in one message: SCM_MAX_FD is 253."""


# --- the bridge ---


def listeners(world: World, name: str) -> Iterator[socket.socket]:
    """Yield a listener in every place that has room for it, and an abstract one."""
    for address in (*_places(world, name), f"\0{world.name(name)}"):
        try:
            listener = socket_of("stream")
            listener.bind(address)
            listener.listen()
        except OSError:
            continue
        yield listener


def _places(world: World, name: str) -> Iterator[str]:
    for path in dict.fromkeys(world.places.values()):
        try:
            yield below(directory(path), world.name(name))
        except OSError:
            continue


def _addresses(world: World, name: str) -> Iterator[str]:
    """Yield where a listener of the other may be: its own directories can be in mudroom's state."""
    yield from _places(world, name)
    yield f"\0{world.name(name)}"
    for top, _directories, names in os.walk(world.state):
        if world.name(name) in names:
            yield below(directory(top), world.name(name))


def hand_over(world: World) -> Generator[None, None, bool]:
    """Give all descriptors to a listener of the other, which may be stopped and find them later, or to whoever
    connects. Return whether somebody has taken them."""
    found = list(listeners(world, "bridge"))
    while True:
        for address in _addresses(world, "letters"):
            try:
                with socket.socket(socket.AF_UNIX) as letter:
                    letter.connect(address)
                    _give(letter, world)
                    return True
            except OSError:
                continue
        for listener in found:
            try:
                with listener.accept()[0] as other:
                    other.settimeout(2)
                    _give(other, world)
                    other.shutdown(socket.SHUT_WR)
                    if other.recv(1):
                        return True
            except OSError:
                continue
        yield


def _give(other: socket.socket, world: World) -> None:
    names = list(world.held)
    for start in range(0, len(names), _MOST):
        part = names[start : start + _MOST]
        text = json.dumps(part).encode()
        socket.send_fds(other, [len(text).to_bytes(4, "big") + text], [world.held[name] for name in part])


def take_over(world: World) -> Generator[None, None, None]:
    """Fill ``world.held`` with what the other gives."""
    found = list(listeners(world, "letters"))
    while True:
        for listener in found:
            try:
                with listener.accept()[0] as other:
                    _receive(other, world)
            except OSError:
                continue
        for address in () if world.held else _addresses(world, "bridge"):
            try:
                with socket.socket(socket.AF_UNIX) as other:
                    other.settimeout(2)
                    other.connect(address)
                    _receive(other, world)
                    other.sendall(b"x")
            except OSError:
                continue
        if world.held:
            return
        yield


def _receive(other: socket.socket, world: World) -> None:
    other.settimeout(2)
    while True:
        data, descriptors, _flags, _address = socket.recv_fds(other, 4, _MOST)
        if not data:
            return
        text = b""
        while len(text) < int.from_bytes(data, "big"):
            text += other.recv(int.from_bytes(data, "big") - len(text))
        world.held.update(zip(json.loads(text), descriptors, strict=True))


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
