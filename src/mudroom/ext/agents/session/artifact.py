"""An ended agent's artefacts: its output, and the files in its fork that its card names.

    PLACE/command, stdout, stderr     as far as they were captured
    PLACE/files/<path>                files that the fork changed and that match

Only regular files that the fork has added or changed are collected. Each is read through a descriptor that no link
leads to, and written into an initially empty directory; no file is ever replaced. Mode, owner and time are not copied:
artefacts are data for people and other programs. The limits are mudroom's, not the card's.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from mudroom.core.system.closing import Descriptor
from mudroom.core.system.write_all import write_all
from mudroom.core.tree.change import Change
from mudroom.errors import UsageError
from mudroom.ext.agents.core.artifact import matcher
from mudroom.stage import disk
from mudroom.stage.source import SourceContent
from mudroom.typing import NamedTuple

LARGEST, TOTAL, MOST = 100 << 20, 500 << 20, 10_000
"""Bytes in one file, bytes in all files, number of files."""
_CHUNK = 1 << 20
_DIRECTORY = os.O_RDONLY | disk.O_DIRECTORY | disk.O_NOFOLLOW | disk.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | disk.O_NOFOLLOW | disk.O_CLOEXEC


class Artifacts(NamedTuple):
    place: bytes = b""
    """Empty if there was nothing to collect."""
    streams: tuple[str, ...] = ()
    files: tuple[bytes, ...] = ()
    """Paths in the project."""
    size: int = 0
    """Bytes in all files."""
    left: tuple[tuple[bytes, str], ...] = ()
    """(path, reason) for matching files that were not collected."""


def next_place(above: bytes) -> bytes:
    """Make and return a new directory below ``above``, named by the next free number."""
    os.makedirs(above, 0o700, exist_ok=True)
    taken = [int(name) for name in os.listdir(above) if name.isdigit()]
    number = max(taken, default=0) + 1
    while True:
        try:
            os.mkdir(above + b"/%d" % number, 0o700)
        except FileExistsError:  # another command in the same fork has just made it
            number += 1
        else:
            return above + b"/%d" % number


def require_empty(place: bytes, shown: str) -> None:
    """Make the user's directory for artefacts. Raise UsageError if it is not empty: the agent chooses the files'
    names."""
    try:
        os.mkdir(place)
    except FileExistsError:
        if not os.path.isdir(place) or os.path.islink(place):
            raise UsageError(f"{shown} is not a directory") from None
        if os.listdir(place):
            raise UsageError(f"{shown} is not empty", "name a new or an empty directory") from None
    except OSError as error:
        raise UsageError(f"{shown}: {error.strerror}") from error


def collect(
    place: bytes,
    source: SourceContent,
    changes: Iterable[Change],
    patterns: Sequence[str],
    streams: Mapping[str, bytes],
) -> Artifacts:
    """Copy the matching changed files and the streams into ``place``, an empty directory."""
    with Descriptor(disk.open_path(place, _DIRECTORY)) as root:
        for name, data in streams.items():
            with os.fdopen(disk.open_at(root, name, _NEW, 0o600), "wb") as stream:
                stream.write(data)
        files: list[bytes] = []
        left: list[tuple[bytes, str]] = []
        total, matches = 0, matcher(patterns)
        for change in changes:
            if change.staged is None or change.staged.kind == "directory" or not matches(change.path):
                continue
            room = min(LARGEST, TOTAL - total) if len(files) < MOST else -1
            size, why = _take(source, root, change, room)
            if why:
                left.append((change.path, why))
            else:
                files.append(change.path)
                total += size
        return Artifacts(place, tuple(streams), tuple(files), total, tuple(left))


def _take(source: SourceContent, root: int, change: Change, room: int) -> tuple[int, str]:
    """Copy one file. Return its size and an empty reason, or 0 and the reason why it was not copied."""
    assert change.staged is not None
    if change.staged.kind != "file":
        return 0, f"is a {change.staged.kind}, not a regular file"
    if room < 0:
        return 0, "there are too many files"
    try:
        descriptor = source.open(change.path)
    except OSError as error:
        return 0, error.strerror or "cannot be opened"
    try:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            return 0, "is not a regular file"
        if info.st_size > room:
            return 0, "is too large"
        return _copy(descriptor, root, b"files/" + change.path), ""
    except OSError as error:
        return 0, error.strerror or "cannot be copied"
    finally:
        os.close(descriptor)


def _copy(descriptor: int, root: int, path: bytes) -> int:
    above, _slash, name = path.rpartition(b"/")
    with Descriptor(_open_directory(root, above.split(b"/"))) as directory:
        target = disk.open_at(directory, name, _NEW, 0o644)
    size = 0
    with Descriptor(target):
        while chunk := os.read(descriptor, _CHUNK):
            size += len(chunk)
            write_all(target, chunk)
    return size


def _open_directory(root: int, parts: Sequence[bytes]) -> int:
    """Return a descriptor for a directory below the root. Missing directories are made."""
    current = os.dup(root)
    for part in parts:
        with Descriptor(current):
            with suppress(FileExistsError):
                disk.mkdir(current, part, 0o755)
            below = disk.open_at(current, part, _DIRECTORY)
        current = below
    return current
