"""Rows about the state directory's file system: its calls, as stage and vault make them, each with its effect read
back.

Rules of this file:
1. No sandbox is involved: the calls are mudroom's own, in a directory that no other program uses.
2. A call that reports success counts only by its effect afterwards. A row that could lose data first loses it by a
   plain call (the control), so a loss would be seen.
3. A call that the file system does not have is "not shown"; mudroom's fallback for it has another row.
4. A program cannot try a power loss: the row ``flush`` shows that the call is taken and that it can fail.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

from mudroom.core.tree.entry import Entry
from mudroom.errors import MudroomError
from mudroom.ext.certify.row import Verdict
from mudroom.stage import disk
from mudroom.stage.beneath import look
from mudroom.stage.copy import copy_content, copy_open_file
from mudroom.typing import NamedTuple

At = tuple[int, bytes]
"""A name in an open directory."""
ONE, OTHER = b"the content of one file", b"the content of the other"


def clone(read: int, size: int, at: int, name: bytes) -> bool:
    """Create a file that shares an open file's blocks. Return False if the file system cannot."""
    if sys.platform == "darwin":
        from mudroom.stage.clone import clone_file

        return clone_file(read, at, name)
    write = disk.open_at(at, name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | disk.O_CLOEXEC, 0o600)
    try:
        return copy_content(read, write, size, only_reflink=True)
    finally:
        os.close(write)


def flush(descriptor: int) -> None:
    """Wait until a file is on the disk: F_FULLFSYNC on macOS, fsync(2), FlushFileBuffers on Windows. Raise OSError."""
    if sys.platform == "darwin":
        import fcntl

        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
    else:
        disk.sync(descriptor)


@contextmanager
def hold(path: str) -> Iterator[None]:
    """Hold a file open so that no other program can open, rename or remove it: "CreateFile", no FILE_SHARE_ flag. Raise
    OSError on a system where open files cannot block other programs."""
    if sys.platform == "win32":
        from mudroom.ext.windows.win32 import types as w
        from mudroom.ext.windows.win32.api import Library

        library = Library()
        file = library.CreateFileW(path, w.FILE_GENERIC_READ, 0, None, w.OPEN_EXISTING, 0, None)
        try:
            yield
        finally:
            library.CloseHandle(file)
    else:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))


def join(path: str, target: str) -> None:
    """Make a directory that leads to another: a junction, or a symbolic link. Raise OSError."""
    if sys.platform == "win32":
        from mudroom.ext.certify.windows_deed import join_directory

        os.mkdir(path)
        join_directory(path, target)
    else:
        os.symlink(target, path)


class Volume(NamedTuple):
    """The calls that are tried. The vault's calls come from ``ext/certify/killed_apply.py``."""

    killed_apply: Callable[[str], tuple[bool | None, str]]
    move: Callable[[At, At], None]
    exchange: Callable[[At, At], None]
    copy: Callable[[int, int, bytes, Entry], None] = copy_open_file
    clone: Callable[[int, int, int, bytes], bool] = clone
    rename_new: Callable[[int, bytes, int, bytes], None] = disk.rename_new
    swap: Callable[[int, bytes, int, bytes], None] = disk.exchange
    flush: Callable[[int], None] = flush
    open_beneath: Callable[[int, bytes, int], int] = disk.open_beneath
    hold: Callable[[str], AbstractContextManager[None]] = hold


Tried = tuple[Verdict, str, int]
"""The verdict, its reason, and an error number."""


def try_volume(name: str, volume: Volume, directory: str) -> Tried:
    """Try a row in ``directory``, which is empty."""
    for file, content in (("one", ONE), ("other", OTHER)):
        with open(f"{directory}/{file}", "wb") as stream:
            stream.write(content)
    with _opened(directory) as at:
        try:
            return DEEDS[name](volume, directory, at)
        except OSError as error:
            number = error.errno or 0
            return "not shown", f"refused by {errno.errorcode.get(number, str(number))}", number


@contextmanager
def _opened(directory: str) -> Iterator[int]:
    at = disk.open_root(os.fsencode(directory))
    try:
        yield at
    finally:
        os.close(at)


def _read(directory: str, name: str) -> bytes:
    """Return a file's content, or b"" if there is no file."""
    try:
        with open(f"{directory}/{name}", "rb") as stream:
            return stream.read()
    except FileNotFoundError:
        return b""


def _copy_apart(volume: Volume, directory: str, at: int) -> Tried:
    entry = look(at, b"one")
    assert entry is not None
    read = disk.open_at(at, b"one", os.O_RDONLY | disk.O_CLOEXEC)
    try:
        volume.copy(read, at, b"copy", entry)
    finally:
        os.close(read)
    if _read(directory, "copy") != ONE:
        return "fell", "the copy has another content", 0
    return _are_apart(directory, "copy")


def _are_apart(directory: str, name: str) -> Tried:
    with open(f"{directory}/{name}", "r+b") as stream:
        stream.write(OTHER)
    with open(f"{directory}/one", "ab") as stream:
        stream.write(b"!")
    if (_read(directory, "one"), _read(directory, name)[: len(OTHER)]) != (ONE + b"!", OTHER):
        return "fell", "a write to one is seen in the other", 0
    return "held", "neither changed the other", 0


