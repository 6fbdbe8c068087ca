"""Extended attributes on open files: xattr(7). Python has them on Linux only; on macOS they are called by ctypes
(fgetxattr(2) and its siblings take two more arguments, position and options, both 0). The macOS part has never been
run."""

from __future__ import annotations

import ctypes
import errno
import os
import sys

from mudroom.core.system.closing import Descriptor
from mudroom.stage import disk
from mudroom.typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mudroom.stage.source import SourceContent

LIST = "system.posix_acl_"
"""How the name of an access control list begins."""

if sys.platform == "win32":
    from mudroom.core.registry import twin

    nt_disk = twin("disk")


def get(descriptor: int, name: str) -> bytes:
    """Return the value. Raise OSError as fgetxattr(2) does.

    xattr(7): reading a ``user.`` attribute needs read permission, even by an open descriptor. A file that is open
    although its owner, the user, may not read it belongs to a fork (``open_staged``): it is made readable meanwhile.
    """
    try:
        return _get(descriptor, name)
    except PermissionError:
        info = os.fstat(descriptor)
        if info.st_uid != disk.user() or info.st_mode & 0o400:
            raise
        disk.set_mode_of(descriptor, info.st_mode & 0o7777 | 0o400)
        try:
            return _get(descriptor, name)
        finally:
            disk.set_mode_of(descriptor, info.st_mode & 0o7777)


def _get(descriptor: int, name: str) -> bytes:
    if sys.platform == "darwin":
        return _read_sized(lambda buffer, size: _libc().fgetxattr(descriptor, os.fsencode(name), buffer, size, 0, 0))
    if sys.platform == "win32":
        try:
            return nt_disk.marks(descriptor)[name].encode("latin-1")
        except KeyError:
            raise OSError(errno.ENODATA, os.strerror(errno.ENODATA)) from None
    return os.getxattr(descriptor, name)


def put(descriptor: int, name: str, value: bytes) -> None:
    if sys.platform == "darwin":
        _checked(_libc().fsetxattr(descriptor, os.fsencode(name), value, len(value), 0, 0))
    elif sys.platform == "win32":
        nt_disk.set_marks(descriptor, {**nt_disk.marks(descriptor), name: value.decode("latin-1")})
    else:
        os.setxattr(descriptor, name, value)


def drop(descriptor: int, name: str) -> None:
    if sys.platform == "darwin":
        _checked(_libc().fremovexattr(descriptor, os.fsencode(name), 0))
    elif sys.platform == "win32":
        nt_disk.set_marks(descriptor, {key: value for key, value in nt_disk.marks(descriptor).items() if key != name})
    else:
        os.removexattr(descriptor, name)


def names(descriptor: int) -> list[str]:
    """Return the names. Raise OSError if the file system does not support xattrs."""
    if sys.platform == "darwin":
        listed = _read_sized(lambda buffer, size: _libc().flistxattr(descriptor, buffer, size, 0))
        return [os.fsdecode(name) for name in listed.split(b"\0") if name]
    if sys.platform == "win32":
        return list(nt_disk.marks(descriptor))
    return os.listxattr(descriptor)


def user(descriptor: int) -> dict[str, bytes]:
    """Return the ``user.`` attributes that a copy keeps, without the overlay's bookkeeping. Empty if the file system
    does not support xattrs."""
    return _of(descriptor, "user.")


def lists(descriptor: int) -> dict[str, bytes]:
    """Return the access control lists (acl(5)). Mudroom's own copies have them, too: a default list decides the modes
    of what is made in a directory, and the group's bits of a mode are the mask of its list."""
    return _of(descriptor, LIST)


def _of(descriptor: int, begins: str) -> dict[str, bytes]:
    try:
        found = [name for name in names(descriptor) if name.startswith(begins) and not name.startswith("user.overlay.")]
    except OSError:
        return {}
    return {name: get(descriptor, name) for name in found}


def give_lists(descriptor: int, attributes: Mapping[str, bytes]) -> None:
    """Give a copy the access control lists among these; set its mode afterwards. A file system without lists, or
    without the ids in one, has a copy without."""
    for name, value in attributes.items():
        try:
            if name.startswith(LIST):
                put(descriptor, name, value)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                raise


def of_file(source: SourceContent, path: bytes) -> dict[str, bytes] | None:
    """Return ``user`` for a source's file, or None if it cannot be opened."""
    try:
        opened = source.open(path)
    except OSError:
        return None
    with Descriptor(opened):
        return user(opened)


def _libc() -> Any:
    """Return libc with declared signatures: macOS's sys/xattr.h."""
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


def _read_sized(ask: Any) -> bytes:
    """Ask for the length, then read; repeat if the value has grown meanwhile."""
    while True:
        room = _checked(ask(None, 0))
        buffer = ctypes.create_string_buffer(room + 1)
        length = ask(buffer, room + 1)
        if 0 <= length <= room:
            return buffer.raw[:length]
        if length < 0 and ctypes.get_errno() != 34:  # ERANGE
            _checked(length)
