"""A fork's remarks on disk.

    <vault>/forks/<fork>/remarks/<name>.json   a remark (core/value.py), which the user's own programs may write, too
    <vault>/forks/<fork>/remarks/texts/<hex>   the text of a file, by its BLAKE2b-160, in which remarks count lines
    <vault>/forks/<fork>/remarks/lock          flock(2): one writer at a time
    <vault>/forks/<fork>/remarks/sending       flock(2): held while a prompt is handed over

No sandbox has a path to them. A damaged file is reported, and neither changed nor removed. Each file is replaced as a
whole: after a power loss it is the old or the new one.
"""

from __future__ import annotations

import os
from _blake2 import blake2b
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager

from mudroom.core.tree.path import show
from mudroom.errors import ForkGone, MudroomError, UsageError
from mudroom.ext.remarks.core.value import ReviewRemark, format_remark, parse_remark
from mudroom.stage import safe_open
from mudroom.typing import NamedTuple
from mudroom.vault.lock import Lock
from mudroom.vault.store.fork import Fork, is_plain
from mudroom.vault.sync import sync_directory

REMARKS = b"/remarks"
"""Directory below the fork's."""
MOST = 1_000
"""Remarks of a fork."""
_LARGEST = 1 << 20
"""Bytes of a remark's file that are read."""
_SUFFIX = b".json"


class StoredRemarks(NamedTuple):
    remarks: Mapping[str, ReviewRemark]
    """By name, oldest first."""
    damaged: tuple[str, ...]
    """A line for each file that cannot be read."""


class RemarkStore:
    """A fork's remarks. Owner: the caller. Each method that writes holds the lock."""

    def __init__(self, fork: Fork) -> None:
        self.fork = fork
        self._place = fork.path + REMARKS

    # --- reading ---

    def read(self) -> StoredRemarks:
        try:
            names = sorted(name for name in os.listdir(self._place) if name.endswith(_SUFFIX))
        except FileNotFoundError:
            return StoredRemarks({}, ())
        remarks: dict[str, ReviewRemark] = {}
        damaged = []
        for name in names:
            path = self._place + b"/" + name
            try:
                stem = os.fsdecode(name.removesuffix(_SUFFIX))
                if not is_plain(stem):
                    raise ValueError("the name has other characters than letters, digits, - _ and .")
                remarks[stem] = _load(path)
            except FileNotFoundError:
                continue  # removed meanwhile
            except (ValueError, OSError, MudroomError) as error:
                damaged.append(f"{show(path)} is not read: {show(str(error).encode('utf-8', 'replace'))}")
        ordered = sorted(remarks.items(), key=lambda item: (item[1].time, len(item[0]), item[0]))
        return StoredRemarks(dict(ordered), tuple(damaged))

    def text(self, version: str) -> bytes | None:
        """Return a kept text; None if it is not there, or not what it was."""
        if not version or not version.isalnum():
            return None
        try:
            content = safe_open.read(self._place + b"/texts/" + version.encode("ascii", "replace"))
        except FileNotFoundError:
            return None
        return content if digest_of(content) == version else None

    # --- writing ---

    @contextmanager
    def locked(self) -> Iterator[StoredRemarks]:
        """Hold the lock, and yield the remarks as they are. Raise ForkGone if the fork was discarded or renamed."""
        with self._lock(b"/lock") as lock:
            lock.acquire("mudroom comment")
            if not lock.is_at_its_path:
                raise ForkGone(self.fork.name)
            yield self.read()

    @contextmanager
    def sending(self) -> Iterator[None]:
        """Hold the right to hand remarks over. Raise UsageError if another process does that now."""
        with self._lock(b"/sending") as lock:
            if not lock.acquire_now():
                raise UsageError(
                    f"the remarks of {self.fork.name} are being sent", f"mudroom comment {self.fork.name} lists them"
                )
            yield

    def is_sending(self) -> bool:
        """Return whether a process hands remarks over now."""
        if not os.path.exists(self._place + b"/sending"):
            return False
        with self._lock(b"/sending") as lock:
            return not lock.acquire_now()

    @contextmanager
    def _lock(self, name: bytes) -> Iterator[Lock]:
        try:
            os.close(safe_open.make_directory(self._place))
        except FileNotFoundError:
            raise ForkGone(self.fork.name) from None
        lock = Lock(self._place + name, "mudroom send")
        try:
            yield lock
        finally:
            lock.release()

    def save(self, name: str, remark: ReviewRemark) -> None:
        """Replace a remark durably. Hold the lock."""
        safe_open.replace(self._path(name), format_remark(remark))
        sync_directory(self._place)

    def remove(self, name: str) -> None:
        """Remove a remark durably. Hold the lock."""
        os.unlink(self._path(name))
        sync_directory(self._place)

    def keep_text(self, content: bytes) -> str:
        """Keep a text, and return its version. Hold the lock, and save the remark that names it before the release."""
        version, place = digest_of(content), self._place + b"/texts"
        os.close(safe_open.make_directory(place))
        if self.text(version) is None:
            safe_open.replace(place + b"/" + version.encode(), content)
        return version

    def drop_texts(self, needed: Collection[str]) -> None:
        """Remove the texts that no remark names. Hold the lock."""
        place = self._place + b"/texts"
        for name in os.listdir(place) if os.path.isdir(place) else ():
            if os.fsdecode(name) not in needed:
                os.unlink(place + b"/" + name)

    def free_name(self) -> str:
        """Return the next name. Raise UsageError if there are too many remarks. A damaged file's name is taken."""
        names = [name.removesuffix(_SUFFIX) for name in os.listdir(self._place) if name.endswith(_SUFFIX)]
        if len(names) >= MOST:
            raise UsageError(
                f"{self.fork.name} has {MOST:,} remarks", f"mudroom comment {self.fork.name} --remove NAME makes room"
            )
        numbers = [int(name[1:]) for name in names if name[:1] == b"r" and name[1:].isdigit() and len(name) < 10]
        return f"r{max(numbers, default=0) + 1}"

    def _path(self, name: str) -> bytes:
        return self._place + b"/" + name.encode() + _SUFFIX


def digest_of(content: bytes) -> str:
    return blake2b(content, digest_size=20).hexdigest()


def _load(path: bytes) -> ReviewRemark:
    with os.fdopen(safe_open.open_regular(path), "rb") as stream:
        data = stream.read(_LARGEST + 1)
    if len(data) > _LARGEST:
        raise ValueError(f"it has more than {_LARGEST:,} bytes")
    return parse_remark(data)
