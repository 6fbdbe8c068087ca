"""A command's output while it runs: text chunks, and a stream that yields them.

Memory is bounded: a stream holds at most ``MOST_CHUNKS`` chunks of 64 KiB. A command that writes faster than the stream
is read waits for its reader, as with a pipe; its time limit is suspended meanwhile.
"""

from __future__ import annotations

import codecs
import threading
from collections import deque
from collections.abc import Callable, Iterator

from mudroom.core.system.closing import ClosedOnError, Closing
from mudroom.errors import MudroomError, UsageError
from mudroom.library.life import kill, request
from mudroom.library.value import OutputChunk, RunResult
from mudroom.sandbox.client.cancellation import Cancellation
from mudroom.typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    OnOutput: TypeAlias = Callable[[OutputChunk], object]

MOST_CHUNKS = 64


class OutputDecoder:
    """Decodes stdout and stderr to chunks. Used by the thread that runs the command."""

    def __init__(self) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")
        self._decoders = {"stdout": decoder("replace"), "stderr": decoder("replace")}

    def chunk(self, stream: str, data: bytes) -> OutputChunk:
        name = "stdout" if stream == "stdout" else "stderr"
        return OutputChunk("stdout" if name == "stdout" else "stderr", self._decoders[name].decode(data), data)

    def rest(self) -> Iterator[OutputChunk]:
        """Yield each stream's incomplete last character, if there is any."""
        for name, decoder in self._decoders.items():
            text = decoder.decode(b"", True)
            if text:
                yield OutputChunk("stdout" if name == "stdout" else "stderr", text, b"")


class OutputListener:
    """Passes output to the caller's function. If that raises, the command is killed, and the exception is raised when
    its changes are collected. Used by the thread that runs the command."""

    def __init__(self, on_output: OnOutput, cancellation: Cancellation) -> None:
        self._on_output, self._cancellation = on_output, cancellation
        self._decoder = OutputDecoder()
        self._failure: BaseException | None = None

    def hear(self, stream: str, data: bytes) -> None:
        self._call(self._decoder.chunk(stream, data))

    def end(self) -> None:
        """Pass on the rest. Raise the function's exception, if it has raised one."""
        for chunk in self._decoder.rest():
            self._call(chunk)
        if self._failure is not None:
            raise self._failure

    def _call(self, chunk: OutputChunk) -> None:
        if self._failure is not None:
            return
        try:
            self._on_output(chunk)
        except BaseException as error:  # noqa: BLE001 - raised by ``end``
            self._failure = error
            kill(self._cancellation)


class OutputStream(Closing):
    """Output of a running command: iterate over it, then take ``result``. Leaving the block, or forgetting the stream,
    ends the command."""

    def __init__(self, run: Callable[[OnOutput], RunResult], cancellation: Cancellation) -> None:
        self._cancellation = cancellation
        self._shared = _Shared()
        threading.Thread(target=_work, args=(run, self._shared), name="mudroom stream", daemon=True).start()

    def __iter__(self) -> OutputStream:
        return self

    def __next__(self) -> OutputChunk:
        with ClosedOnError(self):
            chunk = self._shared.take(wait=True)
        if chunk is None:
            raise StopIteration
        return chunk

    def __del__(self) -> None:
        shared = getattr(self, "_shared", None)
        if shared is not None and not shared.is_over:
            shared.drop()
            request(self._cancellation)

    def poll(self) -> OutputChunk | None:
        """Return the next chunk if there is one; None if not, or at the end (``is_over``)."""
        return self._shared.take(wait=False)

    @property
    def is_over(self) -> bool:
        """Whether the command has ended and all its output was taken."""
        return self._shared.is_over

    @property
    def result(self) -> RunResult:
        """The result. Raise UsageError until all output has been read, and MudroomError if the command has failed."""
        if not self._shared.is_over:
            raise UsageError("the command has not ended, or its output was not read to the end", "call wait() for it")
        return self._shared.ended()

    def wait(self) -> RunResult:
        """Drop the remaining output, wait until the command has ended, and return the result. Raise the command
        thread's exception once, and MudroomError after that."""
        self._shared.drop()
        self._shared.wait()
        self._shared.take(wait=False)
        return self._shared.ended()

    def tell(self, ready: Callable[[], None]) -> None:
        """Call ``ready``, in the command's thread, whenever ``poll`` may have a new result."""
        self._shared.tell(ready)

    def close(self) -> None:
        """End the command if it runs, and wait until its changes are collected. Harmless when repeated."""
        if not self._shared.is_done:
            self._shared.drop()
            request(self._cancellation)
            self._shared.wait()


class _Shared:
    """State shared by the command's thread and the reader. ``_changed`` guards the other attributes."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._chunks: deque[OutputChunk] = deque()
        self._ready: Callable[[], None] = lambda: None
        self._error: BaseException | None = None
        self._is_dropped = self.is_done = False
        self.result: RunResult | None = None

    @property
    def is_over(self) -> bool:
        return self.is_done and not self._chunks and self._error is None

    def put(self, chunk: OutputChunk) -> None:
        """Wait for space, unless the reader has gone."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_dropped or len(self._chunks) < MOST_CHUNKS)
            if not self._is_dropped:
                self._chunks.append(chunk)
            self._changed.notify_all()
        self._ready()

    def end(self, result: RunResult | None, error: BaseException | None) -> None:
        with self._changed:
            self.result, self._error, self.is_done = result, error, True
            self._changed.notify_all()
        self._ready()

    def take(self, *, wait: bool) -> OutputChunk | None:
        """Return the next chunk; None at the end, or without ``wait`` if there is none. Raise the command thread's
        exception, once."""
        with self._changed:
            if wait:
                self._changed.wait_for(lambda: self._chunks or self.is_done)
            if self._chunks:
                chunk = self._chunks.popleft()
                self._changed.notify_all()
                return chunk
            error, self._error = self._error, None
        if error is not None:
            raise error
        return None

    def ended(self) -> RunResult:
        if self.result is None:
            hint = "catch the error where the output is read, or at wait()"
            raise MudroomError("the command has no result: the stream has raised its error", hint)
        return self.result

    def tell(self, ready: Callable[[], None]) -> None:
        self._ready = ready
        ready()

    def drop(self) -> None:
        with self._changed:
            self._is_dropped = True
            self._chunks.clear()
            self._changed.notify_all()

    def wait(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self.is_done)


def _work(run: Callable[[OnOutput], RunResult], shared: _Shared) -> None:
    try:
        result = run(shared.put)
    except BaseException as error:  # noqa: BLE001 - raised in the reader's thread
        shared.end(None, error)
    else:
        shared.end(result, None)
