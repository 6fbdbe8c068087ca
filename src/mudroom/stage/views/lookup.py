"""Find a file in a view by path, as open(2) resolves it: through symbolic links and ``..``, as long as they stay
inside.

A ``Source`` never follows a link, but this is needed to find the program that a command would run: ``./build`` may be a
link. Files are opened only through the source, so no file outside the view is ever read.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from mudroom.core.system.closing import Descriptor
from mudroom.stage.source import Source

_MOST_LINKS = 40
"""The kernel's limit (path_resolution(7))."""
_LONGEST_NAME = 255
"""NAME_MAX from limits.h. No file has a longer name, and a source refuses it."""


def reader(source: Source, project: bytes) -> Callable[[bytes, int], bytes | None]:
    """Return a function that reads files by absolute path (``core/approval/fingerprint.py:Read``); it returns None for
    a path outside the project."""

    def read(path: bytes, limit: int) -> bytes | None:
        inside = find(source, project, path)
        return _read(source, inside, limit) if inside is not None else None

    return read


def strays(source: Source, project: bytes, writable: Callable[[bytes], bool]) -> Callable[[bytes], bool]:
    """Return a function that tests whether an absolute path leads out of the project to a place that commands may write
    to (``writable``; ``core/approval/fingerprint.py:Strays``). It follows the view's links, and outside the view the
    host's."""

    def leads_there(path: bytes) -> bool:
        inside, outside = resolve(source, project, path)
        if inside is not None or not outside:
            return False
        real = os.path.realpath(outside)
        return writable(outside) or writable(real) or _below(project, real) is not None

    return leads_there


def find(source: Source, project: bytes, path: bytes) -> bytes | None:
    """Return the path, in the source, of the regular file at an absolute path, or None if there is no such file
    inside."""
    at = resolve(source, project, path)[0]
    entry = source.look(at) if at else None
    return at if entry is not None and entry.kind == "file" else None


def resolve(source: Source, project: bytes, path: bytes) -> tuple[bytes | None, bytes]:
    """Resolve an absolute path. Return a path in the source, or None and the absolute path outside, which is empty if
    the path does not exist. Paths outside are assumed to have no links: a path may leave the project and come back."""
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
        entry = source.look(b"/".join([*at, part])) if len(part) <= _LONGEST_NAME else None
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
    """Return an absolute path's parts below the project, or None and the path if it leads elsewhere."""
    below = _below(project, path)
    if below is None:
        path = os.path.normpath(path)
        below = _below(project, path)
    return (below, b"") if below is not None else (None, path)


def _parts(path: bytes) -> list[bytes]:
    return [part for part in path.split(b"/") if part not in (b"", b".")]


def _below(project: bytes, path: bytes) -> list[bytes] | None:
    """Return an absolute path's parts below the project, or None if it starts elsewhere."""
    parts, above = _parts(path), _parts(project)
    return parts[len(above) :] if parts[: len(above)] == above else None


def _read(source: Source, path: bytes, limit: int) -> bytes | None:
    try:
        descriptor = source.open(path)
    except OSError:
        return None
    with Descriptor(descriptor):
        data = bytearray()
        while len(data) <= limit and (more := os.read(descriptor, 1 << 20)):
            data += more
        return bytes(data)
