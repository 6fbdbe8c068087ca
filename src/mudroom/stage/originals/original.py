"""Originals: the project's entries before the fork first changed them.

A live base changes, so a fork records its starting point: each changed path's entry, and each changed file's content.
Each layer keeps the originals for the paths that were first changed in it, so they are shared, sealed and dropped along
with the layer:

    originals/index     batches of rows (MessagePack), appended; the first row for a path counts
    originals/pack      the contents of small files, one after the other
    originals/<n>       one large file

For deleted files only some contents are kept (``stage/originals/collection.py``); for the others only the entry.

A row has its content's digest. A content in the pack with a different digest is not used: it counts as not kept, and
``mudroom vault check`` names it. Only the check compares a large file with its digest. Files above ``LARGE`` have no
digest, since a reflink is made without reading them.
"""

from __future__ import annotations

import os
from _blake2 import blake2b
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from mudroom.core.system.closing import Descriptor
from mudroom.core.tree.entry import Entry
from mudroom.errors import MudroomError
from mudroom.stage import disk, safe_open
from mudroom.stage.beneath import nameless
from mudroom.stage.copy import copy_content
from mudroom.stage.reader import ANEW, FileReader
from mudroom.stage.stamp import as_recorded
from mudroom.typing import NamedTuple

SMALL = 1024 * 1024
"""Bytes. A larger file is kept as a separate file, by reflink where the file system supports it."""
LARGE = 64 * 1024 * 1024
"""Bytes. An even larger file's content is kept only as a reflink."""


class Original(NamedTuple):
    entry: Entry | None
    """None: the path did not exist."""
    place: str = ""
    """``pack``, or the name of a separate file; empty if the content was not kept."""
    offset: int = 0
    length: int = 0
    digest: bytes = b""
    """The content's, by ``digest_of``; empty if there is none: too large, or written before rows had digests."""
    layer: bytes = b""
    """The layer's directory; set when the row is read."""


_Row = tuple[bytes, Original]


