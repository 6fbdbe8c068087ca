"""Output of a command while it runs: pieces as text, and a stream of them.

Memory is bounded: a stream holds at most ``MOST_CHUNKS`` pieces of 64 KiB. A command that writes faster than the stream
is read waits for its reader, as at a pipe; its time limit does not go on meanwhile.
"""

from __future__ import annotations

import codecs
import threading
from collections import deque
from collections.abc import Callable, Iterator

from mudroom.errors import MudroomError, UsageError
from mudroom.library.life import kill, request
from mudroom.library.value import OutputChunk, RunResult
from mudroom.sandbox.client.cancellation import Cancellation
from mudroom.typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    OnOutput: TypeAlias = Callable[[OutputChunk], object]

MOST_CHUNKS = 64


class OutputDecoder:
    """Turns bytes of two streams into pieces. Used by the thread that runs the command."""

    def __init__(self) -> None:
        decoder = codecs.getincrementaldecoder("utf-8")
        self._decoders = {"stdout": decoder("replace"), "stderr": decoder("replace")}

    def chunk(self, stream: str, data: bytes) -> OutputChunk:
        name = "stdout" if stream == "stdout" else "stderr"
        return OutputChunk("stdout" if name == "stdout" else "stderr", self._decoders[name].decode(data), data)

    def rest(self) -> Iterator[OutputChunk]:
        """Yield the first half of a character that was the last output, if there is one."""
        for name, decoder in self._decoders.items():
            text = decoder.decode(b"", True)
            if text:
                yield OutputChunk("stdout" if name == "stdout" else "stderr", text, b"")


class OutputListener:
    """Passes output to the caller's function. If that raises, the command is ended, and the exception is raised when
    its changes are collected. Used by the thread that runs the command."""

    def __init__(self, on_output: OnOutput, cancellation: Cancellation) -> None:
        self._on_output, self._cancellation = on_output, cancellation
        self._decoder = OutputDecoder()
        self._failure: BaseException | None = None

    def hear(self, stream: str, data: bytes) -> None:
        self._call(self._decoder.chunk(stream, data))

    def end(self) -> None:
        """Pass on the rest. Raise the exception of the function, if it has raised one."""
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


class OutputStream:
    """The output of a command that runs meanwhile: iterate over it, then take ``result``. Leaving the block, or
    forgetting the stream, ends the command.

    ``_changed`` guards what the command's thread and the reader share.
    """

    def __init__(self, run: Callable[[OnOutput], RunResult], cancellation: Cancellation) -> None:
        self._cancellation = cancellation
        self._shared = _Shared()
        threading.Thread(target=_work, args=(run, self._shared), name="mudroom stream", daemon=True).start()

    def __iter__(self) -> OutputStream:
        return self

    def __next__(self) -> OutputChunk:
        try:
            chunk = self._shared.take(wait=True)
        except BaseException:
            self.close()
            raise
        if chunk is None:
            raise StopIteration
        return chunk

    def __enter__(self) -> OutputStream:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def __del__(self) -> None:
        shared = getattr(self, "_shared", None)
        if shared is not None and not shared.is_over:
            shared.drop()
            request(self._cancellation)

    def poll(self) -> OutputChunk | None:
        """Return the next piece if it is there; None if not, or at the end (``is_over``)."""
        return self._shared.take(wait=False)

    @property
    def is_over(self) -> bool:
        """Whether the command has ended and all its output was taken."""
        return self._shared.is_over

    @property
    def result(self) -> RunResult:
        """The result. Raise UsageError before all output was read, and MudroomError if the command has failed."""
        if not self._shared.is_over:
            raise UsageError("the command has not ended, or its output was not read to the end", "call wait() for it")
        return self._shared.ended()

    def wait(self) -> RunResult:
        """Drop the rest of the output, wait for the end of the command, and return the result. Raise what the command's
        thread has raised, once, and MudroomError after that."""
        self._shared.drop()
        self._shared.wait()
        self._shared.take(wait=False)
        return self._shared.ended()

    def tell(self, ready: Callable[[], None]) -> None:
        """Call ``ready``, in the command's thread, whenever ``poll`` has something new to say."""
        self._shared.tell(ready)

    def close(self) -> None:
        """End the command if it runs, and wait until its changes are collected. Harmless when repeated."""
        if not self._shared.is_done:
            self._shared.drop()
            request(self._cancellation)
            self._shared.wait()


class _Shared:
    """Of the command's thread and the reader. ``_changed`` guards the other attributes."""

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
        """Wait while there is no room, unless nobody reads any more."""
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
        """Return the next piece; None at the end, or if ``wait`` is False and none is there. Raise what the command's
        thread has raised, once."""
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
        """Return the result of a command that has ended."""
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
