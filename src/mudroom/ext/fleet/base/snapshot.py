"""Snapshots: bases as trees on disk, which errands' commands see under their forks.

    <base id>.lock      flock(2): shared while the snapshot is used, exclusive while it is made or removed; its mtime is
                        the time when it was last used
    <base id>/tree/     the files
    <base id>/nodes     a pack file with the nodes (``objects.py``)
    <base id>/seal      ``Seal`` as MessagePack, written last; its ctime: when the snapshot was complete
    .new-…, .gone-…     a snapshot that is being made, or removed

A new base is made of the last one's tree, whose changed files alone are written, if no errand needs that base any more.
Otherwise generations lie beside each other: a new one takes unchanged files from the last ones, large ones by reflink
where there is one, small ones by a copy whose digest is checked. Hard links are not used, as modes and times differ
between generations. So only changed files travel, and no object has to stay in the store.

Rules of this file:
1. A snapshot appears by one rename when it is complete, and disappears by one rename before it is changed: a killed
   change leaves no snapshot. Where two processes make the same one, the second waits for the first. A snapshot that is
   used is neither removed nor changed.
2. A file whose ctime is later than the seal was changed by somebody, and nothing is taken from it. Commands cannot
   write to a snapshot: it is the lower layer in their views.
3. Snapshots are not synced. After a boot a snapshot's digests are checked before its first use.
4. Every name is made in an open directory, without following a link. The manifest was measured before.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import threading
from _thread import get_ident
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing, suppress
from functools import partial
from typing import NamedTuple

import msgspec

from mudroom.core.system.closing import Descriptor
from mudroom.core.system.write_all import write_all
from mudroom.core.tree.entry import Entry
from mudroom.core.tree.path import show
from mudroom.errors import MudroomError
from mudroom.ext.fleet.base.delta import LEAST
from mudroom.ext.fleet.base.manifest import (
    DIRECTORY,
    EMPTY,
    FILE,
    LIMITS,
    SYMLINK,
    RefusedBase,
    Row,
    TreeSize,
    base_id,
    changes,
    digest_of_content,
    measure,
    require_base,
    walk,
)
from mudroom.ext.fleet.base.objects import (
    Missing,
    ObjectStore,
    PackFile,
    SimilarFile,
    StoreFull,
    boot_id,
    require_own,
    room_required,
    write_pack,
)
from mudroom.ext.fleet.wire.message import Base
from mudroom.ext.transfer.vault.rebase import digest as content_digest
from mudroom.stage import disk, safe_open
from mudroom.stage.beneath import LastDirectory, entries, open_root
from mudroom.stage.copy import copy_content
from mudroom.stage.layers.layer import remove_at, remove_tree
from mudroom.stage.top_directory import spread

_KINDS = {FILE: "file", DIRECTORY: "directory", SYMLINK: "symlink"}


def differences(tree: bytes, root: bytes, nodes: Mapping[bytes, bytes], sealed: int | None = None) -> Iterator[bytes]:
    """Yield the paths at which a tree is not what its manifest says. Raise KeyError if a node is missing.

    ``sealed``: a file that was not changed since then is not read."""
    with Descriptor(open_root(tree)) as opened, LastDirectory(opened) as directory:
        for path, rows in walk(root, nodes.__getitem__):
            prefix = path + b"/" if path else b""
            try:
                found = entries(directory.enter(path))
            except OSError:
                yield path
                continue
            yield from (prefix + name for name in found.keys() - {row.name for row in rows})
            for row in rows:
                entry = found.get(row.name)
                if entry is None or not _is_as_said(directory, prefix + row.name, row, entry, sealed):
                    yield prefix + row.name


def _is_as_said(directory: LastDirectory, path: bytes, row: Row, entry: Entry, sealed: int | None) -> bool:
    if entry.kind != _KINDS[row.kind] or entry.mode != row.mode:
        return False
    if row.kind != FILE:
        return row.kind == DIRECTORY or entry.target == row.content
    if (entry.size, entry.mtime) != (row.size, row.mtime_ns):
        return False
    if sealed is not None:
        return entry.ctime <= sealed
    try:
        descriptor = directory.open_file(path)
    except OSError:
        return False
    with Descriptor(descriptor):
        return content_digest(descriptor) == row.content


FORMAT = 1
QUOTA = 32 << 30
"""Bytes in all snapshots."""
_MOST_EARLIER = 2
"""Snapshots, the last used first, from which files are taken."""
_SMALL = 256 << 10
"""Bytes up to which a file is copied through memory, and its digest checked."""
_MARGIN = 64 << 20
"""Bytes that a snapshot leaves free on the disk."""
_PER_ENTRY = 4096
"""Bytes that an entry takes beside its content, at most: a file system block."""


class Incomplete(MudroomError):
    """Objects for a base are not here, or not any more. Ask for what ``missing`` names, and try again."""


class Seal(NamedTuple):
    format: int
    base: Base
    boot: bytes
    """Boot in which the files were written or checked."""
    size: int
    """Bytes in the files."""
    entries: int


class _EarlierSnapshot:
    """A complete snapshot whose files are taken for others. It is locked while this lives."""

    def __init__(self, path: bytes, seal: Seal, sealed: int, lock: int) -> None:
        """``sealed``: the seal's ctime. ``lock``: a descriptor for the snapshot's lock, closed with this."""
        self.path, self.base = path, seal.base
        self._sealed, self._lock = sealed, lock
        stored, self.nodes = _read_nodes(path), dict[bytes, bytes]()
        self.files: dict[bytes, bytes] = {}
        """By digest: the path of the first file that has it."""
        self._is_whole = True

        def read(digest: bytes) -> bytes:
            node = self.nodes[digest] = stored[digest]  # others are of the base that this was made of
            return node

        self.sizes: dict[bytes, TreeSize] = {}
        measure(seal.base.root, stored.__getitem__, LIMITS, self.sizes)
        for above, rows in walk(seal.base.root, read):
            prefix = above + b"/" if above else b""
            for row in rows:
                if row.kind == FILE and row.content != EMPTY:
                    self.files.setdefault(row.content, prefix + row.name)
        self._directory = LastDirectory(open_root(path + b"/tree"))

    def close(self) -> None:
        self._directory.close()
        os.close(self._directory.root)
        os.close(self._lock)

    def open(self, digest: bytes, size: int) -> int | None:
        """Return a descriptor for a file with this content; None if there is none, or none that can be relied on."""
        path = self.files.get(digest)
        if path is None:
            return None
        try:
            descriptor = self._directory.open_file(path)
        except OSError:
            descriptor = -1
        if descriptor >= 0:
            info = os.fstat(descriptor)
            if info.st_size == size and info.st_ctime_ns <= self._sealed:
                return descriptor
            os.close(descriptor)
        self._forget_changed()
        return None

    def has(self, digest: bytes) -> bool:
        """Return whether the file or, with all files in it, the directory is here."""
        return digest in self.files or (self._is_whole and digest in self.nodes)

    def take(self, beside: bytes) -> bool:
        """Rename the snapshot to ``beside``, to be changed. Return False if it is used or a file in it was changed."""
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fcntl.flock(self._lock, fcntl.LOCK_SH)  # flock(2): the lock was given up for a moment
            found = _read_seal(self.path)
            if found is None or found[1] != self._sealed:
                self.files.clear()
                self._is_whole = False
            return False
        if next(differences(self.path + b"/tree", self.base.root, self.nodes, self._sealed), None) is not None:
            return False
        os.rename(self.path, beside)
        return True

    def forget(self, digest: bytes) -> None:
        """Do not take the file with this content from here again."""
        self.files.pop(digest, None)
        self._is_whole = False

    def _forget_changed(self) -> None:
        """Look at all files: where one was changed, others may be, and all have to be asked for at once."""
        self._is_whole = False
        for digest, path in list(self.files.items()):
            entry = self._directory.look(path)
            if entry is None or entry.kind != "file" or entry.ctime > self._sealed:
                del self.files[digest]


class SnapshotStore:
    """One origin's snapshots. ``_lock`` guards the locks that are held and the earlier snapshots; it is held while a
    snapshot is made."""

    def __init__(
        self,
        path: bytes,
        store: ObjectStore,
        quota: int = QUOTA,
        is_needed: Callable[[bytes], bool] = lambda _id: False,
    ) -> None:
        """Make the directory if it is missing. ``is_needed``: whether a base's snapshot must stay although it is not
        locked. Raise UsageError if the directory is not this user's alone."""
        self._path, self._store, self._quota, self._is_needed = path, store, quota, is_needed
        self._lock = threading.RLock()
        self._locks: dict[bytes, int] = {}
        """The locks' descriptors, by base id."""
        self._earlier: tuple[_EarlierSnapshot, ...] | None = None
        """None: not looked for since the last snapshot was made."""
        require_own(path)
        spread(path)

    def close(self) -> None:
        """Give all snapshots up; they may be removed from now on."""
        with self._lock:
            self._close_earlier()
            for descriptor in self._locks.values():
                os.close(descriptor)
            self._locks.clear()

    # --- use ---

    def has(self, base: Base) -> bool:
        """Return whether a base's snapshot is complete. It may still be removed before it is used."""
        return os.path.lexists(self._path_of(base_id(base)) + b"/seal")

    def missing(self, base: Base) -> Missing:
        """Return the objects that have to be asked for before ``acquire``; none if the snapshot is here, which is kept
        then as by ``acquire``. Raise RefusedBase and StoreFull as the store does, and RefusedBase if the base is not
        possible."""
        require_base(base)
        name = base_id(base)
        with self._lock:
            if name in self._locks or self._try_acquire(name, base):
                return Missing((), ())
            earlier = self._earlier_snapshots()
        return self._store.missing(
            base,
            lambda digest: any(snapshot.has(digest) for snapshot in earlier),
            self._read_node,
            LIMITS,
            self._known_sizes(),
        )

    def similar(self, base: Base, files: Collection[bytes]) -> dict[bytes, SimilarFile]:
        """Return, of a base's missing files, the large ones at whose path the last snapshot has another."""
        earlier = next(iter(self._earlier_snapshots()), None)
        if earlier is None:
            return {}
        found: dict[bytes, SimilarFile] = {}
        for _path, was, row in changes(earlier.base.root, base.root, self._read_node):
            if row is None or row.content not in files or was is None or was.kind != FILE:
                continue
            if min(row.size, was.size) >= LEAST:
                found[row.content] = SimilarFile(was.size, partial(self._read_similar, was))
        return found

    def _read_similar(self, row: Row, offset: int, length: int) -> bytes:
        for snapshot in self._earlier_snapshots():
            descriptor = snapshot.open(row.content, row.size)
            if descriptor is not None:
                with Descriptor(descriptor):
                    return os.pread(descriptor, length, offset)
        return b""

    def acquire(self, base: Base) -> bytes:
        """Return a base's tree, and keep it until ``release`` or ``close``.

        Raise Incomplete if objects are missing, StoreFull if the disk is full, RefusedBase for an impossible tree."""
        require_base(base)
        name = base_id(base)
        with self._lock:
            while name not in self._locks and not self._try_acquire(name, base):
                self._build_once(name, base)
            os.utime(self._locks[name])
        return self._path_of(name) + b"/tree"

    def release(self, base: Base) -> None:
        """Let a snapshot be removed when room is needed."""
        with self._lock:
            descriptor = self._locks.pop(base_id(base), None)
            if descriptor is not None:
                os.close(descriptor)

    def evict(self, keep: int) -> None:
        """Remove the snapshots that are not in use, the last used last, until at most ``keep`` bytes are left."""
        with self._lock:
            self._close_earlier()
            snapshots = sorted(self._entries())
            used = sum(size for _time, size, _name in snapshots)
            for _time, size, name in snapshots:
                if used <= keep:
                    return
                if self._remove(name):
                    used -= size

    # --- building ---

    def _path_of(self, name: bytes) -> bytes:
        return self._path + b"/" + name.hex().encode()

    def _try_acquire(self, name: bytes, base: Base) -> bool:
        """Keep the snapshot if it is complete. Return whether it is. Hold ``_lock``."""
        lock = self._open_lock(name)
        try:
            fcntl.flock(lock, fcntl.LOCK_SH)
            if self._is_valid(self._path_of(name), base):
                self._locks[name] = lock
        finally:
            if name not in self._locks:
                os.close(lock)
        return name in self._locks

    def _build_once(self, name: bytes, base: Base) -> None:
        """Make the snapshot, unless another process has made it meanwhile. Hold ``_lock``."""
        path = self._path_of(name)
        with Descriptor(self._open_lock(name)) as lock:
            fcntl.flock(lock, fcntl.LOCK_SH)  # waits for another process that makes it, not for those that use it
            if self._is_valid(path, base):
                return
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not self._is_valid(path, base):
                if os.path.lexists(path):
                    self._discard(path)
                self._build(path, base)
                self._close_earlier()

    def _open_lock(self, name: bytes) -> int:
        return disk.open_path(
            self._path_of(name) + b".lock", os.O_RDWR | os.O_CREAT | disk.O_NOFOLLOW | disk.O_CLOEXEC, 0o600
        )

    def _is_valid(self, path: bytes, base: Base) -> bool:
        """Return whether a snapshot is complete; after a boot its files are read. A snapshot that is damaged is not."""
        found = _read_seal(path)
        if found is None or found[0].base != base or not os.path.lexists(path + b"/tree"):
            return False
        if found[0].boot == boot_id():
            return True
        try:
            nodes = _read_nodes(path)
        except (OSError, ValueError, msgspec.MsgspecError):
            return False
        if next(iter(differences(path + b"/tree", base.root, nodes)), None) is not None:
            return False
        _write_seal(path, found[0]._replace(boot=boot_id()))
        return True

    def _build(self, path: bytes, base: Base) -> None:
        """Make the snapshot. Hold its lock."""
        try:
            size = measure(base.root, self._read_node, LIMITS, self._known_sizes())
        except KeyError as error:
            raise Incomplete("a directory of the base is missing", "it is asked for again") from error
        self._require_room(size.size + size.entries * _PER_ENTRY)
        beside = self._path + b"/.new-%d-%s" % (os.getpid(), os.urandom(4).hex().encode())
        try:
            with room_required():
                self._store.touch()
                nodes = self._patch_earlier(beside, base)
                if nodes is None:
                    os.mkdir(beside, 0o700)
                    nodes = self._write_tree(beside + b"/tree", base)
                with suppress(FileNotFoundError):
                    os.unlink(beside + b"/nodes")
                write_pack(beside + b"/nodes", ((True, digest, node) for digest, node in nodes.items()))
                _write_seal(beside, Seal(FORMAT, base, boot_id(), size.size, size.entries))
                os.rename(beside, path)
        except BaseException:
            if os.path.lexists(beside):
                remove_tree(beside)
            raise

    def _require_room(self, size: int) -> None:
        self._collect_leftovers()
        if size > self._quota:
            raise StoreFull(
                f"the base needs {size:,} bytes on the worker, which keeps {self._quota:,}",
                "leave files out (copy.exclude in the policy), or give the worker more room",
            )
        used = sum(each for _time, each, _name in self._entries())
        if used + size > self._quota:
            self.evict(self._quota - size)
        free = shutil.disk_usage(self._path).free
        if free < size + _MARGIN:
            self.evict(max(0, used - (size + _MARGIN - free)))
        if shutil.disk_usage(self._path).free < size:
            raise StoreFull(
                f"the worker has no room for the base: {size:,} bytes are needed on its disk",
                "free some room there: mudroom fleet ls",
            )

    def _write_tree(self, tree: bytes, base: Base) -> dict[bytes, bytes]:
        """Write the files. Return the nodes."""
        nodes: dict[bytes, bytes] = {}

        def read(digest: bytes) -> bytes:
            node = nodes[digest] = self._read_node(digest)
            return node

        os.mkdir(tree, 0o700)
        root = open_root(tree)
        umask = _umask()
        modes: list[tuple[bytes, int]] = [(b"", 0o777 & ~base.umask)]
        with Descriptor(root), LastDirectory(root) as directory:
            for path, rows in walk(base.root, read):
                at = directory.enter(path)
                for row in rows:
                    if row.kind == FILE:
                        self._write_file(at, row, umask)
                    elif row.kind == DIRECTORY:
                        disk.mkdir(at, row.name, 0o700)
                        modes.append((path + b"/" + row.name if path else row.name, row.mode))
                    else:
                        disk.symlink(at, row.name, row.content)
            for path, mode in reversed(modes):  # their own modes may forbid writing into them
                if mode != 0o700:
                    os.fchmod(directory.enter(path), mode)
        return nodes

    def _patch_earlier(self, beside: bytes, base: Base) -> dict[bytes, bytes] | None:
        """Make the tree of the last used snapshot that of this base, and return the nodes. Return None, with nothing
        changed, if that snapshot is needed or there is none."""
        earlier = next(iter(self._earlier_snapshots()), None)
        if earlier is None or self._is_needed(base_id(earlier.base)):
            return None
        nodes = dict(earlier.nodes)

        def read(digest: bytes) -> bytes:
            node = nodes[digest] = self._read_node(digest)
            return node

        changed = list(changes(earlier.base.root, base.root, read))
        if not earlier.take(beside):
            return None
        made = beside + b"/made"
        os.mkdir(made, 0o700)
        umask = _umask()
        with Descriptor(open_root(made)) as new:  # whatever is needed of the old files is read before they are removed
            for number, (_path, was, row) in enumerate(changed):
                if row is not None and row.kind == FILE and _content(was) != _content(row):
                    self._write_file(new, row._replace(name=b"%d" % number), umask)
            self._exchange(beside + b"/tree", new, changed, {b"": 0o777 & ~base.umask})
        os.rmdir(made)
        return nodes

    def _exchange(
        self, tree: bytes, new: int, changed: list[tuple[bytes, Row | None, Row | None]], modes: dict[bytes, int]
    ) -> None:
        """Remove what is no longer in a tree, and move in what is new. ``new``: the directory with the new files, by
        their numbers in ``changed``. ``modes``: of directories, set at the end."""
        modes |= {path: row.mode for path, _was, row in changed if row is not None and row.kind == DIRECTORY}
        with Descriptor(open_root(tree)) as root:
            with LastDirectory(root) as directory:
                were = {path for path, was, _row in changed if was is not None and was.kind == DIRECTORY} | {b""}
                for above in sorted(were & {path.rpartition(b"/")[0] for path, _was, _row in changed}):
                    os.fchmod(directory.enter(above), 0o700)  # it may be closed to its owner
                for path, was, row in changed:
                    if was is not None and _content(was) != _content(row):
                        remove_at(directory.enter(os.path.dirname(path)), os.path.basename(path))
            with LastDirectory(root) as directory:
                for number, (path, was, row) in enumerate(changed):
                    above, _slash, name = path.rpartition(b"/")
                    at = directory.enter(above)
                    if row is None:
                        continue
                    if _content(was) == _content(row):
                        if row.kind == FILE:
                            with Descriptor(directory.open_file(path)) as descriptor:
                                os.fchmod(descriptor, row.mode)
                                os.utime(descriptor, ns=(row.mtime_ns, row.mtime_ns))
                    elif row.kind == FILE:
                        disk.rename(new, b"%d" % number, at, name)
                    elif row.kind == DIRECTORY:
                        disk.mkdir(at, name, 0o700)
                    else:
                        disk.symlink(at, name, row.content)
                for path in sorted(modes, reverse=True):
                    os.fchmod(directory.enter(path), modes[path])

    def _write_file(self, at: int, row: Row, umask: int) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | disk.O_NOFOLLOW | disk.O_CLOEXEC
        with Descriptor(disk.open_at(at, row.name, flags, row.mode)) as descriptor:
            if row.content != EMPTY:
                self._write_content(descriptor, row)
            if row.mode & umask:
                os.fchmod(descriptor, row.mode)
            os.utime(descriptor, ns=(row.mtime_ns, row.mtime_ns))

    def _write_content(self, descriptor: int, row: Row) -> None:
        try:
            if self._store.is_file(row.content):
                source = self._store.open(row.content)
            else:
                data = self._store.view(row.content)
                if len(data) != row.size:
                    raise _wrong_size(row)
                write_all(descriptor, data)
                return
        except KeyError:
            source = self._open_in_earlier(row)
        with Descriptor(source):
            self._copy(source, descriptor, row)

    def _open_in_earlier(self, row: Row) -> int:
        for snapshot in self._earlier_snapshots():
            descriptor = snapshot.open(row.content, row.size)
            if descriptor is not None:
                return descriptor
        raise Incomplete("a file of the base is missing", "it is asked for again")

    def _copy(self, source: int, target: int, row: Row) -> None:
        if os.fstat(source).st_size != row.size:
            raise _wrong_size(row)
        if row.size > _SMALL:
            copy_content(source, target, row.size)
            return
        data = os.read(source, row.size + 1)
        if digest_of_content(data) != row.content:
            for snapshot in self._earlier_snapshots():
                snapshot.forget(row.content)
            raise Incomplete("a file of an earlier base is damaged", "it is asked for again")
        write_all(target, memoryview(data))

    # --- other snapshots ---

    def _read_node(self, digest: bytes) -> bytes:
        """Return a node from the store or an earlier snapshot. Raise KeyError if it is missing."""
        if self._store.has(digest):
            return self._store.node(digest)
        for snapshot in self._earlier_snapshots():
            if digest in snapshot.nodes:
                return snapshot.nodes[digest]
        raise KeyError(digest)

    def _known_sizes(self) -> dict[bytes, TreeSize]:
        return {digest: size for snapshot in self._earlier_snapshots() for digest, size in snapshot.sizes.items()}

    def _earlier_snapshots(self) -> tuple[_EarlierSnapshot, ...]:
        """Return the last used snapshots, opened and locked."""
        with self._lock:
            if self._earlier is None:
                names = [name for _time, _size, name in sorted(self._entries(), reverse=True)[:_MOST_EARLIER]]
                self._earlier = tuple(snapshot for snapshot in map(self._open_earlier, names) if snapshot is not None)
            return self._earlier

    def _open_earlier(self, name: bytes) -> _EarlierSnapshot | None:
        """Return a snapshot to take files from; None if it is being removed, or is damaged: it is made again when it is
        asked for."""
        path = self._path_of(name)
        lock = self._open_lock(name)
        snapshot = None
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            found = _read_seal(path)
            if found is not None and self._is_valid(path, found[0].base):
                sealed = _read_seal(path)
                snapshot = _EarlierSnapshot(path, *sealed, lock) if sealed is not None else None
        except (OSError, ValueError, KeyError, msgspec.MsgspecError, RefusedBase):
            snapshot = None
        finally:
            if snapshot is None:
                os.close(lock)
        return snapshot

    def _close_earlier(self) -> None:
        for snapshot in self._earlier or ():
            snapshot.close()
        self._earlier = None

    def _entries(self) -> Iterator[tuple[int, int, bytes]]:
        """Yield each snapshot's last use (time), bytes and base id."""
        for file in os.listdir(self._path):
            try:
                name = bytes.fromhex(file.decode("ascii"))
            except ValueError:
                continue
            found = _read_seal(self._path + b"/" + file)
            size = found[0].size + found[0].entries * _PER_ENTRY if found is not None else 0
            try:
                yield os.lstat(self._path + b"/" + file + b".lock").st_mtime_ns, size, name
            except FileNotFoundError:
                yield 0, size, name

    def _remove(self, name: bytes) -> bool:
        """Remove a snapshot, unless it is in use. Return whether it is gone."""
        lock = self._open_lock(name)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.lexists(self._path_of(name)):
                self._discard(self._path_of(name))
            return True
        except BlockingIOError:
            return False
        finally:
            os.close(lock)

    def _discard(self, path: bytes) -> None:
        gone = self._path + b"/.gone-%d-%s" % (os.getpid(), os.urandom(4).hex().encode())
        os.rename(path, gone)
        remove_tree(gone)

    def _collect_leftovers(self) -> None:
        """Remove what killed processes have left."""
        for name in os.listdir(self._path):
            parts = name.split(b"-")
            if parts[0] in (b".new", b".gone") and len(parts) > 1 and not _is_alive(parts[1]):
                remove_tree(self._path + b"/" + name)


