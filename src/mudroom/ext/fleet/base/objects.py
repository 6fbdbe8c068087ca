"""Store of objects that have arrived: nodes and contents by digest, until they are in a snapshot.

    BOOT/packs/<name>       u32 length, in bytes | rows: MessagePack [[is_node, digest, offset, size], …] | contents
    BOOT/large/<digest>     an object that came in parts
    BOOT/parts/<digest>     the parts that have come, for an object that has not arrived as a whole

20,000 small files are a few packs here: they become files once, in the snapshot. BOOT is the boot's id: objects are not
synced, so those from an earlier boot may be torn, and are dropped.

Rules of this file:
1. The directory is its user's alone. Every origin has its own store: two that share one could each find out by
   ``missing`` what files the other has sent.
2. An object is verified before it is written; a file appears by one rename when it is whole. A full disk or quota is
   ``StoreFull`` and leaves no half object.
3. The packs that were used longest ago go first. Objects can go at any moment, also by another process: ``missing``
   names them again.
"""

from __future__ import annotations

import errno
import mmap
import os
import stat
import struct
import threading
from _blake2 import blake2b
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from typing import NamedTuple

import msgspec

from mudroom.core.system.closing import Descriptor
from mudroom.core.system.write_all import write_all
from mudroom.core.tree.path import show
from mudroom.errors import FULL, MudroomError, UsageError
from mudroom.ext.fleet.base.delta import described
from mudroom.ext.fleet.base.manifest import (
    DIRECTORY,
    EMPTY,
    FILE,
    LIMITS,
    RefusedBase,
    TreeLimits,
    TreeSize,
    base_id,
    decode_node,
    measure,
)
from mudroom.ext.fleet.base.pack import OtherContent, PackRow, RefusedPack, is_content_of, unpack
from mudroom.ext.fleet.wire.frame import Frame, LinkError
from mudroom.ext.fleet.wire.message import DIGEST, READY, WANT, Base, Ready, Want, frame_of
from mudroom.stage.layers.layer import remove_tree

QUOTA = 8 << 30
"""Bytes in a store."""
ASKED = 200_000
"""Digests that are asked for at once: a frame holds 450,000."""
_HEAD = struct.Struct(">I")


class StoreFull(MudroomError):
    """The disk, or the store's quota, has no room for an object."""


class StoredRow(NamedTuple):
    is_node: bool
    digest: bytes
    offset: int
    size: int


class Missing(NamedTuple):
    """A base's objects that have to be asked for. Empty: none. Files are told when all nodes are there."""

    nodes: tuple[bytes, ...]
    files: tuple[bytes, ...]


class _Location(NamedTuple):
    pack: bytes
    """The file's path."""
    offset: int
    size: int
    is_node: bool


_decoder = msgspec.msgpack.Decoder(list[StoredRow])


class PackFile:
    """A file with objects, mapped into memory. ``close`` it when its content is not in use."""

    def __init__(self, path: bytes) -> None:
        """Raise OSError, or ValueError if the file is not one that ``write_pack`` has written."""
        with open(path, "rb") as stream:
            (length,) = _HEAD.unpack(stream.read(_HEAD.size).ljust(_HEAD.size, b"\xff"))
            self.size = os.fstat(stream.fileno()).st_size
            if _HEAD.size + length > self.size:
                raise ValueError("the file is cut off")
            self.rows = _decoder.decode(stream.read(length))
            self._map = mmap.mmap(stream.fileno(), 0, prot=mmap.PROT_READ)
        self._view = memoryview(self._map)
        self._start = _HEAD.size + length

    def content(self, offset: int, size: int) -> memoryview:
        return self._view[self._start + offset : self._start + offset + size]

    def close(self) -> None:
        self._view.release()
        self._map.close()


