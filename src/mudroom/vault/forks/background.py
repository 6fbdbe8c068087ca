"""What the vault keeps of the commands in a fork's background.

forks/<name>/background/
    socket          where the process that holds them is asked for more (shared_sandbox); no longer than there is one
    sandbox         what they have in common, for whoever wants a command beside them
    <id>/command    what was started, and how it ended, as JSON (core/background.py)
    <id>/stdout     the last of what it has printed; what came before that is in stdout.1, and what came before that
    <id>/stderr     is gone (Ring); stdout.n: how many bytes came before those in stdout
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, NamedTuple

from mudroom.core.background import BackgroundEnd, BackgroundStart, from_json, to_json
from mudroom.vault.store.fork import Fork
from mudroom.vault.store.store import Vault

RING = 1 << 20
"""Bytes of each stream of a background command that are kept, at least; at most twice as many."""
KEPT = 20
"""So many commands that are over are remembered in a fork."""
_TRIES = 20


class Ring:
    """The end of a stream, in two files: one that grows to ``limit``, and the one before it; and how many bytes came
    before the one that grows (``.n``), so that somebody who reads it again and again knows what is new."""

    def __init__(self, path: bytes, limit: int = RING) -> None:
        self._path, self._limit = path, limit
        self._stream = open(path, "wb", buffering=0)  # noqa: SIM115 - closed by close
        self._size = self._past = 0

    def write(self, data: bytes) -> None:
        while data:
            if self._size >= self._limit:
                self._roll()
            part = data[: self._limit - self._size]
            self._size += self._stream.write(part) or 0
            data = data[len(part) :]

    def _roll(self) -> None:
        """Without the count, whoever reads looks again: it and the files are of one moment."""
        self._stream.close()
        if self._past:
            os.unlink(self._path + b".n")
        self._past += self._size
        os.rename(self._path, self._path + b".1")
        self._stream, self._size = open(self._path, "wb", buffering=0), 0  # noqa: SIM115 - closed by close
        with open(self._path + b".n.new", "wb") as stream:
            stream.write(b"%d" % self._past)
        os.rename(self._path + b".n.new", self._path + b".n")

    def close(self) -> None:
        self._stream.close()


def read_ring(path: bytes) -> bytes:
    """What is there now. It may grow meanwhile: then a little may be missing in the middle, never at the end."""
    found = b""
    for part in (path + b".1", path):
        try:
            with open(path if part == path else part, "rb") as stream:
                found += stream.read()
        except FileNotFoundError:
            continue
    return found


class StreamPart(NamedTuple):
    """What of a stream is new to somebody, or the end of it."""

    data: bytes
    mark: str
    """Where it ends, in bytes from the stream's beginning: to be asked again with."""
    before: int | None
    """None: it follows on what the given mark was the end of. Else it is the end of what there is, and so many bytes
    were printed before it."""


def read_part(path: bytes, mark: str, limit: int) -> StreamPart:
    """What a ring has got since ``mark``, which is one of ours or anything else; at most ``limit`` bytes, its last."""
    for _try in range(_TRIES):
        count = _count(path)
        with ExitStack() as opened:
            files = [one for one in (_opened(path, opened), _opened(path + b".1", opened)) if one is not None]
            sizes = [os.fstat(one).st_size for one in files]
            if count is not None and count == _count(path) and bool(count) == (len(files) > 1):
                return _part(list(zip(files, sizes, strict=True)), count, mark, limit)
        time.sleep(0.001)  # it is just being rolled over
    return StreamPart(b"", mark, None if mark else 0)


def _part(files: Sequence[tuple[int, int]], count: int, mark: str, limit: int) -> StreamPart:
    """``files``: the newer one first. ``count``: bytes of the stream before that."""
    end = count + (files[0][1] if files else 0)
    known = int(mark) if mark.isdecimal() and len(mark) < 20 else end + 1
    there = sum(size for _file, size in files)
    follows = known <= end and end - known <= min(limit, there)
    wanted = end - known if follows else min(limit, there)
    found = b""
    for descriptor, size in files:
        part = min(size, wanted - len(found))
        found = os.pread(descriptor, part, size - part) + found
    return StreamPart(found, str(end), None if follows else end - wanted)