class Originals:
    """The originals for a stack of layers. ``layers`` are their directories, bottom first; new originals go to the
    last.

    Owner: the caller; an ``Editor`` adds to it with its buffer's lock held.
    """

    def __init__(self, layers: Sequence[bytes], reading: FileReader = ANEW) -> None:
        self._top = layers[-1] + b"/originals"
        self._below: list[tuple[bytes, Mapping[bytes, Original]]] = []
        self._damage = ""
        """That of the last layer's index."""
        for layer in layers:
            originals, self._damage = reading.of(layer + b"/originals/index", _read_index)
            if originals:
                self._below.append((layer, originals))
        self._added: dict[bytes, Original] = {}
        self._new: list[bytes] = []
        """Paths in ``_added`` whose rows are not yet written."""
        self._pack: dict[bytes, bytes] = {}
        """Contents that are not yet written; their rows have no offset so far."""
        self._pending = 0
        """Bytes in ``_pack``."""

    def get(self, path: bytes) -> Original | None:
        for layer, originals in self._below:
            original = originals.get(path)
            if original is not None:
                return original._replace(layer=layer)
        return self._added.get(path)

    def paths(self) -> Iterator[bytes]:
        yield from dict.fromkeys(path for _layer, originals in self._below for path in originals)
        yield from self._added

    def __contains__(self, path: bytes) -> bool:
        return path in self._added or any(path in originals for _layer, originals in self._below)

    def __bool__(self) -> bool:
        return bool(self._below or self._added)

    def keep(self, path: bytes, entry: Entry | None, content: bytes | None = None) -> None:
        """Record the project's entry, with its content (None: without). Only the first call for a path counts."""
        if path in self:
            return
        entry = as_recorded(entry) if entry is not None else None
        if content is None:
            self._add(path, Original(entry))
            return
        self._pack[path] = content
        self._pending += len(content)
        self._add(path, Original(entry, "pack", 0, len(content), digest_of(content)))
        if self._pending > 16 * SMALL:
            self._write_pack()

    def keep_file(self, path: bytes, entry: Entry, source: int) -> None:
        """Like ``keep``, for an open file of any size."""
        if path in self:
            return
        if entry.size <= SMALL:
            self.keep(path, entry, disk.pread(source, entry.size, 0))
            return
        with self._directory() as at:
            name, digest = _keep_large(at, source, entry.size)
        self._add(path, Original(as_recorded(entry), name, 0, entry.size if name else 0, digest))

    def adopt(self, former: Originals, leave_out: Callable[[bytes], bool]) -> None:
        """Take over the originals that ``former`` has kept but not written. It belonged to the same fork, perhaps with
        other layers."""
        for path in former._new:
            original = former._added[path]
            if path in self or leave_out(path):
                continue
            if former._top != self._top:
                self._copy(path, original, former._pack.get(path))
                continue
            self._add(path, original)
            if path in former._pack:
                self._pack[path] = former._pack[path]
                self._pending += original.length

    def _copy(self, path: bytes, original: Original, content: bytes | None) -> None:
        """Keep an original from a layer that is sealed or deleted. Contents already written to a deleted layer are
        lost."""
        if content is not None or not original.place or original.entry is None:
            self.keep(path, original.entry, content)
            return
        try:
            source = _open_stored(original)
        except FileNotFoundError:
            self.keep(path, original.entry)
            return
        if source is None:
            self.keep(path, original.entry)
            return
        with Descriptor(source):
            self.keep_file(path, original.entry, source)

    def _add(self, path: bytes, original: Original) -> None:
        self._new.append(path)
        self._added[path] = original._replace(layer=os.path.dirname(self._top))

    def _write_pack(self) -> None:
        with self._directory() as at:
            # Offsets are assigned only now, because another process may have written to the pack since.
            offset = _append(at, b"pack", b"".join(self._pack.values()))
        for path, content in self._pack.items():
            self._added[path] = self._added[path]._replace(offset=offset)
            offset += len(content)
        self._pack.clear()
        self._pending = 0

    def save(self) -> None:
        """Write the new rows. A row is written after the content that it names. Remove the damaged part of the index:
        what is appended to a batch that was cut off would be read as its end."""
        if not self._new:
            return
        if self._pack:
            self._write_pack()
        with self._directory() as at:
            if self._damage:
                index = self._top + b"/index"
                replace_rows(at, read_rows(safe_open.read(index), index)[0])
            append_rows(at, b"index", [(path, self._added[path]) for path in self._new])
        self._damage = ""
        self._new.clear()

    @contextmanager
    def _directory(self) -> Iterator[int]:
        """Yield a descriptor for the directory for new originals. Raise MudroomError if it is now a link."""
        with Descriptor(safe_open.make_directory(self._top)) as descriptor:
            yield descriptor

    def content(self, path: bytes) -> int | None:
        """Return a descriptor that reads the original content from start to end, or None if the content was not kept,
        or is damaged."""
        self.save()
        original = self.get(path)
        if original is None or not original.place:
            return None
        return _open_stored(original)


def digest_of(content: bytes) -> bytes:
    return blake2b(content, digest_size=16).digest()


def is_whole(original: Original, pack: int) -> bool:
    """Return whether a content in an open file matches its digest. True if it has no digest."""
    if not original.digest:
        return True
    digest, position = blake2b(digest_size=16), original.offset
    while position < original.offset + original.length:
        chunk = disk.pread(pack, min(SMALL, original.offset + original.length - position), position)
        if not chunk:
            return False
        digest.update(chunk)
        position += len(chunk)
    return digest.digest() == original.digest


def _open_stored(original: Original) -> int | None:
    """Return a descriptor for a written content, or None if it is damaged. Raise FileNotFoundError if its layer is
    gone."""
    with Descriptor(safe_open.open_directory(original.layer + b"/originals")) as at:
        source = safe_open.open_regular(os.fsencode(original.place), at=at)
    if original.place != "pack":
        return source
    with Descriptor(source):
        content = disk.pread(source, original.length, original.offset)
        if original.digest and digest_of(content) != original.digest:
            return None
        copy = nameless(original.layer)
        os.write(copy, content)
        os.lseek(copy, 0, os.SEEK_SET)
    return copy


