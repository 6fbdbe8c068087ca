"""A room's handles for asyncio. Each has the names and arguments of the plain handle that it wraps.

A call runs the plain handle's method in a thread (``worker.py``). ``awaited`` and its variants derive it from that
method, with its types. The methods written out below have another form in asyncio: iteration, context managers, a wait
that can be cancelled.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress

from mudroom.errors import UsageError
from mudroom.library.argument import seconds_of
from mudroom.library.background_handle import BackgroundExit, BackgroundHandle
from mudroom.library.fork_handle import ForkHandle
from mudroom.library.life import kill
from mudroom.library.output import OutputStream
from mudroom.library.satellite import Attempt, AttemptStream, ToolSet
from mudroom.library.worker import in_thread
from mudroom.sandbox.client.cancellation import Cancellation
from mudroom.typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar

if TYPE_CHECKING:
    from pathlib import Path

    from mudroom.library.argument import StrPath
    from mudroom.library.output import OnOutput
    from mudroom.library.satellite import JsonObject, TryResult
    from mudroom.library.value import OutputChunk, RunResult

H = TypeVar("H")
P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

LOOK = 0.2
"""Seconds per wait in a thread. A cancellation takes effect after that."""


class AsyncHandle(Generic[H]):
    """Base class for asyncio handles. ``_wrapped`` is set once, by the event loop's thread."""

    def __init__(self, handle: H | None) -> None:
        """``handle`` is None for a room that is not open yet."""
        self._wrapped = handle

    def __repr__(self) -> str:
        return repr(self._wrapped)

    @property
    def _handle(self) -> H:
        if self._wrapped is None:
            raise UsageError(
                "this room is not open yet", "async with mudroom.aopen(…) as room, or await mudroom.aopen(…)"
            )
        return self._wrapped


def awaited(
    method: Callable[Concatenate[H, P], T],
) -> Callable[Concatenate[AsyncHandle[H], P], Coroutine[Any, Any, T]]:
    """Return a plain handle's method as a coroutine function. A cancellation waits until the method has returned."""
    return awaited_as(lambda result: result, method)


def awaited_as(
    kind: Callable[[T], R], method: Callable[Concatenate[H, P], T]
) -> Callable[Concatenate[AsyncHandle[H], P], Coroutine[Any, Any, R]]:
    """Like ``awaited``, but convert the result to its asyncio form with ``kind``."""

    @functools.wraps(method)
    async def call(handle: AsyncHandle[H], /, *args: P.args, **kwargs: P.kwargs) -> R:
        plain = getattr(handle._handle, method.__name__)
        return kind(await in_thread(functools.partial(plain, *args, **kwargs)))

    return call


