"""``mudroom.aopen``: a room for asyncio, with the same names as ``Room``.

    async with mudroom.aopen("proj") as room:
        await asyncio.gather(*(room.run(["pytest"], fork=f"try-{i}") for i in range(8)))

Each call runs the ``Room`` method in a thread (``worker.py``). Cancelling it ends its command.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator

from mudroom.library.argument import require_known
from mudroom.library.async_handle import (
    LOOK,
    AsyncAttemptStream,
    AsyncBackgroundHandle,
    AsyncForkHandle,
    AsyncHandle,
    AsyncOutputStream,
    AsyncToolSet,
    awaited,
    awaited_as,
    command,
    left,
    returned_as,
)
from mudroom.library.opening import RoomOptions
from mudroom.library.opening import open as open_room
from mudroom.library.room import Room
from mudroom.library.worker import in_thread
from mudroom.typing import TYPE_CHECKING, Any, Literal, TypeAlias, Unpack

if TYPE_CHECKING:
    from mudroom.library.argument import Word
    from mudroom.library.question import IsOver
    from mudroom.library.value import Question

    AsyncAsk: TypeAlias = Callable[[Question], bool | Awaitable[bool]] | Literal["queue", "never"]


def aopen(project: Word, *, ask: AsyncAsk | None = None, **options: Unpack[RoomOptions]) -> AsyncRoom:
    """Return a room for ``async with`` or ``await``. Takes the arguments of ``mudroom.open``. ``ask`` may be a
    coroutine function; it is called in the event loop."""
    require_known("aopen", options, RoomOptions)

    def opened(loop: asyncio.AbstractEventLoop) -> Room:
        return open_room(project, ask=AskOnLoop(ask, loop) if callable(ask) else ask, **options)

    return AsyncRoom(opened)


class AsyncRoom(AsyncHandle[Room]):
    """``Room`` for asyncio: the same names and arguments, awaited. Cancelling ``run`` ends the command; its
    ``on_output`` is called in the event loop. Cancelling any other call waits until the call has completed. ``stream``,
    ``start``, ``attempts``, ``fork`` and ``tools`` return asyncio handles."""

    def __init__(self, opened: Callable[[asyncio.AbstractEventLoop], Room]) -> None:
        """Use ``mudroom.aopen`` to create a room."""
        super().__init__(None)
        self._opened = opened

    def __await__(self) -> Generator[Any, None, AsyncRoom]:
        return self.__aenter__().__await__()

    async def __aenter__(self) -> AsyncRoom:
        if self._wrapped is None:
            loop = asyncio.get_running_loop()
            self._wrapped = await in_thread(lambda: self._opened(loop))
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        await left(self._handle.close, kind)

    def __repr__(self) -> str:
        return f"<mudroom async of {self._wrapped!r}>"

    @property
    def is_closed(self) -> bool:
        return self._wrapped is not None and self._wrapped.is_closed

    @property
    def project(self) -> str:
        return self._handle.project

    @property
    def notes(self) -> tuple[str, ...]:
        return self._handle.notes

    close = awaited(Room.close)
    run = command(Room.run)
    stream = returned_as(AsyncOutputStream, Room.stream)
    start = awaited_as(AsyncBackgroundHandle, Room.start)
    attempts = awaited_as(AsyncAttemptStream, Room.attempts)
    background = awaited_as(AsyncBackgroundHandle, Room.background)
    fork = awaited_as(AsyncForkHandle, Room.fork)
    forks = awaited(Room.forks)
    changes = awaited(Room.changes)
    effects = awaited(Room.effects)
    diff = awaited(Room.diff)
    discard = awaited(Room.discard)
    export = awaited(Room.export)
    arrive = awaited(Room.arrive)
    tools = returned_as(AsyncToolSet, Room.tools)
    apply = awaited(Room.apply)
    undo = awaited(Room.undo)
    redo = awaited(Room.redo)
    journal = awaited(Room.journal)


class AskOnLoop:
    """Calls an approver in the event loop, from the command's thread. Refuses if the loop has ended."""

    def __init__(self, ask: Callable[[Question], bool | Awaitable[bool]], loop: asyncio.AbstractEventLoop) -> None:
        self._ask, self._loop = ask, loop

    def __call__(self, question: Question) -> bool:
        return self.ask_until(question, lambda: False)

    def ask_until(self, question: Question, is_over: IsOver) -> bool:
        """Return the answer, or False as soon as it is no longer needed."""
        asked = self._asked(question)
        if self._loop.is_closed():
            asked.close()
            return False
        future = asyncio.run_coroutine_threadsafe(asked, self._loop)
        while True:
            try:
                return future.result(LOOK)
            except TimeoutError:
                if future.done():
                    raise  # a TimeoutError from the caller's own function
                if is_over() or self._loop.is_closed():
                    future.cancel()
                    return False

    async def _asked(self, question: Question) -> bool:
        answer = self._ask(question)
        return answer if isinstance(answer, bool) else await answer
