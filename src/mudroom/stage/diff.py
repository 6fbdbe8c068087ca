"""A changeset as unified diff text, in the format that git prints and ``patch`` reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from mudroom.core.text.linediff import is_binary, unified_diff
from mudroom.core.tree.change import Change
from mudroom.core.tree.entry import Entry
from mudroom.core.tree.path import show
from mudroom.core.tree.similar_renames import Move
from mudroom.stage.source import SourceContent, read_all

LIMIT = 16 * 1024 * 1024
"""Bytes. A larger file is named, not shown."""

_GIT_KINDS = {"file": 0o100000, "symlink": 0o120000, "directory": 0o040000}


Original = Callable[[bytes, Entry, int], bytes | None]
"""Path, entry, limit → the file's original content, or None if it is no longer known or larger than the limit."""


def diff(
    original: Original, staged: SourceContent, changes: Iterable[Change], moves: Iterable[Move] = ()
) -> Iterator[bytes]:
    """Yield lines, each with its newline. ``moves``: a moved file is shown as one change from its old path, if both
    paths are shown."""
    shown = {change.path: change for change in changes}
    pairs = {move.new: move for move in moves if move.old in shown and move.new in shown}
    gone = {move.old for move in pairs.values()}
    for change in shown.values():
        if change.moved_to or change.path in gone:
            continue
        move = pairs.get(change.path)
        for part in _parts(change):
            yield from _file_diff(original, staged, part, move, shown[move.old] if move is not None else part)


def _parts(change: Change) -> Iterator[Change]:
    """Split a change of kind into a deletion and an addition, and leave out directories: a patch cannot express a file
    that becomes another kind (git-apply(1), "wrong type"), nor a directory."""
    parts: tuple[Change, ...] = (change,)
    if change.base is not None and change.staged is not None and change.base.kind != change.staged.kind:
        parts = change._replace(verb="deleted", staged=None), change._replace(verb="added", base=None)
    return (part for part in parts if part.entry.kind != "directory")


def _file_diff(
    original: Original, staged: SourceContent, change: Change, move: Move | None, before: Change
) -> Iterator[bytes]:
    """``before``: the change that has the old content; for a moved file, the change at its old path."""
    if change.verb == "renamed":
        yield from content_diff(change, None, None)
        return
    old = _original(original, before)
    new = _staged(staged, change)
    lost = old is None and before.base is not None and before.base.kind == "file" and before.base.size <= LIMIT
    yield from content_diff(change, old, new, move, before, lost=lost)


def content_diff(
    change: Change,
    old: bytes | None,
    new: bytes | None,
    move: Move | None = None,
    before: Change | None = None,
    *,
    lost: bool = False,
) -> Iterator[bytes]:
    """Yield the diff of one change whose contents are given. None: too large, or not to be shown. ``lost``: the old
    content is no longer known. ``move``, ``before``: for a moved file, the move and the change at its old path."""
    before = before or change
    old_path = change.source or before.path
    yield b"diff --git %s %s\n" % (_name(b"a/" + old_path), _name(b"b/" + change.path))
    yield from _header(change) if move is None else _header_of_moved(before, change, move)
    if change.verb == "renamed":
        return
    if lost:
        yield b"# the project's file has changed since; its original content is no longer known\n"
        return
    if old is None or new is None or is_binary(old) or is_binary(new):
        yield b"Binary files differ\n" if old != new else b""
        return
    yield from unified_diff(
        old,
        new,
        old_label=_label(b"a/" + old_path) if before.base is not None else b"/dev/null",
        new_label=_label(b"b/" + change.path) if change.staged is not None else b"/dev/null",
    )


def _header(change: Change) -> Iterator[bytes]:
    base, staged = change.base, change.staged
    if change.verb == "renamed":
        yield b"rename from %s\nrename to %s\n" % (_name(change.source), _name(change.path))
    elif base is None and staged is not None:
        yield b"new file mode %06o\n" % git_mode(staged)
    elif staged is None and base is not None:
        yield b"deleted file mode %06o\n" % git_mode(base)
    elif base is not None and staged is not None:
        yield from _modes(base, staged)


def _header_of_moved(before: Change, change: Change, move: Move) -> Iterator[bytes]:
    """The header lines in git's order (diff.c: fill_metainfo; the modes come before it)."""
    if before.base is not None and change.staged is not None:
        yield from _modes(before.base, change.staged)
    yield b"similarity index %d%%\n" % move.percent
    yield b"rename from %s\nrename to %s\n" % (_name(before.path), _name(change.path))


def _modes(base: Entry, staged: Entry) -> Iterator[bytes]:
    if git_mode(base) != git_mode(staged):
        yield b"old mode %06o\nnew mode %06o\n" % (git_mode(base), git_mode(staged))


def git_mode(entry: Entry) -> int:
    return _GIT_KINDS.get(entry.kind, 0) | (0 if entry.kind == "symlink" else entry.mode)


def _name(path: bytes) -> bytes:
    """Quote a path as git writes and reads names (``quote.c``: octal escapes only), so that it cannot break a line or a
    terminal."""
    if show(path) == path.decode("utf-8", "surrogateescape") and b'"' not in path:
        return path
    return b'"%s"' % b"".join(_QUOTED[byte] for byte in path)


_PLAIN = bytes(byte for byte in range(0x20, 0x7F) if byte not in b'"\\')
_QUOTED = [bytes([byte]) if byte in _PLAIN else b"\\%03o" % byte for byte in range(256)]


def _label(path: bytes) -> bytes:
    """Return a file's label. A name that contains a blank is followed by a tab, because ``patch`` otherwise reads the
    rest as a date."""
    name = _name(path)
    return name + b"\t" if b" " in path and name == path else name


def _original(original: Original, change: Change) -> bytes | None:
    if change.base is None:
        return b""
    if change.base.kind == "symlink":
        return change.base.target
    return original(change.path, change.base, LIMIT) if change.base.kind == "file" else None


def _staged(staged: SourceContent, change: Change) -> bytes | None:
    if change.staged is None:
        return b""
    if change.staged.kind == "symlink":
        return change.staged.target
    if change.staged.kind != "file":
        return None
    try:
        return read_all(staged, change.path, LIMIT)
    except OSError:
        return None
