"""A file of a view by a path as open(2) takes it: through symbolic links and ``..``, as long as they stay inside.

A ``Source`` never follows a link. Who wants to know what a command would run has to: ``./build`` may be a link. Nothing
is opened here but by the source, so nothing outside of the view is ever read.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from mudroom.stage.source import Source

_MOST_LINKS = 40
"""As the kernel (path_resolution(7))."""


def reader(source: Source, project: bytes) -> Callable[[bytes, int], bytes | None]:
    """Reads files by their absolute paths (``core/approval/fingerprint.py:Read``); those outside of the project are
    none."""

    def read(path: bytes, limit: int) -> bytes | None:
        found = find(source, project, path)
        return _read(source, found, limit) if found is not None else None

    return read


def strays(source: Source, project: bytes, writable: Callable[[bytes], bool]) -> Callable[[bytes], bool]:
    """Whether an absolute path leads out of the project to where ``writable`` says that commands may write
    (``core/approval/fingerprint.py:Strays``): by the links of the view, and by those of the host outside of it."""

    def leads_there(path: bytes) -> bool:
        inside, outside = resolve(source, project, path)
        if inside is not None or not outside:
            return False
        real = os.path.realpath(outside)
        return writable(outside) or writable(real) or _below(project, real) is not None

    return leads_there


def find(source: Source, project: bytes, path: bytes) -> bytes | None:
    """The path, in the source, of the regular file that is found at an absolute path; None: none, or not inside."""
    at = resolve(source, project, path)[0]
    entry = source.look(at) if at else None
    return at if entry is not None and entry.kind == "file" else None


def resolve(source: Source, project: bytes, path: bytes) -> tuple[bytes | None, bytes]:
    """Where an absolute path leads: a path in the source, or None and the absolute path outside; empty: nowhere. What
    is outside is taken to have no links: a path may go out of the project and come back."""
    left, outside = _entered(project, path)
    at: list[bytes] = []
    links = 0
    while left:
        part = left.pop(0)
        if part == b"..":
            if not at:
                left, outside = _entered(project, os.path.normpath(b"/".join([project, b"..", *left])))
            del at[-1:]
            continue
        entry = source.look(b"/".join([*at, part]))
        if entry is None:
            return None, b""
        if entry.kind != "symlink":
            at.append(part)
            if left and entry.kind != "directory":
                return None, b""
            continue
        links += 1
        if links > _MOST_LINKS:
            return None, b""
        if entry.target.startswith(b"/"):
            at, (left, outside) = [], _entered(project, b"/".join([entry.target, *left]))
        else:
            left = [*_parts(entry.target), *left]
    return (None, outside) if left is None else (b"/".join(at), b"")


def _entered(project: bytes, path: bytes) -> tuple[list[bytes] | None, bytes]:
    """The parts of an absolute path below the project; if it does not lead there, None and the path."""
    below = _below(project, path)
    if below is None:
        path = os.path.normpath(path)
        below = _below(project, path)
    return (below, b"") if below is not None else (None, path)


def _parts(path: bytes) -> list[bytes]:
    return [part for part in path.split(b"/") if part not in (b"", b".")]


def _below(project: bytes, path: bytes) -> list[bytes] | None:
    """The parts of an absolute path, below the project; None if it does not begin there."""
    parts, above = _parts(path), _parts(project)
    return parts[len(above) :] if parts[: len(above)] == above else None


def _read(source: Source, path: bytes, limit: int) -> bytes | None:
    try:
        descriptor = source.open(path)
    except OSError:
        return None
    try:
        data = bytearray()
        while len(data) <= limit and (more := os.read(descriptor, 1 << 20)):
            data += more
        return bytes(data)
    finally:
        os.close(descriptor)
