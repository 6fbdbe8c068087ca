"""The calls of ``disk.py`` on Windows: by a directory's handle and a name in it, through ntdll.

A descriptor here is one of the C runtime that holds a handle, so ``os.read``, ``os.dup`` and ``os.close`` work on it.

Rules of this file:
1. Each component of a path is opened relative to the handle before it, with FILE_OPEN_REPARSE_POINT, and refused with
   ELOOP if it is a reparse point (a symbolic link, a junction). No path is ever resolved by the system.
2. A name that Windows would take for another (``core/tree/windows_name.py``: streams, devices, trailing dots and
   spaces, separators) never reaches a call: nothing has that name (ENOENT), and nothing can get it (EINVAL).
3. Every handle shares reading, writing and deletion. A file that another program holds open is tried again for
   ``PATIENCE`` seconds, then it is EBUSY: the caller reports a conflict, and the file stays as it was.
4. Modes are not kept: a file has 0o644, a directory 0o755, as on FAT. Links and pipes are not made (EPERM, ENOTSUP).
5. A whiteout and the marks of a layer's directory stand in the file ``TABLE`` of that directory, which no listing
   shows: NTFS has no devices, and its alternate streams would follow a file out of the layer. A whiteout is listed as
   the character device that it is elsewhere.
6. Identity and times are those of the handle. ``st_ctime_ns`` is the time of the last change (FILE_BASIC_INFO,
   ChangeTime), which no program that keeps to the documented calls sets, and not the time of creation.

Sources: NtCreateFile, NtSetInformationFile, NtQueryInformationFile, NtQueryDirectoryFile in the documentation of the
Windows Driver Kit; the numbers are those of ntifs.h and ntstatus.h.
"""

from __future__ import annotations

import sys

assert sys.platform == "win32"

import ctypes
import errno
import json
import msvcrt
import os
import stat
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import wintypes

from mudroom.core.tree.entry import StatResult
from mudroom.stage.nt_call import (
    BASIC,
    CREATE,
    DELETE,
    DIRECTORY,
    GENERIC_READ,
    GENERIC_WRITE,
    IS_DIRECTORY,
    IS_FILE,
    LINK,
    LIST,
    MISSING,
    NAME_SURROGATE,
    OPEN,
    OPEN_IF,
    OVERWRITE,
    OVERWRITE_IF,
    READ_ATTRIBUTES,
    REPARSE,
    SINCE_1601,
    STANDARD,
    SYNCHRONIZE,
    TABLE,
    TAG,
    WRITE_ATTRIBUTES,
    attributes_of,
    change,
    checked,
    close,
    create,
    delete,
    error_of,
    handle_of,
    kernel,
    listed,
    naming,
    query,
    refuse_link,
    rename_open,
    repeat,
    try_create,
)
from mudroom.stage.nt_file import absolute_path as absolute_path
from mudroom.stage.nt_file import given_path as given_path
from mudroom.stage.nt_file import is_absolute as is_absolute
from mudroom.stage.nt_file import pread as pread
from mudroom.stage.nt_file import pwrite as pwrite
from mudroom.stage.nt_file import real_path as real_path
from mudroom.typing import Any, TypeVar

T = TypeVar("T")

O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK, O_CLOEXEC, O_PATH = 1 << 24, 1 << 25, 1 << 26, 1 << 27, 1 << 28
"""Bits that the C runtime does not use: they are read here and never handed to it."""


@contextmanager
def _place(at: int | None, path: bytes | str, may_create: bool = False) -> Iterator[tuple[int, str]]:
    """Yield the handle of the directory above ``path`` and the last name; "" for the directory itself."""
    if at is None:
        above, _slash, last = os.fsencode(path).replace(b"\\", b"/").rpartition(b"/")
        descriptor = open_root(above)
        try:
            yield handle_of(descriptor), checked(last, may_create)
        finally:
            os.close(descriptor)
        return
    raw = os.fsencode(path)
    if raw in (b"", b"."):
        yield handle_of(at), ""
        return
    *directories, last = raw.split(b"/")
    current, opened = handle_of(at), 0
    try:
        for directory in directories:
            below = create(current, checked(directory), LIST, options=IS_DIRECTORY)
            if opened:
                close(opened)
            current = opened = below
            refuse_link(opened, os.fsdecode(directory))
        yield current, checked(last, may_create)
    finally:
        if opened:
            close(opened)


@contextmanager
def _opened(at: int | None, path: bytes | str, access: int, options: int = 0) -> Iterator[int]:
    with _place(at, path) as (root, name):
        handle = create(root, name, access, options=options)
        try:
            yield handle
        finally:
            close(handle)


# --- opening ---


def open_at(at: int | None, name: bytes | str, flags: int, mode: int = 0o777) -> int:
    with _place(at, name, bool(flags & os.O_CREAT)) as (root, last):
        return _open(root, last, flags)