def write_pack(path: bytes, objects: Iterable[tuple[bool, bytes, memoryview | bytes]]) -> int:
    """Write whole objects to a new file. Return its bytes. Raise OSError; the file is removed then."""
    rows: list[StoredRow] = []
    contents: list[memoryview | bytes] = []
    at = 0
    for is_node, digest, data in objects:
        rows.append(StoredRow(is_node, digest, at, len(data)))
        contents.append(data)
        at += len(data)
    table = msgspec.msgpack.encode(rows)
    with _whole_file(path) as descriptor:
        write_all(descriptor, b"".join((_HEAD.pack(len(table)), table, *contents)))
    return _HEAD.size + len(table) + at


@contextmanager
def _whole_file(path: bytes) -> Iterator[int]:
    """A new file that is removed if the block fails."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        yield descriptor
    except BaseException:
        os.unlink(path)
        raise
    finally:
        os.close(descriptor)


class ObjectStore:
    """``_lock`` guards the index and the bytes in use. Several processes of one user may have the store open."""

    def __init__(self, path: bytes, quota: int = QUOTA) -> None:
        """Make the directory if it is missing. Raise UsageError if it is not this user's alone."""
        self.quota = quota
        self._lock = threading.RLock()
        self._index: dict[bytes, _Location] = {}
        self._packs: dict[bytes, PackFile] = {}
        self._parts: dict[bytes, _Part] = {}
        require_own(path)
        self._top = path + b"/" + boot_id()
        for name in os.listdir(path):
            if path + b"/" + name != self._top:
                remove_tree(path + b"/" + name)
        for name in (b"", b"/packs", b"/large", b"/parts"):
            _make(self._top + name)
        self._serial = 0
        self._load()

    def close(self) -> None:
        """Forget the index. Content that is in use keeps its mapping."""
        with self._lock:
            for part in self._parts.values():
                part.abandon()
            self._parts.clear()
            self._index.clear()
            self._packs.clear()

    def _load(self) -> None:
        for name in os.listdir(self._top + b"/packs"):
            if not name.startswith(b"."):
                self._open(self._top + b"/packs/" + name)
        for name in os.listdir(self._top + b"/large"):
            path = self._top + b"/large/" + name
            try:
                size, digest = os.stat(path).st_size, bytes.fromhex(name.decode("ascii"))
            except (FileNotFoundError, ValueError):
                continue
            self._index[digest] = _Location(path, 0, size, is_node=False)

    def _open(self, path: bytes) -> None:
        try:
            pack = PackFile(path)
        except FileNotFoundError:
            return  # another process has evicted it
        except (ValueError, msgspec.DecodeError, msgspec.ValidationError):
            os.unlink(path)
            return
        self._packs[path] = pack
        for row in pack.rows:
            self._index[row.digest] = _Location(path, row.offset, row.size, row.is_node)

    # --- reading ---

    def has(self, digest: bytes) -> bool:
        return digest in self._index

    def get(self, digest: bytes) -> bytes:
        """Return the content. Raise KeyError if the object is missing."""
        return bytes(self.view(digest))

    def view(self, digest: bytes) -> memoryview:
        """Return the content without a copy, where it is in a pack. Raise KeyError if the object is missing."""
        location = self._index[digest]
        pack = self._packs.get(location.pack)
        if pack is not None:
            return pack.content(location.offset, location.size)
        descriptor = self.open(digest)
        with open(descriptor, "rb") as stream:
            return memoryview(stream.read())

    def open(self, digest: bytes) -> int:
        """Return a descriptor for an object with its own file. Raise KeyError if there is none."""
        location = self._index[digest]
        if location.pack in self._packs:
            raise KeyError(digest)
        try:
            return os.open(location.pack, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError as error:  # evicted by another process
            with self._lock:
                self._index.pop(digest, None)
            raise KeyError(digest) from error

    def size(self, digest: bytes) -> int:
        """Return an object's size in bytes, as an ``ObjectReader``. Raise KeyError if it is missing."""
        return self._index[digest].size

    def is_node(self, digest: bytes) -> bool:
        return self._index[digest].is_node

    def read(self, digest: bytes, offset: int, length: int) -> bytes:
        if not self.is_file(digest):
            return bytes(self.view(digest)[offset : offset + length])
        with Descriptor(self.open(digest)) as descriptor:
            return os.pread(descriptor, length, offset)

    def is_file(self, digest: bytes) -> bool:
        """Return whether the object has its own file, for ``open``."""
        location = self._index.get(digest)
        return location is not None and location.pack not in self._packs

    def node(self, digest: bytes) -> bytes:
        """Return a node's bytes. Raise KeyError if it is missing, or is no node."""
        if not self._index[digest].is_node:
            raise KeyError(digest)
        return self.get(digest)

    def missing(
        self,
        base: Base,
        elsewhere: Callable[[bytes], bool] = lambda _digest: False,
        node: Callable[[bytes], bytes] | None = None,
        limits: TreeLimits = LIMITS,
        sizes: dict[bytes, TreeSize] | None = None,
    ) -> Missing:
        """Return a base's objects that are neither here nor ``elsewhere``: a directory there is there with its files.

        ``node``: a reader for nodes that has more than the store. ``sizes``: as of ``measure``. Raise RefusedBase if
        the tree is beyond the limits, StoreFull if its missing files are more than the quota."""
        read = node or self.node
        nodes: list[bytes] = []
        files: dict[bytes, int] = {EMPTY: 0}
        seen = {base.root}
        pending = [base.root]
        while pending and len(nodes) < ASKED:
            digest = pending.pop()
            try:
                rows = decode_node(read(digest))
            except KeyError:
                nodes.append(digest)
                continue
            for row in rows:
                if row.kind == DIRECTORY:
                    if row.content not in seen and not elsewhere(row.content):
                        seen.add(row.content)
                        pending.append(row.content)
                elif row.kind == FILE and not (row.content in files or self.has(row.content) or elsewhere(row.content)):
                    files[row.content] = row.size
            if len(seen) > limits.entries:
                raise RefusedBase(f"it has more than {limits.entries:,} directories")
        if nodes:
            return Missing(tuple(nodes), ())
        measure(base.root, read, limits, sizes)
        del files[EMPTY]
        if sum(files.values()) > self.quota:
            raise StoreFull(
                f"the base has {sum(files.values()):,} bytes that are not here; its worker keeps {self.quota:,}",
                "leave files out (copy.exclude in the policy), or give the worker more room",
            )
        return Missing((), tuple(files)[:ASKED])

    # --- writing ---

    def put(self, digest: bytes, data: bytes, *, is_node: bool = False) -> None:
        """Store one object. Raise RefusedPack if it does not have the digest, StoreFull if there is no room."""
        if not is_content_of(data, digest, is_node=is_node):
            raise OtherContent(digest)
        self.put_all([(is_node, digest, memoryview(data))])

    def put_all(self, objects: Iterable[tuple[bool, bytes, memoryview]]) -> None:
        """Store whole objects that were verified. Raise StoreFull if there is no room."""
        with self._lock:
            new = [each for each in objects if each[1] not in self._index]
            if not new:
                return
            self._make_room(sum(len(data) + 64 for _is_node, _digest, data in new))
            self._serial += 1
            name = b"%d-%d-%s" % (os.getpid(), self._serial, os.urandom(4).hex().encode())
            beside, path = self._top + b"/packs/." + name, self._top + b"/packs/" + name
            with room_required():
                write_pack(beside, new)
                os.rename(beside, path)
            self._open(path)

    def put_part(self, row: PackRow, data: memoryview) -> bool:
        """Store a large object's next part. Return whether the object is complete.

        Raise RefusedPack if the part is not the next one, or the whole does not have its digest; StoreFull."""
        with self._lock:
            if row.digest in self._index:
                return True
            part = self._parts.get(row.digest)
            if row.offset == 0:
                if part is not None:
                    part.abandon()
                self._make_room(row.size)
                with room_required():
                    path = self._top + b"/parts/%d-%s" % (os.getpid(), row.digest.hex().encode())
                    part = self._parts[row.digest] = _Part(path, row)
            if part is None or not part.is_next(row):
                raise RefusedPack("the parts of a large object do not follow each other")
            try:
                with room_required():
                    is_complete = part.add(data)
            except BaseException:
                self._parts.pop(row.digest).abandon()
                raise
            if is_complete:
                del self._parts[row.digest]
                self._take(part, row)
            return is_complete

    def _take(self, part: _Part, row: PackRow) -> None:
        """Move a complete object to its place. Hold the lock."""
        path = self._top + b"/large/" + row.digest.hex().encode()
        if part.digest() != row.digest:
            part.abandon()
            raise OtherContent(row.digest)
        part.finish(path)
        if row.is_node:  # nodes are read from packs
            with open(path, "rb") as stream:
                data = stream.read()
            os.unlink(path)
            self.put_all([(True, row.digest, memoryview(data))])
        else:
            self._index[row.digest] = _Location(path, 0, row.size, is_node=False)

    # --- room ---

    def used(self) -> int:
        """Return the bytes in all the store's files."""
        return sum(size for _time, size, _path in self._files())

    def _files(self) -> Iterator[tuple[int, int, bytes]]:
        """Yield each file's last use (time), bytes and path."""
        for part in (b"/packs/", b"/large/", b"/parts/"):
            for name in os.listdir(self._top + part):
                try:
                    info = os.lstat(self._top + part + name)
                except FileNotFoundError:
                    continue
                yield info.st_mtime_ns, info.st_size, self._top + part + name

    def _make_room(self, size: int) -> None:
        """Evict until ``size`` bytes fit. Hold the lock."""
        if size > self.quota:
            raise StoreFull(
                f"an object has {size:,} bytes; the worker keeps {self.quota:,}", "give the worker more room"
            )
        self.evict(self.quota - size)

    def evict(self, keep: int) -> None:
        """Remove the least recently used files until at most ``keep`` bytes are left."""
        with self._lock:
            files = sorted(self._files())
            used = sum(size for _time, size, _path in files)
            for _time, size, path in files:
                if used <= keep:
                    return
                if os.path.basename(os.path.dirname(path)) == b"parts" and self._is_open(path):
                    continue
                self._forget(path)
                used -= size

    def _is_open(self, path: bytes) -> bool:
        return any(part.path == path for part in self._parts.values())

    def _forget(self, path: bytes) -> None:
        with suppress(FileNotFoundError):  # another process was faster
            os.unlink(path)
        self._packs.pop(path, None)
        for digest in [digest for digest, location in self._index.items() if location.pack == path]:
            del self._index[digest]

    def touch(self) -> None:
        """Note that every pack is in use now."""
        for path in list(self._packs):
            try:
                os.utime(path)
            except FileNotFoundError:
                continue


class _Part:
    """An object that arrives in parts."""

    def __init__(self, path: bytes, row: PackRow) -> None:
        self.path = path
        self._size, self._is_node = row.size, row.is_node
        self._at = 0  # written by the thread that has the store's lock
        person = b"mudroom-dir" if row.is_node else b""
        self._hasher = blake2b(digest_size=DIGEST, person=person)
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)

    def is_next(self, row: PackRow) -> bool:
        return (row.size, row.is_node, row.offset) == (self._size, self._is_node, self._at)

    def add(self, data: memoryview) -> bool:
        """Write the next bytes. Return whether they were the last."""
        write_all(self._descriptor, data)
        self._hasher.update(data)
        self._at += len(data)
        return self._at == self._size

    def digest(self) -> bytes:
        return self._hasher.digest()

    def finish(self, path: bytes) -> None:
        os.close(self._descriptor)
        os.rename(self.path, path)

    def abandon(self) -> None:
        os.close(self._descriptor)
        with suppress(FileNotFoundError):  # evicted by another process
            os.unlink(self.path)


