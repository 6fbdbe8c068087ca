"""Extended attributes of open files: xattr(7). Python has them for Linux only; on macOS they are asked for by ctypes
(fgetxattr(2) and its siblings: two words more, position and options, both 0). The part for macOS has never been run.
"""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Any


def get(descriptor: int, name: str) -> bytes:
    """Raises OSError as fgetxattr(2) does."""
    if sys.platform == "darwin":
        return _asked(lambda buffer, size: _libc().fgetxattr(descriptor, os.fsencode(name), buffer, size, 0, 0))
    return os.getxattr(descriptor, name)


def put(descriptor: int, name: str, value: bytes) -> None:
    if sys.platform == "darwin":
        _checked(_libc().fsetxattr(descriptor, os.fsencode(name), value, len(value), 0, 0))
    else:
        os.setxattr(descriptor, name, value)


def drop(descriptor: int, name: str) -> None:
    if sys.platform == "darwin":
        _checked(_libc().fremovexattr(descriptor, os.fsencode(name), 0))
    else:
        os.removexattr(descriptor, name)


def names(descriptor: int) -> list[str]:
    """Raises OSError where the file system has none."""
    if sys.platform == "darwin":
        listed = _asked(lambda buffer, size: _libc().flistxattr(descriptor, buffer, size, 0))
        return [os.fsdecode(name) for name in listed.split(b"\0") if name]
    return os.listxattr(descriptor)


def user(descriptor: int) -> dict[str, bytes]:
    """The user's own, which a copy keeps; the overlay's bookkeeping is not among them. Empty where there are none."""
    try:
        own = [name for name in names(descriptor) if name.startswith("user.") and not name.startswith("user.overlay.")]
    except OSError:
        return {}
    return {name: get(descriptor, name) for name in own}


def _libc() -> Any:
    """With declared signatures: sys/xattr.h of macOS."""
    library = ctypes.CDLL(None, use_errno=True)
    size, pointer, number, text = ctypes.c_size_t, ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p
    library.fgetxattr.argtypes = (number, text, pointer, size, ctypes.c_uint32, number)
    library.fsetxattr.argtypes = (number, text, text, size, ctypes.c_uint32, number)
    library.flistxattr.argtypes = (number, pointer, size, number)
    library.fremovexattr.argtypes = (number, text, number)
    library.fremovexattr.restype = number
    library.fgetxattr.restype = library.flistxattr.restype = ctypes.c_ssize_t
    library.fsetxattr.restype = number
    return library


def _checked(result: int) -> int:
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result


def _asked(ask: Any) -> bytes:
    """First how long, then what; again if it has become longer meanwhile."""
    while True:
        room = _checked(ask(None, 0))
        buffer = ctypes.create_string_buffer(room + 1)
        got = ask(buffer, room + 1)
        if 0 <= got <= room:
            return buffer.raw[:got]
        if got < 0 and ctypes.get_errno() != 34:  # ERANGE
            _checked(got)
