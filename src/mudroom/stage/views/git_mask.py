"""Find the secrets that git already has, and keep the other secrets from git with a layer:
``stage/layers/git_layer.py``, cached.

A secret that git tracks with its present content is not masked: every command can read it with ``git show``. Its
content decides, by hash. git-crypt and LFS keep other content in git, so such files stay masked.

The cache is a file in the vault (marshal). It holds answers, each with the stamps of everything from which it was made,
and file hashes by stamp. A stamp is not relied on if a later change within the same clock tick may leave it unchanged.
"""

from __future__ import annotations

import marshal
import os
import stat
from _blake2 import blake2b
from _thread import get_ident
from collections.abc import Collection, Iterator, Mapping

from mudroom.core.confinement.spec import Copy, Overlay
from mudroom.core.git.blob import blob_ids
from mudroom.core.tree.entry import Entry, same_shape
from mudroom.stage import disk, safe_open
from mudroom.stage.layers.git_layer import GitPlan, Ids, plan_git, write_git_layer
from mudroom.stage.layers.layer import remove_tree
from mudroom.stage.source import OpenSource, Source, is_absence, read_all, same_as, walk
from mudroom.stage.stamp import is_settled
from mudroom.stage.view import RawDifference, View
from mudroom.typing import NamedTuple

HASH_LIMIT = 16 << 20
"""Bytes. A larger file is not hashed, and stays masked."""
_FORMAT = 1
_ANSWERS = 8
"""Answers in the cache: actors may have different policies."""
_OURS = b".%d-%d"
"""Suffix that only this thread uses: agents start side by side."""

_Stamp = tuple[int, ...]
_Answer = tuple[dict[bytes, _Stamp | None], tuple[bytes, ...], bytes, tuple[str, ...]]
"""Identities of the watched paths, known secrets, layer name, notes."""
_Ids = tuple[_Stamp, dict[int, tuple[bytes, ...]]]
"""A file's stamp, and its git ids by length."""


class GitMask(NamedTuple):
    known: frozenset[bytes] = frozenset()
    """Secrets that git has with the same content. They are not masked."""
    layer: bytes = b""
    """Directory of the layer that keeps the other secrets from git; empty if none is needed."""
    notes: tuple[str, ...] = ()


class GitMasks:
    """Owner: ``session/secrets.py``, which calls it with its lock held."""

    def __init__(self, project: bytes, masks: bytes, cache: bytes, source: bytes) -> None:
        """``masks``: the directory with the mask layers. ``cache``: the file that keeps the cache between processes.
        ``source``: the directory with the project's files."""
        self._project, self._masks, self._cache, self._source = project, masks, cache, source
        self._answers: dict[bytes, _Answer] = {}
        self._ids: dict[bytes, _Ids] = {}
        self._is_loaded, self._saved = False, b""

    def look(self, source: OpenSource, secrets: Mapping[bytes, Entry], always: Collection[bytes], now: int) -> GitMask:
        """Return which secrets git has, and the layer for the others. ``source``: the project. ``always``: secrets that
        are masked in any case. ``now``: nanoseconds since 1970, before the entries in ``secrets`` were read."""
        if not secrets:
            return GitMask()
        self._load()
        key = _key(secrets, always)
        answer = self._answers.get(key)
        if answer is not None and all(self._identity(path) == stamp for path, stamp in answer[0].items()):
            layer = self._masks + b"/" + answer[2] if answer[2] else b""
            if not layer or _touch(layer):
                return GitMask(frozenset(answer[1]), layer, answer[3])
        return self._look_anew(source, secrets, always, now, key)

    def _look_anew(
        self, source: OpenSource, secrets: Mapping[bytes, Entry], always: Collection[bytes], now: int, key: bytes
    ) -> GitMask:
        hashers = {path: self._hasher(source, entry, now) for path, entry in secrets.items()}
        plan = plan_git(source, self._project, {path: None if path in always else hashers[path] for path in secrets})
        name = self._make(source, plan)
        times = [stamp[-1] for stamp in plan.watched.values() if stamp is not None and len(stamp) > 2]
        times += [entry.ctime for entry in secrets.values()]
        if all(is_settled(ctime, now) for ctime in times):
            self._answers.pop(key, None)
            self._answers[key] = dict(plan.watched), plan.known, name, plan.notes
            while len(self._answers) > _ANSWERS:
                del self._answers[next(iter(self._answers))]
        self._ids = {path: row for path, row in self._ids.items() if path in secrets}
        self._save()
        return GitMask(frozenset(plan.known), self._masks + b"/" + name if name else b"", plan.notes)

    def _hasher(self, source: OpenSource, entry: Entry, now: int) -> Ids:
        stamp = _stamp(entry)

        def ids(path: bytes, length: int) -> tuple[bytes, ...]:
            known = self._ids.get(path)
            if known is not None and known[0] == stamp and length in known[1]:
                return known[1][length]
            data = _content(source, path) if entry.size <= HASH_LIMIT else None
            if data is None:
                return ()

            result = blob_ids(data, length)
            if is_settled(entry.ctime, now):
                self._ids[path] = stamp, {length: result}
            return result

        return ids

    def _make(self, source: OpenSource, plan: GitPlan) -> bytes:
        """Create the layer if it does not exist, and return its name; empty if no files are needed."""
        if not plan.files:
            return b""
        name = b"git-" + _digest((plan.directories, plan.files))
        layer = self._masks + b"/" + name
        if not _touch(layer):
            os.makedirs(self._masks, mode=0o700, exist_ok=True)
            _write(layer, source, plan)
        return name

    # --- the cache ---

    def _identity(self, path: bytes) -> _Stamp | None:
        """Return a project path's identity, as ``git_layer.py`` records it."""
        try:
            info = os.stat(self._source + b"/" + path, follow_symlinks=False)
        except OSError:
            return None
        times = () if stat.S_ISDIR(info.st_mode) else (info.st_mtime_ns, info.st_ctime_ns)
        return (info.st_dev, info.st_ino, *times)

    def _load(self) -> None:
        if self._is_loaded:
            return
        self._is_loaded = True
        try:
            with open(self._cache, "rb") as stream:
                form, answers, ids = marshal.loads(stream.read())
            if form == _FORMAT:
                self._answers, self._ids = answers, ids
        except (FileNotFoundError, EOFError, ValueError, TypeError):
            pass  # missing, or written by another Python version: it is only a cache

    def _save(self) -> None:
        data = marshal.dumps((_FORMAT, self._answers, self._ids))
        if data == self._saved:
            return
        beside = self._cache + _OURS % (os.getpid(), get_ident()) + b".new"
        safe_open.replace(self._cache, data, beside, durable=False)
        self._saved = data


