"""Request bodies: read as they arrive, within a common memory budget.

Rules: the bytes read are charged to one budget until the request is answered. A body without room is not read further
until other requests are answered or have ended; small bodies always have room. A body that stops arriving ends early,
so that it does not keep its share.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager

from starlette.requests import Request

from mudroom.core.network.budget import FLOOR, Account, MemoryBudget
from mudroom.ext.web.api.endpoint import BODY_LIMIT
from mudroom.ext.web.state.refusal import Refusal

BODY_SECONDS, BODY_PAUSE = 30, 5
"""Seconds for a request body to arrive, and between two of its parts."""
BODIES = 64 << 20
"""Twice the bytes that all bodies hold together: the budget reserves half for another command, and there is none."""


class Bodies:
    """For the server's event loop only."""

    def __init__(self) -> None:
        self._share = MemoryBudget(BODIES).share()

    @property
    def held(self) -> int:
        return self._share.held

    @contextmanager
    def open(self) -> Iterator[Account]:
        """Yield an account for one body, which is closed with the request."""
        account = self._share.open(lambda: None)
        account.enter()
        try:
            yield account
        finally:
            self._share.end_connection(account)
            account.leave()

    async def read(self, request: Request, account: Account) -> bytearray:
        """Return the body. Raise Refusal if it is too long or does not arrive, ClientDisconnect if the client goes
        away."""
        kind = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
        if kind != "application/json":  # another site's form can send other types: such a body is not even read
            raise Refusal(415, "bad-request", "a request is application/json")
        body, parts = bytearray(), request.stream()
        try:
            async with asyncio.timeout(BODY_SECONDS):
                while (part := await _next(parts)) is not None:
                    body += part
                    if len(body) > BODY_LIMIT:
                        raise Refusal(413, "bad-request", f"a request has at most {BODY_LIMIT:,} bytes")
                    await self._hold(account, len(part))
        except TimeoutError:
            raise Refusal(408, "bad-request", f"the request has not come within {BODY_SECONDS} seconds") from None
        return body

    async def _hold(self, account: Account, length: int) -> None:
        if account.held + length <= FLOOR:
            account.hold(length)
            return
        granted = asyncio.get_running_loop().create_future()

        def grant() -> bool:
            if granted.done():
                return False  # the time is over, and the task is told in a later turn
            granted.set_result(None)
            return True

        self._share.wait(account, length, grant)
        try:
            await granted
        finally:
            if granted.cancelled():
                self._share.give_up(account)


async def _next(parts: AsyncGenerator[bytes, None]) -> bytes | None:
    """Return the next part, or None at the end. Raise Refusal if it does not arrive."""
    try:
        async with asyncio.timeout(BODY_PAUSE):
            return await anext(parts, None)
    except TimeoutError:
        raise Refusal(408, "bad-request", f"no further part of the request came in {BODY_PAUSE} seconds") from None
