"""A command's streams on Windows: relayed to the caller's descriptors, or captured in memory up to a limit. The
counterpart to ``client/stream.py`` and ``CapturedOutput``.

Rules of this file:
1. A command gets pipes, or NUL opened anew; no caller's handle gets into its process.
2. Anonymous pipes cannot be waited for, so each has a thread, which reads until the pipe ends. It ends when the job's
   last handle is gone: ``attend`` ends the job first.
3. A thread that waits for the caller's input is interrupted when the command is over (CancelSynchronousIo), so that a
   question afterwards gets the whole answer. Data that it has read from a pipe by then is lost to others: Windows has
   no tee(2).
4. If the caller's end fails, the command's pipe is closed. A failure is kept, unless the reader has gone.
5. stdout and stderr have a pipe each, so their order is the order of arrival.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable

from mudroom.core.system.closing import Closing
from mudroom.core.system.write_all import write_all
from mudroom.ext.windows.win32.api import Library
from mudroom.ext.windows.win32.process import interrupt_call

_CHUNK = 1 << 16
_GONE = (errno.EPIPE, errno.ECONNRESET, errno.EINVAL)
"""EINVAL: the C runtime's error for ERROR_NO_DATA, a pipe whose reader has gone."""
_PATIENCE = 0.05
"""Seconds between two attempts to interrupt a thread: it may be between two reads."""
_ATTEMPTS = 40

Heard = Callable[[str, bytes], None]


class _Pipe:
    """A command's pipe. Only its thread writes its attributes; others read them after ``join``."""

    def __init__(self, name: str, ours: int, theirs: int) -> None:
        self.name, self._ours, self.theirs = name, ours, theirs
        self.failure: OSError | None = None
        self._thread = threading.Thread(target=self._run, name=f"mudroom-{name}", daemon=True)

    def begin(self) -> None:
        """Close this process's copy of the command's end, and read from now on."""
        self._close_theirs()
        self._thread.start()

    def close(self) -> None:
        self._close_theirs()
        if self._thread.ident is None and self._ours >= 0:
            os.close(self._ours)
            self._ours = -1

    def _close_theirs(self) -> None:
        if self.theirs >= 0:
            os.close(self.theirs)
            self.theirs = -1

    def _run(self) -> None:
        try:
            self._pump()
        except OSError as error:
            self.failure = None if error.errno in _GONE or self._is_over() else error
        finally:
            ours, self._ours = self._ours, -1
            os.close(ours)

    def _pump(self) -> None:
        raise NotImplementedError

    def _is_over(self) -> bool:
        """Whether a failure is that of an interrupted call."""
        return False


class OutputPipe(_Pipe):
    """One output pipe. ``target``: the caller's descriptor, or None to capture."""

    def __init__(self, name: str, target: int | None, limit: int, heard: Heard | None) -> None:
        super().__init__(name, *os.pipe())
        self._target, self._heard = target, heard
        self.truncated = False
        self._chunks: list[bytes] = []
        self._room = limit

    @property
    def data(self) -> bytes:
        return b"".join(self._chunks)

    @property
    def is_captured(self) -> bool:
        return self._target is None

    def join(self) -> None:
        """Wait for the pipe's end."""
        if self._thread.is_alive():
            self._thread.join()

    def _pump(self) -> None:
        while chunk := os.read(self._ours, _CHUNK):
            if self._target is None:
                self._keep(chunk)
            else:
                write_all(self._target, chunk)

    def _keep(self, chunk: bytes) -> None:
        self.truncated |= len(chunk) > self._room
        self._chunks.append(chunk[: self._room])
        self._room -= len(self._chunks[-1])
        if self._heard is not None:
            self._heard(self.name, chunk)


class InputPipe(_Pipe):
    """A command's input pipe."""

    def __init__(self, library: Library, source: int) -> None:
        theirs, ours = os.pipe()
        super().__init__("stdin", ours, theirs)
        self._library, self._source = library, source
        self._ended = threading.Event()

    def join(self) -> None:
        """Interrupt the thread. A write ends by itself, since no reader is left."""
        self._ended.set()
        for _attempt in range(_ATTEMPTS):
            if not self._thread.is_alive():
                return
            interrupt_call(self._library, self._thread.native_id or 0)
            self._thread.join(_PATIENCE)

    def _pump(self) -> None:
        while not self._ended.is_set() and (chunk := os.read(self._source, _CHUNK)):
            write_all(self._ours, chunk)

    def _is_over(self) -> bool:
        return self._ended.is_set()


class PipedOutput(Closing):
    """The streams for one attempt to start a command, as ``CapturedOutput``. ``descriptors`` are the command's."""

    def __init__(
        self,
        library: Library,
        stdin: int | None,
        stdout: int | None,
        stderr: int | None,
        limit: int,
        heard: Heard | None = None,
    ) -> None:
        """The arguments are the caller's descriptors; None: nothing to read, or captured. ``heard`` is called by one
        thread at a time, but not by the caller's."""
        lock = threading.Lock()

        def told(name: str, chunk: bytes) -> None:
            if heard is not None:
                with lock:
                    heard(name, chunk)

        self._null = os.open(os.devnull, os.O_RDONLY)
        self.input = None if stdin is None else InputPipe(library, stdin)
        self.pipes = (OutputPipe("stdout", stdout, limit, told), OutputPipe("stderr", stderr, limit, told))
        self.streams = tuple(pipe for pipe in self.pipes if pipe.is_captured)
        self._every: tuple[_Pipe, ...] = (*self.pipes, *(() if self.input is None else (self.input,)))

    @property
    def descriptors(self) -> tuple[int, int, int]:
        given = self._null if self.input is None else self.input.theirs
        return given, self.pipes[0].theirs, self.pipes[1].theirs

    def begin(self) -> None:
        """Read and write from now on: the command has its ends."""
        for stream in self._every:
            stream.begin()

    def join(self) -> None:
        """Wait until all output has been read. The job has ended."""
        for stream in self.pipes:
            stream.join()
        if self.input is not None:
            self.input.join()

    def close(self) -> None:
        for stream in self._every:
            stream.close()
        if self._null >= 0:
            os.close(self._null)
            self._null = -1

    def captured(self, name: str) -> bytes:
        """Return a stream's captured bytes; empty if it was not captured."""
        return b"".join(stream.data for stream in self.streams if stream.name == name)

    @property
    def failures(self) -> list[str]:
        """Failures on the caller's descriptors, as clauses."""
        failed = [(stream.name, stream.failure) for stream in self._every if stream.failure is not None]
        return [f"{name}: {os.strerror(error.errno or 0)}" for name, error in failed]
