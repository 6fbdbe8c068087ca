"""A fork's file tools (``fork.fs``), and the interface of the tree on which they work.

The files' current state is in the write buffer, or in the live mount while a command runs. ``Files`` therefore asks for
the ``Tree`` at every call. Paths are relative to the project; ``..``, absolute paths and symbolic links on the way are
refused. Every error is one line: the OSError that the system would raise, or UsageError for invalid arguments.

This module does not need Linux.
"""

from __future__ import annotations

import errno
import fnmatch
import io
import os
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import islice

from mudroom.core.tree.entry import Entry
from mudroom.core.tree.path import ancestors, below_project, is_below, parent, relpath, show
from mudroom.core.tree.path import name as last
from mudroom.errors import UsageError
from mudroom.typing import TYPE_CHECKING, BinaryIO, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

Path = str | bytes | os.PathLike[str] | os.PathLike[bytes]
_CHUNK = 1 << 20
_HEAD = 8192
"""Bytes in which a NUL marks a file as binary, as in git."""


class Tree(Protocol):
    """Files to read and to change. ``look``, ``names`` and ``open`` are as in ``Source``.

    Symbolic links are never followed: a path through a link, or reading a link's content, raises ELOOP. A write
    replaces the whole file, keeps the existing file's mode, and is all or nothing. All methods but ``look`` and
    ``names`` raise OSError as the system would; an invalid path raises ValueError.
    """

    def look(self, path: bytes) -> Entry | None: ...
    def names(self, path: bytes) -> dict[bytes, Entry]: ...
    def open(self, path: bytes) -> int: ...
    def read(self, path: bytes) -> bytes: ...
    def readable(self, path: bytes) -> BinaryIO: ...
    def write(self, path: bytes, content: bytes, mode: int | None = None) -> None: ...

    def create(self, path: bytes, mode: int | None = None, *, exclusive: bool = False) -> Draft:
        """Like ``write``, in pieces: the file appears at its path when the draft is closed."""

    def mkdir(self, path: bytes, mode: int = 0o755) -> None: ...
    def symlink(self, path: bytes, target: bytes) -> None: ...
    def unlink(self, path: bytes) -> None: ...
    def rmdir(self, path: bytes) -> None: ...

    def remove(self, path: bytes) -> None:
        """Remove the entry at ``path``; a directory with all its contents."""

    def rename(self, old: bytes, new: bytes) -> None:
        """Like rename(2): a file replaces a file, a directory replaces an empty directory."""

    def chmod(self, path: bytes, mode: int) -> None: ...

    def utime(self, path: bytes, mtime: int) -> None:
        """``mtime``: nanoseconds since 1970."""


class DraftStream(Protocol):
    """The stream that stores a draft's content."""

    def write(self, data: memoryview, /) -> int | None: ...
    def read(self, size: int = -1, /) -> bytes | None: ...
    def seek(self, offset: int, whence: int = 0, /) -> int: ...
    def tell(self) -> int: ...
    def truncate(self, size: int | None = None, /) -> int: ...


