"""Part of ``nt_disk.py``: reading and writing at an offset, and paths as they are kept inside (UTF-8, a drive, ``/``
between names: ``core/tree/windows_path.py``)."""

from __future__ import annotations

import sys

assert sys.platform == "win32"

import ctypes
import errno
import os
from collections.abc import Callable
from ctypes import wintypes

from mudroom.core.tree.entry import FileHeld
from mudroom.core.tree.windows_name import why_no_name
from mudroom.core.tree.windows_path import inner_path
from mudroom.errors import UsageError
from mudroom.ext.windows.stage.nt_call import handle_of, kernel

_HANDLE_EOF, _LOCK_VIOLATION = 38, 33
"""ERROR_HANDLE_EOF and ERROR_LOCK_VIOLATION in winerror.h."""
_CLOUD = (358, *range(362, 367), 374, 375, *range(377, 384), *range(386, 399), 404, 426, 434)
"""ERROR_CLOUD_FILE_… in winerror.h, such as 362, ERROR_CLOUD_FILE_PROVIDER_NOT_RUNNING."""


class _At(ctypes.Structure):
    """OVERLAPPED. With it, ReadFile and WriteFile on a synchronous handle begin at its offset ("Synchronous and
    Asynchronous I/O"); they move the handle's own position, which readers at an offset do not use."""

    _fields_ = (
        ("internal", ctypes.c_void_p),
        ("internal_high", ctypes.c_void_p),
        ("low", wintypes.DWORD),
        ("high", wintypes.DWORD),
        ("event", wintypes.HANDLE),
    )


for _call in (kernel.ReadFile, kernel.WriteFile):
    _call.argtypes = (wintypes.HANDLE, ctypes.c_void_p, wintypes.DWORD, ctypes.c_void_p, ctypes.c_void_p)


def read(descriptor: int, length: int) -> bytes:
    """Read as ``os.read`` does. Raise FileHeld for a part that another process has locked (LockFileEx), which is the C
    runtime's EACCES."""
    try:
        return os.read(descriptor, length)
    except PermissionError as error:
        raise _locked() from error


def _locked() -> FileHeld:
    return FileHeld(errno.EBUSY, "another program has locked a part of it")


def pread(descriptor: int, length: int, offset: int) -> bytes:
    buffer, done = ctypes.create_string_buffer(length), wintypes.DWORD()
    at = _At(low=offset & 0xFFFFFFFF, high=offset >> 32)
    if not kernel.ReadFile(handle_of(descriptor), buffer, length, ctypes.byref(done), ctypes.byref(at)):
        number = ctypes.get_last_error()
        if number == _LOCK_VIOLATION:
            raise _locked()
        if number == _HANDLE_EOF:
            return b""
        raise OSError(errno.EIO, _why_unread(number))
    return buffer.raw[: done.value]


def _why_unread(number: int) -> str:
    if number in _CLOUD:
        return f"its content is in a cloud, and cannot be downloaded now ({number}); attrib +p keeps it on this device"
    return f"it cannot be read ({number})"


def pwrite(descriptor: int, data: bytes, offset: int) -> int:
    done, at = wintypes.DWORD(), _At(low=offset & 0xFFFFFFFF, high=offset >> 32)
    if not kernel.WriteFile(handle_of(descriptor), data, len(data), ctypes.byref(done), ctypes.byref(at)):
        number = ctypes.get_last_error()
        raise OSError(errno.ENOSPC if number in (39, 112) else errno.EIO, f"it cannot be written ({number})")
    return done.value


def real_path(path: bytes) -> bytes:
    """Return the path with all links followed. Raise UsageError for a path that is not kept: relative to a drive's own
    directory, on a server or a device, or with a name that Windows takes for another."""
    return _inner(path, os.path.realpath)


def absolute_path(path: bytes) -> bytes:
    return _inner(path, os.path.abspath)


def given_path(path: bytes) -> bytes:
    """Return a path that a user has typed, absolute or not. Raise UsageError as ``real_path``."""
    drive = path[1:2] == b":" or path[:1] in (b"/", b"\\")
    return _inner(path, lambda text: text) if drive else _checked(os.fsdecode(path)).replace("\\", "/").encode()


def is_absolute(path: bytes) -> bool:
    return path[1:3] == b":/" and path[:1].isalpha()


def _inner(path: bytes, made: Callable[[str], str]) -> bytes:
    text = os.fsdecode(path)
    try:
        if text[:1] in ("/", "\\") or (text[1:2] == ":" and text[2:3] not in ("/", "\\")):
            return inner_path(text)  # which says what is wrong with it, or removes the prefix for long paths
        return inner_path(made(_checked(text)))
    except ValueError as error:
        raise UsageError(str(error)) from None


def _checked(text: str) -> str:
    """Return the path. Raise UsageError for a name that os.path would take for another: a NUL, or a dot at its end."""
    for name in text[2 * (text[1:2] == ":") :].replace("\\", "/").split("/"):
        if name not in ("", ".", "..") and (why := why_no_name(name.encode("utf-8", "surrogatepass"))):
            raise UsageError(f"{text}: {name}: {why}")
    return text
