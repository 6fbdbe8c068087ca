"""The files of a fork as an fsspec file system: ``fsspec.filesystem("mudroom", fork=...)``.

Only whoever asks fsspec for it imports this file: fsspec takes 40 ms to import, and mudroom never needs it.
Paths start at the project: ``/src/a.py``, with or without the slash, or ``mudroom://`` in front of it.
"""

from __future__ import annotations

import errno
import io
import os
import time
import weakref
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO

from fsspec.spec import AbstractFileSystem  # type: ignore[import-untyped]

from mudroom.core.tree.entry import Entry
from mudroom.stage.buffer.files import Draft, Files, os_error

if TYPE_CHECKING:
    from mudroom.session import Session

_SCHEME = "mudroom://"


class MudroomFileSystem(AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types
    """``fork``: the name of a fork of the project in the directory ``project``, or an object with its files as ``fs``.

    A file that is written gets its place when it is closed, whole; one left with an exception never does. Symbolic
    links have the type ``link`` and are not followed.
    """

    protocol = "mudroom"
    root_marker = "/"
    cachable = False  # a fork can be another one under the same name by then

    def __init__(self, fork: Any, project: str | bytes | os.PathLike[str] = ".", **options: Any) -> None:
        super().__init__(**options)
        self._files: Files
        self._flush: Callable[[], None] = lambda: None
        if hasattr(fork, "fs"):
            self._files = fork.fs
        else:
            session = _open_session(os.fsencode(project))
            weakref.finalize(self, session.close)  # at the end of the process, too
            self._files = session.forks.files(fork)
            self._flush = partial(session.forks.flush, fork)

    def flush(self) -> None:
        """Bring what was written into the fork, where other processes see it. The end of the file system does that,
        too. Nothing to do for an object with ``fs``, whose owner does it."""
        self._flush()

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        path = os.fsdecode(path).removeprefix(_SCHEME).strip("/")
        return "/" + path if path else ""

    @classmethod
    def _at(cls, path: Any) -> str:
        """The path as ``Files`` has it."""
        return str(cls._strip_protocol(path)).removeprefix("/")

    # --- looking ---

    def info(self, path: str, **_options: Any) -> dict[str, Any]:
        path = self._strip_protocol(path)
        return _info(path, self._files.stat(self._at(path)))

    def ls(self, path: str, detail: bool = True, **_options: Any) -> list[Any]:
        path = self._strip_protocol(path)
        entry = self._files.stat(self._at(path))
        found = [_info(path, entry)]
        if entry.kind == "directory":
            found = [_info(path + "/" + name, below) for name, below in self._files.list(self._at(path)).items()]
        return found if detail else [one["name"] for one in found]

    def modified(self, path: str) -> datetime:
        return datetime.fromtimestamp(self.info(path)["mtime"], UTC)

    # --- content ---

    def open(self, path: str, mode: str = "rb", **options: Any) -> Any:
        if "b" in mode:
            return super().open(path, mode, **options)
        text = {name: options.pop(name) for name in ("encoding", "errors", "newline") if name in options}
        return _Text(super().open(path, mode.replace("t", "") + "b", **options), **text)

    def _open(self, path: str, mode: str = "rb", *, autocommit: bool = True, **_options: Any) -> Any:
        path, kept = self._at(path), mode.replace("b", "")
        if kept == "r":
            return _Reader(self._files.open(path))
        if kept not in ("w", "w+", "x", "x+", "a", "a+", "r+"):
            raise ValueError(f"not a mode of a file: {mode!r}")
        there = self._files.look(path)
        if kept == "r+" and there is None:
            raise os_error(errno.ENOENT, os.fsencode(path))
        draft = self._files.create(path, exclusive=kept[0] == "x")
        draft.at_close, draft.owner = autocommit, self
        if kept[0] in "ar" and there is not None:
            with self._files.open(path) as stream:
                while data := stream.read(1 << 20):
                    draft.write(data)
        if kept == "r+":
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
            self._files.touch(self._at(path), time.time_ns())

    # --- the tree ---

    def mkdir(self, path: str, create_parents: bool = True, **_options: Any) -> None:
        if not create_parents:
            self._files.stat(self._at(self._parent(path)))
        self.makedirs(path)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        path = self._at(path)
        if path:
            self._files.mkdir(path, exist_ok=exist_ok)
        elif not exist_ok:
            raise os_error(errno.EEXIST, b".")

    def rmdir(self, path: str) -> None:
        path = self._at(path)
        if self._files.stat(path).kind != "directory":
            raise os_error(errno.ENOTDIR, os.fsencode(path))
        self._files.delete(path)

    def _rm(self, path: str) -> None:
        self._files.delete(self._at(path))

    def cp_file(self, path1: str, path2: str, **_options: Any) -> None:
        source, target = self._at(path1), self._at(path2)
        if self._files.stat(source).kind == "directory":
            self._files.mkdir(target, exist_ok=True)
        else:
            self._files.copy(source, target)

    def mv(self, path1: Any, path2: Any, recursive: bool = False, maxdepth: int | None = None, **options: Any) -> None:
        """One rename where that does the same; else fsspec's way, which copies."""
        renamed = False
        if isinstance(path1, str) and isinstance(path2, str) and not path2.endswith("/") and not self.isdir(path2):
            entry = self._files.look(self._at(path1)) if "*" not in path1 else None
            renamed = entry is not None and (recursive or entry.kind != "directory")
        if renamed:
            self._files.move(self._at(path1), self._at(path2))
        else:
            super().mv(path1, path2, recursive=recursive, maxdepth=maxdepth, **options)


class _Reader(io.BufferedReader):
    """Tells its size, which fsspec wants to know of a file."""

    def __init__(self, stream: BinaryIO) -> None:
        self.size = stream.seek(0, io.SEEK_END)
        stream.seek(0)
        super().__init__(stream)  # type: ignore[arg-type]  # a raw one is asked for; any with readinto will do


class _Text(io.TextIOWrapper):
    """Text of a file; one that is written is called off if its block ends with an exception."""

    def __exit__(self, kind: object, *error: Any) -> None:
        if kind is not None and isinstance(self.buffer, Draft):
            self.buffer.discard()
        self.close()


def _info(path: str, entry: Entry) -> dict[str, Any]:
    found = {
        "name": path,
        "size": entry.size,
        "type": {"symlink": "link"}.get(entry.kind, entry.kind),
        "mode": entry.mode,
        "mtime": entry.mtime / 1e9,
        "uid": entry.uid,
        "gid": entry.gid,
        "ino": entry.inode,
        "nlink": entry.links,
        "islink": entry.kind == "symlink",
    }
    return {**found, "destination": os.fsdecode(entry.target)} if entry.kind == "symlink" else found


def _open_session(project: bytes) -> Session:
    """A session of its own, which ends with the file system."""
    from mudroom.policy.config import environment, places
    from mudroom.session import Session, find_project

    environ = environment()
    place = places(environ)
    found = find_project(os.path.realpath(project), place.home)
    return Session.open(found, state=place.state, home=place.home, environ=environ)