class Draft(io.BufferedIOBase):
    """A file that is being written. It appears at its path, complete, when it is closed.

    No file is left if ``discard`` is called, a block ends with an exception, a write fails, or the draft is
    garbage-collected. With ``at_close`` set to False, the file waits for ``commit``. Closing it twice is harmless.

    Owner: the caller that writes the file, in one thread.
    """

    _settled = True
    at_close = True
    owner: object = None
    """Kept alive as long as the draft: the tree to which it is written must not end before it."""
    mode = "rb+"
    name: str = ""
    before_commit: Callable[[], object] = staticmethod(lambda: None)
    after_commit: Callable[[], object] = staticmethod(lambda: None)

    def __init__(self, stream: DraftStream, commit: Callable[[], None], abandon: Callable[[], None]) -> None:
        self._stream, self._commit, self._abandon = stream, commit, abandon
        self._settled = False

    def write(self, data: ReadableBuffer, /) -> int:
        view = memoryview(data).cast("B")
        self._check()
        done = 0
        try:
            while done < len(view):
                done += self._stream.write(view[done:]) or 0
        except BaseException:
            self.discard()
            raise
        return done

    def read(self, size: int | None = -1, /) -> bytes:
        self._check()
        return self._stream.read(-1 if size is None else size) or b""

    def seek(self, offset: int, whence: int = 0, /) -> int:
        self._check()
        return self._stream.seek(offset, whence)

    def tell(self) -> int:
        self._check()
        return self._stream.tell()

    def truncate(self, size: int | None = None, /) -> int:
        self._check()
        return self._stream.truncate(size)

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        if self.at_close:
            self.commit()
        super().close()

    def commit(self) -> None:
        """Put the file at its path, unless the draft is already committed or discarded."""
        if self._settled:
            return
        self._settled = True
        try:
            self.before_commit()
            self._commit()
            self.after_commit()
        except BaseException:
            self._abandon()
            raise
        finally:
            super().close()

    def discard(self) -> None:
        if not self._settled:
            self._settled = True
            self._abandon()
        super().close()

    def __exit__(self, kind: object, *_error: object) -> None:
        if kind is None:
            self.close()
        else:
            self.discard()

    def __del__(self) -> None:
        self.discard()

    def _check(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on a closed file")


def os_error(number: int, path: bytes) -> OSError:
    return OSError(number, os.strerror(number), os.fsdecode(path))


def moved_on(path: bytes) -> OSError:
    """Return the error for a draft whose file another writer has replaced since the draft was opened."""
    text = "another writer has changed this file since it was opened; that version stays: read it and write again"
    return OSError(errno.ESTALE, text, os.fsdecode(path))


def version(entry: Entry | None) -> tuple[object, ...] | None:
    """Return a value that differs between two versions of an entry. A flush, a checkpoint and a merge of layers keep
    it."""
    if entry is None or entry.kind == "directory":
        return None if entry is None else (entry.kind,)
    return (entry.kind, entry.mode, entry.size, entry.mtime, entry.target)


def refusal(look: Callable[[bytes], Entry | None], path: bytes) -> OSError:
    """Return the error for unavailable content at ``path``: ENOENT, ENOTDIR or ELOOP for the way; EISDIR, ELOOP or
    ENXIO for an entry that is not a file."""
    for above in ancestors(path):
        entry = look(above)
        if entry is None or entry.kind != "directory":
            return os_error(
                errno.ENOENT if entry is None else errno.ELOOP if entry.kind == "symlink" else errno.ENOTDIR, path
            )
    return no_file(look(path), path)


def no_file(entry: Entry | None, path: bytes) -> OSError:
    """Return the error for reading an entry that is missing or not a file."""
    if entry is None:
        return os_error(errno.ENOENT, path)
    return os_error({"directory": errno.EISDIR, "symlink": errno.ELOOP}.get(entry.kind, errno.ENXIO), path)


def check_file(existing: Entry | None, path: bytes, exclusive: bool) -> None:
    """Raise OSError unless a file can be written over ``existing``, the present entry. ``exclusive``: only if there is
    none."""
    if existing is not None and exclusive:
        raise os_error(errno.EEXIST, path)
    if existing is not None and existing.kind != "file":
        raise no_file(existing, path)


class SearchMatch(NamedTuple):
    """A line that ``search`` matched."""

    path: str
    line: int
    """Counted from 1."""
    text: str
    """Without the line ending."""


Paths: TypeAlias = list[str]  # in the class below, ``list`` is a method
Lines: TypeAlias = list[SearchMatch]


class Files:
    """The file tools. Paths are str, bytes or PathLike; returned paths are str, and ``os.fsencode`` gives their
    bytes."""

    def __init__(
        self,
        tree: Callable[[], Tree],
        project: bytes = b"",
        changing: Callable[[], AbstractContextManager[Tree]] | None = None,
    ) -> None:
        """``project``: an absolute path in it is the project's path. ``changing``: yields the tree for a change of
        several calls, which no other thread changes meanwhile; None: only one thread does."""
        self.tree, self._project = tree, project
        self.changing = changing or (lambda: nullcontext(tree()))

    def read(self, path: Path) -> bytes:
        return self.tree().read(self._relative(path))

    def open(self, path: Path) -> BinaryIO:
        """Return a stream for reading in pieces."""
        return self.tree().readable(self._relative(path))

    def create(self, path: Path, mode: int | None = None, *, exclusive: bool = False) -> Draft:
        """Return a draft for writing in pieces. Missing parent directories are created."""
        with self._with_parents(path) as (tree, at):
            return tree.create(at, mode, exclusive=exclusive)

    def write(self, path: Path, content: str | bytes, mode: int | None = None) -> None:
        """Create or replace a file; missing parent directories are created. The mode is ``mode``, else the existing
        file's, else 0o644."""
        with self._with_parents(path) as (tree, at):
            tree.write(at, _bytes(content), mode)

    def append(self, path: Path, content: str | bytes) -> None:
        """Append to a file, or create it."""
        with self._with_parents(path) as (tree, at), tree.create(at) as draft:
            if tree.look(at) is not None:
                with tree.readable(at) as stream:
                    _pump(stream, draft)
            draft.write(_bytes(content))

    def edit(self, path: Path, old: str | bytes, new: str | bytes, *, all: bool = False) -> int:  # noqa: A002
        """Replace ``old`` by ``new``, literally. Return the number of replacements.

        ``old`` must occur exactly once, or with ``all`` at least once; otherwise raise UsageError with the number of
        occurrences and their lines. In a file whose lines all end in CRLF, a plain newline in ``old`` and ``new`` means
        CRLF.
        """
        at = self._relative(path)
        with self.changing() as tree, tree.create(at) as draft:  # fails if another writer was between read and write
            before = tree.read(at)
            search, replacement = _bytes(old), _bytes(new)
            if b"\r\n" in before and before.count(b"\r\n") == before.count(b"\n"):
                search, replacement = _crlf(search), _crlf(replacement)
            if not search or search == replacement:
                raise UsageError("the old text is empty" if not search else "the old and the new text are the same")
            count = before.count(search)
            if not count:
                raise UsageError(f"{_shown(path)}: the old text is not in it")
            if count > 1 and not all:
                lines = ", ".join(map(str, islice(_lines_of(before, search), 5))) + (", ..." if count > 5 else "")
                hint = "take more of the text around it, or replace all"
                raise UsageError(f"{_shown(path)}: the old text is in it {count} times (lines {lines})", hint)
            draft.write(before.replace(search, replacement))
            return count

    def delete(self, path: Path, recursive: bool = False) -> None:
        """Delete a file, a link or an empty directory; with ``recursive``, any entry with all its contents."""
        at = self._relative(path)
        with self.changing() as tree:
            entry = tree.look(at)
            if recursive:
                tree.remove(at)
            elif entry is not None and entry.kind == "directory":
                tree.rmdir(at)
            else:
                tree.unlink(at)

    def move(self, old: Path, new: Path) -> None:
        """Like rename(2); missing parent directories of ``new`` are created."""
        source = self._relative(old)
        if self.tree().look(source) is None:
            raise refusal(self.tree().look, source)
        with self._with_parents(new) as (tree, target):
            tree.rename(source, target)

    def copy(self, old: Path, new: Path) -> None:
        """Copy a file (an existing file is replaced), a link as a link, or a directory with all its contents to a new
        path."""
        source = self._relative(old)
        entry = self.tree().look(source)
        if entry is None:
            raise refusal(self.tree().look, source)
        if entry.kind == "directory" and is_below(self._relative(new), source):
            raise os_error(errno.EINVAL, self._relative(new))
        with self._with_parents(new) as (tree, target):
            pending = [(source, target, entry)]
            while pending:
                source, target, entry = pending.pop()
                _copy(tree, source, target, entry)
                if entry.kind == "directory":
                    names = tree.names(source).items()
                    pending += [(source + b"/" + name, target + b"/" + name, below) for name, below in names]

    def mkdir(self, path: Path, *, exist_ok: bool = False) -> None:
        """Create a directory and its missing parents."""
        with self._with_parents(path) as (tree, at):
            entry = tree.look(at)
            if not (exist_ok and entry is not None and entry.kind == "directory"):
                tree.mkdir(at)

    def touch(self, path: Path, mtime: int) -> None:
        """Set a file's mtime, in nanoseconds since 1970; create an empty file if it is missing."""
        with self._with_parents(path) as (tree, at):
            if tree.look(at) is None:
                tree.write(at, b"")
            tree.utime(at, mtime)

    def list(self, path: Path = b"") -> dict[str, Entry]:
        """Return a directory's entries, sorted by name."""
        tree, at = self.tree(), self._relative(path, root=True)
        entry = tree.look(at)
        if entry is None or entry.kind != "directory":
            raise refusal(tree.look, at) if entry is None else os_error(errno.ENOTDIR, at)
        return {os.fsdecode(name): below for name, below in sorted(tree.names(at).items())}

    def look(self, path: Path) -> Entry | None:
        """Return the entry at ``path``, without following a link, or None if it is missing."""
        return self.tree().look(self._relative(path, root=True))

    def stat(self, path: Path) -> Entry:
        """Return the entry at ``path``. Raise FileNotFoundError if it is missing."""
        tree, at = self.tree(), self._relative(path, root=True)
        entry = tree.look(at)
        if entry is None:
            raise refusal(tree.look, at)
        return entry

    def glob(self, pattern: Path) -> Paths:
        """Return the matching paths, sorted. ``**`` as a whole name matches any directories, and at the end everything
        below; ``*``, ``?`` and ``[...]`` do not match a ``/``, and match names with a leading dot."""
        return [os.fsdecode(path) for path, _entry in sorted(_glob(self.tree(), self._relative(pattern)))]

    def search(self, regex: str, glob: Path = b"**", limit: int = 1000) -> Lines:
        """Return at most ``limit`` lines that match a regular expression; binary files are skipped."""
        tree = self.tree()
        lines: Lines = []
        try:
            pattern = re.compile(regex)
        except re.error as error:
            raise UsageError(f"not a regular expression: {error}") from None
        for path, entry in sorted(_glob(tree, self._relative(glob))):
            if entry.kind == "file":
                for number, line in _matching(tree, path, pattern):
                    if len(lines) >= limit:
                        return lines
                    lines.append(SearchMatch(os.fsdecode(path), number, line))
        return lines

    @contextmanager
    def _with_parents(self, path: Path) -> Iterator[tuple[Tree, bytes]]:
        """Yield the tree for a change, and the path in it; its missing parent directories are created."""
        at = self._relative(path)
        with self.changing() as tree:
            if tree.look(parent(at)) is None:
                for above in ancestors(at):
                    if tree.look(above) is None:
                        tree.mkdir(above)
            yield tree, at

    def _relative(self, path: Path, *, root: bool = False) -> bytes:
        """Return the checked path. ``root``: also accept the project itself (``""``, ``"."``). Raise UsageError."""
        raw = below_project(os.fsencode(path), self._project)
        if root and not raw.strip(b"/.") and not raw.startswith(b"/") and b".." not in raw:
            return b""
        try:
            return relpath(raw)
        except ValueError as error:
            raise UsageError(str(error)) from None


def _shown(path: Path) -> str:
    return show(os.fsencode(path))


def _bytes(content: str | bytes) -> bytes:
    if isinstance(content, str):
        return content.encode("utf-8", "surrogateescape")
    if not isinstance(content, (bytes, bytearray, memoryview)):
        raise UsageError(f"the content is {type(content).__name__}, not a text or bytes", "str() makes a text of it")
    return content


def _text(content: bytes) -> str:
    return content.decode("utf-8", "surrogateescape")


def _crlf(content: bytes) -> bytes:
    return content.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")


def _lines_of(content: bytes, search: bytes) -> Iterator[int]:
    at, line = content.find(search), 1
    counted = 0
    while at >= 0:
        line += content.count(b"\n", counted, at)
        yield line
        counted, at = at, content.find(search, at + len(search))


def _pump(stream: BinaryIO, draft: Draft) -> None:
    while data := stream.read(_CHUNK):
        draft.write(data)


def _copy(tree: Tree, source: bytes, target: bytes, entry: Entry) -> None:
    if entry.kind == "directory":
        tree.mkdir(target, entry.mode)
    elif entry.kind == "symlink":
        tree.symlink(target, entry.target)
    else:
        with tree.readable(source) as stream, tree.create(target, entry.mode) as draft:
            _pump(stream, draft)


def _matching(tree: Tree, path: bytes, pattern: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    with tree.readable(path) as stream:
        if b"\0" in stream.read(_HEAD):
            return
        stream.seek(0)
        for number, raw in enumerate(stream, 1):
            line = _text(raw).rstrip("\r\n")
            if pattern.search(line):
                yield number, line


def _glob(tree: Tree, pattern: bytes) -> Iterator[tuple[bytes, Entry]]:
    """Yield every match once. A directory is listed only if an entry in it can match; links are never entered."""
    parts = pattern.split(b"/")
    pending, seen = [(b"", 0)], {(b"", 0)}
    matched: set[bytes] = set()
    while pending:
        at, index = pending.pop()
        for path, entry, ahead in _step(tree, at, parts, index):
            if ahead == len(parts):
                if path not in matched:
                    matched.add(path)
                    yield path, entry
            elif entry.kind == "directory" and (path, ahead) not in seen:
                seen.add((path, ahead))
                pending.append((path, ahead))


def _step(tree: Tree, at: bytes, parts: list[bytes], index: int) -> Iterator[tuple[bytes, Entry, int]]:
    """Yield a directory's entries that match ``parts[index]``, each with the index of the part for its contents."""
    part, prefix = parts[index], at + b"/" if at else b""
    if part == b"**":
        if index + 1 < len(parts):
            yield from _step(tree, at, parts, index + 1)  # recursion depth: the number of ** in a row
        for name, entry in tree.names(at).items():
            if index + 1 == len(parts):
                yield prefix + name, entry, len(parts)
            yield prefix + name, entry, index
    elif not any(special in part for special in (b"*", b"?", b"[")):
        only = tree.look(prefix + part)
        if only is not None:
            yield prefix + part, only, index + 1
    else:
        matches = re.compile(fnmatch.translate(os.fsdecode(part))).match
        for name, entry in tree.names(at).items():
            if matches(os.fsdecode(name)):
                yield prefix + last(name), entry, index + 1
