"""The calls in ``disk.py`` on Windows: by a directory's handle and a name in it, through ntdll.

A descriptor here is a C runtime descriptor that holds a handle, so ``os.read``, ``os.dup`` and ``os.close`` work on it.

Rules of this file:
1. Each component in a path is opened relative to the handle before it, with FILE_OPEN_REPARSE_POINT, and refused with
   ELOOP if it is a reparse point (a symbolic link, a junction). No path is ever resolved by the system.
2. A name that Windows would take for another (``core/tree/windows_name.py``: streams, devices, trailing dots and
   spaces, separators) never reaches a call: nothing has that name (ENOENT), and nothing can get it (EINVAL). A file
   that has such a name all the same, made through ``\\\\?\\``, is listed as a socket: it is reported and never opened.
   Case counts: a name in another case is not there (ENOENT), although nothing can get it (EEXIST).
3. Every handle shares reading, writing and deletion. A file that another program holds open is tried again for
   ``PATIENCE`` seconds, then it is EBUSY: the caller reports a conflict, and the file stays as it was.
4. Modes are not kept: a file has 0o644, a directory 0o755, as on FAT. Links and pipes are not made (EPERM, ENOTSUP).
5. The whiteouts and marks for a layer's directory stand in its file ``TABLE``, which no listing of the layer shows:
   NTFS has no devices, and its alternate streams would follow a file out of the layer. A whiteout is listed as the
   character device that it is elsewhere. ``nt_layer.py`` has the rules.
6. Identity and times are the handle's. ``st_ctime_ns`` is the time of the last change (FILE_BASIC_INFO, ChangeTime),
   which no program that keeps to the documented calls sets, and not the time of creation.

Sources: NtCreateFile, NtSetInformationFile, NtQueryInformationFile, NtQueryDirectoryFile in the Windows Driver Kit
documentation; the numbers are from ntifs.h and ntstatus.h.
"""

from __future__ import annotations

import sys

assert sys.platform == "win32"

import ctypes
import errno
import itertools
import msvcrt
import os
import stat
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import wintypes

from mudroom.core.system.closing import Descriptor
from mudroom.core.tree.entry import StatResult
from mudroom.core.tree.windows_name import fold
from mudroom.ext.windows.stage.nt_call import (
    BASIC,
    CREATE,
    DELETE,
    DELETE_CHILD,
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
    TAG,
    WRITE_ATTRIBUTES,
    attributes_of,
    change,
    checked,
    close,
    create,
    delete,
    directory_in_the_way,
    error_of,
    granted,
    handle_of,
    is_spelled,
    is_table,
    kernel,
    kinds,
    listed,
    naming,
    query,
    refuse_link,
    rename_open,
    repeat,
    try_create,
)
from mudroom.ext.windows.stage.nt_call import why_unnamed as why_unnamed
from mudroom.ext.windows.stage.nt_file import absolute_path as absolute_path
from mudroom.ext.windows.stage.nt_file import given_path as given_path
from mudroom.ext.windows.stage.nt_file import is_absolute as is_absolute
from mudroom.ext.windows.stage.nt_file import pread as pread
from mudroom.ext.windows.stage.nt_file import pwrite as pwrite
from mudroom.ext.windows.stage.nt_file import read as read
from mudroom.ext.windows.stage.nt_file import real_path as real_path
from mudroom.ext.windows.stage.nt_layer import (
    drop_table,
    drop_whiteout,
    is_gone,
    is_layer,
    read_table,
    refuse_tables,
    write_table,
)
from mudroom.typing import TypeVar

T = TypeVar("T")

O_DIRECTORY, O_NOFOLLOW, O_NONBLOCK, O_CLOEXEC, O_PATH = 1 << 24, 1 << 25, 1 << 26, 1 << 27, 1 << 28
"""Bits that the C runtime does not use: they are read here and never handed to it."""


@contextmanager
def _place(at: int | None, path: bytes | str, may_create: bool = False) -> Iterator[tuple[int, str]]:
    """Yield the handle of the directory above ``path`` and the last name; "" for the directory itself."""
    if at is None:
        above, _slash, last = os.fsencode(path).replace(b"\\", b"/").rpartition(b"/")
        with Descriptor(open_root(above)) as descriptor:
            yield handle_of(descriptor), checked(last, may_create)
        return
    raw = os.fsencode(path)
    if raw in (b"", b"."):
        yield handle_of(at), ""
        return
    *directories, last = raw.split(b"/")
    current, opened, rights = handle_of(at), 0, LIST | granted(handle_of(at)) & DELETE_CHILD
    try:
        for directory in directories:
            name = checked(directory)
            below = create(current, name, rights, options=IS_DIRECTORY)
            try:
                _refuse_other(current, name)
            except BaseException:
                close(below)
                raise
            if opened:
                close(opened)
            current = opened = below
            refuse_link(opened, name)
        yield current, checked(last, may_create)
    finally:
        if opened:
            close(opened)


