"""Output of a command for asyncio."""

from __future__ import annotations

import asyncio
import functools

from mudroom.library.life import kill
from mudroom.library.output import OutputStream
from mudroom.library.value import OutputChunk, RunResult
from mudroom.library.worker import in_thread
from mudroom.sandbox.client.cancellation import Cancellation
from mudroom.typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mudroom.library.output import OnOutput


class AsyncOutputStream:
    """``OutputStream`` for ``async for`` and ``async with``. Owner: the event loop in which it was made."""

    def __init__(self, stream: OutputStream) -> None:
        self._stream, self._ready = stream, asyncio.Event()
        loop, event = asyncio.get_running_loop(), self._ready
        stream.tell(functools.partial(_set, loop, event))

    def __aiter__(self) -> AsyncOutputStream:
        return self

    async def __anext__(self) -> OutputChunk:
        while True:
            self._ready.clear()
            chunk = self._stream.poll()
            if chunk is not None:
                return chunk
            if self._stream.is_over:
                raise StopAsyncIteration
            await self._ready.wait()

    async def __aenter__(self) -> AsyncOutputStream:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        if kind is GeneratorExit:
            self._stream.close()
        else:
            await self.close()

    @property
    def result(self) -> RunResult:
        return self._stream.result

    async def wait(self) -> RunResult:
        return await in_thread(self._stream.wait)

    async def close(self) -> None:
        await in_thread(self._stream.close)


def _set(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    try:
        loop.call_soon_threadsafe(event.set)
    except RuntimeError:
        pass  # the loop is closed: nobody reads


class LoopListener:
    """Calls a function for output in the event loop, in order. If it raises, the command is ended."""

    def __init__(self, on_output: OnOutput, loop: asyncio.AbstractEventLoop, cancellation: Cancellation) -> None:
        self._on_output, self._loop, self._cancellation = on_output, loop, cancellation
        self._failure: BaseException | None = None  # owner: the event loop

    def __call__(self, chunk: OutputChunk) -> None:
        self._loop.call_soon_threadsafe(self._hear, chunk)

    def _hear(self, chunk: OutputChunk) -> None:
        if self._failure is None:
            try:
                self._on_output(chunk)
            except Exception as error:  # noqa: BLE001 - raised in the task
                self._failure = error
                kill(self._cancellation)

    def require_no_failure(self) -> None:
        if self._failure is not None:
            raise self._failure
