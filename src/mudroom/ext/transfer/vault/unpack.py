"""Write the trees from an archive that may be hostile.

Whatever names and links the archive has, this module must never write outside the given directory; make a device, a
set-id file, or a link to a file outside the same tree; or change an existing file. Any entry that
``ext/transfer/vault/pack.py`` would not write is refused.
"""

from __future__ import annotations

import errno
import os
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager

from mudroom.core.system.closing import Descriptor
from mudroom.core.system.write_all import write_all
from mudroom.core.text.regex import regex
from mudroom.core.tree.path import relpath, show
from mudroom.errors import FULL
from mudroom.ext.transfer.vault.archive import BLOCK, ArchiveReader, RefusedArchive, name_of
from mudroom.ext.transfer.vault.pack import DIRECTORY_MODE, FILE_MODE, XATTR
from mudroom.stage import disk, xattr
from mudroom.stage.beneath import open_beneath, open_layer, open_root
from mudroom.stage.layers.layer import OPAQUE, WHITEOUT, make_whiteout

_ZEROS = bytes(BLOCK)
_ESCAPE = regex(rb"%([0-9A-F]{2})")
_TIME_LIMIT = 1 << 33
"""Seconds since 1970. Every current file system can store it."""
_OF_ENTRY = (
    *(errno.ENAMETOOLONG, errno.EMLINK, errno.E2BIG, errno.EFBIG, errno.EILSEQ, errno.EINVAL, errno.ERANGE),
    errno.EOPNOTSUPP,
)
"""Errors for an entry that this file system cannot store: its archive is refused. A disk error, such as ENOSPC, ends
all archives that arrive together."""


class TreeWriter:
    """Writes one tree below a new directory.

    Every name is opened beneath that directory, no symbolic link is ever followed, and an existing name is an error.
    """

    def __init__(self, place: bytes, prefix: bytes, *, is_layer: bool) -> None:
        """``prefix``: prefix of the names in the archive. ``is_layer``: whether whiteouts are allowed."""
        os.mkdir(place, 0o700)
        self._root = open_layer(place) if is_layer else open_root(place)
        self._prefix, self._is_layer = prefix, is_layer
        self._above: tuple[bytes, int] | None = None
        self._files: set[bytes] = set()
        self._modes: list[tuple[bytes, int]] = []

    def close(self) -> None:
        """Set the directories' modes."""
        self._leave()
        if self._root < 0:
            return
        # The deepest first, because a mode may forbid entering.
        for path, mode in reversed(self._modes):
            with Descriptor(open_beneath(self._root, path, os.O_RDONLY | disk.O_DIRECTORY)) as descriptor:
                disk.set_mode_of(descriptor, mode)
        self.abandon()

    def abandon(self) -> None:
        self._leave()
        if self._root >= 0:
            os.close(self._root)
            self._root = -1

    def _leave(self) -> None:
        if self._above is not None:
            os.close(self._above[1])
            self._above = None

    def top(self, info: tarfile.TarInfo) -> None:
        """Add the tree's root."""
        if not info.isdir():
            raise RefusedArchive(f"{show(name_of(info))} is no directory")
        self._modes.append((b"", _mode(info, DIRECTORY_MODE)))

    def add(self, path: bytes, info: tarfile.TarInfo, archive: ArchiveReader) -> None:
        """Add an entry. ``path``: its path below the tree, as in the archive."""
        _check(path)
        above, name = self._enter(path)
        with _storing(path):
            if info.isdir():
                self._directory(above, name, path, info)
            elif info.islnk():
                self._link(above, name, info)
            elif info.issym():
                disk.symlink(above, name, _target(info))
            elif info.type == tarfile.CHRTYPE and self._is_layer and (info.devmajor, info.devminor) == (0, 0):
                make_whiteout(above, name)
            else:
                self._file(above, name, path, info, archive)

    def _enter(self, path: bytes) -> tuple[int, bytes]:
        above, _slash, name = path.rpartition(b"/")
        if self._above is None or self._above[0] != above:
            self._leave()
            try:
                self._above = (above, open_beneath(self._root, above, os.O_RDONLY | disk.O_DIRECTORY))
            except OSError as error:
                raise RefusedArchive(f"{show(path)} is in no directory of the archive: {error.strerror}") from error
        return self._above[1], name

    def _directory(self, above: int, name: bytes, path: bytes, info: tarfile.TarInfo) -> None:
        mode = _mode(info, DIRECTORY_MODE)
        disk.mkdir(above, name, 0o700)
        self._modes.append((path, mode))
        marks = dict(self._xattrs(info, OPAQUE, (b"y", b"x")))
        if marks:
            with Descriptor(open_beneath(above, name, os.O_RDONLY | disk.O_DIRECTORY)) as descriptor:
                _set_xattrs(descriptor, marks, path)

    def _link(self, above: int, name: bytes, info: tarfile.TarInfo) -> None:
        target = _target(info)
        path = target[len(self._prefix) :]
        if not target.startswith(self._prefix) or path not in self._files:
            raise RefusedArchive(
                f"{show(name_of(info))} is a link to {show(target)}, which is not a file of the same tree"
            )
        parent, _slash, last = path.rpartition(b"/")
        with Descriptor(open_beneath(self._root, parent, os.O_RDONLY | disk.O_DIRECTORY)) as opened:
            disk.link(opened, last, above, name)

    def _file(self, above: int, name: bytes, path: bytes, info: tarfile.TarInfo, archive: ArchiveReader) -> None:
        mode, mtime = _mode(info, FILE_MODE), _mtime(info)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | disk.O_NOFOLLOW | disk.O_CLOEXEC
        with Descriptor(disk.open_at(above, name, flags, 0o600)) as descriptor:
            for block in archive.blocks(info):
                if block == _ZEROS[: len(block)]:
                    os.lseek(descriptor, len(block), os.SEEK_CUR)  # a hole
                else:
                    write_all(descriptor, block)
            os.ftruncate(descriptor, info.size)
            _set_xattrs(descriptor, dict(self._xattrs(info, WHITEOUT, (b"", b"y"))), path)
            disk.set_mode_of(descriptor, mode)
            disk.set_times_of(descriptor, mtime)
        self._files.add(path)

    def _xattrs(self, info: tarfile.TarInfo, mark: str, values: tuple[bytes, ...]) -> Iterator[tuple[str, bytes]]:
        for key, text in info.pax_headers.items():
            if not key.startswith(XATTR):
                continue
            name, value = _unescaped(key[len(XATTR) :]), text.encode("utf-8", "surrogateescape")
            marks = self._is_layer and name == mark and value in values
            if (
                not name.startswith("user.")
                or "\0" in name
                or len(os.fsencode(name)) > 255
                or (name.startswith("user.overlay.") and not marks)
            ):
                raise RefusedArchive(f"{show(name_of(info))} has the attribute {show(os.fsencode(name))}")
            yield name, value


