"""A fork's refs on two sides: at present, and when the fork began.

Only refs whose files the fork changed are read, so a repository may have any number. Everything is read as data;
format: gitrepository-layout(5).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from dulwich.refs import Ref, check_ref_format

from mudroom.core.git.repository_state import parse_packed_refs
from mudroom.core.tree.change import Change
from mudroom.core.tree.path import show
from mudroom.ext.commits.core.ref_plan import HEAD, STASH
from mudroom.ext.commits.git.check import is_id
from mudroom.ext.commits.git.read import read_small, refusal
from mudroom.stage.originals.ground import Ground
from mudroom.stage.source import Source, is_absence
from mudroom.typing import NamedTuple, Protocol

_REF_LIMIT = 4096
_PACKED_REFS_LIMIT = 64 << 20
_LOG_LIMIT = 4 << 20
_SYMBOLIC_LIMIT = 5  # refs.h, SYMREF_MAXDEPTH
_MOST_REFS = 200_000
_PART_LIMIT = 250


class UnknownOriginal(Exception):
    """The original file is no longer known."""


class SideFiles(Protocol):
    def read(self, path: bytes, limit: int) -> bytes | None:
        """Return a file's content, or None if absent. Raise UsageError if it is not a regular file or is too large,
        UnknownOriginal if it is not known."""

    def is_kept(self, path: bytes) -> bool:
        """Return whether the file is read in its original state even if the project has changed it since."""


class ForkFiles:
    """A fork's files as its commands see them."""

    def __init__(self, view: Source) -> None:
        self._view = view

    def read(self, path: bytes, limit: int) -> bytes | None:
        entry = self._view.look(path)
        return None if entry is None or entry.kind == "directory" else read_small(self._view, path, limit)

    def is_kept(self, path: bytes) -> bool:
        return self._view.look(path) is not None


class OriginalFiles:
    """Files as they were when the fork began: originals for changed files, the base for all others."""

    def __init__(self, ground: Ground, changes: Mapping[bytes, Change]) -> None:
        self._ground, self._changes = ground, changes

    def read(self, path: bytes, limit: int) -> bytes | None:
        change = self._changes.get(path)
        if change is None:
            kept = self._ground.originals.get(path)  # vault/forks/repository_pin.py
            if kept is not None and kept.entry is not None:
                return self._ground.read_original(path, kept.entry, limit)
            return self._read_base(path, limit)
        if change.base is None or change.base.kind == "directory":
            return None
        content = self._ground.read_original(path, change.base, limit) if change.original_known else None
        if content is None:
            raise UnknownOriginal(path)
        return content

    def is_kept(self, path: bytes) -> bool:
        change, kept = self._changes.get(path), self._ground.originals.get(path)
        if change is not None:
            return change.original_known
        return self._ground.frozen or self._ground.is_private(path) or (kept is not None and kept.entry is not None)

    def _read_base(self, path: bytes, limit: int) -> bytes | None:
        try:
            descriptor = self._ground.base.open(path)
        except OSError as error:
            if is_absence(error) or isinstance(error, IsADirectoryError):
                return None
            raise
        with os.fdopen(descriptor, "rb") as stream:
            return stream.read(limit)


