"""A fork's files as an fsspec file system: ``fsspec.filesystem("mudroom", fork=...)``.

This module is imported only through fsspec: importing fsspec takes 40 ms, and mudroom itself does not need it. Paths
are relative to the project: ``/src/a.py``, with or without the slash, or with ``mudroom://`` in front.
"""

from __future__ import annotations

import errno
import io
import os
import stat
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial

from fsspec.spec import AbstractFileSystem  # type: ignore[import-untyped]
from fsspec.transaction import Transaction  # type: ignore[import-untyped]

from mudroom.core.tree.entry import Entry
from mudroom.policy.config import environment, places
from mudroom.session import Session
from mudroom.stage.buffer.files import Draft, Files, os_error
from mudroom.stage.views.preflight import find_project
from mudroom.typing import Any, BinaryIO

_SCHEME = "mudroom://"
_TYPES = {
    "file": stat.S_IFREG,
    "directory": stat.S_IFDIR,
    "symlink": stat.S_IFLNK,
    "fifo": stat.S_IFIFO,
    "socket": stat.S_IFSOCK,
}
"""File type bits for ``info()["mode"]``, as in st_mode: inode(7)."""


class _Bulk(threading.local):
    """This thread's operations that flush at their end."""

    depth = 0


class _Transaction(Transaction):  # type: ignore[misc]  # fsspec has no types
    """A transaction whose files are flushed together."""

    def complete(self, commit: bool = True) -> None:
        system = self.fs  # the base class drops the reference
        with system._as_one():
            super().complete(commit)
            system._intrans = False


class MudroomFileSystem(AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types
    """``fork``: a fork's name, for the project that contains the directory ``project``, or an object with a ``fs``
    attribute.

    A written file appears at its path, complete, when it is closed; it never appears if its block ends with an
    exception. Symbolic links have the type ``link`` and are not followed.
    """

    protocol = "mudroom"
    root_marker = "/"
    transaction_type = _Transaction
    cachable = False  # another fork may have the same name later

    def __init__(self, fork: Any, project: str | bytes | os.PathLike[str] = ".", **options: Any) -> None:
        super().__init__(**options)
        self._files: Files
        self._bulk = _Bulk()
        self._flush: Callable[[], None] = lambda: None
        if hasattr(fork, "fs"):
            self._files = fork.fs
        else:
            session = _open_session(os.fsencode(project))
            weakref.finalize(self, session.close)  # also when the process exits
            self._files = session.forks.files(fork)
            self._flush = partial(_flush_fork, session, fork)

    def flush(self) -> None:
        """Write buffered changes to the fork, where other instances and processes see them. Every closed file and every
        other change does that by itself. For an object with ``fs`` this does nothing: its owner flushes.

        Raise OSError (ESTALE) if another writer has changed the same path meanwhile; that version stays.
        """
        self._flush()

    def _changed(self) -> None:
        if not self._bulk.depth and not self._intrans:
            self.flush()

    @contextmanager
    def _as_one(self) -> Iterator[None]:
        """Flush once, after all changes in the block."""
        self._bulk.depth += 1
        try:
            yield
        finally:
            self._bulk.depth -= 1
            self._changed()

    def pipe(self, path: Any, value: Any = None, **options: Any) -> None:
        with self._as_one():
            super().pipe(path, value, **options)

    def put(self, *arguments: Any, **options: Any) -> None:
        with self._as_one():
            super().put(*arguments, **options)

    def copy(self, *arguments: Any, **options: Any) -> None:
        with self._as_one():
            super().copy(*arguments, **options)

    def rm(self, *arguments: Any, **options: Any) -> None:
        with self._as_one():
            super().rm(*arguments, **options)

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(item) for item in path]
        path = os.fsdecode(path).removeprefix(_SCHEME).strip("/")
        return "/" + path if path else ""

    @classmethod
    def _at(cls, path: Any) -> str:
        """Return the path in the form that ``Files`` expects."""
        return str(cls._strip_protocol(path)).removeprefix("/")

    # --- reading the tree ---

    def info(self, path: str, **_options: Any) -> dict[str, Any]:
        path = self._strip_protocol(path)
        return _info(path, self._files.stat(self._at(path)))

    def ls(self, path: str, detail: bool = True, **_options: Any) -> list[Any]:
        path = self._strip_protocol(path)
        entry = self._files.stat(self._at(path))
        rows = [_info(path, entry)]
        if entry.kind == "directory":
            rows = [_info(path + "/" + name, below) for name, below in self._files.list(self._at(path)).items()]
        return rows if detail else [row["name"] for row in rows]

    def islink(self, path: str) -> bool:
        entry = self._files.look(self._at(path))
        return entry is not None and entry.kind == "symlink"

    def lexists(self, path: str, **_options: Any) -> bool:
        return self._files.look(self._at(path)) is not None

    def created(self, path: str) -> datetime:
        """Return the entry's change time (ctime), as fsspec does where a birth time is unknown."""
        return datetime.fromtimestamp(self.info(path)["created"], UTC)

    def modified(self, path: str) -> datetime:
        return datetime.fromtimestamp(self.info(path)["mtime"], UTC)

    # --- file contents ---

    def open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        if "b" in mode:
            return super().open(path, mode, **options)
        text = {name: options.pop(name) for name in ("encoding", "errors", "newline") if name in options}
        stream: Any = _Text(super().open(path, mode.replace("t", "") + "b", **options), **text)
        stream.mode = mode  # as open() sets it
        return stream

    def _open(self, path: str, mode: str = "rb", *, autocommit: bool = True, **_options: Any) -> Any:
        path, file_mode = self._at(path), mode.replace("b", "")
        if file_mode == "r":
            return _Reader(self._files.open(path), "/" + path)
        if file_mode not in ("w", "w+", "x", "x+", "a", "a+", "r+"):
            raise ValueError(f"not a mode of a file: {mode!r}")
        existing = self._files.look(path)
        if file_mode == "r+" and existing is None:
            raise os_error(errno.ENOENT, os.fsencode(path))
        draft = self._files.create(path, exclusive=file_mode[0] == "x")
        draft.at_close, draft.owner = autocommit, self
        draft.mode, draft.name = mode, "/" + path
        draft.before_commit, draft.after_commit = self._files.tree, self._changed
        if file_mode[0] in "ar" and existing is not None:
            with self._files.open(path) as stream:
                while data := stream.read(1 << 20):
                    draft.write(data)
        if file_mode == "r+":
            draft.seek(0)
        return draft

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **_options: Any) -> bytes:
        path = self._at(path)
        if start is None and end is None:
            return self._files.read(path)
        with self._files.open(path) as stream:
            size = stream.seek(0, io.SEEK_END)
            first, behind, _step = slice(start, end).indices(size)
            stream.seek(first)
            return stream.read(max(0, behind - first))

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_options: Any) -> None:
        with self.open(path, "xb" if mode == "create" else "wb") as draft:
            draft.write(value)

    def touch(self, path: str, truncate: bool = True, **_options: Any) -> None:
        if truncate:
            self.pipe_file(path, b"")
        else:
            with self._as_one():
                self._files.touch(self._at(path), time.time_ns())

    # --- changing the tree ---

    def mkdir(self, path: str, create_parents: bool = True, **_options: Any) -> None:
        if not create_parents:
            self._files.stat(self._at(self._parent(path)))
        self.makedirs(path)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        path = self._at(path)
        if path:
            with self._as_one():
                self._files.mkdir(path, exist_ok=exist_ok)
        elif not exist_ok:
            raise os_error(errno.EEXIST, b".")

    def rmdir(self, path: str) -> None:
        path = self._at(path)
        if self._files.stat(path).kind != "directory":
            raise os_error(errno.ENOTDIR, os.fsencode(path))
        self._rm(path)

    def _rm(self, path: str) -> None:
        with self._as_one():
            self._files.delete(self._at(path))

    def cp_file(self, path1: str, path2: str, **_options: Any) -> None:
        source, target = self._at(path1), self._at(path2)
        with self._as_one():
            if self._files.stat(source).kind == "directory":
                self._files.mkdir(target, exist_ok=True)
            else:
                self._files.copy(source, target)

    def mv(self, path1: Any, path2: Any, recursive: bool = False, maxdepth: int | None = None, **options: Any) -> None:
        """Rename if that gives the same result; otherwise copy as fsspec does."""
        renamed = False
        if isinstance(path1, str) and isinstance(path2, str) and not path2.endswith("/") and not self.isdir(path2):
            entry = self._files.look(self._at(path1)) if "*" not in path1 else None
            renamed = entry is not None and (recursive or entry.kind != "directory")
        with self._as_one():
            if renamed:
                self._files.move(self._at(path1), self._at(path2))
            else:
                super().mv(path1, path2, recursive=recursive, maxdepth=maxdepth, **options)


