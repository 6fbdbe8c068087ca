"""The edge between an editor and an agent: performs the router's steps, in each side's order.

Rules of this file:

1. One thread reads the editor, another the agent. The thread that reads the agent performs its file calls, so a read
   sees the write before it. Calls that wait (``terminal/wait_for_exit``) are answered by another thread.
2. ``_lock`` is held while the router decides, and never while a line is sent.
3. Each call is answered once, however it ends.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from mudroom.core.command.verdict import Verdict
from mudroom.core.tree.change import Change
from mudroom.errors import MudroomError
from mudroom.ext.agents.acp.fork_file import ForkFileCalls
from mudroom.ext.agents.acp.message import (
    CANCELLED,
    INTERNAL_ERROR,
    AcpMessage,
    CallError,
    Malformed,
    answer,
    error,
    key_of,
)
from mudroom.ext.agents.acp.question import Questions
from mudroom.ext.agents.acp.routing import AgentCall, Answered, Cancel, MessageRouter, Pass, Step, Surroundings, TurnEnd
from mudroom.ext.agents.acp.session_text import AgentPlace, chunk, summary
from mudroom.ext.agents.acp.stream import Outbox, messages
from mudroom.ext.agents.acp.terminal import ForkTerminals
from mudroom.typing import Any


class EditorBridge:
    """Thread-safe: ``_lock`` guards the router, ``_answering`` and ``_told``."""

    def __init__(
        self,
        place: AgentPlace,
        directory: Callable[[str], str | None],
        verdict: Callable[[tuple[bytes, ...]], Verdict],
        changes: Callable[[], tuple[str, Sequence[Change]]],
        editor: Outbox,
        agent: Outbox,
    ) -> None:
        """``directory``, ``verdict``: as in ``Surroundings``. ``changes``: returns the changes of the fork, with their
        fingerprint first."""
        self._place, self._editor, self._agent, self._changes = place, editor, agent, changes
        self._router = MessageRouter(place, Surroundings(directory, verdict, self._terminal_text))
        self._lock = threading.Lock()
        self._answering: dict[str, AcpMessage] = {}
        """The agent's calls that are not answered yet, by key."""
        self._told = ""
        """The fingerprint of the changes that were last reported."""
        self._turns = 0
        """Number of ended turns. Written only by the thread that reads the agent."""
        self.questions = Questions(self._ask, self._editor.put)
        self.files: ForkFileCalls | None = None
        """Set before the agent is read, like ``terminals``."""
        self.terminals: ForkTerminals | None = None

    def _ask(self, identifier: str, line: bytes) -> None:
        with self._lock:
            self._router.ask(identifier)
        self._editor.put(line)

    # --- reading ---

    def read_editor(self, descriptor: int) -> None:
        """Serve the editor's messages until it ends."""
        for message in messages(descriptor):
            with self._lock:
                steps = self._router.from_editor(message)
            self._note_session(message)
            self._take(steps)

    def read_agent(self, descriptor: int) -> None:
        """Serve the agent's messages until it ends."""
        for message in messages(descriptor):
            with self._lock:
                steps = self._router.from_agent(message)
                calls = [step.message for step in steps if isinstance(step, AgentCall)]
                self._answering.update((key_of(call.id), call) for call in calls)
            self._take(steps)

    def _note_session(self, message: AcpMessage | Malformed) -> None:
        if isinstance(message, AcpMessage) and message.method == "session/prompt":
            session = message.params.get("sessionId")
            if isinstance(session, str):
                self.questions.began(session)

    def close(self, code: int, reason: str) -> None:
        """Answer the editor's open requests with an error: the agent has ended."""
        with self._lock:
            lines = self._router.close(code, reason)
        for line in lines:
            self._editor.put(line)

    # --- steps ---

    def _take(self, steps: Sequence[Step]) -> None:
        for step in steps:
            if isinstance(step, Pass):
                (self._editor if step.to == "editor" else self._agent).put(step.line, waits=True)
            elif isinstance(step, AgentCall):
                self._perform(step.message)
            elif isinstance(step, Cancel):
                self._cancel(step.key)
            elif isinstance(step, Answered):
                self.questions.answered(step.question, step.result)
            else:
                self._end_turn(step)

    def _end_turn(self, turn: TurnEnd) -> None:
        self._turns += 1
        text = self._summary()
        if text:
            self._editor.put(chunk(turn.session, text, self._turns), waits=True)
        self._editor.put(turn.line, waits=True)

    def _summary(self) -> str:
        """Return a summary of the fork's changes, or an empty text if they were reported already."""
        try:
            mark, changes = self._changes()
        except (MudroomError, OSError) as failure:
            return f"\n\nmudroom: the changes of the fork `{self._place.fork}` cannot be listed: {failure}"
        with self._lock:
            if mark == self._told:
                return ""
            self._told = mark
        return summary(self._place, changes, self._turns) if changes else ""

    # --- the agent's calls ---

    def _perform(self, message: AcpMessage) -> None:
        """Perform a call in the thread that reads the agent. If the agent leaves much unread, its answer waits. That
        delays only the agent, and bounds the answers that are kept for it."""
        try:
            result = self._result(message)
        except CallError as failure:
            self._answer(message, error(message.id, failure.code, failure.message, failure.data), waits=True)
        except (MudroomError, OSError) as failure:
            self._answer(message, error(message.id, INTERNAL_ERROR, str(failure)), waits=True)
        else:
            if result is not None:
                self._answer(message, answer(message.id, result), waits=True)

    def _result(self, message: AcpMessage) -> dict[str, Any] | None:
        """Return a call's result; None if it is answered later."""
        method, params, terminals = message.method, message.params, self.terminals
        assert self.files is not None and terminals is not None
        if method.startswith("fs/"):
            return self.files.answer(method, params)
        if method == "terminal/create":
            with self._lock:
                directory = self._router.directory_of(params.get("sessionId"))
            return terminals.create(params, directory)
        if method == "terminal/output":
            return terminals.find(params).as_json()
        if method == "terminal/kill":
            return terminals.kill(params)
        if method == "terminal/release":
            return terminals.release(params)
        terminals.wait_for_exit(message, lambda call, end: self._answer(call, answer(call.id, end)))
        return None

    def _answer(self, message: AcpMessage, line: bytes, *, waits: bool = False) -> None:
        if self._is_answered(key_of(message.id), message):
            self._agent.put(line, waits=waits)

    def _cancel(self, key: str) -> None:
        with self._lock:
            message = self._answering.get(key)
        if message is not None and self._is_answered(key, message):
            self._agent.put(error(message.id, CANCELLED, "the request was cancelled"))

    def _is_answered(self, key: str, message: AcpMessage) -> bool:
        """Note that a call is answered. Return False if it was answered already: another call may have its identifier
        by now."""
        with self._lock:
            if self._answering.get(key) is not message:
                return False
            del self._answering[key]
            self._router.answered(message)
        return True

    # --- terminals ---

    def terminal_changed(self, identifier: str) -> None:
        """Show a terminal's changed output, where a tool call shows it."""
        if self._editor.is_behind:  # a tool call shows it again with its next output, or when the agent says so
            return
        with self._lock:
            lines = self._router.changed(identifier)
        for line in lines:
            self._editor.put(line)

    def _terminal_text(self, identifier: str) -> str | None:
        """Return a terminal as text."""
        # Called with _lock held: it must not be taken here.
        return self.terminals.text(identifier) if self.terminals is not None else None
