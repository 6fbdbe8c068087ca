"""Waking those who wait for a change in a directory of the vault: one FIFO each, in which whoever changes something
writes a byte.

A bell only says "look again": what has changed stands elsewhere. So a ring that is lost (the one who changed something
was killed before it rang) delays, and nothing more: who waits looks again now and then, too.

The FIFO is open for reading and writing in the one who waits, so that it never has an end; nobody has it open after
that process has died, and whoever rings next finds that (ENXIO, fifo(7)) and removes it.

A bell may say whose it is (``page.1f…``): of somebody who may answer. Those who only wait for an answer are nobody.
"""

from __future__ import annotations

import errno
import os

_NEW = b"."
"""A name that begins so is of a bell that is not open yet."""


class Bell:
    """To be closed. Where no FIFO can be made (a full disk) ``fileno`` is -1: look now and then."""

    def __init__(self, directory: bytes, who: str = "") -> None:
        """``who``: a word of letters; empty: nobody who answers."""
        self._descriptor = -1
        self._path = b""
        name = (f"{who}." if who else "").encode() + os.urandom(8).hex().encode()
        new, path = directory + b"/" + _NEW + name, directory + b"/" + name
        try:
            os.makedirs(directory, mode=0o700, exist_ok=True)
            os.mkfifo(new, 0o600)
        except OSError:
            return
        try:
            self._descriptor = os.open(new, os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
            os.rename(new, path)
            self._path = path
        except OSError:
            self.close()
            _unlink(new)

    def fileno(self) -> int:
        return self._descriptor

    def heard(self) -> None:
        """Forget the rings so far."""
        if self._descriptor < 0:
            return
        try:
            os.read(self._descriptor, 1 << 16)
        except BlockingIOError:
            pass

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        if self._path:
            _unlink(self._path)
            self._path = b""


def ring(directory: bytes) -> None:
    """Wake all who wait. Never fails: what was to be told stands elsewhere."""
    try:
        names = os.listdir(directory)
    except OSError:
        return
    for name in names:
        if not name.startswith(_NEW):
            _ring(directory + b"/" + name)


def listeners(directory: bytes) -> frozenset[str]:
    """Who listens and may answer: the words of all bells there that somebody has open. Nobody is woken."""
    try:
        names = os.listdir(directory)
    except OSError:
        return frozenset()
    said = [name for name in names if b"." in name and not name.startswith(_NEW)]
    heard = [name for name in said if _is_open(directory + b"/" + name)]
    return frozenset(name.partition(b".")[0].decode("ascii", "replace") for name in heard)


def _is_open(path: bytes) -> bool:
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC))
    except OSError as error:
        if error.errno == errno.ENXIO:
            _unlink(path)
        return False
    return True


def _ring(path: bytes) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ENXIO:
            _unlink(path)
        return
    try:
        os.write(descriptor, b"!")
    except OSError:
        pass  # full of rings: it will look; or it has just gone
    finally:
        os.close(descriptor)


def _unlink(path: bytes) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass
