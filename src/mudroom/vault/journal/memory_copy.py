"""A journal's database in memory, where SQLite cannot open the file: on a full disk, or a read-only disk.

https://sqlite.org/wal.html, read-only databases: a file in WAL mode needs its -shm file, which SQLite makes, unless the
file is declared immutable. A file without -wal that no process can write to is immutable; on a full disk a writer would
need room for a -wal file.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile


def copy_in_memory(path: bytes) -> sqlite3.Connection | None:
    """Return the copied database, or None if that is impossible. If a -wal file exists, both files are first copied to
    a temporary directory."""
    try:
        if not _size(path + b"-wal"):
            return _backup(f"file:{_quoted(path)}?immutable=1")
        with tempfile.TemporaryDirectory(prefix="mudroom-") as place:
            for suffix in ("", "-wal"):
                shutil.copyfile(os.fsdecode(path) + suffix, f"{place}/journal.db{suffix}")
            return _backup(f"file:{place}/journal.db")
    except (OSError, sqlite3.Error):
        return None  # no room there either, or damaged: the caller raises its first error


def _size(path: bytes) -> int:
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def _quoted(path: bytes) -> str:
    from urllib.parse import quote

    return quote(path)


def _backup(uri: str) -> sqlite3.Connection:
    source = sqlite3.connect(uri, uri=True)
    try:
        copy = sqlite3.connect(":memory:", check_same_thread=False)
        source.backup(copy)
        return copy
    finally:
        source.close()
