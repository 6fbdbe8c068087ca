"""The imprint of an apply, by which undo and redo recognise the files that it put into the project.

``applies/uN/imprint`` has, for each file that the last operation put into the project, its ctime there and its content
digest. It is written when the operations are done. The rules:

1. Stamp and ctime are unchanged: the file is untouched. No content is read. A ctime in whole seconds does not count if
   an edit just after the apply could have it, too.
2. Otherwise the digest decides: a file that was only touched is the same, and a file edited by a tool that keeps size
   and time is not.
3. Without a digest, a file with only another ctime is in doubt, and stays. For a large apply not all files are read, so
   that applying a whole ``node_modules`` costs no reading. Where ctimes are too coarse to tell, all are.
4. It is synced: an edit after a power loss is seen, too. Without an imprint (an older mudroom) the stamp alone decides.
   An imprint for another state of the apply is ignored.
5. An undo or a redo puts files back by a rename, which changes their ctime: all ctimes of an untouched file count
   (``stage/originals/moved_files.py``).
"""

from __future__ import annotations

import os
from _blake2 import blake2b
from collections.abc import Iterable, Mapping

from mudroom.core.merge.operations import Op
from mudroom.core.tree.entry import Entry, same_stamp
from mudroom.stage import disk, safe_open
from mudroom.stage.beneath import LastDirectory
from mudroom.stage.filesystem_kind import has_weak_ctime, is_weak
from mudroom.stage.originals.moved_files import Ctimes, Moved, ctimes_of
from mudroom.stage.stamp import is_earlier
from mudroom.typing import NamedTuple

NAME = b"/imprint"
FILES, BYTES = 1024, 32 * 1024 * 1024
"""Maximum number and total bytes of the files in one apply that get a digest."""


_BLOCK = 1 << 20
_SECOND = 1_000_000_000
_IN_DOUBT = -1
"""Stands for a ctime that a later edit can also have. No file has it."""


class FileImprint(NamedTuple):
    ctime: int
    """Nanoseconds; 0 if unknown, -1 if in doubt."""
    digest: bytes = b""
    """16-byte BLAKE2b; empty if the content was not read."""


class Imprint(NamedTuple):
    state: str
    """State that the apply gets: ``done`` or ``undone``."""
    began: int
    """Nanoseconds by the clock of the project's file system. Files in whole directories that landed keep their ctime
    from the fork, or have a ctime from here to ``ended``."""
    ended: int
    files: dict[bytes, FileImprint]


Trees = Mapping[int, Mapping[bytes, Entry]]


def take(
    place: bytes,
    state: str,
    project: int,
    ops: Iterable[Op],
    trees: Trees,
    began: int,
    digests: Mapping[bytes, bytes],
) -> dict[bytes, Moved]:
    """Write the imprint of the entries that ``ops`` have just put into the project. ``digests``: by path, for new
    content that was already read. Return the files that it put there."""
    moved: dict[bytes, Moved] = {}
    with LastDirectory(project) as reader:
        write(place, _imprint(state, reader, ops, trees, began, digests, moved))
    return moved


def write(place: bytes, imprint: Imprint) -> None:
    import msgspec

    safe_open.replace(place + NAME, msgspec.msgpack.encode(imprint))


def _imprint(
    state: str,
    project: LastDirectory,
    ops: Iterable[Op],
    trees: Trees,
    began: int,
    digests: Mapping[bytes, bytes],
    moved: dict[bytes, Moved],
) -> Imprint:
    files: dict[bytes, FileImprint] = {}
    ended, left, room = began, FILES, BYTES
    weak = has_weak_ctime(b"/proc/self/fd/%d" % project.root)
    for op in ops:
        entry = project.look_if_open(op.path) if op.new is not None and op.kind in ("place", "swap", "chmod") else None
        if entry is None or not same_stamp(op.new, entry):
            continue  # edited within this moment: in doubt from the start
        ended = max(ended, entry.ctime)
        if entry.kind == "file" and op.new is not None:
            moved[op.path] = Moved(entry.inode, op.new.ctime, entry.ctime)
        below = trees.get(op.slot, {}) if op.whole and entry.kind == "directory" else {}
        inside = ((op.path + b"/" + path, child, 0) for path, child in below.items() if child.kind == "file")
        for path, child, known in ((op.path, entry, entry.ctime), *inside):
            is_exact = child.ctime % _SECOND != 0 or is_earlier(
                child.ctime, began
            )  # without a look at a clock that may be set
            tells = is_exact and not (weak and is_weak(child))
            found, ctime = digests.get(path, b""), known if tells else _IN_DOUBT
            if not found and child.kind == "file" and (not tells or (left > 0 and child.size <= room)):
                left, room = left - 1, room - child.size
                found = digest_at(project, path, child.size)
            if ctime or found:
                files[path] = FileImprint(ctime, found)
    return Imprint(state, began, ended, files)


def load(place: bytes, state: str) -> Imprint | None:
    """Return the imprint for this state, or None if it is missing or unreadable."""
    imprint = _read(place)
    return imprint if imprint is not None and imprint.state == state else None


def _read(place: bytes) -> Imprint | None:
    import msgspec

    try:
        return msgspec.msgpack.decode(safe_open.read(place + NAME), type=Imprint)
    except (FileNotFoundError, NotADirectoryError, msgspec.DecodeError, msgspec.ValidationError):
        return None


def digest_of(content: bytes) -> bytes:
    return blake2b(content, digest_size=16).digest()


def digest_at(project: LastDirectory, path: bytes, size: int) -> bytes:
    """Return the digest of a file; empty if it cannot be read. ``size``: its expected size, which saves a read(2) to
    detect the end."""
    hasher = blake2b(digest_size=16)
    try:
        descriptor = project.open_file(path)
    except OSError:
        return b""
    try:
        done, asked = 0, min(size, _BLOCK) + 1
        while block := os.read(descriptor, asked):
            hasher.update(block)
            done += len(block)
            if done == size and len(block) < asked:
                break
            asked = _BLOCK
    except OSError:
        return b""
    finally:
        os.close(descriptor)
    return hasher.digest()


class Recognition:
    """Compares the project's entries with those that the apply put there."""

    def __init__(self, imprint: Imprint | None, project: LastDirectory, moved: Ctimes) -> None:
        self._imprint, self._project, self._moved = imprint, project, moved
        self.device = disk.fstat(project.root).st_dev
        """Of the project's root now: numbers in the record may be from an earlier mount."""

    def is_same(self, path: bytes, expected: Entry | None, current: Entry | None) -> bool:
        """Return whether the entry ``current``, now at ``path``, is the entry that the apply left there."""
        if expected is None or current is None or expected.kind != "file" or self._imprint is None:
            return same_stamp(expected, current)
        if (expected.kind, expected.mode, expected.size) != (current.kind, current.mode, current.size):
            return False
        known = self._imprint.files.get(path, FileImprint(0))
        if same_stamp(expected, current):
            ctimes = ctimes_of(self._moved, current)
            if known.ctime in ctimes:
                return True
            began, ended = self._imprint.began, self._imprint.ended
            if not known.ctime and any(ctime == expected.ctime or began <= ctime <= ended for ctime in ctimes):
                return True
        return bool(known.digest) and digest_at(self._project, path, current.size) == known.digest