def returned_as(
    kind: Callable[[T], R], method: Callable[Concatenate[H, P], T]
) -> Callable[Concatenate[AsyncHandle[H], P], R]:
    """Like ``awaited_as``, for a method that does not block."""

    @functools.wraps(method)
    def call(handle: AsyncHandle[H], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return kind(getattr(handle._handle, method.__name__)(*args, **kwargs))

    return call


def command(
    method: Callable[Concatenate[H, P], T],
) -> Callable[Concatenate[AsyncHandle[H], P], Coroutine[Any, Any, T]]:
    """Like ``awaited``, for a method that runs a command: cancellation ends the command, and ``on_output`` is called in
    the event loop."""

    @functools.wraps(method)
    async def call(handle: AsyncHandle[H], /, *args: P.args, **kwargs: P.kwargs) -> T:
        plain = functools.partial(getattr(handle._handle, method.__name__), *args, **kwargs)
        cancellation = Cancellation()
        on_output: OnOutput | None = plain.keywords.get("on_output")
        if on_output is None:
            return await in_thread(plain, cancellation)
        heard = LoopListener(on_output, asyncio.get_running_loop(), cancellation)
        try:
            return await in_thread(functools.partial(plain, on_output=heard), cancellation)
        finally:
            heard.require_no_failure()

    return call


class LoopListener:
    """Calls an output function in the event loop, in order. If the function raises, the command is killed."""

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


class AsyncOutputStream(AsyncHandle[OutputStream]):
    """``OutputStream`` for ``async for`` and ``async with``. Owner: the event loop in which it was created."""

    def __init__(self, stream: OutputStream) -> None:
        super().__init__(stream)
        self._ready = asyncio.Event()
        stream.tell(functools.partial(_set, asyncio.get_running_loop(), self._ready))

    def __aiter__(self) -> AsyncOutputStream:
        return self

    async def __anext__(self) -> OutputChunk:
        while True:
            self._ready.clear()
            chunk = self._handle.poll()
            if chunk is not None:
                return chunk
            if self._handle.is_over:
                raise StopAsyncIteration
            await self._ready.wait()

    async def __aenter__(self) -> AsyncOutputStream:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        await left(self._handle.close, kind)

    @property
    def result(self) -> RunResult:
        return self._handle.result

    wait = awaited(OutputStream.wait)
    close = awaited(OutputStream.close)


def _set(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    with suppress(RuntimeError):  # the loop is closed: no reader is left
        loop.call_soon_threadsafe(event.set)


async def left(close: Callable[[], None], kind: type[BaseException] | None) -> None:
    """Close a handle when its ``async with`` block ends."""
    if kind is GeneratorExit:  # the loop is gone: awaiting is impossible
        close()
    else:
        await in_thread(close)


class AsyncBackgroundHandle(AsyncHandle[BackgroundHandle]):
    """``BackgroundHandle`` for asyncio."""

    @property
    def id(self) -> str:
        return self._handle.id

    @property
    def fork(self) -> str:
        return self._handle.fork

    @property
    def command(self) -> tuple[str, ...]:
        return self._handle.command

    output = awaited(BackgroundHandle.output)
    output_bytes = awaited(BackgroundHandle.output_bytes)
    poll = awaited(BackgroundHandle.poll)
    end = awaited(BackgroundHandle.end)

    async def wait(self, timeout: float | None = None) -> BackgroundExit | None:
        """Wait until the command has ended. A cancellation stops only the wait; the command goes on."""
        deadline = seconds_of(timeout)
        loop = asyncio.get_running_loop()
        until = None if deadline is None else loop.time() + deadline
        while (ended := await in_thread(functools.partial(self._handle.wait, LOOK))) is None:
            if until is not None and loop.time() >= until:
                return None
        return ended


class AsyncForkHandle(AsyncHandle[ForkHandle]):
    """``ForkHandle`` for asyncio: the same names and arguments, awaited."""

    def __init__(self, fork: ForkHandle) -> None:
        super().__init__(fork)
        self.name = fork.name

    read = awaited(ForkHandle.read)
    read_bytes = awaited(ForkHandle.read_bytes)
    write = awaited(ForkHandle.write)
    edit = awaited(ForkHandle.edit)
    delete = awaited(ForkHandle.delete)
    move = awaited(ForkHandle.move)
    list = awaited(ForkHandle.list)
    exists = awaited(ForkHandle.exists)
    glob = awaited(ForkHandle.glob)
    search = awaited(ForkHandle.search)
    flush = awaited(ForkHandle.flush)

    @asynccontextmanager
    async def mount(self, place: StrPath | None = None, *, writable: bool = True) -> AsyncIterator[Path]:
        mounted = self._handle.mount(place, writable=writable)
        path = await in_thread(mounted.__enter__)
        try:
            yield path
        finally:
            await in_thread(functools.partial(mounted.__exit__, None, None, None))

    run = command(ForkHandle.run)
    stream = returned_as(AsyncOutputStream, ForkHandle.stream)
    start = awaited_as(AsyncBackgroundHandle, ForkHandle.start)
    changes = awaited(ForkHandle.changes)
    effects = awaited(ForkHandle.effects)
    diff = awaited(ForkHandle.diff)
    fingerprint = awaited(ForkHandle.fingerprint)
    in_use = awaited(ForkHandle.in_use)
    apply = awaited(ForkHandle.apply)
    checkpoint = awaited(ForkHandle.checkpoint)
    checkpoints = awaited(ForkHandle.checkpoints)
    rollback = awaited(ForkHandle.rollback)
    discard = awaited(ForkHandle.discard)


class AsyncAttemptStream(AsyncHandle[AttemptStream]):
    """``AttemptStream`` for ``async for`` and ``async with``. Cancelling the waiting task ends the attempts. Owner: the
    event loop in which it was created."""

    def __aiter__(self) -> AsyncAttemptStream:
        return self

    async def __anext__(self) -> Attempt:
        attempt = await in_thread(lambda: next(self._handle, None), self._handle.cancellation)
        if attempt is None:
            raise StopAsyncIteration
        return attempt

    async def __aenter__(self) -> AsyncAttemptStream:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_error: object) -> None:
        await left(self._handle.close, kind)

    @property
    def name(self) -> str:
        return self._handle.name

    @property
    def result(self) -> TryResult:
        return self._handle.result

    async def wait(self) -> TryResult:
        async for _attempt in self:
            pass
        return self.result

    close = awaited(AttemptStream.close)
    discard = awaited(AttemptStream.discard)


class AsyncToolSet(AsyncHandle[ToolSet]):
    """``ToolSet`` for asyncio. Cancelling a call ends its command."""

    def __init__(self, tools: ToolSet) -> None:
        super().__init__(tools)
        self.names = tools.names

    @property
    def fork(self) -> str:
        return self._handle.fork

    @property
    def definitions(self) -> list[JsonObject]:
        return self._handle.definitions

    call = command(ToolSet.call)
    reply = command(ToolSet.reply)
