"""Signals of a few bits: locks, events and leases on files that both can read and neither can write."""

from __future__ import annotations

import ctypes
import fcntl
import os
import struct
from collections.abc import Generator
from pathlib import Path
from typing import Any

from ..call import libc  # noqa: TID252 - the package has another name inside
from .pair import BITS, LOWER, Part, World, register

_OFD_GETLK, _OFD_SETLK = 36, 37
_IN_ACCESS = 1
_STABLE = 8
"""Turns in which files were read, before the taker believes that it has seen all bits."""
_GROUNDS = {
    "usr": ("/usr/share", "the system's files"),
    "lower": ("{project}", "files of the project that no fork has changed"),
    "etc": ("/etc", "the system's settings"),
}


def files(world: World, ground: str) -> list[str]:
    """Return as many files as a word has bits, the same for both."""
    if ground == "lower":
        return [f"{world.places['project']}/{LOWER}/bit{number:02}" for number in range(BITS)]
    found: list[str] = []
    for top, directories, names in os.walk(_GROUNDS[ground][0]):
        directories.sort()
        found += [os.path.join(top, name) for name in sorted(names) if Path(top, name).is_file()]
        if len(found) >= 4 * BITS:
            break
    readable = [
        path for path in found if os.access(path, os.R_OK) and not os.path.islink(path) and os.path.getsize(path)
    ]
    return readable[:BITS]


def opened(paths: list[str]) -> list[int]:
    """Return descriptors that nobody closes: a lock lasts as long as they do."""
    if not paths:
        raise FileNotFoundError(2, "no file here can be read")
    return [os.open(path, os.O_RDONLY | os.O_CLOEXEC) for path in paths]


def give_flock(ground: str) -> Part:
    def give(world: World) -> Generator[None, None, Any]:
        for number, descriptor in enumerate(opened(files(world, ground))):
            if world.word >> number & 1:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        while True:
            yield

    return give


def take_flock(ground: str) -> Part:
    def take(world: World) -> Generator[None, None, Any]:
        yield
        found = 0
        for number, descriptor in enumerate(opened(files(world, ground))):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                found |= 1 << number
            finally:
                os.close(descriptor)
        return found

    return take


def give_ranges(ground: str) -> Part:
    """Read locks of byte ranges of one file: a read-only descriptor is enough."""

    def give(world: World) -> Generator[None, None, Any]:
        descriptor = opened(files(world, ground))[0]
        for number in range(BITS):
            if world.word >> number & 1:
                fcntl.fcntl(descriptor, _OFD_SETLK, struct.pack("hhqqi4x", fcntl.F_RDLCK, 0, 1 << 40 | number, 1, 0))
        while True:
            yield

    return give


def take_ranges(ground: str) -> Part:
    """F_OFD_GETLK asks about a write lock without being able to take one."""

    def take(world: World) -> Generator[None, None, Any]:
        yield
        (descriptor,), found = opened(files(world, ground)[:1]), 0
        for number in range(BITS):
            asked = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 1 << 40 | number, 1, 0)
            if struct.unpack("hhqqi4x", fcntl.fcntl(descriptor, _OFD_GETLK, asked))[0] != fcntl.F_UNLCK:
                found |= 1 << number
        os.close(descriptor)
        return found

    return take


def give_events(ground: str) -> Part:
    def give(world: World) -> Generator[None, None, Any]:
        descriptors = opened(files(world, ground))
        while True:
            for number, descriptor in enumerate(descriptors):
                if world.word >> number & 1:
                    os.pread(descriptor, 1, 0)
            yield

    return give


def take_events(ground: str) -> Part:
    def take(world: World) -> Generator[None, None, Any]:
        watcher = libc.inotify_init1(os.O_NONBLOCK)
        if watcher < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        watches = {}
        for number, path in enumerate(files(world, ground)):
            watch = libc.inotify_add_watch(watcher, path.encode(), _IN_ACCESS)
            if watch < 0:
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
            watches[watch] = number
        seen, turns = [0] * BITS, 0
        while turns < _STABLE:
            yield
            try:
                data = os.read(watcher, 65536)
            except BlockingIOError:
                continue
            numbers = set()
            while data:
                watch, _mask, _cookie, length = struct.unpack_from("iIII", data)
                numbers |= {watches[watch]} if watch in watches else set()
                data = data[16 + length :]
            turns += 1
            for number in numbers:
                seen[number] += 1
        # The giver reads its files in every turn. Others read some of the system's settings now and then.
        found = sum(1 << number for number in range(BITS) if 2 * seen[number] > turns)
        os.close(watcher)
        return found

    return take


for _ground, (_path, _what) in _GROUNDS.items():
    register(f"flock_{_ground}", "signals", f"flock(2) on {_what}", give_flock(_ground), take_flock(_ground),
             source="flock(2): any open mode")  # fmt: skip
    register(f"ranges_{_ground}", "signals", f"read locks of ranges of {_what}", give_ranges(_ground),
             take_ranges(_ground), source="fcntl_locking(2), F_OFD_GETLK")  # fmt: skip
    register(f"events_{_ground}", "signals", f"inotify(7) on {_what}", give_events(_ground), take_events(_ground),
             source="inotify(7), IN_ACCESS")  # fmt: skip
