"""A project's base: the files that may be sent to another machine, as a Merkle manifest.

Never in a base:
1. Secrets' content. A secret (``core/tree/secret.py``, ``secrets.mask`` in the policy) is empty there and its path is
   in ``masked``, unless ``secrets.show`` names it. The same holds for every other name of its inode. Files that git has
   already are masked, too: a project's history is not sent, so nothing there shows them. Names are judged as they are
   listed, not by an index.
2. ``.git``, unless it is asked for. Then the files that a repository's own commands need are sent, without hooks,
   settings, logs and URLs (``_GIT``).
3. ``.mudroom/local``, set-id and sticky bits, FIFOs, sockets, devices, other file systems, and the paths that
   ``copy.exclude``, caches and ``copy.limit`` leave out of a copy (``stage/exclude.py``).

A symbolic link is sent as it is and never followed here. One that is absolute or leads out of the project leads a
command on the worker to what its view has there, as at home; mudroom itself follows none there either.

The project may be edited meanwhile, also by somebody who wants a secret to be sent. Every file is opened by descriptor
below the project without following a link. Its digest is taken between two equal stamps. When it is sent, later, it
must still have that stamp or digest (``ScannedObjects``).
"""

from __future__ import annotations

import os
import time
from _blake2 import blake2b
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec

from mudroom.core.settings import Settings
from mudroom.core.system.closing import Closing, Descriptor
from mudroom.core.tree.entry import Entry, from_stat, is_untouched
from mudroom.core.tree.path import parent, show
from mudroom.core.tree.pattern import matches
from mudroom.core.tree.secret import LIMIT, Test, holds, sent_test
from mudroom.errors import MudroomError
from mudroom.ext.fleet.base.manifest import (
    DEEPEST,
    DIRECTORY,
    EMPTY,
    FILE,
    SYMLINK,
    Row,
    digest_of_content,
    digest_of_node,
    encode_node,
)
from mudroom.ext.fleet.wire.message import DIGEST, Base
from mudroom.stage import safe_open
from mudroom.stage.beneath import LastDirectory
from mudroom.stage.copy import listed
from mudroom.stage.exclude import choose, never_copied
from mudroom.stage.source import OpenSource, is_absence, is_secret, read_all
from mudroom.stage.stamp import is_settled

_FORMAT = 1
_Stamp = tuple[int, int, int, int, int]
_Rows = dict[bytes, tuple[_Stamp, bytes]]
_decoder = msgspec.msgpack.Decoder(tuple[int, dict[bytes, _Rows]])


def _stamp(entry: Entry) -> _Stamp:
    return entry.size, entry.mtime, entry.ctime, entry.inode, entry.device


class DigestCache:
    """Digests of a project's files by stat stamp, kept in the vault: an unchanged file is not read again.

    An entry is written only if any later write is certain to give the file another ctime (``stage/stamp.py``), and
    believed only if size, mtime, ctime, inode and device are the same. The file is a cache: a damaged one is an empty
    one. One thread uses it. ``save`` forgets the digests of files that were not asked for since it was loaded.
    """

    def __init__(self, path: bytes, now: int) -> None:
        """``now``: the time at which the scan begins, in nanoseconds."""
        self._path, self._now = path, now
        self._known = _load(path)
        self._rows: dict[bytes, _Rows] = {}
        self._is_new = False

    def get(self, directory: bytes, name: bytes, entry: Entry) -> bytes | None:
        """Return the digest of the file's content; None if the file has to be read."""
        row = self._known.get(directory, {}).get(name)
        if row is None or row[0] != _stamp(entry):
            return None
        self._rows.setdefault(directory, {})[name] = row
        return row[1]

    def put(self, directory: bytes, name: bytes, entry: Entry, digest: bytes) -> None:
        """``entry``: before and after the file was read."""
        if is_settled(entry.ctime, self._now):
            self._rows.setdefault(directory, {})[name] = _stamp(entry), digest
            self._is_new = True

    def save(self) -> None:
        """Replace the cache in the vault, if it has changed. A full disk is no error: the files are read again."""
        if not self._is_new and _count(self._rows) == _count(self._known):
            return
        beside = b"%s.%s.new" % (self._path, os.urandom(4).hex().encode())
        try:
            safe_open.replace(self._path, msgspec.msgpack.encode((_FORMAT, self._rows)), beside, durable=False)
        except OSError:
            return


def _count(rows: dict[bytes, _Rows]) -> int:
    return sum(map(len, rows.values()))