class _Reader(io.BufferedReader):
    """A reader with the attribute ``size``, which fsspec requires."""

    mode = "rb"
    name = ""

    def __init__(self, stream: BinaryIO, name: str) -> None:
        self.name = name
        self.size = stream.seek(0, io.SEEK_END)
        stream.seek(0)
        super().__init__(stream)  # type: ignore[arg-type]  # a raw one is asked for; any with readinto will do


class _Text(io.TextIOWrapper):
    """A text file. A file being written is discarded if its block ends with an exception."""

    def __exit__(self, kind: object, *error: Any) -> None:
        if kind is not None and isinstance(self.buffer, Draft):
            self.buffer.discard()
        self.close()


def _info(path: str, entry: Entry) -> dict[str, Any]:
    info = {
        "name": path,
        "size": entry.size,
        "type": {"symlink": "link"}.get(entry.kind, entry.kind),
        "mode": entry.mode | _TYPES.get(entry.kind, 0),
        "mtime": entry.mtime / 1e9,
        "created": entry.ctime / 1e9,
        "uid": entry.uid,
        "gid": entry.gid,
        "ino": entry.inode,
        "nlink": entry.links,
        "islink": entry.kind == "symlink",
    }
    return {**info, "destination": os.fsdecode(entry.target)} if entry.kind == "symlink" else info


def _flush_fork(session: Session, fork: str) -> None:
    session.forks.flush(fork)
    notes = session.forks.unsaid()
    if notes:
        raise OSError(errno.ESTALE, "; ".join(notes))


def _open_session(project: bytes) -> Session:
    """Return a new session, which is closed with the file system."""
    environ = environment()
    place = places(environ)
    root = find_project(os.path.realpath(project), place.home)
    return Session.open(root, state=place.state, home=place.home, environ=environ)
