"""One client: its own description, its requests in progress, and the questions put to it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

from mudroom.ext.agents.mcp import message
from mudroom.ext.agents.mcp.call import Call, Send
from mudroom.ext.agents.mcp.message import INVALID_REQUEST, Id, Json, RpcAnswer, RpcError, RpcRequest
from mudroom.ext.agents.mcp.revision import McpPeer
from mudroom.ext.agents.tools.workspace import ToolWorkspace
from mudroom.typing import Any

MOST_CALLS = 128
"""Most requests from one client that are in progress at once: each has a thread."""
_LOOK = 0.25


class McpConnection:
    """``_lock`` guards the calls, the questions and ``is_closed``. ``peer`` is replaced as a whole by the thread that
    reads ``initialize``. The workspace is set once, by ``Server.workspace`` under its own lock."""

    def __init__(self) -> None:
        self.peer: McpPeer | None = None
        self.workspace: ToolWorkspace | None = None
        self._lock = threading.Lock()
        self._calls: dict[Id, Call] = {}
        self._questions: dict[Id, _Question] = {}
        self._asked = 0
        self.is_closed = False

    def begin(self, request: RpcRequest, peer: McpPeer, send: Send) -> Call:
        """Return a request's call, which may be cancelled from now on. Raise RpcError if it cannot begin."""
        with self._lock:
            if self.is_closed:
                raise RpcError(INVALID_REQUEST, "the connection is closed", identity=request.id)
            if request.id in self._calls:
                raise RpcError(INVALID_REQUEST, "a request with this id is under way", identity=request.id)
            if len(self._calls) >= MOST_CALLS:
                raise RpcError(
                    INVALID_REQUEST, f"{MOST_CALLS} requests are under way: wait for one of them", identity=request.id
                )
            call = self._calls[request.id] = Call(request, peer, send)
        return call

    def end(self, call: Call) -> None:
        with self._lock:
            self._calls.pop(call.id, None)
        call.close()

    def cancel(self, identity: object) -> None:
        """Cancel a request, if it is in progress."""
        with self._lock:
            call = self._calls.get(identity) if isinstance(identity, (str, int)) else None
        if call is not None:
            call.cancellation.cancel()

    def close(self) -> None:
        """Cancel all requests, and accept no more."""
        with self._lock:
            self.is_closed = True
            calls = list(self._calls.values())
        for call in calls:
            call.cancellation.cancel()

    def is_idle(self) -> bool:
        with self._lock:
            return not self._calls

    # --- questions to the client ---

    def ask(
        self, call: Call, method: str, params: Json, patience: float, until: Callable[[], bool]
    ) -> Mapping[str, Any] | None:
        """Send a request to the client in a call's stream, and return its result. None: the client answered with an
        error or not within ``patience`` seconds, the call was cancelled, or ``until`` returned True."""
        question = _Question()
        with self._lock:
            self._asked += 1
            identity = f"mudroom-{self._asked}"
            self._questions[identity] = question
        end = time.monotonic() + patience
        try:
            call.tell(message.request(identity, method, params))
            while not question.answered.wait(_LOOK):
                if call.cancellation.is_set or until() or time.monotonic() >= end:
                    call.tell(message.notification("notifications/cancelled", {"requestId": identity}))
                    return None
            return question.result
        finally:
            with self._lock:
                self._questions.pop(identity, None)

    def heard(self, answer: RpcAnswer) -> None:
        """Take the client's answer to a question. An answer to an unknown question is dropped."""
        with self._lock:
            question = self._questions.get(answer.id)
        if question is not None:
            question.result = answer.result
            question.answered.set()


class _Question:
    """Owner of the result: the thread that reads the client's messages, until ``answered`` is set."""

    def __init__(self) -> None:
        self.answered = threading.Event()
        self.result: Mapping[str, Any] | None = None