def _refuse_other(root: int, name: str) -> None:
    if not is_spelled(root, name):
        raise OSError(errno.ENOENT, "it is there in another case", name)


@contextmanager
def _opened(at: int | None, path: bytes | str, access: int, options: int = 0) -> Iterator[int]:
    with _place(at, path) as (root, name):
        handle = create(root, name, access, options=options)
        try:
            if at is not None:
                _refuse_other(root, name)
            yield handle
        finally:
            close(handle)


# --- opening ---


def open_at(at: int | None, name: bytes | str, flags: int, mode: int = 0o777) -> int:
    with _place(at, name, bool(flags & os.O_CREAT)) as (root, last):
        if at is not None and not flags & os.O_CREAT:
            _refuse_other(root, last)
        return _open(root, last, flags, is_layer(root))


def _open(root: int, name: str, flags: int, in_layer: bool = False) -> int:
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
    if in_layer and not options & IS_FILE:
        access |= DELETE_CHILD
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
    """Return a descriptor for a directory whose own path is trusted. Raise OSError (EINVAL) for a path that is not
    absolute: ``C:x`` means another place in each process, and a server's path sends the user's credentials."""
    return open_path(path, os.O_RDONLY | O_DIRECTORY)


def open_layer(path: bytes) -> int:
    """Return a descriptor for a layer's directory: only in it and below it are there whiteouts and marks."""
    return _open(0, _nt_path(os.fsdecode(path)), os.O_RDONLY | O_DIRECTORY, in_layer=True)


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
    """Yield a directory and a path below it. Names go one by one, so no call here has a length limit."""
    yield root, path


def birth_time(path: bytes) -> int:
    """Return 0, "unknown": a file's number tells it from every later one (File Reference Number, MS-FSCC 2.1.9.3)."""
    return 0


def mount_of(path: bytes) -> tuple[int, int]:
    """Return the volume's number, and 0."""
    with Descriptor(open_root(path)) as descriptor:
        return fstat(descriptor).st_dev, 0


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
            if is_gone(root, last):
                return _special_stat(_stat(root), stat.S_IFCHR)
        raise


def _special_stat(above: StatResult, kind: int) -> StatResult:
    """Return a character device 0:0, as a whiteout is elsewhere, or a socket: rule 2."""
    return above._replace(st_mode=kind, st_ino=0, st_nlink=1, st_size=0)


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
    found = listed(root)
    if is_layer(root):
        found = [*(name for name in found if not is_table(name)), *read_table(root)["gone"]]
    return [os.fsencode(name) for name in found]


def stats(at: int, made: Callable[[StatResult], T]) -> list[tuple[bytes, T]]:
    """Return each name with ``made``'s result for its ``stat_at`` result, without names that are gone meanwhile. An
    invalid name is a socket: rule 2."""
    root, found = handle_of(at), []
    in_layer = is_layer(root)
    for name in listed(root):
        if why_unnamed(os.fsencode(name)):
            if not (in_layer and is_table(name)):
                found.append((os.fsencode(name), made(_special_stat(_stat(root), stat.S_IFSOCK))))
            continue
        try:
            handle = create(root, name, READ_ATTRIBUTES)
        except FileNotFoundError:
            continue
        try:
            found.append((os.fsencode(name), made(_stat(handle))))
        finally:
            close(handle)
    gone = read_table(root)["gone"] if in_layer else ()
    return [*found, *((os.fsencode(name), made(_special_stat(_stat(root), stat.S_IFCHR))) for name in gone)]


def children(at: int) -> list[tuple[bytes, bool]]:
    """Return the names in a directory that is about to be cleared, and whether each is a directory. An entry with an
    invalid name is renamed first, or the directory could never be removed."""
    root = handle_of(at)
    rows = kinds(root)
    if is_layer(root):
        rows = [(name, kind) for name, kind in rows if not is_table(name)]
        rows += [(name, False) for name in read_table(root)["gone"]]
    taken = {fold(os.fsencode(name)) for name, _is_directory in rows}
    free = (name for name in map("unnamed-{}".format, itertools.count()) if fold(name.encode()) not in taken)
    for index, (name, is_directory) in enumerate(rows):
        if why_unnamed(os.fsencode(name)):
            rows[index] = (new := next(free), is_directory)
            handle = create(root, name, DELETE | READ_ATTRIBUTES)
            try:
                repeat(lambda: rename_open(handle, naming(2, root, new), naming(0, root, new)), root, new, name)  # noqa: B023
            finally:
                close(handle)
    return [(os.fsencode(name), is_directory) for name, is_directory in rows]


# --- changing names ---


def mkdir(at: int, name: bytes | str, mode: int) -> None:
    with _place(at, name, True) as (root, last):
        close(create(root, last, LIST, CREATE, IS_DIRECTORY))


