"""``ToolSet`` for asyncio, with the same names."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from mudroom.ext.agents.library.tool_set import ToolReply, ToolSet
from mudroom.library.worker import in_thread
from mudroom.sandbox.client.cancellation import Cancellation
from mudroom.typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mudroom.ext.agents.library.tool_set import Json, JsonObject


class AsyncToolSet:
    """Cancelling a call ends its command."""

    def __init__(self, tools: ToolSet) -> None:
        self._tools, self.names = tools, tools.names

    def __repr__(self) -> str:
        return repr(self._tools)

    @property
    def fork(self) -> str:
        return self._tools.fork

    @property
    def definitions(self) -> list[JsonObject]:
        return self._tools.definitions

    async def call(self, name: str, arguments: Mapping[str, Json] | str | None = None) -> ToolReply:
        return await self._call(name, arguments)

    async def reply(self, call: object) -> JsonObject:
        name, arguments, identity = self._tools.parts(call)
        return self._tools.message(await self._call(str(name), arguments), identity)

    async def _call(self, name: str, arguments: object) -> ToolReply:
        cancellation = Cancellation()
        return await in_thread(functools.partial(self._tools.call_until, name, arguments, cancellation), cancellation)
