"""One request in progress: its client, and functions to notify, ask and cancel."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from mudroom.ext.agents.mcp import message
from mudroom.ext.agents.mcp.message import Id, Json, RpcRequest
from mudroom.ext.agents.mcp.revision import McpPeer
from mudroom.sandbox.client.cancellation import Cancellation
from mudroom.typing import Any

EVERY = 0.1
"""Seconds between two progress notifications."""
MOST_SHOWN = 4_000
"""Characters of output in one notification: the last since the previous notification."""

Send = Callable[[Json], None]


class Call:
    """Owner: the thread that answers the request; ``cancellation`` is thread-safe."""

    def __init__(
        self, request: RpcRequest, peer: McpPeer, send: Send, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """``send``: writes a message to the client, in this request's stream. Raises OSError if the client is gone."""
        self.id: Id = request.id
        self.method, self.params, self.peer = request.method, request.params, peer
        self.cancellation = Cancellation()
        self._send, self._clock = send, clock
        self._token = _token(request.params)
        self._steps, self._next, self._pending = 0, 0.0, b""

    def tell(self, note: Json) -> None:
        """Send a notification or a request. If the client is gone, its call is cancelled."""
        try:
            self._send(note)
        except OSError:
            self.cancellation.cancel()

    def progress(self, text: str) -> None:
        """Report progress, if the client has asked for it."""
        if self._token is None:
            return
        self._steps += 1
        params = {"progressToken": self._token, "progress": self._steps, "message": text}
        if self.peer.revision == "2024-11-05":
            del params["message"]  # since 2025-03-26
        self.tell(message.notification("notifications/progress", params))

    def output(self, _stream: str, data: bytes) -> None:
        """Pass on output as it comes, at most every ``EVERY`` seconds."""
        if self._token is None:
            return
        self._pending = (self._pending + data)[-4 * MOST_SHOWN :]
        now = self._clock()
        if now >= self._next:
            text, self._pending, self._next = self._pending.decode("utf-8", "replace"), b"", now + EVERY
            self.progress(text[-MOST_SHOWN:])

    def close(self) -> None:
        self.cancellation.close()


def _token(params: Mapping[str, Any]) -> Id | None:
    meta = params.get("_meta")
    token = meta.get("progressToken") if isinstance(meta, Mapping) else None
    return token if isinstance(token, (str, int)) and not isinstance(token, bool) else None