@contextmanager
def room_required() -> Iterator[None]:
    """Raise StoreFull instead of OSError where the disk or quota is full."""
    try:
        yield
    except OSError as error:
        if error.errno not in FULL:
            raise
        why = "its quota" if error.errno == errno.EDQUOT else "its disk"
        raise StoreFull(
            f"the worker has no room for the base: {why} is full", "free some room there: mudroom fleet ls"
        ) from error


def require_own(path: bytes) -> None:
    """Make a directory that is this user's alone, if it is missing. Raise UsageError if it is not."""
    _make(path)
    info = os.lstat(path)
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid() or info.st_mode & 0o077:
        raise UsageError(f"{show(path)} is not a directory of yours alone", "move it aside; it is made again")


def _make(path: bytes) -> None:
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        return


def boot_id() -> bytes:
    """Return this boot's id (random(4)); ``boot`` where there is none."""
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as stream:
            return stream.read().strip()
    except FileNotFoundError:
        return b"boot"


# --- a base that is received ---

MOST_WANTED = 60_000
"""Digests that one WANT asks for."""
MOST_SIMILAR = 6
"""Files for which one WANT has the digests of blocks, 256 KiB at most for each."""


class SimilarFile(NamedTuple):
    size: int
    read: Callable[[int, int], bytes]
    """Return so many bytes from an offset on; fewer if the file has changed."""