class SideRefs:
    """The refs on one side. ``git``: the directory with HEAD. ``common``: the directory with the branches."""

    def __init__(self, files: SideFiles, git: bytes, common: bytes, id_length: int) -> None:
        self._files, self._git, self._common, self._id_length = files, git, common, id_length
        self._packed: dict[bytes, bytes] | None = None

    def packed(self) -> dict[bytes, bytes]:
        """Return the packed refs by name. Raise UnknownOriginal."""
        if self._packed is None:
            data = self._files.read(self._common + b"/packed-refs", _PACKED_REFS_LIMIT) or b""
            self._packed = parse_packed_refs(data)
        return self._packed

    def value(self, name: bytes) -> bytes:
        """Return the object id for a ref, or b"". Raise UnknownOriginal, UsageError."""
        for _step in range(_SYMBOLIC_LIMIT):
            content = self._files.read(self._path(name), _REF_LIMIT)
            text = content.strip() if content is not None else b"" if name == HEAD else self.packed().get(name, b"")
            if not text:
                return b""
            if not text.startswith(b"ref:"):
                if not is_id(text) or len(text) != self._id_length:
                    raise refusal(f"{show(name)} does not name an object")
                return text
            name = text[4:].strip()
        raise refusal(f"{show(name)} leads in a circle, or too far")

    def head(self) -> bytes:
        """Return HEAD's branch or object id, or b"". Raise UnknownOriginal."""
        text = (self._files.read(self._git + b"/HEAD", _REF_LIMIT) or b"").strip()
        return text[4:].strip() if text.startswith(b"ref:") else text

    def kept_commit(self) -> bytes | None:
        """Return the commit at HEAD, b"" if there is none, or None if it is not kept. It comes from the branch, or else
        from HEAD's last log entry."""
        try:
            head = self.head()
            if not head.startswith(b"refs/") or self._files.is_kept(self._path(head)):
                return self.value(HEAD)
            # a branch that the fork has left follows the project; the log was kept when the fork left it
            log = self._git + b"/logs/" + HEAD
            rows = self._log(log) if self._files.is_kept(log) else []
            return rows[-1][0] if rows else None
        except UnknownOriginal:
            return None

    def stashes(self) -> list[tuple[bytes, bytes]]:
        """Return the stashes with their messages, oldest first: the log for refs/stash."""
        return self._log(self._common + b"/logs/" + STASH)

    def _log(self, path: bytes) -> list[tuple[bytes, bytes]]:
        """Return a log's new values and messages, oldest first."""
        data = self._files.read(path, _LOG_LIMIT) or b""
        rows = []
        for line in data.split(b"\n"):
            ids, _tab, message = line.partition(b"\t")
            words = ids.split(b" ")
            if len(words) > 2 and is_id(words[1]) and len(words[1]) == self._id_length:
                rows.append((words[1], message))
        return rows

    def _path(self, name: bytes) -> bytes:
        require_ref_name(name)
        return (self._git if name == HEAD else self._common) + b"/" + name


def require_ref_name(name: bytes) -> None:
    """Raise UsageError unless ``name`` is HEAD or a well-formed full ref name."""
    is_long = any(len(part) > _PART_LIMIT for part in name.split(b"/"))
    if name != HEAD and (not name.startswith(b"refs/") or not check_ref_format(Ref(name)) or is_long):
        raise refusal(f"{show(name[:80])} is not the name of a ref")


class ChangedRefs(NamedTuple):
    names: tuple[bytes, ...]
    """Refs whose files differ: their values may be equal."""
    head: bool
    stash: bool


def changed_refs(changes: Iterable[Change], git: bytes, common: bytes, base: SideRefs, fork: SideRefs) -> ChangedRefs:
    """Return the refs that the fork may have changed. ``git``, ``common``: the repository's directories in the fork."""
    names: set[bytes] = set()
    head, repacked = False, False
    for change in changes:
        path = change.path
        head |= path == git + b"/HEAD"
        repacked |= path == common + b"/packed-refs"
        if path.startswith(common + b"/refs/") and _is_file(change) and not path.endswith(b".lock"):
            names.add(path[len(common) + 1 :])
    if repacked:
        try:
            names |= {name for name, _value in base.packed().items() ^ fork.packed().items()}
        except UnknownOriginal:
            names |= fork.packed().keys()
    if len(names) > _MOST_REFS:
        raise refusal(f"it has more than {_MOST_REFS:,} new refs", "")
    valid = {name for name in names if name.startswith(b"refs/") and check_ref_format(Ref(name))}
    for name in names - valid:
        raise refusal(f"{show(name[:80])} is not the name of a ref")
    return ChangedRefs(tuple(sorted(valid)), head, STASH in valid)


def _is_file(change: Change) -> bool:
    return any(entry is not None and entry.kind != "directory" for entry in (change.base, change.staged))
