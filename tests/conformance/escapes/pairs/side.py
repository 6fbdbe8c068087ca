"""One of the two: a fork of a session, a command of the command line, or no sandbox, with programs that run in it."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from mudroom.session import Session, Stdio
from mudroom.session.background import Background

_NEW_UTS = 0x04000000
"""CLONE_NEWUTS of clone(2)."""


class Program(Protocol):
    def output(self) -> str:
        """Return what it has printed."""

    def ended(self) -> bool: ...

    def end(self) -> None: ...


class Side(Protocol):
    def start(self, argv: list[str]) -> Program: ...

    def run(self, argv: list[str]) -> str:
        """Run a program to its end and return its output."""

    def touch(self, name: str) -> None:
        """Make a file that the programs of this side see in their directory."""


# --- forks of a session ---


class ForkSide:
    """A fork; its programs run in the background."""

    def __init__(self, session: Session, fork: str) -> None:
        self.session, self.fork = session, fork

    def start(self, argv: list[str]) -> Program:
        return _InBackground(self.session.start([os.fsencode(word) for word in argv], fork=self.fork))

    def run(self, argv: list[str]) -> str:
        result = self.session.run([os.fsencode(word) for word in argv], fork=self.fork)
        return (result.stdout + result.stderr).decode(errors="replace")

    def touch(self, name: str) -> None:
        self.session.run([b"touch", name.encode()], fork=self.fork)


class _InBackground:
    def __init__(self, background: Background) -> None:
        assert background.refused is None, background.refused
        self._background = background

    def output(self) -> str:
        return b"\n".join(self._background.output()).decode(errors="replace")

    def ended(self) -> bool:
        return self._background.poll() is not None

    def end(self) -> None:
        self._background.end(0)


class ThreadSide(ForkSide):
    """A fork whose program runs in the foreground, of a thread of its own."""

    def start(self, argv: list[str]) -> Program:
        return _InThread(self.session, self.fork, [os.fsencode(word) for word in argv])


class _InThread:
    def __init__(self, session: Session, fork: str, argv: list[bytes]) -> None:
        self._session, self._fork = session, fork
        self._data = b""
        self._thread = threading.Thread(target=self._run, args=(argv,))
        self._thread.start()

    def _run(self, argv: list[bytes]) -> None:
        self._session.run(argv, fork=self._fork, stdio=Stdio(on_output=self._heard))

    def _heard(self, _stream: str, data: bytes) -> None:
        self._data += data

    def output(self) -> str:
        return self._data.decode(errors="replace")

    def ended(self) -> bool:
        return not self._thread.is_alive()

    def end(self) -> None:
        self._session.interrupt(9, fork=self._fork)
        self._thread.join()


# --- processes of the command line, and no sandbox ---


class ProcessSide:
    """Programs as processes of ours, each with ``prefix`` before it."""

    def __init__(self, directory: Path, prefix: list[str], environ: dict[str, str]) -> None:
        self.directory, self.prefix, self.environ = directory, prefix, environ

    def start(self, argv: list[str]) -> Program:
        return _AsProcess([*self.prefix, *argv], self.directory, self.environ)

    def run(self, argv: list[str]) -> str:
        program = _AsProcess([*self.prefix, *argv], self.directory, self.environ)
        program.process.wait()
        return program.output()

    def touch(self, name: str) -> None:
        self.run(["touch", name])


@contextmanager
def own_host_name() -> Iterator[None]:
    """Give the programs that this thread starts a host name of their own (uts_namespaces(7)): root's could change that
    of the machine, which is part of the name of each user's keepers. An ordinary user may do neither."""
    if os.geteuid() != 0:
        yield
        return
    libc = ctypes.CDLL(None, use_errno=True)
    before = os.open("/proc/thread-self/ns/uts", os.O_RDONLY | os.O_CLOEXEC)
    try:
        if libc.unshare(_NEW_UTS) < 0:
            raise OSError(ctypes.get_errno(), "unshare")
        yield
    finally:
        if libc.setns(before, _NEW_UTS) < 0:
            raise OSError(ctypes.get_errno(), "setns")
        os.close(before)


def command_line(project: Path, home: Path, state: Path, words: list[str]) -> ProcessSide:
    """Return a side whose programs are commands of ``mudroom``."""
    environ = {**os.environ, "HOME": str(home), "MUDROOM_STATE": str(state), "LC_ALL": "C"}
    environ["PYTHONPATH"] = os.pathsep.join(os.path.abspath(path) for path in sys.path if path)
    return ProcessSide(project, [sys.executable, "-m", "mudroom", *words, "--"], environ)


class _AsProcess:
    def __init__(self, argv: list[str], directory: Path, environ: dict[str, str]) -> None:
        self._data = b""
        self.process = subprocess.Popen(
            argv, cwd=directory, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as stream:
            while data := os.read(stream.fileno(), 65536):
                self._data += data

    def output(self) -> str:
        if self.process.poll() is not None:
            self._thread.join()
        return self._data.decode(errors="replace")

    def ended(self) -> bool:
        return self.process.poll() is not None

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self._thread.join()
