"""A changeset as unified diff text, in the form that git prints and ``patch`` reads."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from mudroom.core.change import Change
from mudroom.core.entry import Entry, same_stamp
from mudroom.core.linediff import is_binary, unified
from mudroom.core.path import show
from mudroom.stage.beneath import look_beneath, open_root, read_file
from mudroom.stage.collect import open_staged

LIMIT = 16 * 1024 * 1024
"""Bytes. A larger file is named, not shown."""

_GIT_KINDS = {"file": 0o100000, "symlink": 0o120000, "directory": 0o040000}


def diff(project: bytes, content: bytes, changes: Iterable[Change]) -> Iterator[bytes]:
    """Lines, each with its newline. ``content`` is the fork's directory of staged files."""
    base, staged = open_root(project), open_root(content)
    try:
        for change in changes:
            if change.entry.kind != "directory" and not change.moved_to:
                yield from _one(base, staged, change)
    finally:
        os.close(base)
        os.close(staged)


def _one(base: int, staged: int, change: Change) -> Iterator[bytes]:
    old_path = change.source or change.path
    yield b"diff --git a/%s b/%s\n" % (_name(old_path), _name(change.path))
    yield from _header(change)
    if change.verb == "renamed":
        return
    if change.base is not None and not same_stamp(change.base, look_beneath(base, change.path)):
        yield b"# the project's file has changed since; what it was is not shown\n"
        return
    old = _content(base, change.path, change.base, is_staged=False)
    new = _content(staged, change.path, change.staged, is_staged=True)
    if old is None or new is None or is_binary(old) or is_binary(new):
        yield b"Binary files differ\n" if old != new else b""
        return
    yield from unified(
        old,
        new,
        old_label=b"a/" + _name(old_path) if change.base is not None else b"/dev/null",
        new_label=b"b/" + _name(change.path) if change.staged is not None else b"/dev/null",
    )


def _header(change: Change) -> Iterator[bytes]:
    base, staged = change.base, change.staged
    if change.verb == "renamed":
        yield b"rename from %s\nrename to %s\n" % (_name(change.source), _name(change.path))
    elif base is None and staged is not None:
        yield b"new file mode %06o\n" % _mode(staged)
    elif staged is None and base is not None:
        yield b"deleted file mode %06o\n" % _mode(base)
    elif base is not None and staged is not None and _mode(base) != _mode(staged):
        yield b"old mode %06o\nnew mode %06o\n" % (_mode(base), _mode(staged))


def _mode(entry: Entry) -> int:
    return _GIT_KINDS.get(entry.kind, 0) | (0 if entry.kind == "symlink" else entry.mode)


def _name(path: bytes) -> bytes:
    """As git quotes names: anything that could break a line or a terminal is escaped."""
    shown = show(path)
    return path if shown == path.decode("utf-8", "surrogateescape") else f'"{shown}"'.encode()


def _content(root: int, path: bytes, entry: Entry | None, *, is_staged: bool) -> bytes | None:
    if entry is None:
        return b""
    if entry.kind == "symlink":
        return entry.target
    if entry.kind != "file":
        return None
    if is_staged:
        os.close(open_staged(root, path, entry))  # makes sure that its mode lets us read it
    try:
        return read_file(root, path, LIMIT)
    except OSError:
        return None