def _check(path: bytes) -> None:
    try:
        checked = relpath(path)
    except ValueError as error:
        raise RefusedArchive(str(error)) from error
    if checked != path:
        raise RefusedArchive(f"it has an invalid name: {show(path)}")


@contextmanager
def _storing(path: bytes) -> Iterator[None]:
    """Raise RefusedArchive if the entry exists already, or cannot be stored here."""
    try:
        yield
    except FileExistsError:
        raise RefusedArchive(f"it has {show(path)} twice") from None
    except OSError as error:
        if error.errno in _OF_ENTRY:
            raise _unstorable(path, error) from error
        raise


def _unstorable(path: bytes, error: OSError) -> RefusedArchive:
    return RefusedArchive(f"{show(path)} cannot be stored here: {error.strerror}")


def _target(info: tarfile.TarInfo) -> bytes:
    target = info.linkname.encode("utf-8", "surrogateescape")
    if not target or b"\0" in target:
        raise RefusedArchive(f"{show(name_of(info))} is a link without a target")
    return target


def _mode(info: tarfile.TarInfo, allowed: int) -> int:
    if info.mode & ~allowed & 0o7777:
        raise RefusedArchive(f"{show(name_of(info))} has the mode {info.mode & 0o7777:o}")
    return info.mode & allowed


def _unescaped(name: str) -> str:
    raw = _ESCAPE.sub(lambda found: bytes((int(found[1], 16),)), name.encode("utf-8", "surrogateescape"))
    return os.fsdecode(raw)


def _mtime(info: tarfile.TarInfo) -> int:
    whole, _dot, part = info.pax_headers.get("mtime", "0").partition(".")
    if not (whole.isascii() and whole.isdecimal() and len(whole) < 12 and int(whole) < _TIME_LIMIT):
        return 0
    return int(whole) * 10**9 + (int(part[:9].ljust(9, "0")) if part.isascii() and part.isdecimal() else 0)


def _set_xattrs(descriptor: int, values: dict[str, bytes], path: bytes) -> None:
    """``path``: the entry's, for a message."""
    try:
        for name, value in values.items():
            xattr.put(descriptor, name, value)
    except OSError as error:
        if error.errno in FULL:  # also if a file has more attributes than its file system can hold: xattr(7)
            raise _unstorable(path, error) from error
        raise