def _open(root: int, name: str, flags: int) -> int:
    writes, options = flags & 3, 0
    access = GENERIC_READ if writes == os.O_RDONLY else GENERIC_WRITE
    if writes == os.O_RDWR:
        access |= GENERIC_READ
    if flags & O_PATH:
        access = READ_ATTRIBUTES | SYNCHRONIZE
    if flags & O_DIRECTORY:
        access, options = LIST, IS_DIRECTORY
    elif writes or flags & os.O_CREAT:
        options = IS_FILE
    disposition = OVERWRITE if flags & os.O_TRUNC else OPEN
    if flags & os.O_CREAT:
        disposition = OVERWRITE_IF if flags & os.O_TRUNC else OPEN_IF
        disposition = CREATE if flags & os.O_EXCL else disposition
    handle = create(root, name, access, disposition, options)
    try:
        refuse_link(handle, name)
        return msvcrt.open_osfhandle(handle, flags & (os.O_APPEND | 3) | os.O_NOINHERIT)
    except BaseException:
        close(handle)
        raise


def open_root(path: bytes) -> int:
    """Return a descriptor of a directory whose own path is trusted. Raise OSError (EINVAL) for a path that is not
    absolute: ``C:x`` means another place in each process, and a server's path sends the user's credentials."""
    return open_path(path, os.O_RDONLY | O_DIRECTORY)


def open_path(path: bytes | str | os.PathLike[str], flags: int, mode: int = 0o777) -> int:
    """Open an absolute path whose directories are trusted. The end may not be a link."""
    return _open(0, _nt_path(os.fsdecode(path)), flags)


def _nt_path(path: str) -> str:
    text = path.replace("/", "\\").removeprefix("\\\\?\\")
    if len(text) < 3 or not text[0].isalpha() or text[1:3] != ":\\":
        why = "a path on a server" if text.startswith("\\\\") else "it does not begin with a drive and \\, as C:\\ does"
        raise OSError(errno.EINVAL, why, path)
    return "\\??\\" + (text.rstrip("\\") if len(text) > 3 else text)


def open_beneath(root: int, path: bytes, flags: int, mode: int = 0) -> int:
    """Open ``path`` below ``root``, refusing every reparse point on the way and at the end."""
    return open_at(root, path, flags, mode)


