"""Links in a root that somebody else has made: an image's.

Part of the launcher's process: the rules at the top of ``launcher.py`` hold here.
"""

from __future__ import annotations

import os

from mudroom.sandbox.launcher.kernel import ELOOP, EXDEV, RESOLVE_BENEATH, SYS_openat2, syscall


def require_no_link(root: int, path: bytes) -> None:
    """Make sure that ``path`` below the descriptor ``root`` is what it seems: an absolute link on the way would lead
    out of there, and a link at its end is nothing to mount upon. Raises OSError: ELOOP for those, and what openat2(2)
    says of what is not there. RESOLVE_BENEATH; struct open_how is flags, mode, resolve."""
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
