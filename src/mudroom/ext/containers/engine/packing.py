"""Pack this machine's directories into an archive that engines import as an image: tar(5).

Rules of this file: everybody who uses the engine can read an image, so only host files that every user can read are
packed. No file in it is set-user-ID, and none is a device.
"""

from __future__ import annotations

import os
import stat
import tarfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack

from mudroom.errors import MudroomError
from mudroom.typing import IO, NamedTuple

_SYSTEM = (b"usr", b"etc", b"opt", b"bin", b"sbin", b"lib", b"lib32", b"lib64", b"libx32")
_LEFT_OUT = (b"usr/lib/modules", b"usr/lib/firmware", b"usr/lib/debug")
"""Host directories that belong to its kernel, not to its toolchain."""
_EMPTY = ((b"proc", 0o755), (b"sys", 0o755), (b"dev", 0o755), (b"run", 0o1777), (b"tmp", 0o1777), (b"var", 0o755))
_MORE = ((b"var/tmp", 0o1777), (b"home", 0o755), (b"root", 0o755))
_OFTEN = 64
"""Entries between two progress reports."""


class PackedTree(NamedTuple):
    files: int
    bytes: int
    left_out: int
    """Entries that not every user can read, or that are no file, directory or link."""


class _Entry(NamedTuple):
    path: bytes
    name: bytes
    """Name in the image."""
    info: os.stat_result


def pack_host(stream: IO[bytes], report: Callable[[int], None], root: bytes = b"/") -> PackedTree:
    """Pack the system directories below ``root``: the files that every user can read, owned by root. ``report`` is
    called with the bytes packed so far. Raise MudroomError if a file shrinks meanwhile."""
    entries = (entry for name in _SYSTEM for entry in _walk(root.rstrip(b"/") + b"/" + name, name))
    files = size = left_out = 0
    try:
        with tarfile.open(fileobj=stream, mode="w|", format=tarfile.GNU_FORMAT, errors="surrogateescape") as archive:
            archive.addfile(_directory(b".", 0o755))
            for name, mode in (*_EMPTY, *_MORE):
                archive.addfile(_directory(name, mode))
            for number, entry in enumerate(entries):
                taken = _add(archive, entry)
                files, size, left_out = files + (taken >= 0), size + max(taken, 0), left_out + (taken < 0)
                if number % _OFTEN == 0:
                    report(size)
    except (tarfile.TarError, OSError) as error:
        if isinstance(error, BrokenPipeError):
            raise
        why = (isinstance(error, OSError) and error.strerror) or error
        raise MudroomError(f"the image cannot be packed: {why}", "run the command again") from error
    return PackedTree(files, size, left_out)


def _directory(name: bytes, mode: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(os.fsdecode(name))
    info.type, info.mode = tarfile.DIRTYPE, mode
    return info


def _add(archive: tarfile.TarFile, entry: _Entry) -> int:
    """Add an entry. Return its size in bytes; -1 if it was left out."""
    kind, mode = stat.S_IFMT(entry.info.st_mode), stat.S_IMODE(entry.info.st_mode)
    needed = 0o005 if kind == stat.S_IFDIR else 0o004
    if kind not in (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK):
        return -1
    if kind != stat.S_IFLNK and mode & needed != needed:
        return -1
    with ExitStack() as held:
        try:
            content = held.enter_context(_opened(entry.path)) if kind == stat.S_IFREG else None
            info = archive.gettarinfo(os.fsdecode(entry.path), os.fsdecode(entry.name), content)
        except OSError:
            return -1  # gone meanwhile, or not readable after all
        info.mode = mode & 0o1777
        info.uid = info.gid = 0
        info.uname = info.gname = ""
        archive.addfile(info, content if info.isreg() else None)
        return info.size if info.isreg() else 0


def _opened(path: bytes) -> IO[bytes]:
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb")


def _walk(path: bytes, name: bytes) -> Iterator[_Entry]:
    """Yield a directory before its entries; no entry if it does not exist."""
    try:
        info = os.lstat(path)
    except OSError:
        return
    if name in _LEFT_OUT:
        return
    yield _Entry(path, name, info)
    if not stat.S_ISDIR(info.st_mode):
        return
    try:
        inside = sorted(os.listdir(path))
    except OSError:
        return
    for child in inside:
        yield from _walk(path + b"/" + child, name + b"/" + child)