@contextmanager
def reach(root: int, path: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield a directory and a path below it: no call here has a limit of length, as names go by one."""
    yield root, path


def mount_of(path: bytes) -> tuple[int, int]:
    """Return the number of the volume, and 0."""
    descriptor = open_root(path)
    try:
        return fstat(descriptor).st_dev, 0
    finally:
        os.close(descriptor)


def handle(descriptor: int) -> int:
    return descriptor


# --- looking ---


def fstat(descriptor: int) -> StatResult:
    return _stat(handle_of(descriptor))


def _stat(handle: int) -> StatResult:
    _created, _read, written, changed, attributes = struct.unpack_from("<qqqqI", query(handle, BASIC, 40))
    _room, size, links, _pending, _directory = struct.unpack_from("<qqIBB", query(handle, STANDARD, 24))
    identity = ctypes.create_string_buffer(52)  # BY_HANDLE_FILE_INFORMATION
    if not kernel.GetFileInformationByHandle(handle, identity):
        raise OSError(errno.EIO, f"its identity cannot be read ({ctypes.get_last_error()})")
    volume = struct.unpack_from("<I", identity.raw, 28)[0]
    high, low = struct.unpack_from("<II", identity.raw, 44)
    mode = stat.S_IFDIR | 0o755 if attributes & DIRECTORY else stat.S_IFREG | 0o644
    if attributes & REPARSE and struct.unpack_from("<II", query(handle, TAG, 8))[1] & NAME_SURROGATE:
        mode = stat.S_IFLNK | 0o777
    return StatResult(
        mode, high << 32 | low, volume, links, 0, 0, size, (written - SINCE_1601) * 100, (changed - SINCE_1601) * 100
    )


def stat_at(at: int | None, name: bytes | str) -> StatResult:
    try:
        with _opened(at, name, READ_ATTRIBUTES) as handle:
            return _stat(handle)
    except FileNotFoundError:
        with _place(at, name) as (root, last):
            if last in _read_table(root)["gone"]:
                return _whiteout_stat(_stat(root))
        raise


def _whiteout_stat(above: StatResult) -> StatResult:
    """Return a character device 0:0, as a whiteout is elsewhere."""
    return above._replace(st_mode=stat.S_IFCHR, st_ino=0, st_nlink=1, st_size=0)


def readlink(at: int, name: bytes) -> bytes:
    """Return the path that a symbolic link or junction prints (FSCTL_GET_REPARSE_POINT, REPARSE_DATA_BUFFER)."""
    with _opened(at, name, READ_ATTRIBUTES) as handle:
        buffer, done = ctypes.create_string_buffer(16384), wintypes.DWORD()
        asked = (wintypes.HANDLE(handle), 0x900A8, None, 0, buffer, 16384, ctypes.byref(done), None)
        if not kernel.DeviceIoControl(*asked):
            raise OSError(errno.EINVAL, "it is no link", name)
    data = buffer.raw[: done.value]
    tag = struct.unpack_from("<I", data)[0]
    begin, length = struct.unpack_from("<HH", data, 12)  # PrintNameOffset, PrintNameLength
    start = (20 if tag == 0xA000000C else 16) + begin
    return os.fsencode(data[start : start + length].decode("utf-16-le", "surrogatepass").replace("\\", "/"))


def names(at: int) -> list[bytes]:
    """Return the names in an open directory, whiteouts included."""
    root = handle_of(at)
    there = listed(root)
    gone = _read_table(root)["gone"] if TABLE in there else []
    return [os.fsencode(name) for name in (*there, *gone) if name not in (TABLE, TABLE + ".new")]


def stats(at: int, made: Callable[[StatResult], T]) -> list[tuple[bytes, T]]:
    """Return names and what ``made`` makes of what ``stat_at`` returns of them, without those that are gone
    meanwhile."""
    found = []
    for name in names(at):
        try:
            info = stat_at(at, name)
        except FileNotFoundError:
            continue
        found.append((name, made(info)))
    return found


def children(at: int) -> list[tuple[bytes, bool]]:
    """Return the names with whether each is a directory, in the order in which they are removed fastest."""
    return stats(at, lambda info: stat.S_ISDIR(info.st_mode))


# --- changing names ---


def mkdir(at: int, name: bytes | str, mode: int) -> None:
    with _place(at, name, True) as (root, last):
        close(create(root, last, LIST, CREATE, IS_DIRECTORY))


def mkfifo(at: int, name: bytes, mode: int) -> None:
    raise OSError(errno.ENOTSUP, "Windows has no pipes in directories", name)


def symlink(at: int, name: bytes, target: bytes) -> None:
    raise PermissionError(errno.EPERM, "links are not made on Windows: they need a privilege", name)


def unlink(at: int, name: bytes | str) -> None:
    with _place(at, name) as (root, last):
        try:
            handle = create(root, last, DELETE | READ_ATTRIBUTES | WRITE_ATTRIBUTES, options=IS_FILE)
        except FileNotFoundError:
            if not _drop_whiteout(root, last):
                raise
            return
        delete(handle, last)


def rmdir(at: int, name: bytes | str) -> None:
    with _place(at, name) as (root, last):
        handle = create(root, last, LIST | DELETE | READ_ATTRIBUTES | WRITE_ATTRIBUTES, options=IS_DIRECTORY)
        if listed(handle) == [TABLE] and not _read_table(handle)["gone"]:
            delete(create(handle, TABLE, DELETE | READ_ATTRIBUTES | WRITE_ATTRIBUTES), TABLE)
        delete(handle, last)
        # without POSIX semantics it stays as long as anybody has it open, this process too
        status, left = try_create(root, last, READ_ATTRIBUTES, OPEN, 0, 7)
        if not status:
            close(left)
        if status not in MISSING:
            raise OSError(errno.EBUSY, "it is open, and goes when it is closed", name)


def rename(at: int, name: bytes | str, to: int, new: bytes | str) -> None:
    """Rename, replacing a file of that name."""
    _rename(at, name, to, new, replace=True)


def rename_path(path: bytes | str, new: bytes | str) -> None:
    _rename(None, path, None, new, replace=True)


def rename_new(at: int, name: bytes, to: int, new: bytes) -> None:
    """Rename without replacing. Raise FileExistsError."""
    _rename(at, name, to, new, replace=False)


def _rename(at: int | None, name: bytes | str, to: int | None, new: bytes | str, *, replace: bool) -> None:
    with _place(to, new, True) as (target, last):
        with _opened(at, name, DELETE | READ_ATTRIBUTES) as handle:
            data = naming(1 | 2 if replace else 2, target, last)  # REPLACE_IF_EXISTS, POSIX_SEMANTICS
            old = naming(int(replace), target, last)
            repeat(lambda: rename_open(handle, data, old), target, last, name)
        if replace:
            _drop_whiteout(target, last)


def link(at: int, name: bytes, to: int, new: bytes) -> None:
    """Add the name ``new`` in ``to``."""
    with _place(to, new, True) as (target, last), _opened(at, name, WRITE_ATTRIBUTES, IS_FILE) as handle:
        refuse_link(handle, os.fsdecode(name))
        repeat(lambda: change(handle, LINK, naming(0, target, last)), target, last, name)


def exchange(at: int, name: bytes, to: int, new: bytes) -> None:
    """Raise OSError (ENOSYS): the caller has three moves for it."""
    raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), name)


# --- attributes ---


def set_mode(at: int, name: bytes, mode: int) -> None:
    """Do nothing: rule 4."""


def set_mode_safely(at: int, name: bytes, mode: int) -> None:
    """Do nothing: rule 4."""


def set_mode_by(handle: int | bytes, mode: int) -> None:
    """Do nothing: rule 4."""


def set_mode_of(descriptor: int, mode: int) -> None:
    """Do nothing: rule 4."""


def set_owner(at: int | None, name: bytes | str, user: int, group: int) -> None:
    """Do nothing: a file belongs to its creator, or to the administrators."""


def set_times_of(descriptor: int, time: int) -> None:
    _set_time(handle_of(descriptor), time)


def _set_time(handle: int, time: int) -> None:
    units = time // 100 + SINCE_1601
    status = change(handle, BASIC, struct.pack("<qqqqI4x", 0, units, units, 0, 0))  # 0: as it is
    if status:
        raise error_of(status)


def set_mode_and_times(at: int, name: bytes, mode: int, time: int) -> None:
    with _opened(at, name, WRITE_ATTRIBUTES) as handle:
        _set_time(handle, time)


def user() -> int:
    """Return 0: modes hinder nobody here, so none has to be changed before a call, as for root."""
    return 0


def group() -> int:
    """Return 0: rule 4."""
    return 0


def sync(descriptor: int) -> None:
    """Flush a file that may be open for reading only. Of a directory NTFS keeps a journal."""
    handle = handle_of(descriptor)
    if attributes_of(handle) & DIRECTORY:
        return
    again = create(handle, "", GENERIC_WRITE)
    try:
        if not kernel.FlushFileBuffers(again):
            raise OSError(errno.EIO, f"it cannot be flushed ({ctypes.get_last_error()})")
    finally:
        close(again)


def sync_filesystem(descriptor: int) -> None:
    """Do nothing: to flush a volume needs an administrator. Files that count are flushed one by one."""


# --- the table of a layer's directory ---


def whiteout(at: int, name: bytes) -> None:
    """Record the deletion of a name that the directory does not have."""
    root = handle_of(at)
    table, last = _read_table(root), checked(name, True)
    if last in table["gone"] or last in listed(root):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)
    _write_table(root, {**table, "gone": [*table["gone"], last]})


def marks(descriptor: int) -> dict[str, str]:
    """Return the marks of a directory, which are extended attributes elsewhere; none of a file."""
    handle = handle_of(descriptor)
    return dict(_read_table(handle)["marks"]) if attributes_of(handle) & DIRECTORY else {}


def set_marks(descriptor: int, marks: dict[str, str]) -> None:
    """Replace the marks of a directory. Raise OSError (ENOTSUP) for a file."""
    handle = handle_of(descriptor)
    if not attributes_of(handle) & DIRECTORY:
        raise OSError(errno.ENOTSUP, "only directories have marks here")
    _write_table(handle, {**_read_table(handle), "marks": marks})


def _drop_whiteout(root: int, name: str) -> bool:
    table = _read_table(root)
    if name not in table["gone"]:
        return False
    _write_table(root, {**table, "gone": [other for other in table["gone"] if other != name]})
    return True


def _read_table(root: int) -> Any:
    """Return the table. Raise OSError (EIO) if it is no table: a layer is not guessed at."""
    empty: dict[str, list[str] | dict[str, str]] = {"gone": [], "marks": {}}
    try:
        descriptor = _open(root, TABLE, os.O_RDONLY)
    except (FileNotFoundError, NotADirectoryError):
        return empty
    with os.fdopen(descriptor, "rb") as stream:
        data = stream.read(1 << 24)
    try:
        table = json.loads(data)
        if all(isinstance(table[key], type(value)) for key, value in empty.items()):
            return table
    except (ValueError, KeyError, TypeError):
        pass
    raise OSError(errno.EIO, "the table of this layer is damaged", TABLE)


def _write_table(root: int, table: Any) -> None:
    """Replace the table whole; remove it if it says nothing."""
    new = TABLE + ".new"
    descriptor = _open(root, new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(json.dumps(table).encode())
    handle = create(root, new, DELETE | READ_ATTRIBUTES | WRITE_ATTRIBUTES)
    if not any(table.values()):
        delete(handle, new)
        try:
            delete(create(root, TABLE, DELETE | READ_ATTRIBUTES | WRITE_ATTRIBUTES), TABLE)
        except FileNotFoundError:
            pass
        return
    try:
        repeat(lambda: rename_open(handle, naming(3, root, TABLE), naming(1, root, TABLE)), root, TABLE, TABLE)
    finally:
        close(handle)
