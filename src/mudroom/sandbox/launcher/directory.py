"""Directories of a new root.

Part of the launcher's process: the rules at the top of ``launcher.py`` hold here.
"""

from __future__ import annotations

import os


def make_directories(root: int, path: bytes, mode: int = 0o755) -> None:
    """Create the directories of ``path`` (relative) below the descriptor ``root``; existing ones are kept."""
    try:
        make_directory(root, path or b".", mode)
    except FileNotFoundError:
        make_directories(root, path.rpartition(b"/")[0])  # most often only the last ones are missing
        make_directory(root, path, mode)


def make_directory(root: int, path: bytes, mode: int) -> None:
    try:
        os.mkdir(path, mode, dir_fd=root)
    except FileExistsError:
        pass
