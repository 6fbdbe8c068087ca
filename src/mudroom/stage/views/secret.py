"""Where a project's secrets are, and the layer that shows them empty.

Every directory of the project is listed once; afterwards only those whose time has changed. What is known is kept in
the vault (``secrets``), a cache and nothing else. The mask is a layer between the base and all that a fork changes: an
empty file for each secret, so that mounts, copies and file tools show the same.
"""

from __future__ import annotations

import marshal
import os
from _blake2 import blake2b
from _thread import get_ident
from collections.abc import Callable, Sequence
from typing import NamedTuple

from mudroom.core.tree.secret import ELSEWHERE, is_secret, matches
from mudroom.stage.beneath import open_root
from mudroom.stage.layers.layer import LayerWriter, remove_tree
from mudroom.stage.source import OpenSource
from mudroom.stage.stamp import is_settled

DIRECTORIES = 50_000
"""So many are looked at; a project with more has its secrets near the top."""
_QUICK = 0.0005
"""Seconds. Looking that takes no longer is done every time."""
_OURS = b".%d-%d"
"""Of a name that is this thread's alone: agents start side by side."""

_Known = dict[bytes, tuple[int, tuple[bytes, ...], tuple[bytes, ...]]]
"""Per directory: its time, the secrets in it, the directories in it."""


class Mask(NamedTuple):
    paths: frozenset[bytes] = frozenset()
    layer: bytes = b""
    """The directory of the mask layer; empty if there is nothing to mask."""
    complete: bool = True
    """False if the project has more directories than are looked at."""


NO_MASK = Mask()


class Finder:
    """Keeps what it knows between calls. ``index``: the file that keeps it between processes. ``clock``: seconds.

    Where looking takes long (10,000 directories: 20 ms), it is not done again at once: what is new in the project is
    masked after a second, or twenty times as long as looking takes.
    """

    def __init__(self, project: bytes, index: bytes, clock: Callable[[], float]) -> None:
        self._project, self._index, self._clock = project, index, clock
        self._known: _Known | None = None
        self._last: tuple[tuple[Sequence[bytes], Sequence[bytes]], tuple[list[bytes], bool]] | None = None
        self._until = 0.0

    def find(self, mask: Sequence[bytes], show: Sequence[bytes]) -> tuple[list[bytes], bool]:
        """The secrets of the project, sorted, and whether all of it was looked at. ``mask``: more patterns of names;
        ``show``: paths and patterns that are none."""
        began = self._clock()
        if self._last is not None and self._last[0] == (mask, show) and began < self._until:
            return self._last[1]
        found = self._find(mask, show)
        took = self._clock() - began
        self._last = (mask, show), found
        self._until = 0.0 if took < _QUICK else began + max(1.0, 20 * took)
        return found

    def _find(self, mask: Sequence[bytes], show: Sequence[bytes]) -> tuple[list[bytes], bool]:
        import time

        began, known = time.time_ns(), self._load()
        found: list[bytes] = []
        now: _Known = {}
        pending = [b""]
        while pending and len(now) < DIRECTORIES:
            path = pending.pop()
            row = self._row(path, known.get(path), mask)
            if row is None:
                continue
            now[path] = row
            prefix = path + b"/" if path else b""
            found += [prefix + name for name in row[1]]
            pending += [prefix + name for name in row[2]]
        if now != known:
            self._save(now, began)
        return sorted(path for path in found if not matches(path, show)), not pending

    def _row(
        self, path: bytes, known: tuple[int, tuple[bytes, ...], tuple[bytes, ...]] | None, mask: Sequence[bytes]
    ) -> tuple[int, tuple[bytes, ...], tuple[bytes, ...]] | None:
        full = self._project + b"/" + path if path else self._project
        try:
            changed = os.lstat(full).st_mtime_ns
            if known is not None and known[0] == changed and not mask:
                return known
            with os.scandir(full) as scan:
                secrets, below = [], []
                for item in scan:
                    name = os.fsencode(item.name)
                    if item.is_dir(follow_symlinks=False):
                        if name not in ELSEWHERE:
                            below.append(name)
                    elif (is_secret(name) or matches(name, mask)) and item.is_file(follow_symlinks=False):
                        secrets.append(name)
        except (FileNotFoundError, NotADirectoryError, PermissionError):
            return None  # gone, or kept from us, and so from every command of ours
        return changed, tuple(sorted(secrets)), tuple(sorted(below))

    def _load(self) -> _Known:
        if self._known is None:
            self._known = {}
            try:
                with open(self._index, "rb") as stream:
                    self._known = marshal.loads(stream.read())
            except (FileNotFoundError, EOFError, ValueError, TypeError):
                pass  # not there, or written by another version of Python: it is only a cache
        return self._known

    def _save(self, known: _Known, began: int) -> None:
        """Not what had been changed just before the first was listed: the next change may have the same time."""
        self._known = {path: row for path, row in known.items() if is_settled(row[0], began)}
        beside = self._index + _OURS % (os.getpid(), get_ident()) + b".new"
        with open(beside, "wb") as stream:
            stream.write(marshal.dumps(self._known))
        os.rename(beside, self._index)


def make_mask(project: bytes, masks: bytes, paths: Sequence[bytes], complete: bool) -> Mask:
    """The mask layer for these paths, made if there is none yet below the directory ``masks``."""
    if not paths:
        return NO_MASK._replace(complete=complete)
    with OpenSource(project) as source:
        entries = [(path, source.look(path)) for path in paths]
        shown = [(path, entry.mode) for path, entry in entries if entry is not None and entry.kind == "file"]
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
    return Mask(frozenset(path for path, _mode in shown), layer, complete)


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
