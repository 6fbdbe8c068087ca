"""The writing end of a pipe: whether somebody can still read. The twin of poll(2) on it.

A write of no bytes is a write: it fails if the reader has gone, and otherwise passes nothing into a pipe of bytes
("WriteFile"). Other handles (files, consoles) have a reader always.
"""

from __future__ import annotations

from ctypes import byref

from mudroom.windows import types as w
from mudroom.windows.api import CallFailed, Library

_GONE = (w.ERROR_BROKEN_PIPE, w.ERROR_NO_DATA)


def is_read(descriptor: int, library: Library | None = None) -> bool:
    """Return whether the reader of a descriptor of the C runtime is still there."""
    import msvcrt

    handle: int = msvcrt.get_osfhandle(descriptor)  # type: ignore[attr-defined,unused-ignore]
    written = w.DWORD()
    try:
        (library or Library()).WriteFile(handle, b"", 0, byref(written), None)
    except CallFailed as failed:
        return failed.code not in _GONE
    return True