def mkfifo(at: int, name: bytes, mode: int) -> None:
    raise OSError(errno.ENOTSUP, "Windows has no pipes in directories", name)


def symlink(at: int, name: bytes, target: bytes) -> None:
    raise PermissionError(errno.EPERM, "links are not made on Windows: they need a privilege", name)


def unlink(at: int | None, name: bytes | str) -> None:
    with _place(at, name) as (root, last):
        if is_layer(root) and drop_whiteout(root, last):
            return
        handle = create(root, last, DELETE | READ_ATTRIBUTES | WRITE_ATTRIBUTES, options=IS_FILE)
        if at is not None and not is_spelled(root, last):
            close(handle)
            _refuse_other(root, last)
        delete(handle, last)


def rmdir(at: int, name: bytes | str) -> None:
    with _place(at, name) as (root, last):
        access = LIST | DELETE | READ_ATTRIBUTES | WRITE_ATTRIBUTES | granted(root) & DELETE_CHILD
        handle = create(root, last, access, options=IS_DIRECTORY)
        if at is not None and not is_spelled(root, last):
            close(handle)
            _refuse_other(root, last)
        if is_layer(root) and not read_table(handle)["gone"] and all(map(is_table, listed(handle))):
            drop_table(handle)
        delete(handle, last)
        # without POSIX semantics it stays as long as any process has it open, this process too
        status, left = try_create(root, last, READ_ATTRIBUTES, OPEN, 0, 7)
        if not status:
            close(left)
        if status not in MISSING:
            raise OSError(errno.EBUSY, "it is open, and goes when it is closed", name)


def rename(at: int, name: bytes | str, to: int, new: bytes | str) -> None:
    """Rename, replacing a file with that name."""
    _rename(at, name, to, new, replace=True)


def rename_path(path: bytes | str, new: bytes | str) -> None:
    _rename(None, path, None, new, replace=True)


def rename_new(at: int, name: bytes, to: int, new: bytes) -> None:
    """Rename without replacing. Raise FileExistsError."""
    _rename(at, name, to, new, replace=False)


def _rename(at: int | None, name: bytes | str, to: int | None, new: bytes | str, *, replace: bool) -> None:
    with _place(to, new, True) as (target, last):
        with _place(at, name) as (root, old_name), _opened(at, name, DELETE | READ_ATTRIBUTES) as handle:
            into_layer = is_layer(target)
            if into_layer and not is_layer(root) and attributes_of(handle) & DIRECTORY:
                refuse_tables(root, old_name)
            if replace and any(found not in (last, old_name) for found, _is_directory in kinds(target, last)):
                raise FileExistsError(errno.EEXIST, "a name that differs in case only is there", new)
            data = naming(1 | 2 if replace else 2, target, last)  # REPLACE_IF_EXISTS, POSIX_SEMANTICS
            old = naming(int(replace), target, last)
            try:
                repeat(lambda: rename_open(handle, data, old), target, last, name)
            except PermissionError as error:
                raise (directory_in_the_way(target, last, attributes_of(handle), name) or error) from None
        if replace and into_layer:
            drop_whiteout(target, last)


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
    """Return 0, as for root: modes hinder no user here, so no mode has to be changed before a call."""
    return 0


def group() -> int:
    """Return 0: rule 4."""
    return 0


def sync(descriptor: int) -> None:
    """Flush a file that may be open for reading only. For directories NTFS keeps a journal."""
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
    """Do nothing: flushing a volume needs an administrator. Files that count are flushed one by one."""


# --- the table in a layer's directory ---


def whiteout(at: int, name: bytes) -> None:
    """Record that a name is deleted. Raise FileExistsError if the directory has the name, or a whiteout for it."""
    root = handle_of(at)
    table, last = read_table(root), checked(name, True)
    if last in table["gone"] or is_spelled(root, last):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), name)
    write_table(root, {**table, "gone": [*table["gone"], last]})


def marks(descriptor: int) -> dict[str, str]:
    """Return a directory's marks, which are extended attributes elsewhere; a file has none."""
    handle = handle_of(descriptor)
    return dict(read_table(handle)["marks"]) if attributes_of(handle) & DIRECTORY else {}


def set_marks(descriptor: int, marks: dict[str, str]) -> None:
    """Replace a directory's marks. Raise OSError (ENOTSUP) for a file, and outside a layer."""
    handle = handle_of(descriptor)
    if not attributes_of(handle) & DIRECTORY:
        raise OSError(errno.ENOTSUP, "only directories have marks here")
    write_table(handle, {**read_table(handle), "marks": marks})


def leave_layer(at: int, path: bytes) -> None:
    """Remove the table from a directory that was moved out of a layer, so that it does not follow it."""
    with _opened(at, path, LIST) as handle:
        if attributes_of(handle) & DIRECTORY:
            drop_table(handle)
