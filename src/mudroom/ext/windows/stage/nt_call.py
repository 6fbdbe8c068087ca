"""ntdll calls on one open file or one name in an open directory, for ``nt_disk.py``, whose rules hold here.

Sources: NtCreateFile, NtSetInformationFile, NtQueryInformationFile, NtQueryDirectoryFile in the Windows Driver Kit
documentation; the numbers are from ntifs.h and ntstatus.h.
"""

from __future__ import annotations

import sys

assert sys.platform == "win32"

import ctypes
import errno
import msvcrt
import os
import struct
import time
from collections.abc import Callable, Iterator
from ctypes import wintypes

from mudroom.core.tree.entry import FileHeld
from mudroom.core.tree.windows_name import fold, why_no_name

TABLE = ".mudroom-layer"
"""The file with the whiteouts and marks for a layer's directory."""
RESERVED = (fold(TABLE.encode()), fold(TABLE.encode() + b".new"))
"""Names that no other file gets or has, in any case."""
PATIENCE = 0.25
"""Seconds: indexers and virus scanners hold a new file for some milliseconds."""
PAUSES = (0.005, 0.01, 0.02, 0.04, 0.07, 0.105)
SYNCHRONIZE, DELETE, READ_ATTRIBUTES, WRITE_ATTRIBUTES = 0x100000, 0x10000, 0x80, 0x100
GENERIC_READ, GENERIC_WRITE = 0x120089, 0x120116  # FILE_GENERIC_READ, FILE_GENERIC_WRITE
LIST = SYNCHRONIZE | READ_ATTRIBUTES | 0x20000 | 0x1 | 0x20  # READ_CONTROL, FILE_LIST_DIRECTORY, FILE_TRAVERSE
DELETE_CHILD = 0x40
"""A right that only handles to layer directories have: ``nt_layer.py``."""
OPEN, CREATE, OPEN_IF, OVERWRITE, OVERWRITE_IF = 1, 2, 3, 4, 5
OPTIONS = 0x20 | 0x4000 | 0x200000  # SYNCHRONOUS_IO_NONALERT, OPEN_FOR_BACKUP_INTENT, OPEN_REPARSE_POINT
IS_DIRECTORY, IS_FILE = 0x1, 0x40
READ_ONLY, DIRECTORY, NORMAL, REPARSE = 0x1, 0x10, 0x80, 0x400
BASIC, STANDARD, RENAME, LINK, DISPOSITION, TAG = 4, 5, 10, 11, 13, 35
DISPOSITION_EX, RENAME_EX = 64, 65
MISSING, HELD = (0xC0000034, 0xC000003A), (0xC0000043, 0xC0000056)
DENIED, CANNOT_DELETE, NO_MORE, NO_FILE = 0xC0000022, 0xC0000121, 0x80000006, 0xC000000F
OLD = (0xC0000002, 0xC0000003, 0xC000000D, 0xC0000010, 0xC00000BB)
"""Statuses from a system or file system that does not know an information class."""
ERRNO = {
    **dict.fromkeys((*MISSING, NO_FILE), errno.ENOENT),
    **dict.fromkeys(HELD, errno.EBUSY),
    **dict.fromkeys(OLD, errno.ENOSYS),
    0xC0000035: errno.EEXIST,
    0xC0000103: errno.ENOTDIR,
    0xC00000BA: errno.EISDIR,
    0xC0000101: errno.ENOTEMPTY,
    0xC0000033: errno.EINVAL,
    0xC000007F: errno.ENOSPC,
    0xC00000D4: errno.EXDEV,
    0xC0000106: errno.ENAMETOOLONG,
    DENIED: errno.EACCES,
    CANNOT_DELETE: errno.EACCES,
}
SINCE_1601 = 116_444_736_000_000_000
"""Units of 100 ns from 1601 to 1970."""
NAME_SURROGATE = 0x20000000
"""The bit in a reparse tag that stands for another place: symbolic links, junctions."""

_nt = ctypes.WinDLL("ntdll")
kernel = ctypes.WinDLL("kernel32", use_last_error=True)


def disguise_placeholders(ntdll: ctypes.WinDLL) -> None:
    """Let this process see files that OneDrive or another sync engine keeps in a cloud as plain files and directories;
    a read downloads them. They are reparse points without being links, and most programs see them so ("Build a Cloud
    Sync Engine that Supports Placeholder Files"), but a Python below %SystemRoot% does not. The call exists since
    Windows 10 1803."""
    disguise = getattr(ntdll, "RtlSetProcessPlaceholderCompatibilityMode", None)
    if disguise is not None:
        disguise.restype, disguise.argtypes = ctypes.c_byte, (ctypes.c_byte,)
        disguise(1)  # PHCM_DISGUISE_PLACEHOLDER; a negative value is an error: they are refused, as links are


disguise_placeholders(_nt)


class _String(ctypes.Structure):
    _fields_ = (("length", wintypes.USHORT), ("room", wintypes.USHORT), ("text", ctypes.c_void_p))