class BaseReceiver:
    """Receives one base at a time, the last that was offered. An object that was not asked for, or has another digest,
    ends the link: nothing behind it can be trusted. Owner: the thread that reads the link."""

    def __init__(
        self,
        store: ObjectStore,
        missing: Callable[[Base], Missing],
        complete: Callable[[bytes, Base], None],
        similar: Callable[[Base, Collection[bytes]], dict[bytes, SimilarFile]] = lambda _base, _files: {},
    ) -> None:
        """``missing``: returns the objects that a base lacks here. ``complete``: called with a base and its id when it
        lacks none. ``similar``: returns, of these missing files, those that an earlier file is like."""
        self._store, self._missing, self._complete, self._find_similar = store, missing, complete, similar
        self._wanted: set[bytes] = set()
        self._similar: dict[bytes, SimilarFile] = {}
        self._whole: set[bytes] = set()
        """Files that did not become what they should be of a similar one."""
        self.incoming: Base | None = None

    def offer(self, base: Base) -> Frame:
        """Return WANT or READY. Raise MudroomError if the base cannot be had here."""
        self.incoming = base
        return self._next_request(base)

    def receive(self, body: bytes) -> Frame | None:
        """Take a pack. Return the next WANT or READY once all that was asked for is here; None: more is to come. Raise
        LinkError for objects that were not asked for or are damaged, MudroomError if they cannot be kept."""
        if self.incoming is None:
            raise LinkError("sent objects before it offered a base")
        try:
            readers = {digest: file.read for digest, file in self._similar.items()}
            self._wanted.difference_update(unpack(body, self._store, self._wanted, readers))
        except RefusedPack as error:
            if isinstance(error, OtherContent) and error.digest in self._similar:  # the file here is damaged
                self._whole.add(error.digest)
                self._wanted.discard(error.digest)
                return None if self._wanted else self._next_request(self.incoming)
            raise LinkError(f"sent objects that cannot be used: {error.message}") from error
        return None if self._wanted else self._next_request(self.incoming)

    def _next_request(self, base: Base) -> Frame:
        missing, name = self._missing(base), base_id(base)
        nodes = tuple(missing.nodes[:MOST_WANTED])
        files = tuple(missing.files[: MOST_WANTED - len(nodes)])
        found = self._find_similar(base, set(files) - self._whole) if files else {}
        self._similar = dict(islice(found.items(), MOST_SIMILAR))
        whole = tuple(digest for digest in files if digest not in found)
        self._wanted = {*nodes, *whole, *self._similar}
        if self._wanted:
            similar = tuple(described(digest, file.size, file.read) for digest, file in self._similar.items())
            return frame_of(WANT, Want(name, nodes, whole, similar))
        self.incoming, self._whole = None, set()
        self._complete(name, base)
        return frame_of(READY, Ready(name))