def _clone(volume: Volume, directory: str, at: int) -> Tried:
    read = disk.open_at(at, b"one", os.O_RDONLY | disk.O_CLOEXEC)
    try:
        if not volume.clone(read, len(ONE), at, b"clone"):
            return "not shown", "this file system has no clones", 0
    finally:
        os.close(read)
    if _read(directory, "clone") != ONE:
        return "fell", "the clone has another content", 0
    verdict, why, number = _are_apart(directory, "clone")
    return verdict, "cloned" if verdict == "held" else why, number


def _no_replace(volume: Volume, directory: str, at: int) -> Tried:
    return _keeps_other(directory, at, lambda: volume.move((at, b"one"), (at, b"other")),
                        lambda: volume.move((at, b"one"), (at, b"new")))  # fmt: skip


def _keeps_other(directory: str, at: int, onto: Callable[[], None], beside: Callable[[], None]) -> Tried:
    """Judge a rename that may not replace. The control is a plain rename, which replaces."""
    for name in ("first", "second"):
        with open(f"{directory}/{name}", "w", encoding="ascii") as stream:
            stream.write(name)
    disk.rename(at, b"first", at, b"second")
    if _read(directory, "second") != b"first":
        return "not shown", "a plain rename does not replace", 0
    try:
        onto()
    except FileExistsError:
        pass
    else:
        return "fell", "it replaced a file" if _read(directory, "other") != OTHER else "it did nothing, unsaid", 0
    if (_read(directory, "one"), _read(directory, "other")) != (ONE, OTHER):
        return "fell", "it was refused, and a file was lost", 0
    beside()
    if (_read(directory, "one"), _read(directory, "new")) != (b"", ONE):
        return "fell", "a rename to a free name lost the file", 0
    return "held", "refused by EEXIST", 0


def _swap(volume: Volume, directory: str, at: int) -> Tried:
    return _swaps(directory, at, lambda: volume.exchange((at, b"one"), (at, b"other")))


def _swaps(directory: str, at: int, act: Callable[[], None]) -> Tried:
    act()
    names = sorted(os.fsdecode(name) for name in disk.names(at))
    if (_read(directory, "one"), _read(directory, "other")) != (OTHER, ONE) or names != ["one", "other"]:
        return "fell", "the two files are not swapped", 0
    return "held", "swapped", 0


def _one_step(volume: Volume, directory: str, at: int) -> Tried:
    verdict, why, number = _swaps(directory, at, lambda: volume.swap(at, b"one", at, b"other"))
    if verdict != "held":
        return verdict, why, number
    volume.swap(at, b"one", at, b"other")
    return _keeps_other(directory, at, lambda: volume.rename_new(at, b"one", at, b"other"),
                        lambda: volume.rename_new(at, b"one", at, b"new"))  # fmt: skip


def _flush(volume: Volume, _directory: str, at: int) -> Tried:
    descriptor = disk.open_at(at, b"one", os.O_RDWR | disk.O_CLOEXEC)
    try:
        volume.flush(descriptor)
        disk.sync(at)
        disk.sync_filesystem(at)
    finally:
        os.close(descriptor)
    try:
        volume.flush(descriptor)
    except OSError:
        return "held", "flushed", 0
    return "fell", "a file that is not open was flushed", 0


def _sharing(volume: Volume, directory: str, at: int) -> Tried:
    """Judge a swap with a file that another program holds open: it must be refused without losing a file, and succeed
    after the file is closed."""
    with volume.hold(f"{directory}/other"):
        try:
            disk.rename(at, b"other", at, b"away")
        except OSError:
            pass
        else:
            return "not shown", "an open file is in nobody's way", 0
        try:
            volume.exchange((at, b"one"), (at, b"other"))
        except OSError as error:
            number = error.errno or 0
        else:
            return "fell", "an open file was swapped", 0
    if (_read(directory, "one"), _read(directory, "other")) != (ONE, OTHER):
        return "fell", "it was refused, and a file was lost", number
    verdict, why, _number = _swap(volume, directory, at)
    return verdict, "refused while it was open" if verdict == "held" else why, number


def _reparse(volume: Volume, directory: str, at: int) -> Tried:
    """Judge opening a file below a directory, which must succeed, and below a link to that directory, which must
    not."""
    os.mkdir(f"{directory}/there")
    with open(f"{directory}/there/one", "wb") as stream:
        stream.write(ONE)
    join(f"{directory}/way", f"{directory}/there")
    if _read(directory, "way/one") != ONE:
        return "not shown", "a plain call does not follow it", 0
    os.close(volume.open_beneath(at, b"there/one", os.O_RDONLY))
    try:
        os.close(volume.open_beneath(at, b"way/one", os.O_RDONLY))
    except OSError as error:
        return "held", "refused", error.errno or 0
    return "fell", "it was followed", 0


def _kill_9(volume: Volume, directory: str, _at: int) -> Tried:
    os.mkdir(f"{directory}/killed")
    try:
        is_whole, why = volume.killed_apply(f"{directory}/killed")
    except MudroomError as error:
        return "not shown", f"no apply runs: {type(error).__name__}", 0
    return ("not shown" if is_whole is None else "held" if is_whole else "fell"), why, 0


DEEDS: Mapping[str, Callable[[Volume, str, int], Tried]] = {
    "copy_apart": _copy_apart,
    "clone": _clone,
    "no_replace": _no_replace,
    "swap": _swap,
    "one_step": _one_step,
    "flush": _flush,
    "kill_9": _kill_9,
    "sharing": _sharing,
    "reparse": _reparse,
}
