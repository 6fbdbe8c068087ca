"""From raw differences to a changeset: what the command really changed.

1. A difference is a change only if content, kind, permissions, link target or user xattrs differ. An overlay copies a
   whole file up when it is merely opened for writing or touched.
2. An original is believed only if it was not touched while the command ran ("stamp before trust"): its ctime must be
   older than the command's start. Otherwise ``original_known`` is False and apply treats it as a conflict.
3. What cannot be applied (sockets, devices) becomes a remark, never silence.
"""

from __future__ import annotations

import os
from _blake2 import blake2b
from collections.abc import Iterable, Mapping

from mudroom.core.change import Change, Changeset, Remark, Verb
from mudroom.core.entry import Entry
from mudroom.core.flag import flags_of
from mudroom.core.linediff import count_lines, is_binary, split_lines
from mudroom.core.path import sort_key
from mudroom.core.rename import pair_renames
from mudroom.core.rollup import whole_directories
from mudroom.stage.beneath import open_file, open_root, read_file
from mudroom.stage.view import Difference, View

TEXT_LIMIT = 4 * 1024 * 1024
"""Bytes. Lines of a larger file are not counted."""

Originals = dict[bytes, Entry | None]
"""What the project held at each changed path before the fork first changed it."""


def collect(view: View, project: bytes, started: int, known: Mapping[bytes, Entry | None]) -> Changeset:
    """Everything the fork changed.

    ``started`` is the start of the last command by the coarse real-time clock, in nanoseconds, as file systems stamp
    ctime; ``known`` are originals recorded after earlier commands of this fork, which hold whatever became of the
    live file since. Raises OSError if the fork cannot be read.
    """
    base = open_root(project)
    content = open_root(view.content)
    try:
        collector = _Collector(base, content, started, known, trusted_base=view.kind == "copy")
        for difference in view.differences(base, known):
            collector.consider(difference)
        return collector.finish()
    finally:
        os.close(base)
        os.close(content)


