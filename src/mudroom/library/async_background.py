"""``BackgroundHandle`` for asyncio, with the same names."""

from __future__ import annotations

import asyncio
import functools

from mudroom.library.argument import seconds_of
from mudroom.library.worker import in_thread
from mudroom.typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mudroom.library.background_handle import BackgroundExit, BackgroundHandle

LOOK = 0.2
"""Seconds of one wait in a thread: a cancellation is heeded after that."""


class AsyncBackgroundHandle:
    """``BackgroundHandle`` for asyncio."""

    def __init__(self, handle: BackgroundHandle) -> None:
        self._handle = handle

    def __repr__(self) -> str:
        return repr(self._handle)

    @property
    def id(self) -> str:
        return self._handle.id

    @property
    def fork(self) -> str:
        return self._handle.fork

    @property
    def command(self) -> tuple[str, ...]:
        return self._handle.command

    async def output(self) -> tuple[str, str]:
        return await in_thread(self._handle.output)

    async def output_bytes(self) -> tuple[bytes, bytes]:
        return await in_thread(self._handle.output_bytes)

    async def poll(self) -> BackgroundExit | None:
        return await in_thread(self._handle.poll)

    async def wait(self, timeout: float | None = None) -> BackgroundExit | None:
        """Wait for its end. A cancellation stops waiting; the command goes on."""
        deadline = seconds_of(timeout)
        loop = asyncio.get_running_loop()
        until = None if deadline is None else loop.time() + deadline
        while (ended := await in_thread(functools.partial(self._handle.wait, LOOK))) is None:
            if until is not None and loop.time() >= until:
                return None
        return ended

    async def end(self, grace: float = 2.0) -> BackgroundExit | None:
        return await in_thread(functools.partial(self._handle.end, grace))
