"""Attempts for asyncio."""

from __future__ import annotations

import functools

from mudroom.ext.attempts.library.attempt_stream import AttemptStream
from mudroom.ext.attempts.library.attempt_value import Attempt, TryResult
from mudroom.library.worker import in_thread


class AsyncAttemptStream:
    """``AttemptStream`` for ``async for`` and ``async with``. Cancelling the task that waits ends the attempts. Owner:
    the event loop in which it was made."""

    def __init__(self, stream: AttemptStream) -> None:
        self._stream = stream

    def __aiter__(self) -> AsyncAttemptStream:
        return self

    async def __anext__(self) -> Attempt:
        attempt = await in_thread(self._next, self._stream.cancellation)
        if attempt is None:
            raise StopAsyncIteration
        return attempt

    def _next(self) -> Attempt | None:
        return next(self._stream, None)

    async def __aenter__(self) -> AsyncAttemptStream:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        if kind is GeneratorExit:  # the loop is gone: nothing can be awaited
            self._stream.close()
        else:
            await self.close()

    @property
    def name(self) -> str:
        return self._stream.name

    @property
    def result(self) -> TryResult:
        return self._stream.result

    async def wait(self) -> TryResult:
        async for _attempt in self:
            pass
        return self.result

    async def close(self) -> None:
        await in_thread(self._stream.close)

    async def discard(self, *, everything: bool = False) -> list[str]:
        return await in_thread(functools.partial(self._stream.discard, everything=everything))