class _Collector:
    def __init__(
        self, base: int, content: int, started: int, known: Mapping[bytes, Entry | None], *, trusted_base: bool
    ) -> None:
        self._base, self._content = base, content
        self._started, self._known, self._trusted = started, known, trusted_base
        self._changes: list[Change] = []
        self._remarks: list[Remark] = []
        self._links: dict[tuple[int, int], bytes] = {}

    def consider(self, difference: Difference) -> None:
        path, found, staged = difference
        base = self._known.get(path, found)
        if staged is not None and staged.kind in ("socket", "device"):
            self._remarks.append(Remark(path, f"a {staged.kind} cannot be applied"))
            staged = None
        if base is None and staged is None:
            return
        flags = list(flags_of(path)) if path else []
        if base is not None and staged is not None:
            differing = self._what_differs(path, base, staged)
            if not differing:
                return
            flags += differing
        self._notice_links(path, base, staged)
        self._changes.append(
            Change(
                path,
                _verb(base, staged),
                base,
                staged,
                flags=tuple(flags),
                original_known=self._is_trusted(path, base),
                link_to=self._link_of(path, staged),
            )
        )

    def _is_trusted(self, path: bytes, base: Entry | None) -> bool:
        if self._trusted or base is None or base.kind == "directory" or path in self._known:
            return True
        return base.ctime < self._started

    def _what_differs(self, path: bytes, base: Entry, staged: Entry) -> list[str]:
        if base.kind != staged.kind:
            return ["type"]
        flags = [] if base.mode == staged.mode else ["mode"]
        if base.kind == "symlink":
            return ["content"] if base.target != staged.target else flags
        if base.kind == "file":
            if base.size != staged.size or not self._same_content(path, staged):
                flags.append("content")
            elif not self._same_xattrs(path):
                flags.append("xattr")
        return flags

    def _same_content(self, path: bytes, staged: Entry) -> bool:
        try:
            old = open_file(self._base, path)
        except OSError:
            return False  # the user changed or removed it since; the merge will say what that means
        try:
            new = open_staged(self._content, path, staged)
            try:
                while True:
                    a, b = os.read(old, 1 << 20), os.read(new, 1 << 20)
                    if a != b:
                        return False
                    if not a:
                        return True
            finally:
                os.close(new)
        finally:
            os.close(old)

    def _same_xattrs(self, path: bytes) -> bool:
        found = []
        for root in (self._base, self._content):
            try:
                descriptor = open_file(root, path)
            except OSError:
                return True
            try:
                found.append(user_xattrs(descriptor))
            finally:
                os.close(descriptor)
        return found[0] == found[1]

    def _notice_links(self, path: bytes, base: Entry | None, staged: Entry | None) -> None:
        if base is not None and staged is not None and base.kind == staged.kind == "file" and base.links > 1:
            self._remarks.append(
                Remark(path, f"has {base.links} hard links in the project; the others keep the old content")
            )

    def _link_of(self, path: bytes, staged: Entry | None) -> bytes:
        if staged is None or staged.kind != "file" or staged.links < 2:
            return b""
        first = self._links.setdefault((staged.device, staged.inode), path)
        return b"" if first == path else first

    def finish(self) -> Changeset:
        changes = sorted(self._changes, key=lambda change: sort_key(change.path))
        changes = pair_renames(changes, self._digest)
        rolled = whole_directories(changes)
        counted = [self._with_lines(change, rolled) for change in changes]
        return Changeset(tuple(counted), tuple(sorted(self._remarks)))

    def _digest(self, change: Change) -> bytes:
        hasher = blake2b(digest_size=20)
        try:
            if change.staged is not None:
                descriptor = open_staged(self._content, change.path, change.staged)
            else:
                descriptor = open_file(self._base, change.path)
        except OSError:
            return os.fsencode(f"unreadable {change.path!r}")
        try:
            while block := os.read(descriptor, 1 << 20):
                hasher.update(block)
        finally:
            os.close(descriptor)
        return hasher.digest()

    def _with_lines(self, change: Change, rolled: Iterable[bytes]) -> Change:
        """Line counts of text. Files of directories that came or went whole are counted as files only."""
        if change.entry.kind != "file" or change.verb == "renamed" or change.moved_to or "type" in change.flags:
            return change
        if change.verb != "modified" and any(change.path.startswith(top + b"/") for top in rolled):
            return change
        old = self._text(self._base, change.path, change.base)
        new = self._text(self._content, change.path, change.staged)
        if old is None or new is None:
            return change._replace(binary=True)
        if change.verb == "modified":
            counts = count_lines(old, new)
            return change._replace(lines_added=counts.added, lines_removed=counts.removed)
        return change._replace(lines_added=len(split_lines(new)), lines_removed=len(split_lines(old)))

    def _text(self, root: int, path: bytes, entry: Entry | None) -> bytes | None:
        """The content, b"" for no entry, None for what has no lines: binary, too large, unreadable."""
        if entry is None:
            return b""
        try:
            data = read_file(root, path, TEXT_LIMIT)
        except OSError:
            return None
        return None if data is None or is_binary(data) else data


def open_staged(content: int, path: bytes, staged: Entry) -> int:
    """A staged file for reading, even if the command left it without read permission for its owner."""
    try:
        return open_file(content, path)
    except PermissionError:
        os.chmod(path, staged.mode | 0o400, dir_fd=content)
        try:
            return open_file(content, path)
        finally:
            os.chmod(path, staged.mode, dir_fd=content)


def user_xattrs(descriptor: int) -> dict[str, bytes]:
    """The user's xattrs of an open file; the overlay's own bookkeeping is not among them."""
    try:
        names = os.listxattr(descriptor)
    except OSError:
        return {}
    wanted = [name for name in names if name.startswith("user.") and not name.startswith("user.overlay.")]
    return {name: os.getxattr(descriptor, name) for name in wanted}


def _verb(base: Entry | None, staged: Entry | None) -> Verb:
    return "added" if base is None else "deleted" if staged is None else "modified"
