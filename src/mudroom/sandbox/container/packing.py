"""Directories of this machine as an archive that engines take for an image: tar(5).

Rules of this file: what goes into an image can be read by whoever uses the engine, so of the host only what everybody
on it can read goes there. Nothing of it is set-user-ID, and no device.
"""

from __future__ import annotations

import os
import stat
import tarfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import IO, NamedTuple

from mudroom.errors import MudroomError

_SYSTEM = (b"usr", b"etc", b"opt", b"bin", b"sbin", b"lib", b"lib32", b"lib64", b"libx32")
_LEFT_OUT = (b"usr/lib/modules", b"usr/lib/firmware", b"usr/lib/debug")
"""Of the host: what belongs to its kernel, not to its toolchain."""
_CACHES = (b"var/cache/apt/archives", b"var/lib/apt/lists", b"var/log")
"""Of a bootstrapped root: only the directories themselves are of use."""
_EMPTY = ((b"proc", 0o755), (b"sys", 0o755), (b"dev", 0o755), (b"run", 0o1777), (b"tmp", 0o1777), (b"var", 0o755))
_MORE = ((b"var/tmp", 0o1777), (b"home", 0o755), (b"root", 0o755))
_OFTEN = 64
"""Entries between two words about how far it is."""


class PackedTree(NamedTuple):
    files: int
    bytes: int
    left_out: int
    """Entries that not everybody can read, and what is no file, directory or link."""


class _Entry(NamedTuple):
    path: bytes
    name: bytes
    """In the image."""
    found: os.stat_result


def pack_host(stream: IO[bytes], tell: Callable[[int], None], root: bytes = b"/") -> PackedTree:
    """The system directories below ``root``: what everybody can read, as root's. ``tell`` is called with the bytes so
    far. Raises MudroomError if a file shrinks meanwhile."""
    made = [(name, mode) for name, mode in (*_EMPTY, *_MORE)]
    entries = (entry for name in _SYSTEM for entry in _walk(root.rstrip(b"/") + b"/" + name, name, _LEFT_OUT))
    return _pack(stream, entries, made, tell, everything=False)


def pack_root(stream: IO[bytes], directory: bytes, tell: Callable[[int], None]) -> PackedTree:
    """A whole root that was bootstrapped, but for its caches, with its owners. For root."""
    entries = (
        entry
        for entry in _walk(directory, b"", ())
        if not any(entry.name.startswith(cache + b"/") for cache in (*_CACHES, b"dev", b"proc", b"sys"))
    )
    return _pack(stream, entries, [], tell, everything=True)


def _pack(
    stream: IO[bytes],
    entries: Iterable[_Entry],
    made: Iterable[tuple[bytes, int]],
    tell: Callable[[int], None],
    *,
    everything: bool,
) -> PackedTree:
    files = size = left_out = 0
    try:
        with tarfile.open(fileobj=stream, mode="w|", format=tarfile.GNU_FORMAT, errors="surrogateescape") as archive:
            archive.addfile(_directory(b".", 0o755))
            for name, mode in made:
                archive.addfile(_directory(name, mode))
            for number, entry in enumerate(entries):
                taken = _add(archive, entry, everything=everything)
                files, size, left_out = files + (taken >= 0), size + max(taken, 0), left_out + (taken < 0)
                if number % _OFTEN == 0:
                    tell(size)
    except (tarfile.TarError, OSError) as error:
        if isinstance(error, BrokenPipeError):
            raise
        raise MudroomError(f"the image cannot be packed: {error}") from error
    return PackedTree(files, size, left_out)


def _directory(name: bytes, mode: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(os.fsdecode(name))
    info.type, info.mode = tarfile.DIRTYPE, mode
    return info


def _add(archive: tarfile.TarFile, entry: _Entry, *, everything: bool) -> int:
    """Bytes of what was taken; -1: it was left out."""
    kind, mode = stat.S_IFMT(entry.found.st_mode), stat.S_IMODE(entry.found.st_mode)
    needed = 0o005 if kind == stat.S_IFDIR else 0o004
    if kind not in (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK):
        return -1
    if not everything and kind != stat.S_IFLNK and mode & needed != needed:
        return -1
    with ExitStack() as held:
        try:
            content = held.enter_context(_opened(entry.path)) if kind == stat.S_IFREG else None
            info = archive.gettarinfo(os.fsdecode(entry.path), os.fsdecode(entry.name), content)
        except OSError:
            return -1  # gone meanwhile, or not for us after all
        info.mode = mode & (0o7777 if everything else 0o1777)
        if not everything:
            info.uid = info.gid = 0
            info.uname = info.gname = ""
        archive.addfile(info, content if info.isreg() else None)
        return info.size if info.isreg() else 0


def _opened(path: bytes) -> IO[bytes]:
    return os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb")


def _walk(path: bytes, name: bytes, left_out: tuple[bytes, ...]) -> Iterator[_Entry]:
    """A directory before what is in it; nothing if it is not there."""
    try:
        found = os.lstat(path)
    except OSError:
        return
    if name in left_out:
        return
    if name:
        yield _Entry(path, name, found)
    if not stat.S_ISDIR(found.st_mode):
        return
    try:
        inside = sorted(os.listdir(path))
    except OSError:
        return
    for one in inside:
        yield from _walk(path + b"/" + one, name + b"/" + one if name else one, left_out)