class _Object(ctypes.Structure):
    _fields_ = (
        ("length", wintypes.ULONG),
        ("root", wintypes.HANDLE),
        ("name", ctypes.POINTER(_String)),
        ("attributes", wintypes.ULONG),
        ("descriptor", ctypes.c_void_p),
        ("quality", ctypes.c_void_p),
    )


class _Status(ctypes.Structure):
    _fields_ = (("status", ctypes.c_void_p), ("information", ctypes.c_size_t))


_nt.NtQueryObject.restype = wintypes.ULONG
kernel.CloseHandle.argtypes = (wintypes.HANDLE,)
kernel.FlushFileBuffers.argtypes = (wintypes.HANDLE,)
kernel.GetFileInformationByHandle.argtypes = (wintypes.HANDLE, ctypes.c_void_p)
for _call in (_nt.NtCreateFile, _nt.NtQueryInformationFile, _nt.NtSetInformationFile, _nt.NtQueryDirectoryFile):
    _call.restype = wintypes.ULONG
_nt.NtQueryInformationFile.argtypes = _nt.NtSetInformationFile.argtypes = (
    wintypes.HANDLE,
    ctypes.c_void_p,
    ctypes.c_void_p,
    wintypes.ULONG,
    ctypes.c_int,
)


def error_of(status: int, name: object = None) -> OSError:
    number = ERRNO.get(status, errno.EIO)
    text, kind = f"{os.strerror(number)} ({status:08x})", OSError
    if number == errno.EBUSY:
        text, kind = "another program holds it open", FileHeld
    error = kind(number, text, name)
    error.winerror = None  # type: ignore[assignment]
    return error


# --- one component ---


def create(root: int, name: str, access: int, disposition: int = OPEN, options: int = 0, share: int = 7) -> int:
    """Call NtCreateFile and return a handle. Raise OSError."""
    for pause in (*PAUSES, None):
        status, handle = try_create(root, name, access, disposition, options, share)
        if not status:
            return handle
        if status not in HELD or pause is None or share != 7:
            raise error_of(status, name)
        time.sleep(pause)
    raise AssertionError


def try_create(root: int, name: str, access: int, disposition: int, options: int, share: int) -> tuple[int, int]:
    string, _kept = _string(name)
    what = _Object(ctypes.sizeof(_Object), root, ctypes.pointer(string), 0x40, None, None)  # OBJ_CASE_INSENSITIVE
    handle, result = wintypes.HANDLE(), _Status()
    status = _nt.NtCreateFile(
        ctypes.byref(handle),
        wintypes.ULONG(access | SYNCHRONIZE),
        ctypes.byref(what),
        ctypes.byref(result),
        None,
        wintypes.ULONG(DIRECTORY if options & IS_DIRECTORY else NORMAL),
        wintypes.ULONG(share),
        wintypes.ULONG(disposition),
        wintypes.ULONG(OPTIONS | options),
        None,
        wintypes.ULONG(0),
    )
    return status, handle.value or 0


def _string(name: str) -> tuple[_String, object]:
    """Return a UNICODE_STRING, and the buffer that has to live as long as it."""
    text = name.encode("utf-16-le", "surrogatepass")
    buffer = ctypes.create_string_buffer(text, len(text) + 2)
    return _String(len(text), len(text), ctypes.addressof(buffer)), buffer


def query(handle: int, kind: int, size: int) -> bytes:
    buffer, result = ctypes.create_string_buffer(size), _Status()
    status = _nt.NtQueryInformationFile(handle, ctypes.byref(result), buffer, size, kind)
    if status:
        raise error_of(status)
    return buffer.raw


def change(handle: int, kind: int, data: bytes) -> int:
    result = _Status()
    status: int = _nt.NtSetInformationFile(handle, ctypes.byref(result), data, len(data), kind)
    return status


def close(handle: int) -> None:
    kernel.CloseHandle(handle)


def attributes_of(handle: int) -> int:
    number: int = struct.unpack_from("<I", query(handle, BASIC, 40), 32)[0]
    return number


def refuse_link(handle: int, name: str) -> None:
    if attributes_of(handle) & REPARSE:
        raise OSError(errno.ELOOP, "it is a link, a junction or another reparse point", name)


def handle_of(descriptor: int) -> int:
    return msvcrt.get_osfhandle(descriptor)


def why_unnamed(name: bytes) -> str:
    """Return why nothing here can have this name; empty if something can."""
    if fold(name) in RESERVED:
        return "it is the name of mudroom's own tables in layers"
    return why_no_name(name) or ""


def is_table(name: str) -> bool:
    return fold(os.fsencode(name)) in RESERVED


def checked(name: bytes | str, may_create: bool = False) -> str:
    raw = os.fsencode(name)
    why = why_unnamed(raw)
    if why:
        raise OSError(errno.EINVAL if may_create else errno.ENOENT, why, name)
    return os.fsdecode(raw)