def _opened(path: bytes, opened: ExitStack) -> int | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    opened.callback(os.close, descriptor)
    return descriptor


def _count(path: bytes) -> int | None:
    """Bytes of the stream before the newer file; None while that becomes the older one."""
    try:
        with open(path + b".n", "rb") as stream:
            said = stream.read(24)
        return int(said) if said.isdigit() else None
    except FileNotFoundError:
        return None if os.path.lexists(path + b".1") else 0


class Book:
    """The background of one fork."""

    def __init__(self, fork: Fork) -> None:
        self._fork = fork.name
        self.path = fork.path + b"/background"

    @property
    def socket(self) -> bytes:
        return self.path + b"/socket"

    def place(self, identity: str) -> bytes:
        return self.path + b"/" + identity.encode()

    def begin(self, started: BackgroundStart) -> bytes:
        """A new command; its directory is returned. The oldest of those that are over are forgotten."""
        os.makedirs(self.path, mode=0o700, exist_ok=True)
        self._forget()
        place = self.place(started.id)
        os.mkdir(place, 0o700)
        self.write(started, None)
        return place

    def write(self, started: BackgroundStart, ended: BackgroundEnd | None) -> None:
        _save(self.place(started.id) + b"/command", to_json(started, ended))

    def rows(self) -> list[tuple[BackgroundStart, BackgroundEnd | None]]:
        """Oldest first. One without an end whose keeper has been killed is there, too: see ``settle``."""
        found = []
        try:
            names = os.listdir(self.path)
        except FileNotFoundError:
            return []
        for name in names:
            data = _load(self.path + b"/" + name + b"/command") if name.isalnum() else None
            if data is not None:
                try:
                    started, ended = from_json(data)
                    found.append((started._replace(fork=self._fork), ended))  # it may have been renamed since
                except (KeyError, TypeError, ValueError):
                    continue  # not ours
        return sorted(found, key=lambda row: row[0].time)

    def settle(self, time: int) -> None:
        """Hold the fork's lock: what has no end was ended with the process that held it."""
        for started, ended in self.rows():
            if ended is None:
                self.write(started, BackgroundEnd(137, 9, False, time))
        self.note(None)

    def _forget(self) -> None:
        from mudroom.stage.layers.layer import remove_tree

        over = [started for started, ended in self.rows() if ended is not None]
        for started in over[: max(0, len(over) - KEPT + 1)]:
            remove_tree(self.place(started.id))

    # --- what its commands have in common ---

    def note(self, common: dict[str, Any] | None) -> None:
        """Told to whoever wants to join; None: there is nobody to join any more."""
        if common is not None:
            os.makedirs(self.path, mode=0o700, exist_ok=True)
            _save(self.path + b"/sandbox", common)
            return
        for name in (b"/sandbox", b"/socket"):
            try:
                os.unlink(self.path + name)
            except FileNotFoundError:
                continue

    def common(self) -> dict[str, Any] | None:
        return _load(self.path + b"/sandbox")


def _save(path: bytes, data: dict[str, Any]) -> None:
    with open(path + b".new", "wb") as stream:
        stream.write(json.dumps(data, ensure_ascii=True).encode("ascii"))
    os.rename(path + b".new", path)


def _load(path: bytes) -> dict[str, Any] | None:
    """None if there is nothing, or nothing that could be read."""
    try:
        with open(path, "rb") as stream:
            data = json.loads(stream.read())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return data if isinstance(data, dict) else None


def find(vault: Vault, identity: str) -> tuple[Fork, BackgroundStart, BackgroundEnd | None] | None:
    """A background command of the vault by its id."""
    for fork in vault.forks():
        for started, ended in Book(fork).rows():
            if started.id == identity:
                return fork, started, ended
    return None