def snapshot_layer(place: bytes, project: bytes, paths: Collection[bytes]) -> bytes:
    """Return the layer that hides these masked files, and those that the snapshot at ``place`` left out, from git in
    its forks; empty if there are none. It is created when first needed, from the snapshot's own index."""
    try:
        with open(place + b"/masked", "rb") as stream:
            left_out = stream.read().split(b"\0")
    except FileNotFoundError:
        left_out = []
    masked = sorted({*paths, *left_out})
    if not masked:
        return b""
    layer = place + b"/git-" + _digest(masked)
    if not os.path.isdir(layer):
        with OpenSource(place + b"/source") as source:
            _write(layer, source, plan_git(source, project, dict.fromkeys(masked)))
    return layer


def _write(layer: bytes, source: OpenSource, plan: GitPlan) -> None:
    beside = layer + _OURS % (os.getpid(), get_ident())
    try:
        write_git_layer(beside, source, plan)
        disk.rename_path(beside, layer)
    except OSError:
        remove_tree(beside)
        if not os.path.isdir(layer):  # else another process was faster
            raise


class ApartFromGitLayer:
    """A view that reports differences as if the git layer did not exist: a path in the layer is compared with the base,
    and a file that equals the layer's is not a difference. Used within one call."""

    def __init__(self, view: View, layer: bytes, base: Source, staged: Source) -> None:
        self._view, self._base, self._staged = view, base, staged
        self._layer = layer
        self.kind = view.kind

    @property
    def staged(self) -> tuple[bytes, ...]:
        return self._view.staged

    def prepare(self) -> None:
        self._view.prepare()

    def mount(self) -> Overlay | Copy:
        return self._view.mount()

    def differences(self, lower: Source) -> Iterator[RawDifference]:
        with OpenSource(self._layer, is_layer=True) as layer:
            given = dict(walk(layer))
            for difference in self._view.differences(lower):
                path, entry = difference.path, difference.staged
                if path not in given or difference.hides or difference.too_deep:
                    yield difference
                elif entry is None or not self._is_same(layer, path, given[path], entry):
                    yield RawDifference(path, self._base.look(path), entry)

    def _is_same(self, layer: Source, path: bytes, given: Entry, entry: Entry) -> bool:
        if given.kind != "file" or not same_shape(given, entry) or given.size != entry.size:
            return False
        return same_as(layer.open(path), self._staged, path)


def _key(secrets: Mapping[bytes, Entry], always: Collection[bytes]) -> bytes:
    rows = [(path, _stamp(entry), path in always) for path, entry in sorted(secrets.items())]
    return _digest(rows)


def _digest(value: object) -> bytes:
    return blake2b(repr(value).encode(), digest_size=12).hexdigest().encode()


def _stamp(entry: Entry) -> _Stamp:
    return entry.device, entry.inode, entry.size, entry.mtime, entry.ctime


def _content(source: OpenSource, path: bytes) -> bytes | None:
    try:
        return read_all(source, path, HASH_LIMIT)
    except OSError as error:
        if isinstance(error, PermissionError) or is_absence(error):
            return None
        raise


def _touch(layer: bytes) -> bool:
    """Mark a layer as used now (``vault/retention``). Return whether it exists."""
    try:
        os.utime(layer)
    except FileNotFoundError:
        return False
    return True