def _load(path: bytes) -> dict[bytes, _Rows]:
    try:
        with open(path, "rb") as stream:
            written, rows = _decoder.decode(stream.read())
    except (FileNotFoundError, msgspec.DecodeError, msgspec.ValidationError):
        return {}
    return rows if written == _FORMAT else {}


_MOST_LINKS = 40
"""As in path_resolution(7)."""
_STRICTER: tuple[Test, ...] = ("content", "key", "name")
_TRIES = 3
"""Attempts to read a file that changes meanwhile."""
_BLOCK = _IGNORE_LIMIT = 1 << 20
_GIT = frozenset(
    b"HEAD ORIG_HEAD MERGE_HEAD CHERRY_PICK_HEAD REVERT_HEAD REBASE_HEAD index packed-refs refs objects shallow "
    b"info".split()
)
"""Entries in ``.git`` that are sent (gitrepository-layout(5))."""


class BaseChanged(MudroomError):
    """A project file has changed since the base was made. Scan again."""

    def __init__(self, path: bytes) -> None:
        self.path = path
        super().__init__(f"{show(path)} was changed while it was being sent", "run the command again")


class ScannedFile(NamedTuple):
    path: bytes
    entry: Entry


class Scanned(NamedTuple):
    base: Base
    nodes: Mapping[bytes, bytes]
    """Nodes by digest."""
    files: Mapping[bytes, ScannedFile]
    """By content digest: the first file that has it. The empty file is not there."""
    entries: int
    size: int
    """Bytes in all files."""
    notes: tuple[str, ...]
    """What was masked and left out, for the user."""


def scan(project: bytes, settings: Settings, *, home: bytes, umask: int, cache: bytes, git: bool = False) -> Scanned:
    """Return the project's base. ``cache``: file in the vault that keeps digests. ``git``: send ``.git``.

    Raise MudroomError if a file changes all the time or a directory lies too deep, OSError if a file cannot be read.
    """
    began = time.time_ns()
    with OpenSource(project) as source:
        items, excluded, notes = _choose(source, settings, git=git)
        reader = _Reader(source, project, settings, DigestCache(cache, began))
        with reader.directory:
            nodes, root, size = reader.read(items)
        reader.cache.save()
    masked = tuple(sorted(reader.masked))
    base = Base(root, project, home, masked, tuple(sorted({*excluded, *reader.unreadable})), umask)
    return Scanned(
        base, nodes, reader.files, len(items), size, (*notes, *_notes(masked, tuple(sorted(reader.unreadable))))
    )


def _choose(source: OpenSource, settings: Settings, *, git: bool) -> tuple[dict[bytes, Entry], list[bytes], list[str]]:
    """Return the entries that may be in the base, the paths that are not, and notes."""
    is_out = never_copied(settings.copy_exclude)
    excluded: list[bytes] = []
    root = source.look(b"")
    device = root.device if root is not None else 0

    def leave_out(path: bytes, entry: Entry) -> bool:
        if not _may_be_sent(path, entry, git=git):
            return True
        if entry.device != device or is_out(path, entry):
            excluded.append(path)
            return True
        if path.count(b"/") >= DEEPEST - 1:
            raise MudroomError(
                f"{show(path[:60])}… lies below more than {DEEPEST} directories: such a tree cannot be sent",
                "leave it out: copy.exclude in the policy",
            )
        return False

    every = listed(source, leave_out)

    def read(path: bytes) -> bytes | None:
        return read_all(source, path, _IGNORE_LIMIT)

    items, notes = choose(every, read, limit=settings.copy_limit, gitignore=settings.copy_gitignore)
    if len(items) != len(every):
        excluded += _tops(every, items)
    return items, excluded, [note.replace("the copy", "the base") for note in notes]


def _tops(every: Mapping[bytes, Entry], items: Mapping[bytes, Entry]) -> list[bytes]:
    return [path for path in every if path not in items and (parent(path) in items or not parent(path))]


def _may_be_sent(path: bytes, entry: Entry, *, git: bool) -> bool:
    if entry.kind not in ("file", "directory", "symlink") or path == b".mudroom/local":
        return False
    if b".git" not in path:
        return True
    parts = path.split(b"/")
    for index, part in enumerate(parts):
        if part == b".git":
            return git and _is_sent_of_git(parts[index + 1 :], entry)
    return True