def granted(handle: int) -> int:
    """Return a handle's rights: NtQueryObject, ObjectBasicInformation."""
    buffer = ctypes.create_string_buffer(56)
    status = _nt.NtQueryObject(wintypes.HANDLE(handle), 0, buffer, 56, None)
    if status:
        raise error_of(status)
    rights: int = struct.unpack_from("<I", buffer.raw, 4)[0]
    return rights


def listed(root: int) -> list[str]:
    """Return the names in a directory."""
    return [name for name, _is_directory in kinds(root)]


def kinds(root: int, only: str = "") -> list[tuple[str, bool]]:
    """Return the names in a directory, and whether each is a directory: NtQueryDirectoryFile with
    FileDirectoryInformation. ``only``: this name, in any case."""
    rows: list[tuple[str, bool]] = []
    # By its own handle: the position belongs to the handle, which others share.
    handle, buffer = create(root, "", LIST, options=IS_DIRECTORY), ctypes.create_string_buffer(1024 if only else 65536)
    try:
        while not (status := _next_names(handle, buffer, only)):
            rows += _names_in(buffer.raw)
    finally:
        close(handle)
    if status not in (NO_MORE, NO_FILE):
        raise error_of(status)
    return rows


def is_spelled(root: int, name: str) -> bool:
    """Return whether the directory has the name in exactly this case. An unlistable directory counts as having it."""
    try:
        return not name or any(found == name for found, _is_directory in kinds(root, name))
    except PermissionError:
        return True


def _next_names(handle: int, buffer: ctypes.Array[ctypes.c_char], only: str) -> int:
    result, size = _Status(), len(buffer)
    mask, _kept = _string(only)
    which = ctypes.byref(mask) if only else None
    status: int = _nt.NtQueryDirectoryFile(
        wintypes.HANDLE(handle), None, None, None, ctypes.byref(result), buffer, size, 1, 0, which, 0
    )
    return status


def _names_in(data: bytes) -> Iterator[tuple[str, bool]]:
    """Yield the names in FILE_DIRECTORY_INFORMATION, without ``.`` and ``..``."""
    offset = 0
    while True:
        (following,) = struct.unpack_from("<I", data, offset)
        attributes, length = struct.unpack_from("<II", data, offset + 56)
        name = data[offset + 64 : offset + 64 + length].decode("utf-16-le", "surrogatepass")
        if name not in (".", ".."):
            yield name, attributes & (DIRECTORY | REPARSE) == DIRECTORY
        if not following:
            return
        offset += following


def delete(handle: int, name: str) -> None:
    """Delete an open file and close it. With POSIX semantics, where the file system has them: the name is free at once,
    also while others hold the file."""
    try:
        status = change(handle, DISPOSITION_EX, struct.pack("<I", 0x1 | 0x2 | 0x10))  # DELETE, POSIX, IGNORE_READONLY
        if status in OLD:
            if attributes_of(handle) & READ_ONLY:
                change(handle, BASIC, struct.pack("<qqqqI4x", 0, 0, 0, 0, NORMAL))
            status = change(handle, DISPOSITION, b"\1")
        if status:
            raise error_of(status, name)
    finally:
        close(handle)


def rename_open(handle: int, data: bytes, old: bytes) -> int:
    status = change(handle, RENAME_EX, data)
    return change(handle, RENAME, old) if status in OLD else status


def naming(flags: int, root: int, name: str) -> bytes:
    """Return FILE_RENAME_INFORMATION or FILE_LINK_INFORMATION for 64-bit Windows."""
    text = name.encode("utf-16-le", "surrogatepass")
    return struct.pack("<I4xQI", flags, root, len(text)) + text + b"\0\0"


def repeat(act: Callable[[], int], target: int, last: str, name: bytes | str) -> None:
    """Call ``act``, again while another program holds a file. A name that is to be replaced, and is held, is refused
    with STATUS_ACCESS_DENIED, like a missing right."""
    for pause in (*PAUSES, None):
        status = act()
        if not status:
            return
        held = status in HELD or (status == DENIED and is_held(target, last))
        if held and pause is not None:
            time.sleep(pause)
            continue
        raise error_of(HELD[0] if held else status, name)


def directory_in_the_way(target: int, last: str, attributes: int, name: bytes | str) -> OSError | None:
    """Return rename(2)'s error for a directory that has the new name, or None if there is no such directory. NT's
    refusal to replace it looks like a missing right. ``attributes``: the renamed file's."""
    status, handle = try_create(target, last, READ_ATTRIBUTES, OPEN, IS_DIRECTORY, 7)
    if status:
        return None
    close(handle)
    number = errno.ENOTEMPTY if attributes & DIRECTORY else errno.EISDIR
    return OSError(number, os.strerror(number), name)


def is_held(root: int, name: str) -> bool:
    """Return whether another program has the file open: an open that shares nothing is refused then."""
    status, handle = try_create(root, name, READ_ATTRIBUTES | 0x1, OPEN, 0, 0)
    if not status:
        close(handle)
    return status in HELD