def _content(row: Row | None) -> tuple[str, bytes] | None:
    """Return what makes two entries at a path one entry: a directory remains one."""
    return None if row is None else (row.kind, b"" if row.kind == DIRECTORY else row.content)


def _wrong_size(row: Row) -> RefusedBase:
    return RefusedBase(f"{show(row.name)} has another size than its directory says")


def _read_nodes(path: bytes) -> dict[bytes, bytes]:
    with closing(PackFile(path + b"/nodes")) as pack:
        return {row.digest: bytes(pack.content(row.offset, row.size)) for row in pack.rows}


_decoder = msgspec.msgpack.Decoder(Seal)


def _read_seal(path: bytes) -> tuple[Seal, int] | None:
    """Return a snapshot's seal with its ctime; None if there is none, or none in this format."""
    try:
        with open(path + b"/seal", "rb") as stream:
            seal = _decoder.decode(stream.read())
            ctime = os.fstat(stream.fileno()).st_ctime_ns
    except (FileNotFoundError, NotADirectoryError, msgspec.MsgspecError):
        return None
    return (seal, ctime) if seal.format == FORMAT else None


def _write_seal(path: bytes, seal: Seal) -> None:
    beside = b"%s/seal.%d.%d" % (path, os.getpid(), get_ident())
    safe_open.replace(path + b"/seal", msgspec.msgpack.encode(seal), beside, durable=False)


def _is_alive(pid: bytes) -> bool:
    return not pid.isdigit() or os.path.exists(b"/proc/" + pid)


def _umask() -> int:
    """Return this process's umask without changing it (proc_pid_status(5)); all bits where it is not told."""
    with suppress(FileNotFoundError), open("/proc/self/status", "rb") as stream:  # no /proc: every mode is set
        for line in stream:
            if line.startswith(b"Umask:"):
                return int(line[6:], 8)
    return 0o777
