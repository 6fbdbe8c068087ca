"""Reflinks on macOS: clonefile(2), by Apple's manual page. **It has never been run there.** Elsewhere this module
defines nothing, and ``stage/copy.py`` does not import it.
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
