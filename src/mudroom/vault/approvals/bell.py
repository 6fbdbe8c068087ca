"""Wake processes that wait for a change in a vault directory: each waiter has a FIFO, into which a writer writes one
byte.

A bell only says "look again": the change itself is stored elsewhere. If a ring is lost because the writer was killed
before it rang, the waiter is only late, because waiters also look from time to time.

The waiter opens the FIFO for reading and writing, so that it never reads an end of file. After the waiter has died no
process has the FIFO open; the next ring finds that (ENXIO, fifo(7)) and removes the FIFO.

A bell's name may begin with a word for its owner's role (``page.1f…``): an owner that may answer. Processes that only
wait for an answer have no such word.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Collection
from contextlib import suppress

from mudroom.stage import disk

_NEW = b"."
"""Name prefix of a bell that is not open yet."""


class Bell:
    """A waiter's FIFO. Close it. Where no FIFO can be made (a full disk, Windows) ``fileno`` is -1: look from time to
    time.

    Owner: the thread that waits.
    """

    def __init__(self, directory: bytes, role: str = "") -> None:
        """``role``: a word in letters for an owner that may answer; empty for an owner that only waits."""
        self._descriptor = -1
        self._path = b""
        name = (f"{role}." if role else "").encode() + os.urandom(8).hex().encode()
        new, path = directory + b"/" + _NEW + name, directory + b"/" + name
        if sys.platform == "win32":  # Windows has pipes, but not as files
            return
        try:
            os.makedirs(directory, mode=0o700, exist_ok=True)
            os.mkfifo(new, 0o600)
        except OSError:
            return
        try:
            # for writing, too, so that a read never finds an end of file
            self._descriptor = disk.open_path(new, os.O_RDWR | disk.O_NONBLOCK | disk.O_NOFOLLOW | disk.O_CLOEXEC)
            disk.rename_path(new, path)
            self._path = path
        except OSError:
            self.close()
            unlink_if_possible(new)

    def fileno(self) -> int:
        return self._descriptor

    def clear(self) -> None:
        """Discard the rings received so far."""
        if self._descriptor < 0:
            return
        with suppress(BlockingIOError):
            os.read(self._descriptor, 1 << 16)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        if self._path:
            unlink_if_possible(self._path)
            self._path = b""


def wait(descriptors: Collection[int], seconds: float) -> Collection[int]:
    """Wait until a descriptor is readable, at most ``seconds``. Return the readable descriptors. On Windows, which
    cannot poll a descriptor, let the time pass."""
    if sys.platform == "win32":
        time.sleep(seconds)
        return ()
    import select

    poller = select.poll()
    for descriptor in descriptors:
        poller.register(descriptor, select.POLLIN)
    return dict(poller.poll(seconds * 1000 + 1))


def ring(directory: bytes) -> None:
    """Wake all waiters. Never fails, because the change itself is stored elsewhere."""
    try:
        names = os.listdir(directory)
    except OSError:
        return
    for name in names:
        if not name.startswith(_NEW):
            _ring(directory + b"/" + name)


def listeners(directory: bytes) -> frozenset[str]:
    """Return the roles of all open bells whose owners may answer. Ring no bell."""
    try:
        names = os.listdir(directory)
    except OSError:
        return frozenset()
    named = [name for name in names if b"." in name and not name.startswith(_NEW)]
    open_bells = [name for name in named if _is_open(directory + b"/" + name)]
    return frozenset(name.partition(b".")[0].decode("ascii", "replace") for name in open_bells)


def _is_open(path: bytes) -> bool:
    try:
        os.close(disk.open_path(path, os.O_WRONLY | disk.O_NONBLOCK | disk.O_NOFOLLOW | disk.O_CLOEXEC))
    except OSError as error:
        if error.errno == errno.ENXIO:
            unlink_if_possible(path)
        return False
    return True


def _ring(path: bytes) -> None:
    try:
        descriptor = disk.open_path(path, os.O_WRONLY | disk.O_NONBLOCK | disk.O_NOFOLLOW | disk.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ENXIO:
            unlink_if_possible(path)
        return
    try:
        os.write(descriptor, b"!")
    except OSError:
        pass  # the pipe is full of rings, so the waiter will look; or the waiter has just gone
    finally:
        os.close(descriptor)


def unlink_if_possible(path: bytes) -> None:
    with suppress(OSError):
        os.unlink(path)
