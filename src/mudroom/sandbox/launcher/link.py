"""Symlinks in a root that comes from an image.

Part of the launcher's process: the rules at the top of ``launcher.py`` hold here.
"""

from __future__ import annotations

import os

from mudroom.sandbox.launcher.kernel import ELOOP, EXDEV, RESOLVE_BENEATH, SYS_openat2, syscall


def require_no_link(root: int, path: bytes) -> None:
    """Check that ``path`` below the descriptor ``root`` may be mounted upon. An absolute symlink on the way would lead
    out of the root, and a symlink at the end is no mount point: both raise OSError with ELOOP. A missing path raises
    the error of openat2(2). RESOLVE_BENEATH; struct open_how is flags, mode, resolve."""
    flags = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
    how = b"".join(value.to_bytes(8, "little") for value in (flags, 0, RESOLVE_BENEATH))
    try:
        place = syscall(SYS_openat2, root, path, how, len(how))
    except OSError as error:
        if error.errno != EXDEV:
            raise
        raise OSError(ELOOP, os.strerror(ELOOP)) from None
    is_link = os.fstat(place).st_mode & 0o170000 == 0o120000
    os.close(place)
    if is_link:
        raise OSError(ELOOP, os.strerror(ELOOP))
