"""Find a project's secrets, and make the layer that shows them empty.

Every directory of the project is listed once; later only those whose mtime has changed. The index is stored in the
vault (``secrets``) and is only a cache. The mask is a layer between the base and the fork's layers: an empty file for
each secret, so that mounts, copies and file tools show the same.
"""

from __future__ import annotations

import marshal
import os
from _blake2 import blake2b
from _thread import get_ident
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from mudroom.core.tree.entry import Entry
from mudroom.core.tree.secret import ELSEWHERE, is_secret, matches
from mudroom.stage.beneath import open_root
from mudroom.stage.layers.layer import LayerWriter, remove_tree
from mudroom.stage.source import OpenSource
from mudroom.stage.stamp import is_settled

DIRECTORIES = 50_000
"""The maximum number of directories visited; in a larger project, secrets are assumed to lie near the top."""
_QUICK = 0.0005
"""Seconds. A search that takes less is repeated every time."""
_OURS = b".%d-%d"
"""Suffix of a name that only this thread uses: agents start side by side."""

_Index = dict[bytes, tuple[int, tuple[bytes, ...], tuple[bytes, ...]]]
"""Per directory: its mtime, the secrets in it, the directories in it."""


class Mask(NamedTuple):
    paths: frozenset[bytes] = frozenset()
    """The files that are shown empty."""
    layer: bytes = b""
    """The directory of the mask layer; empty if there are no secrets."""
    git: bytes = b""
    """The directory of the layer that keeps masked files from git (``git_mask.py``); empty if there is no need."""
    known: frozenset[bytes] = frozenset()
    """Files with names of secrets that are shown, because git has them. An older command may have seen them empty."""
    complete: bool = True
    """False if the project has more directories than were visited."""


NO_MASK = Mask()


class Finder:
    """Finds secrets, with a cache. ``index``: the file that keeps the cache between processes. ``clock``: seconds.

    Where the search takes long (10,000 directories: 20 ms), it is not repeated at once: a new secret in the project is
    masked after a second, or twenty times the duration of the search.

    Its owner (``session/secrets.py``) calls it with its lock held.
    """

    def __init__(self, project: bytes, index: bytes, clock: Callable[[], float]) -> None:
        self._project, self._index, self._clock = project, index, clock
        self._known: _Index | None = None
        self._last: tuple[tuple[Sequence[bytes], Sequence[bytes]], tuple[list[bytes], bool]] | None = None
        self._until = 0.0

    def find(self, mask: Sequence[bytes], show: Sequence[bytes]) -> tuple[list[bytes], bool]:
        """Return the secrets of the project, sorted, and whether all directories were visited. ``mask``: more patterns
        of names; ``show``: paths and patterns to leave out."""
        began = self._clock()
        if self._last is not None and self._last[0] == (mask, show) and began < self._until:
            return self._last[1]
        result = self._find(mask, show)
        took = self._clock() - began
        self._last = (mask, show), result
        self._until = 0.0 if took < _QUICK else began + max(1.0, 20 * took)
        return result

    def _find(self, mask: Sequence[bytes], show: Sequence[bytes]) -> tuple[list[bytes], bool]:
        import time

        began, known = time.time_ns(), self._load()
        secrets: list[bytes] = []
        rows: _Index = {}
        pending = [b""]
        while pending and len(rows) < DIRECTORIES:
            path = pending.pop()
            row = self._row(path, known.get(path), mask)
            if row is None:
                continue
            rows[path] = row
            prefix = path + b"/" if path else b""
            secrets += [prefix + name for name in row[1]]
            pending += [prefix + name for name in row[2]]
        if rows != known:
            self._save(rows, began)
        return sorted(path for path in secrets if not matches(path, show)), not pending

    def _row(
        self, path: bytes, known: tuple[int, tuple[bytes, ...], tuple[bytes, ...]] | None, mask: Sequence[bytes]
    ) -> tuple[int, tuple[bytes, ...], tuple[bytes, ...]] | None:
        full = self._project + b"/" + path if path else self._project
        prefix = path + b"/" if path else b""
        try:
            info = os.lstat(full)
            # rsync -a and tar set the mtime of a directory back; on Windows the ctime is the time of its creation
            changed = info.st_ctime_ns if os.name == "posix" else info.st_mtime_ns
            if known is not None and known[0] == changed and not mask:
                return known
            with os.scandir(full) as scan:
                secrets, below = [], []
                for item in scan:
                    name = os.fsencode(item.name)
                    if item.is_dir(follow_symlinks=False):
                        if name not in ELSEWHERE:
                            below.append(name)
                    elif (is_secret(name) or matches(prefix + name, mask)) and item.is_file(follow_symlinks=False):
                        secrets.append(name)
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            return None  # deleted, or unreadable for us and so for every command that we run
        return changed, tuple(sorted(secrets)), tuple(sorted(below))

    def _load(self) -> _Index:
        if self._known is None:
            self._known = {}
            try:
                with open(self._index, "rb") as stream:
                    self._known = marshal.loads(stream.read())
            except (FileNotFoundError, EOFError, ValueError, TypeError):
                pass  # missing, or written by another version of Python: it is only a cache
        return self._known

    def _save(self, known: _Index, began: int) -> None:
        """Save the rows, except of directories that changed just before the search began: their next change may have
        the same time."""
        self._known = {path: row for path, row in known.items() if is_settled(row[0], began)}
        beside = self._index + _OURS % (os.getpid(), get_ident()) + b".new"
        write_beside(beside, marshal.dumps(self._known), self._index)


def write_beside(beside: bytes, data: bytes, path: bytes) -> None:
    """Replace the file at ``path``, by a file at ``beside`` that only the caller uses."""
    try:
        with open(beside, "wb") as stream:
            stream.write(data)
        os.rename(beside, path)
    except BaseException:
        os.unlink(beside)
        raise


def files_at(source: OpenSource, paths: Sequence[bytes]) -> dict[bytes, Entry]:
    """Return the entries of those paths that are regular files now."""
    entries = ((path, source.look(path)) for path in paths)
    return {path: entry for path, entry in entries if entry is not None and entry.kind == "file"}


def make_mask(source: OpenSource, masks: bytes, secrets: Mapping[bytes, Entry], complete: bool) -> Mask:
    """Return the mask for these files; create its layer below the directory ``masks`` if it does not exist."""
    if not secrets:
        return NO_MASK._replace(complete=complete)
    shown = [(path, entry.mode) for path, entry in secrets.items()]
    name = blake2b(repr(shown).encode(), digest_size=12).hexdigest().encode()
    layer = masks + b"/" + name
    if not os.path.isdir(layer):
        os.makedirs(masks, mode=0o700, exist_ok=True)
        beside = layer + _OURS % (os.getpid(), get_ident())
        os.mkdir(beside, 0o700)
        _write(beside, source, shown)
        try:
            os.rename(beside, layer)
        except OSError:
            remove_tree(beside)  # another process was faster
    return Mask(frozenset(secrets), layer, complete=complete)


def _write(layer: bytes, source: OpenSource, shown: Sequence[tuple[bytes, int]]) -> None:
    root = open_root(layer)
    try:
        writer = LayerWriter(root, source)
        for path, mode in shown:
            writer.data(path, b"", mode=mode)
        writer.finish()
        top = source.look(b"")
        os.chmod(b".", top.mode if top is not None else 0o755, dir_fd=root)
    finally:
        os.close(root)
