"""What is kept of an agent when it has ended: what it printed, and files of its fork that its card names.

    PLACE/command, stdout, stderr     as far as they were captured
    PLACE/files/<path>                files that the fork changed and that match

Only regular files that the fork itself has added or changed; each is read by a descriptor that no link leads to, and
written into a directory that was empty, where nothing is ever replaced. No mode, owner or time is taken along: what was
collected is there to be read, by people and other programs, and is data. Limits are ours, not the card's.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from mudroom.core.agent.artifact import matcher
from mudroom.core.tree.change import Change
from mudroom.errors import UsageError
from mudroom.stage.source import SourceContent

LARGEST, TOTAL, MOST = 100 << 20, 500 << 20, 10_000
"""Bytes of one file, bytes of all, and how many."""
_CHUNK = 1 << 20
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class ArtifactLimits(NamedTuple):
    largest: int = LARGEST
    total: int = TOTAL
    most: int = MOST


class Artifacts(NamedTuple):
    place: bytes = b""
    """Empty: there was nothing to collect."""
    streams: tuple[str, ...] = ()
    files: tuple[bytes, ...] = ()
    """By their paths in the project."""
    size: int = 0
    """Bytes, of the files."""
    left: tuple[tuple[bytes, str], ...] = ()
    """(path, why) of what matches and was not taken."""


def next_place(above: bytes) -> bytes:
    """A new directory below ``above``, by the next number."""
    os.makedirs(above, 0o700, exist_ok=True)
    taken = [int(name) for name in os.listdir(above) if name.isdigit()]
    number = max(taken, default=0) + 1
    while True:
        try:
            os.mkdir(above + b"/%d" % number, 0o700)
        except FileExistsError:  # another command of the same fork, just now
            number += 1
        else:
            return above + b"/%d" % number


def require_empty(place: bytes, shown: str) -> None:
    """Make a directory of the user's, for artefacts. Raises UsageError if something is in it: the names in there are
    going to be the agent's."""
    try:
        os.mkdir(place)
    except FileExistsError:
        if not os.path.isdir(place) or os.path.islink(place):
            raise UsageError(f"{shown} is not a directory") from None
        if os.listdir(place):
            raise UsageError(f"{shown} is not empty", "artefacts go into a new directory, or an empty one") from None
    except OSError as error:
        raise UsageError(f"{shown}: {error.strerror}") from error


def collect(
    place: bytes,
    source: SourceContent,
    changes: Iterable[Change],
    patterns: Sequence[str],
    streams: Mapping[str, bytes],
    limits: ArtifactLimits = ArtifactLimits(),  # noqa: B008 - a value
) -> Artifacts:
    """Copy into ``place``, which is an empty directory, what matches of the files that were changed."""
    root = os.open(place, _DIRECTORY)
    try:
        for name, data in streams.items():
            with os.fdopen(os.open(name, _NEW, 0o600, dir_fd=root), "wb") as stream:
                stream.write(data)
        files: list[bytes] = []
        left: list[tuple[bytes, str]] = []
        total, matches = 0, matcher(patterns)
        for change in changes:
            if change.staged is None or change.staged.kind == "directory" or not matches(change.path):
                continue
            room = min(limits.largest, limits.total - total) if len(files) < limits.most else -1
            size, why = _take(source, root, change, room)
            if why:
                left.append((change.path, why))
            else:
                files.append(change.path)
                total += size
        return Artifacts(place, tuple(streams), tuple(files), total, tuple(left))
    finally:
        os.close(root)


def _take(source: SourceContent, root: int, change: Change, room: int) -> tuple[int, str]:
    """Bytes that were copied, or why none were."""
    assert change.staged is not None
    if change.staged.kind != "file":
        return 0, f"is no file but a {change.staged.kind}"
    if room < 0:
        return 0, "there are too many"
    try:
        descriptor = source.open(change.path)
    except OSError as error:
        return 0, error.strerror or "cannot be opened"
    try:
        info = os.fstat(descriptor)
        if not stat.S_ISREG(info.st_mode):
            return 0, "is no file"
        if info.st_size > room:
            return 0, "is too large"
        return _copy(descriptor, root, b"files/" + change.path), ""
    except OSError as error:
        return 0, error.strerror or "cannot be copied"
    finally:
        os.close(descriptor)


def _copy(descriptor: int, root: int, path: bytes) -> int:
    above, _slash, name = path.rpartition(b"/")
    directory = _made(root, above.split(b"/"))
    try:
        target = os.open(name, _NEW, 0o644, dir_fd=directory)
    finally:
        os.close(directory)
    size = 0
    try:
        while chunk := os.read(descriptor, _CHUNK):
            size += len(chunk)
            while chunk:
                chunk = chunk[os.write(target, chunk) :]
    finally:
        os.close(target)
    return size


def _made(root: int, parts: Sequence[bytes]) -> int:
    """A descriptor of a directory below the root, with those above it; what is missing is made."""
    current = os.dup(root)
    for part in parts:
        try:
            try:
                os.mkdir(part, 0o755, dir_fd=current)
            except FileExistsError:
                pass
            below = os.open(part, _DIRECTORY, dir_fd=current)
        finally:
            os.close(current)
        current = below
    return current
