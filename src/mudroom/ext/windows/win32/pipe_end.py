"""A pipe's ends: whether the reader has gone, and whether there is something to read. The twins for poll(2).

A write with no bytes is a write: it fails if the reader has gone, and otherwise passes nothing into a byte pipe
("WriteFile"). Other handles (files, consoles) always have a reader.
"""

from __future__ import annotations

from ctypes import byref

from mudroom.ext.windows.win32 import types as w
from mudroom.ext.windows.win32.api import CallFailed, Library

_GONE = (w.ERROR_BROKEN_PIPE, w.ERROR_NO_DATA)


def is_read(descriptor: int, library: Library | None = None) -> bool:
    """Return whether a descriptor's reader is still there. ``descriptor`` is a C runtime descriptor."""
    written = w.DWORD()
    try:
        (library or Library()).WriteFile(_handle(descriptor), b"", 0, byref(written), None)
    except CallFailed as failed:
        return failed.code not in _GONE
    return True


def is_readable(descriptor: int, library: Library | None = None) -> bool:
    """Return whether a read from a pipe would return at once: with bytes, or because its writers have gone."""
    filled = w.DWORD()
    try:
        (library or Library()).PeekNamedPipe(_handle(descriptor), None, 0, None, byref(filled), None)
    except CallFailed:
        return True
    return filled.value > 0


def _handle(descriptor: int) -> int:
    import msvcrt

    handle: int = msvcrt.get_osfhandle(descriptor)  # type: ignore[attr-defined,unused-ignore]
    return handle
