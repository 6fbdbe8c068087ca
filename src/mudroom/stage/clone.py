"""Reflinks on systems that mudroom does not run on yet: clonefile on macOS, block cloning on Windows.

**None of this has ever been run** on those systems. It is written from Apple's clonefile(2) and from Microsoft's
description of FSCTL_DUPLICATE_EXTENTS_TO_FILE. On Linux this module defines nothing, and ``stage/copy.py`` does not
import it.
"""

from __future__ import annotations

import ctypes
import sys

if sys.platform == "darwin":
    import errno
    import os

    _libc = ctypes.CDLL(None, use_errno=True)
    _libc.fclonefileat.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint32)
    _libc.fclonefileat.restype = ctypes.c_int
    _IMPOSSIBLE = (errno.ENOTSUP, errno.EXDEV, errno.EINVAL, errno.ENOSYS)
    _CLONE_NOOWNERCOPY = 2
    """sys/clonefile.h: the clone belongs to the caller, whoever owns the source. (CLONE_NOFOLLOW, 1, concerns a source
    named by a path; here the source is open.)"""

    def clone_file(read: int, directory: int, name: bytes) -> bool:
        """Create the file ``name`` (not a path) in an open directory as a clone of the open file ``read``, with its
        content, mode, times and xattrs. Return False, and create no file, if the file system cannot clone. Raise
        OSError as open(2) does."""
        if _libc.fclonefileat(read, directory, name, _CLONE_NOOWNERCOPY) == 0:
            return True
        number = ctypes.get_errno()
        if number in _IMPOSSIBLE:
            return False
        raise OSError(number, os.strerror(number), name)


if sys.platform == "win32":
    import msvcrt

    _FSCTL_DUPLICATE_EXTENTS_TO_FILE = 0x00098344  # winioctl.h
    _AT_ONCE = 1 << 30  # bytes; less than 4 GiB, and a multiple of every cluster size
    _IMPOSSIBLE = (1, 5, 50, 87)  # winerror.h: INVALID_FUNCTION, ACCESS_DENIED, NOT_SUPPORTED, INVALID_PARAMETER

    class _Extents(ctypes.Structure):
        """DUPLICATE_EXTENTS_DATA, winioctl.h."""

        _fields_ = (
            ("source", ctypes.c_void_p),
            ("source_offset", ctypes.c_longlong),
            ("target_offset", ctypes.c_longlong),
            ("count", ctypes.c_longlong),
        )

    _kernel32 = ctypes.WinDLL("kernel32", use_last_error=True)
    _kernel32.DeviceIoControl.argtypes = (
        ctypes.c_void_p,
        ctypes.c_uint32,
        ctypes.c_void_p,
        ctypes.c_uint32,
        ctypes.c_void_p,
        ctypes.c_uint32,
        ctypes.POINTER(ctypes.c_uint32),
        ctypes.c_void_p,
    )
    _kernel32.DeviceIoControl.restype = ctypes.c_int

    def share_extents(read: int, write: int, size: int, cluster: int = 4096) -> bool:
        """Make an open file of ``size`` bytes, whose length is already set, share another file's blocks. Return False
        if the volume cannot (only ReFS can); the content is then undefined and must be overwritten. Raise OSError for
        any other error."""
        source, target = msvcrt.get_osfhandle(read), msvcrt.get_osfhandle(write)
        end = -(-size // cluster) * cluster  # the last cluster is shared as a whole
        returned = ctypes.c_uint32()
        for start in range(0, end, _AT_ONCE):
            extents = _Extents(source, start, start, min(_AT_ONCE, end - start))
            code, length = _FSCTL_DUPLICATE_EXTENTS_TO_FILE, ctypes.sizeof(extents)
            if not _kernel32.DeviceIoControl(
                target, code, ctypes.byref(extents), length, None, 0, ctypes.byref(returned), None
            ):
                number = ctypes.get_last_error()
                if number in _IMPOSSIBLE:
                    return False
                raise ctypes.WinError(number)
        return True