def _is_sent_of_git(parts: list[bytes], entry: Entry) -> bool:
    """Return whether an entry in ``.git`` is sent. Submodules have their repositories in ``modules``, by names that may
    have slashes."""
    while parts[:1] == [b"modules"]:
        names = [index for index, part in enumerate(parts) if index and part in _GIT]
        if not names:
            return entry.kind == "directory"
        parts = parts[names[0] :]
    return not parts or parts[0] in _GIT


class _Reader:
    """Makes one scan's nodes. The owner of ``directory`` closes it."""

    def __init__(self, source: OpenSource, project: bytes, settings: Settings, cache: DigestCache) -> None:
        self.directory = LastDirectory(source.root)
        self.cache = cache
        self.files: dict[bytes, ScannedFile] = {}
        self.masked: set[bytes] = set()
        self.unreadable: set[bytes] = set()
        self._source, self._project, self._settings = source, project, settings
        self._tests: dict[bytes, Test] = {}
        """The files that may be secrets."""
        self._secret_inodes: set[tuple[int, int]] = set()

    def read(self, items: Mapping[bytes, Entry]) -> tuple[dict[bytes, bytes], bytes, int]:
        """Return the nodes, the root's digest, and the bytes in all files."""
        rows: dict[bytes, list[Row]] = {b"": []}
        self._secret_inodes = self._mask_names(items)
        size = 0
        for path, entry in items.items():
            above, _slash, name = path.rpartition(b"/")
            if entry.kind == "directory":
                rows[path] = []
            elif entry.kind == "symlink":
                rows[above].append(Row(name, SYMLINK, 0, 0, 0, entry.target))
            else:
                row = self._file(above, name, path, entry)
                if row is not None:
                    rows[above].append(row)
                    size += row.size
        nodes: dict[bytes, bytes] = {}
        root = b""
        for path in reversed(rows):  # a directory is listed before those in it
            node = encode_node(rows[path])
            digest = digest_of_node(node)
            nodes[digest] = node
            if path:
                above, _slash, name = path.rpartition(b"/")
                rows[above].append(Row(name, DIRECTORY, items[path].mode & 0o777, 0, 0, digest))
            else:
                root = digest
        return nodes, root, size

    def _mask_names(self, items: Mapping[bytes, Entry]) -> set[tuple[int, int]]:
        """Mask the secrets that need not be read for that, and note the other files' tests. Return the secrets' inodes:
        they may have other names, also later."""
        inodes = set()
        for path, entry in items.items():
            test = self._test(path) if entry.kind in ("file", "symlink") else ""
            if test and entry.kind == "symlink":
                path, entry = _end(path, items, self._project)
            if test and entry.kind == "file":
                self._tests[path] = max(test, self._tests.get(path, test), key=_STRICTER.index)
        for path, test in self._tests.items():
            if test == "name" or (items[path].links > 1 and is_secret(self._source, path, test)):
                self.masked.add(path)
                inodes.add((items[path].device, items[path].inode))
        return inodes

    def _test(self, path: bytes) -> Test:
        if matches(path, self._settings.secrets_show):
            return ""
        if matches(path, self._settings.secrets_mask):
            return "name"
        return sent_test(path)

    def _file(self, above: bytes, name: bytes, path: bytes, entry: Entry) -> Row | None:
        if (entry.device, entry.inode) in self._secret_inodes:
            return self._masked(name, path, entry)
        test, digest = self._tests.get(path, ""), None
        if not test:  # others are read each time: the cache does not know what was found in them
            digest = self.cache.get(above, name, entry)
        if digest is None:
            try:
                found = self._digest(path, entry, test)
            except PermissionError:
                self.unreadable.add(path)
                return None
            if found is None:
                return None
            entry, digest, is_one = found
            if is_one:
                return self._masked(name, path, entry)
            self.cache.put(above, name, entry, digest)
        if digest != EMPTY:
            self.files.setdefault(digest, ScannedFile(path, entry))
        return Row(name, FILE, entry.mode & 0o777, entry.mtime, entry.size, digest)

    def _masked(self, name: bytes, path: bytes, entry: Entry) -> Row:
        self.masked.add(path)
        return Row(name, FILE, entry.mode & 0o777, entry.mtime, 0, EMPTY)

    def _may_be_secret(self, opened: Entry, listed: Entry) -> bool:
        """Return whether a file became a secret's other name, perhaps for a secret that is newer than the listing. An
        inode number alone does not tell: it is given again as soon as it is free."""
        is_other = opened.links > 1 and not is_untouched(listed, opened)
        return is_other or (opened.device, opened.inode) in self._secret_inodes

    def _digest(self, path: bytes, listed: Entry, test: Test) -> tuple[Entry, bytes, bool] | None:
        """Return a file's entry, its content's digest, and whether it is a secret. None: it is gone.

        Raise PermissionError if it may not be read, MudroomError if it changes each time that it is read.
        """
        for _try in range(_TRIES):
            try:
                descriptor = self.directory.open_file(path)
            except OSError as error:
                if is_absence(error):
                    return None
                raise
            with Descriptor(descriptor):
                before = from_stat(os.fstat(descriptor))  # type: ignore[arg-type]
                if before.kind != "file":
                    return None
                if self._may_be_secret(before, listed):
                    continue
                digest, is_one = _read(descriptor, before.size, test)
                if is_untouched(before, from_stat(os.fstat(descriptor))):  # type: ignore[arg-type]
                    return before, digest, is_one
        raise MudroomError(
            f"{show(path)} changes while it is read", "stop the program that writes it, or leave it out: copy.exclude"
        )