def _read_index(index: bytes) -> tuple[Mapping[bytes, Original], str]:
    """Return the originals by path, and the damage; empty if the index is missing."""
    try:
        os.close(safe_open.open_directory(os.path.dirname(index)))
        rows, damage = read_rows(safe_open.read(index), index)
    except FileNotFoundError:
        return {}, ""
    originals: dict[bytes, Original] = {}
    for path, original in rows:
        originals.setdefault(path, original)
    return originals, damage


def _keep_large(at: int, source: int, size: int) -> tuple[str, bytes]:
    """Copy a large file. Return the copy's name, empty if the content is not kept, and its digest."""
    name, target = _new_file(at)
    with Descriptor(target):
        if size > LARGE and not copy_content(source, target, size, only_reflink=True):
            disk.unlink(at, name)
            return "", b""
        if size > LARGE:
            return name, b""
        copy_content(source, target, size)
        return name, _digest_of_file(source, size)


def _digest_of_file(descriptor: int, size: int) -> bytes:
    digest = blake2b(digest_size=16)
    for position in range(0, size, SMALL):
        digest.update(disk.pread(descriptor, min(SMALL, size - position), position))
    return digest.digest()


def _new_file(at: int) -> tuple[str, int]:
    """Create a file with the next free number as its name; another process may take numbers, too."""
    number = len(disk.names(at))
    while True:
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | disk.O_NOFOLLOW | disk.O_CLOEXEC
            return f"{number}", disk.open_at(at, f"{number}", flags, 0o600)
        except FileExistsError:
            number += 1


def _append(at: int, name: bytes, data: bytes) -> int:
    """Append to a file, and return where the data begins. One write(2) with O_APPEND is atomic; it writes only a part
    if the disk is full, and then the next write fails."""
    with Descriptor(safe_open.open_regular(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT, at=at)) as descriptor:
        written = os.write(descriptor, data)
        offset = os.lseek(descriptor, 0, os.SEEK_CUR) - written
        while written < len(data):
            written += os.write(descriptor, data[written:])
    return offset


def append_rows(at: int, name: bytes, rows: Sequence[_Row]) -> None:
    """Append a batch of rows. ``at``: an open directory."""
    import msgspec

    data = msgspec.msgpack.encode([(path, original[:5]) for path, original in rows])
    _append(at, name, len(data).to_bytes(8, "little") + data)


def replace_rows(at: int, rows: Sequence[_Row]) -> None:
    """Replace the index. ``at``: the open directory."""
    with suppress(FileNotFoundError):
        disk.unlink(at, b"index.new")
    append_rows(at, b"index.new", rows)
    disk.rename(at, b"index.new", at, b"index")


def read_rows(data: bytes, path: bytes) -> tuple[list[_Row], str]:
    """Return the rows in the order in which they were written, and why some are missing; empty if none are. A damaged
    batch, and one that was cut off by a crash, is left out: its originals are unknown, like those without a row. Raise
    MudroomError if a row leads elsewhere."""
    import msgspec

    rows: list[_Row] = []
    damage, position = "" if data else "it is empty", 0
    while position < len(data):
        length = int.from_bytes(data[position : position + 8], "little")
        batch = data[position + 8 : position + 8 + length]
        position += 8 + length
        if not length or position > len(data):
            return rows, "it is cut off"
        try:
            decoded = msgspec.msgpack.decode(batch, type=list[tuple[bytes, Original]])
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            damage = str(error)
            continue
        if any(original.place not in ("", "pack") and not original.place.isdecimal() for _path, original in decoded):
            hint = "other forks are not affected: mudroom ls shows them"
            raise MudroomError(f"{os.fsdecode(path)} is damaged: it names an invalid original", hint)
        rows += decoded
    return rows, damage
