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
    """Reads files by their absolute paths (``core/fingerprint.py:Read``); those outside of the project are none."""

    def read(path: bytes, limit: int) -> bytes | None:
        found = find(source, project, path)
        if found is None and b"/.." in path:  # out of the project and back: what is outside is taken to have no links
            found = find(source, project, os.path.normpath(path))
        return _read(source, found, limit) if found is not None else None

    return read


def find(source: Source, project: bytes, path: bytes) -> bytes | None:
    """The path, in the source, of the regular file that is found at an absolute path; None: none, or not inside."""
    left, links = _below(project, path), 0
    at: list[bytes] = []
    while left:
        part = left.pop(0)
        if part == b"..":
            if not at:
                return None
            at.pop()
            continue
        entry = source.look(b"/".join([*at, part]))
        if entry is None:
            return None
        if entry.kind != "symlink":
            at.append(part)
            if left and entry.kind != "directory":
                return None
            continue
        links += 1
        target = entry.target if entry.target.startswith(b"/") else b"/".join([project, *at, entry.target])
        below = _below(project, target) if links <= _MOST_LINKS else None
        if below is None:
            return None
        at, left = [], below + left
    if left is None or not at:
        return None
    entry = source.look(b"/".join(at))
    return b"/".join(at) if entry is not None and entry.kind == "file" else None


def _below(project: bytes, path: bytes) -> list[bytes] | None:
    """The parts of an absolute path, below the project; None if it does not begin there."""
    parts = [part for part in path.split(b"/") if part not in (b"", b".")]
    above = [part for part in project.split(b"/") if part]
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
