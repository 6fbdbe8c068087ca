"""``mudroom.aopen``: a room for asyncio, with the names of ``Room``.

    async with mudroom.aopen("proj") as room:
        await asyncio.gather(*(room.run(["pytest"], fork=f"try-{i}") for i in range(8)))

Each call is one of a ``Room`` in a thread (``worker.py``). Cancelling it ends its command.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Collection, Generator, Mapping, Sequence

from mudroom.errors import UsageError
from mudroom.library import async_command
from mudroom.library.async_background import LOOK, AsyncBackgroundHandle
from mudroom.library.async_fork import AsyncForkHandle
from mudroom.library.async_output import AsyncOutputStream
from mudroom.library.command import requested
from mudroom.library.opening import open as open_room
from mudroom.library.room import Room
from mudroom.library.worker import in_thread
from mudroom.typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from mudroom.ext.agents.library.async_tool_set import AsyncToolSet
    from mudroom.ext.agents.library.tool_set import ToolFormat
    from mudroom.ext.attempts.library.async_attempts import AsyncAttemptStream
    from mudroom.ext.attempts.value import Score
    from mudroom.ext.transfer.library import ArchivePlace, NamedArchive
    from mudroom.library.argument import CommandLine, NetworkMode, StrPath, ViewMode, Word
    from mudroom.library.output import OnOutput
    from mudroom.library.question import IsOver
    from mudroom.library.value import (
        Applied,
        ArrivedFork,
        ChangeList,
        ForkArchive,
        ForkInfo,
        JournalEvent,
        Question,
        RunResult,
    )

    AsyncAsk: TypeAlias = Callable[[Question], bool | Awaitable[bool]] | Literal["queue", "never"]


def aopen(
    project: Word,
    *,
    agent: str | None = None,
    card: StrPath | None = None,
    ask: AsyncAsk | None = None,
    level: int | None = None,
    network: NetworkMode | None = None,
    allow: Sequence[str] = (),
    deny: Sequence[str] = (),
    limits: Mapping[str, str | float] | None = None,
    timeout: float | None = None,
    output_limit: int | None = None,
    env: Mapping[str, str] | None = None,
    show: Sequence[str] = (),
    read: Sequence[Word] = (),
    view: ViewMode | None = None,
    image: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> AsyncRoom:
    """Return a room for ``async with``, or for ``await``. The arguments are those of ``mudroom.open``; ``ask`` may be a
    coroutine function, and is called in the event loop."""

    def opened(loop: asyncio.AbstractEventLoop) -> Room:
        return open_room(
            project,
            agent=agent,
            card=card,
            ask=AskOnLoop(ask, loop) if callable(ask) else ask,
            level=level,
            network=network,
            allow=allow,
            deny=deny,
            limits=limits,
            timeout=timeout,
            output_limit=output_limit,
            env=env,
            show=show,
            read=read,
            view=view,
            image=image,
            environ=environ,
        )

    return AsyncRoom(opened)


class AsyncRoom:
    """``Room`` for asyncio. ``_room`` is set once, when it is opened, by the event loop's thread."""

    def __init__(self, opened: Callable[[asyncio.AbstractEventLoop], Room]) -> None:
        """``mudroom.aopen`` makes rooms."""
        self._opened = opened
        self._room: Room | None = None

    def __await__(self) -> Generator[Any, None, AsyncRoom]:
        return self.__aenter__().__await__()

    async def __aenter__(self) -> AsyncRoom:
        if self._room is None:
            self._room = await in_thread(functools.partial(self._opened, asyncio.get_running_loop()))
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        if kind is GeneratorExit:  # the loop is gone: nothing can be awaited
            self._opened_room.close()
        else:
            await self.close()

    def __repr__(self) -> str:
        return f"<mudroom async of {self._room!r}>"

    @property
    def _opened_room(self) -> Room:
        if self._room is None:
            raise UsageError(
                "this room is not open yet", "async with mudroom.aopen(…) as room, or await mudroom.aopen(…)"
            )
        return self._room

    async def close(self) -> None:
        await in_thread(self._opened_room.close)

    @property
    def is_closed(self) -> bool:
        return self._room is not None and self._room.is_closed

    @property
    def project(self) -> str:
        return self._opened_room.project

    @property
    def notes(self) -> tuple[str, ...]:
        return self._opened_room.notes

    async def run(
        self,
        command: CommandLine,
        *,
        fork: str | None = None,
        cwd: StrPath | None = None,
        timeout: float | None = None,
        input: str | bytes | None = None,  # noqa: A002
        env: Mapping[str, str] | None = None,
        on_output: OnOutput | None = None,
        check: bool = False,
    ) -> RunResult:
        """``Room.run``; ``on_output`` is called in the event loop. Cancellation ends the command."""
        life = self._opened_room._life
        return await async_command.run(
            life, requested(life, command, fork, cwd, timeout, input, env), on_output, check=check
        )

    def stream(
        self,
        command: CommandLine,
        *,
        fork: str | None = None,
        cwd: StrPath | None = None,
        timeout: float | None = None,
        input: str | bytes | None = None,  # noqa: A002
        env: Mapping[str, str] | None = None,
    ) -> AsyncOutputStream:
        """``Room.stream``, for ``async for``."""
        stream = self._opened_room.stream(command, fork=fork, cwd=cwd, timeout=timeout, input=input, env=env)
        return AsyncOutputStream(stream)

    async def start(
        self,
        command: CommandLine,
        *,
        fork: str | None = None,
        cwd: StrPath | None = None,
        timeout: float | None = None,
        env: Mapping[str, str] | None = None,
    ) -> AsyncBackgroundHandle:
        call = functools.partial(self._opened_room.start, command, fork=fork, cwd=cwd, timeout=timeout, env=env)
        return AsyncBackgroundHandle(await in_thread(call))

    async def attempts(
        self,
        command: CommandLine | None = None,
        n: int = 4,
        *,
        commands: Sequence[CommandLine] = (),
        judge: CommandLine | None = None,
        score: Score = "exit",
        jobs: int | None = None,
        until: int | None = None,
        budget: float | None = None,
        parent: str | None = None,
        at: str | None = None,
        combine: bool = False,
        cwd: StrPath | None = None,
        timeout: float | None = None,
        env: Mapping[str, str] | None = None,
    ) -> AsyncAttemptStream:
        from mudroom.ext.attempts.library.async_attempts import AsyncAttemptStream

        call = functools.partial(
            self._opened_room.attempts, command, n, commands=commands, judge=judge, score=score, jobs=jobs, until=until,
            budget=budget, parent=parent, at=at, combine=combine, cwd=cwd, timeout=timeout, env=env,
        )  # fmt: skip
        return AsyncAttemptStream(await in_thread(call))

    async def background(self, id: str) -> AsyncBackgroundHandle:  # noqa: A002
        return AsyncBackgroundHandle(await in_thread(functools.partial(self._opened_room.background, id)))

    async def fork(
        self, name: str | None = None, *, parent: str | None = None, at: str | None = None, snapshot: bool = False
    ) -> AsyncForkHandle:
        call = functools.partial(self._opened_room.fork, name, parent=parent, at=at, snapshot=snapshot)
        return AsyncForkHandle(await in_thread(call))

    async def forks(self) -> list[ForkInfo]:
        return await in_thread(self._opened_room.forks)

    async def changes(self, fork: str) -> ChangeList:
        return await in_thread(functools.partial(self._opened_room.changes, fork))

    async def diff(self, fork: str, paths: Word | Sequence[Word] = ()) -> str:
        return await in_thread(functools.partial(self._opened_room.diff, fork, paths))

    async def discard(self, fork: str) -> None:
        await in_thread(functools.partial(self._opened_room.discard, fork))

    async def export(self, fork: str, target: ArchivePlace, *, base: bytes = b"", packed: bool = True) -> ForkArchive:
        call = functools.partial(self._opened_room.export, fork, target, base=base, packed=packed)
        return await in_thread(call)

    async def arrive(self, archives: Sequence[NamedArchive], *, bases: Collection[bytes] = ()) -> list[ArrivedFork]:
        return await in_thread(functools.partial(self._opened_room.arrive, archives, bases=bases))

    def tools(
        self,
        format: ToolFormat,  # noqa: A002
        *,
        fork: str | None = None,
        only: Sequence[str] | None = None,
    ) -> AsyncToolSet:
        from mudroom.ext.agents.library.async_tool_set import AsyncToolSet

        return AsyncToolSet(self._opened_room.tools(format, fork=fork, only=only))

    async def apply(
        self,
        fork: str,
        paths: Word | Sequence[Word] = (),
        *,
        verify: CommandLine | None = None,
        reviewed: str | None = None,
        git: bool = False,
    ) -> Applied:
        """``Room.apply``. A cancellation waits for its end, and is raised then."""
        call = functools.partial(self._opened_room.apply, fork, paths, verify=verify, reviewed=reviewed, git=git)
        return await in_thread(call)

    async def undo(self, name: str | None = None) -> Applied:
        return await in_thread(functools.partial(self._opened_room.undo, name))

    async def redo(self, name: str | None = None) -> Applied:
        return await in_thread(functools.partial(self._opened_room.redo, name))

    async def journal(
        self, last: int = 100, *, kinds: Sequence[str] = (), forks: Sequence[str] = ()
    ) -> list[JournalEvent]:
        return await in_thread(functools.partial(self._opened_room.journal, last, kinds=kinds, forks=forks))


class AskOnLoop:
    """Calls an approver in the event loop, from the thread of the command. A loop that has ended refuses."""

    def __init__(self, ask: Callable[[Question], bool | Awaitable[bool]], loop: asyncio.AbstractEventLoop) -> None:
        self._ask, self._loop = ask, loop

    def __call__(self, question: Question) -> bool:
        return self.ask_until(question, lambda: False)

    def ask_until(self, question: Question, is_over: IsOver) -> bool:
        """Return the answer; False as soon as it is not needed any more."""
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
                    raise  # of the caller's function
                if is_over() or self._loop.is_closed():
                    future.cancel()
                    return False

    async def _asked(self, question: Question) -> bool:
        answer = self._ask(question)
        return answer if isinstance(answer, bool) else await answer
