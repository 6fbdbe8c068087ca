"""Values in a project's masked files, which must not be written to the journal or the approval queue."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection

from mudroom.core.system.closing import Descriptor
from mudroom.core.text.known_value import values_in
from mudroom.stage import disk
from mudroom.stage.beneath import open_beneath, open_root

_MOST = 16
"""Files to read."""
_LARGEST = 64 << 10
"""Bytes to read per file."""


def masked_values(project: bytes, paths: Collection[bytes]) -> set[str]:
    """Return the values in these project files. An unreadable file counts as having none, since the user cannot read it
    either."""
    values: set[str] = set()
    try:
        root = open_root(project)
    except OSError:
        return values
    with Descriptor(root):
        for path in sorted(paths)[:_MOST]:
            values |= values_in(_text(root, path))
    return values


def _text(root: int, path: bytes) -> str:
    try:
        opened = open_beneath(root, path, os.O_RDONLY | disk.O_NONBLOCK)
    except OSError:
        return ""
    try:
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            return ""
        return os.read(opened, _LARGEST).decode("utf-8", "replace")
    except OSError:
        return ""
    finally:
        os.close(opened)
