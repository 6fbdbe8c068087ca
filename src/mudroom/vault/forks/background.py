"""State files for a fork's background commands.

forks/<name>/background/
    socket          the process that holds the commands listens here (session/shared_sandbox/), while there is one
    sandbox         settings that the commands share, for commands that join them
    <id>/command    the command and how it ended, as JSON (core/background.py)
    <id>/stdout     its last output (Ring); also <id>/stderr
    <id>/stdout.1   the output before that; earlier output is not kept
    <id>/stdout.n   bytes before those in stdout
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from contextlib import ExitStack

from mudroom.core.background import BackgroundEnd, BackgroundStart, from_json, to_json
from mudroom.core.text.redaction import redact_argv
from mudroom.stage import disk, safe_open
from mudroom.stage.layers.layer import remove_tree
from mudroom.typing import Any, NamedTuple
from mudroom.vault.store.fork import Fork
from mudroom.vault.store.store import Vault

RING = 1 << 20
"""Minimum bytes kept from each stream of a background command; at most twice as many are kept."""
KEPT = 20
"""Number of ended commands remembered in a fork."""
_TRIES = 20


class Ring:
    """The end of a stream, in two files: one that grows to ``limit``, and the one before it (``.1``).

    ``.n`` has the byte count before the growing file, so that a repeated reader can tell which bytes are new.

    Owner: the thread that writes the output.
    """

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
        """Start a new file. While the count is missing, readers try again: count and files must match."""
        self._stream.close()
        if self._past:
            os.unlink(self._path + b".n")
        self._past += self._size
        disk.rename_path(self._path, self._path + b".1")
        self._stream, self._size = open(self._path, "wb", buffering=0), 0  # noqa: SIM115 - closed by close
        safe_open.replace(self._path + b".n", b"%d" % self._past, durable=False)

    def close(self) -> None:
        self._stream.close()


def read_ring(path: bytes) -> bytes:
    """Return the kept output. If it grows meanwhile, bytes may be missing in the middle, never at the end."""
    output = b""
    for part in (path + b".1", path):
        try:
            with open(path if part == path else part, "rb") as stream:
                output += stream.read()
        except FileNotFoundError:
            continue
    return output


class StreamPart(NamedTuple):
    """A stream's new part, or its end."""

    data: bytes
    mark: str
    """End of ``data``, in bytes from the stream's beginning; pass it to the next call."""
    before: int | None
    """None if the data follows the given mark. Otherwise the data is the end of the output, and this is the number of
    bytes before it."""


def read_part(path: bytes, mark: str, limit: int) -> StreamPart:
    """Return the output since ``mark``, at most its last ``limit`` bytes. For an invalid mark return the end of the
    output."""
    for _try in range(_TRIES):
        count = _count(path)
        with ExitStack() as opened:
            files = [
                descriptor
                for descriptor in (_opened(path, opened), _opened(path + b".1", opened))
                if descriptor is not None
            ]
            sizes = [os.fstat(descriptor).st_size for descriptor in files]
            if count is not None and count == _count(path) and bool(count) == (len(files) > 1):
                return _part(list(zip(files, sizes, strict=True)), count, mark, limit)
        time.sleep(0.001)  # the files are being rolled over
    return StreamPart(b"", mark, None if mark else 0)


def _part(files: Sequence[tuple[int, int]], count: int, mark: str, limit: int) -> StreamPart:
    """Return the part that follows ``mark``, or the end.

    ``files``: descriptor and size, the newer file first. ``count``: bytes in the stream before that file.
    """
    end = count + (files[0][1] if files else 0)
    start = int(mark) if mark.isdecimal() and len(mark) < 20 else end + 1
    available = sum(size for _file, size in files)
    follows = start <= end and end - start <= min(limit, available)
    length = end - start if follows else min(limit, available)
    data = b""
    for descriptor, size in files:
        part = min(size, length - len(data))
        data = disk.pread(descriptor, part, size - part) + data
    return StreamPart(data, str(end), None if follows else end - length)


def _opened(path: bytes, opened: ExitStack) -> int | None:
    try:
        descriptor = disk.open_path(path, os.O_RDONLY | disk.O_NOFOLLOW | disk.O_CLOEXEC)
    except FileNotFoundError:
        return None
    opened.callback(os.close, descriptor)
    return descriptor


def _count(path: bytes) -> int | None:
    """Return the bytes in the stream before the newer file; None while the files are rolled over."""
    try:
        with open(path + b".n", "rb") as stream:
            digits = stream.read(24)
        return int(digits) if digits.isdigit() else None
    except FileNotFoundError:
        return None if os.path.lexists(path + b".1") else 0


class Book:
    """A fork's background commands."""

    def __init__(self, fork: Fork) -> None:
        self._fork = fork.name
        self.path = fork.path + b"/background"

    @property
    def socket(self) -> bytes:
        return self.path + b"/socket"

    def place(self, identity: str) -> bytes:
        return self.path + b"/" + identity.encode()

    def begin(self, started: BackgroundStart) -> bytes:
        """Record a new command and return its directory. The oldest ended commands are forgotten."""
        os.makedirs(self.path, mode=0o700, exist_ok=True)
        self._forget()
        place = self.place(started.id)
        os.mkdir(place, 0o700)
        self.write(started, None)
        return place

    def write(self, started: BackgroundStart, ended: BackgroundEnd | None) -> None:
        command = redact_argv(started.command)  # for display only: the process that runs it gets the original words
        _save(self.place(started.id) + b"/command", to_json(started._replace(command=command), ended))

    def rows(self) -> list[tuple[BackgroundStart, BackgroundEnd | None]]:
        """Return the commands, oldest first. A command whose keeper was killed has no end: see ``settle``."""
        commands = []
        try:
            names = os.listdir(self.path)
        except FileNotFoundError:
            return []
        for name in names:
            data = _load(self.path + b"/" + name + b"/command") if name.isalnum() else None
            if data is not None:
                try:
                    started, ended = from_json(data)
                    commands.append((started._replace(fork=self._fork), ended))  # the fork may have been renamed since
                except (KeyError, TypeError, ValueError):
                    continue  # not written by mudroom
        return sorted(commands, key=lambda row: row[0].time)

    def settle(self, time: int) -> None:
        """Record an end for commands whose keeper was killed. Hold the fork's lock."""
        for started, ended in self.rows():
            if ended is None:
                self.write(started, BackgroundEnd(137, 9, False, time))
        self.note(None)

    def _forget(self) -> None:
        over = [started for started, ended in self.rows() if ended is not None]
        for started in over[: max(0, len(over) - KEPT + 1)]:
            remove_tree(self.place(started.id))

    # --- settings that its commands share ---

    def note(self, common: dict[str, Any] | None) -> None:
        """Record the settings that joining commands share. None removes them: there is no sandbox left to join."""
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
    safe_open.replace(path, json.dumps(data).encode("ascii"), durable=False)


def _load(path: bytes) -> dict[str, Any] | None:
    """Return the JSON object in a file, or None if it is missing or damaged."""
    try:
        with open(path, "rb") as stream:
            data = json.loads(stream.read())
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return data if isinstance(data, dict) else None


def find(vault: Vault, identity: str) -> tuple[Fork, BackgroundStart, BackgroundEnd | None] | None:
    """Return a background command in the vault by its id, with its fork, or None."""
    for fork in vault.forks():
        for started, ended in Book(fork).rows():
            if started.id == identity:
                return fork, started, ended
    return None
