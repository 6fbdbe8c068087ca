"""Paths that a model has sent, resolved in a fork's view alone.

Rules of this file:
1. A path is relative to the project, or absolute inside it. ``..`` stays inside.
2. Symbolic links are followed by name, through the view's own entries; the host's files are never looked at.
3. A path that leads out is refused, with the way to read the system's files instead: a command in the sandbox.
"""

from __future__ import annotations

import os

from mudroom.core.tree.path import relpath, show
from mudroom.ext.agents.tools.error import ToolError
from mudroom.stage.buffer.files import Tree

LONGEST = 4_096
"""Characters in a path: PATH_MAX in limits.h."""
_MOST_LINKS = 40
"""The kernel's limit (path_resolution(7))."""


def inside(tree: Tree, project: bytes, path: str) -> bytes:
    """Return the path relative to the project; empty for the project itself. Links are followed, also a last one; the
    rest of a path below a missing name is kept as it is. Raise ToolError if it leads out, or through a file."""
    raw = path.encode("utf-8", "surrogateescape") if _is_plain(path) else b""
    if not raw:
        raise ToolError("the path is empty, too long, or not text" if path else "the path is empty", _HOW)
    if b"\0" in raw:
        raise ToolError(f"{show(raw)}: a path cannot hold a NUL", _HOW)
    return _resolved(tree, project, raw)


def parts_of(raw: bytes) -> list[bytes]:
    return [part for part in raw.split(b"/") if part not in (b"", b".")]


def shown(path: bytes) -> str:
    """Return a path for a text: one line, without control characters."""
    return show(path) if path else "."


def named(path: bytes) -> str:
    """Return a path for data, in a form that can be sent back. A name that is not UTF-8 cannot: only commands reach
    it."""
    return path.decode("utf-8", "replace") or "."


_HOW = "give a path relative to the project, such as src/main.py"


def _is_plain(path: str) -> bool:
    try:
        return len(path) <= LONGEST and len(path.encode("utf-8", "surrogateescape")) <= LONGEST
    except UnicodeEncodeError:  # lone surrogates other than those in PEP 383
        return False


def _entered(project: bytes, raw: bytes) -> list[bytes]:
    """Return the parts below the project. ``raw``: relative to it, or absolute."""
    if not raw.startswith(b"/"):
        return parts_of(raw)
    below = parts_of(project)
    parts = parts_of(os.path.normpath(raw)) if not _is_at(parts_of(raw), below) else parts_of(raw)
    if not _is_at(parts, below):
        raise ToolError(
            f"{show(raw)} is outside the project {show(project)}: the file tools see the fork only",
            f"{_HOW}; to read a file of the system: bash with `cat {show(raw)}`",
        )
    return parts[len(below) :]


def _is_at(parts: list[bytes], above: list[bytes]) -> bool:
    return parts[: len(above)] == above


def _resolved(tree: Tree, project: bytes, raw: bytes) -> bytes:
    left, at, links = _entered(project, raw), list[bytes](), 0
    while left:
        part = left.pop(0)
        if part == b"..":
            if not at:
                raise ToolError(f"{show(raw)} leads out of the project with '..'", _HOW)
            at.pop()
            continue
        if len(part) > 255:
            raise ToolError(f"{show(part[:40])}…: a name is longer than 255 bytes", _HOW)
        entry = tree.look(b"/".join([*at, part]))
        if entry is None or entry.kind != "symlink":
            if entry is None and b".." in left:
                raise ToolError(f"{show(b'/'.join([*at, part]))} does not exist", "list shows what there is")
            at.append(part)
            continue
        links += 1
        link = b"/".join([*at, part])
        if links > _MOST_LINKS:
            raise ToolError(f"{show(raw)}: too many symbolic links", "list shows where each of them leads")
        if entry.target.startswith(b"/"):
            at = []
            try:
                left = [*_entered(project, entry.target), *left]
            except ToolError as error:
                raise ToolError(
                    f"{show(link)} is a symbolic link to {show(entry.target)}, outside the project", error.instead
                ) from None
        else:
            left = [*parts_of(entry.target), *left]
    return relpath(b"/".join(at)) if at else b""
