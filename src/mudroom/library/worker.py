"""Calls from an asyncio program, each in its own thread.

Rules of this file:
1. Cancelling a command's call ends the command (SIGTERM, SIGKILL after a grace period) and waits until its changes are
   collected. A second cancellation kills it. A command that has not started does not start, and is not waited for.
2. Cancelling any other call waits until the call has completed: a half-done apply would be no apply.
3. A loop that is closed or forgotten in the middle of a command ends the command: the coroutine gets GeneratorExit
   then, and cannot wait. Its thread collects the changes.
4. The threads are daemons, so that one that waits for another process's lock does not keep the interpreter from
   exiting.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from contextlib import suppress

from mudroom.library.life import kill, request, work_for
from mudroom.sandbox.client.cancellation import Cancellation
from mudroom.typing import TypeVar

T = TypeVar("T")


async def in_thread(call: Callable[[], T], cancellation: Cancellation | None = None) -> T:
    """Return the result of ``call``, run in a new thread with a copy of the context. ``cancellation`` ends the command
    that it runs (``own_cancellation``)."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    future.add_done_callback(_retrieve)

    def work() -> None:
        work_for(cancellation)
        try:
            result = call()
        except BaseException as error:  # noqa: BLE001 - raised in the task
            _tell(loop, _fail, future, error)
        else:
            _tell(loop, _succeed, future, result)

    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(work,), name="mudroom call", daemon=True).start()
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        await _ended(future, cancellation)
        raise
    except GeneratorExit:
        if cancellation is not None:
            request(cancellation)
        raise


async def _ended(future: asyncio.Future[T], cancellation: Cancellation | None) -> None:
    if cancellation is not None:
        request(cancellation)
    while not future.done() and (cancellation is None or cancellation.has_started):
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError:
            if cancellation is not None:
                kill(cancellation)


def _tell(loop: asyncio.AbstractEventLoop, settle: Callable[..., None], *arguments: object) -> None:
    with suppress(RuntimeError):  # the loop is closed: no task waits for the result
        loop.call_soon_threadsafe(settle, *arguments)


def _succeed(future: asyncio.Future[T], result: T) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[T], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)


def _retrieve(future: asyncio.Future[T]) -> None:
    """Take the exception, so that asyncio does not log it as never retrieved."""
    if not future.cancelled():
        future.exception()