def _read(descriptor: int, size: int, test: Test) -> tuple[bytes, bool]:
    """Return an open file's digest, and whether it is a secret."""
    data = os.read(descriptor, min(size, _BLOCK) + 1)
    if len(data) <= min(size, _BLOCK):  # the whole file, in one call
        return digest_of_content(data), holds(test, data if len(data) <= LIMIT else None)
    hasher = blake2b(data, digest_size=DIGEST)
    while block := os.read(descriptor, _BLOCK):
        hasher.update(block)
    return hasher.digest(), holds(test, None)


def _end(link: bytes, items: Mapping[bytes, Entry], project: bytes) -> tuple[bytes, Entry]:
    """Return the path and entry in the project to which a link leads, or those of the last link on the way."""
    path, entry = link, items[link]
    for _time in range(_MOST_LINKS):
        target = os.path.normpath(os.path.join(parent(path), entry.target)).removeprefix(project + b"/")
        if entry.kind != "symlink" or target not in items:
            break
        path, entry = target, items[target]
    return path, entry


def _notes(masked: tuple[bytes, ...], unreadable: tuple[bytes, ...]) -> Iterator[str]:
    if masked:
        yield f"{_some(masked, 'secret')} sent empty: {_names(masked)} (secrets.show in the policy sends them)"
    if unreadable:
        yield f"{_some(unreadable, 'unreadable file')} not sent: {_names(unreadable)}"


def _some(paths: tuple[bytes, ...], noun: str) -> str:
    return f"1 {noun} is" if len(paths) == 1 else f"{len(paths):,} {noun}s are"


def _names(paths: tuple[bytes, ...]) -> str:
    return ", ".join(show(path) for path in paths[:4]) + (", …" if len(paths) > 4 else "")


class ScannedObjects(Closing):
    """Reader for a base's objects, for ``pack.packs``. It has no others: a worker that asks for more gets KeyError.

    One thread uses it; close it, or use ``with``.
    """

    def __init__(self, scanned: Scanned) -> None:
        self._scanned = scanned
        self._source = OpenSource(scanned.base.project)
        self._directory = LastDirectory(self._source.root)

    def close(self) -> None:
        self._directory.close()
        self._source.close()

    def size(self, digest: bytes) -> int:
        """Return an object's size in bytes. Raise KeyError if the base has no such digest."""
        node = self._scanned.nodes.get(digest)
        return len(node) if node is not None else self._scanned.files[digest].entry.size

    def is_node(self, digest: bytes) -> bool:
        return digest in self._scanned.nodes

    def read(self, digest: bytes, offset: int, length: int) -> bytes:
        """Return a part of an object. Raise BaseChanged if the file has changed since the base was made."""
        node = self._scanned.nodes.get(digest)
        if node is not None:
            return node[offset : offset + length]
        path, entry = self._scanned.files[digest]
        try:
            descriptor = self._directory.open_file(path)
        except OSError as error:
            if is_absence(error):
                raise BaseChanged(path) from error
            raise
        with Descriptor(descriptor):
            if offset == 0 and length == entry.size:
                data = os.read(descriptor, length + 1)
                is_same = len(data) == length and digest_of_content(data) == digest
            else:  # the digest is known at the end only, so the stamp has to tell
                data = os.pread(descriptor, length, offset)
                is_same = len(data) == length and is_untouched(entry, from_stat(os.fstat(descriptor)))  # type: ignore[arg-type]
        if not is_same:
            raise BaseChanged(path)
        return data
