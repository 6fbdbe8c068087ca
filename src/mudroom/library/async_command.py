"""Commands of a room for asyncio. ``AsyncRoom`` and ``AsyncForkHandle`` have their arguments in words."""

from __future__ import annotations

import asyncio
import functools

from mudroom.library import command
from mudroom.library.async_output import LoopListener
from mudroom.library.life import Life
from mudroom.library.worker import in_thread
from mudroom.sandbox.client.cancellation import Cancellation
from mudroom.typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mudroom.library.command import CommandRequest
    from mudroom.library.output import OnOutput
    from mudroom.library.value import RunResult


async def run(life: Life, request: CommandRequest, on_output: OnOutput | None, *, check: bool) -> RunResult:
    """``on_output`` is called in the event loop. Cancellation ends the command."""
    cancellation = Cancellation()
    heard = None if on_output is None else LoopListener(on_output, asyncio.get_running_loop(), cancellation)
    call = functools.partial(command.run, life, request, cancellation, heard, check=check)
    try:
        return await in_thread(call, cancellation)
    finally:
        if heard is not None:
            heard.require_no_failure()
