"""Paths of tests as the rooms below the front doors have them."""

from __future__ import annotations

import os
from pathlib import Path


def inner(path: Path) -> bytes:
    """Return the path with ``/`` on each system."""
    return os.fsencode(path.as_posix())
