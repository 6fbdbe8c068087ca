"""``mudroom acp``: start the agent, stand between it and the editor, and end both.

The side that ends first ends the other:

    the editor (its end of stdin, or of stdout)   the agent's stdin is closed; it has ``PATIENCE`` seconds to end
    the agent                                     each open editor request is answered with an error
    mudroom, by a signal                          as for the editor's end, at once
    mudroom, by SIGKILL                           the sandbox ends with it; the next command collects its changes

Terminals end with the agent. Only then is the sandbox gone, and the fork at rest.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from queue import SimpleQueue

from mudroom.core.approval.approval import CommandAnswer, CommandQuestion
from mudroom.core.command.verdict import Verdict
from mudroom.core.registry import part_or_none
from mudroom.core.tree.change import Change, counted_changes
from mudroom.core.tree.path import is_below
from mudroom.errors import MudroomError
from mudroom.ext.agents.acp.agent_process import AgentProcess, ErrorStream, pipes, start_inside, start_outside
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
    parse,
)
from mudroom.ext.agents.acp.question import EditorForHosts, Questions
from mudroom.ext.agents.acp.routing import AgentCall, Answered, Cancel, MessageRouter, Pass, Step, Surroundings, TurnEnd
from mudroom.ext.agents.acp.session_text import AgentPlace, chunk, summary
from mudroom.ext.agents.acp.stream import Outbox, messages
from mudroom.ext.agents.acp.terminal import ForkTerminals
from mudroom.ext.agents.session.run_agent import workspace
from mudroom.ext.agents.tools.workspace import flush_write
from mudroom.session import Actor, Session
from mudroom.session.order import Pipes
from mudroom.typing import Any, NamedTuple
from mudroom.vault.forks.review import fingerprint

# --- the edge between an editor and an agent: performs the router's steps, in each side's order ---
# Rules of this file:
#
# 1. One thread reads the editor, another the agent. The thread that reads the agent performs its file calls, so a read
#    sees the write before it. Calls that wait (``terminal/wait_for_exit``) are answered by another thread.
# 2. ``_lock`` is held while the router decides, and never while a line is sent.
# 3. Each call is answered once, however it ends.


class EditorBridge:
    """Thread-safe: ``_lock`` guards the router, ``_answering`` and ``_told``."""

    def __init__(
        self,
        place: AgentPlace,
        directory: Callable[[str], str | None],
        verdict: Callable[[tuple[bytes, ...]], Verdict],
        changes: Callable[[], tuple[str, Sequence[Change]]],
        remarks: Callable[[], str],
        editor: Outbox,
        agent: Outbox,
    ) -> None:
        """``directory``, ``verdict``: as in ``Surroundings``. ``changes``: returns the changes of the fork, with their
        fingerprint first. ``remarks``: returns the text of the user's remarks that wait for the agent, which are then
        sent; empty if none wait."""
        self._remarks = remarks
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
        for message in map(self._with_remarks, messages(descriptor)):
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

    def _with_remarks(self, message: AcpMessage | Malformed) -> AcpMessage | Malformed:
        """Return a prompt with the remarks that wait for the agent (``mudroom send --wait``), and tell the editor."""
        if not isinstance(message, AcpMessage) or message.method != "session/prompt":
            return message
        prompt, session = message.params.get("prompt"), message.params.get("sessionId")
        if not isinstance(prompt, list) or not isinstance(session, str):
            return message
        try:
            text = self._remarks()
        except (MudroomError, OSError) as failure:
            self._editor.put(chunk(session, f"mudroom: your remarks cannot be read: {failure}\n\n", self._turns))
            return message
        if not text:
            return message
        self._editor.put(chunk(session, "mudroom: your remarks were added to this prompt.\n\n", self._turns))
        line = message.with_params({**message.params, "prompt": [*prompt, {"type": "text", "text": text}]})
        return parse(line.rstrip(b"\n"))

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


# --- start and end ---

PATIENCE = 5.0
"""Seconds that an agent has to end when its editor has gone."""
FLUSH = 1.0
"""Seconds that a file call waits for its write to be on disk. It waits no longer, because the agent itself may have to
end a command that is in the way."""
DRAIN = 5.0
"""Seconds that the editor has to read the last lines."""


class AgentStart(NamedTuple):
    """How the agent is started."""

    name: str
    argv: tuple[bytes, ...]
    cwd: bytes
    actor: Actor | None
    """For its process inside; None: it runs on the host."""
    environment: Mapping[bytes, bytes]
    """For its process on the host."""
    fork: str | None = None
    """None: its own, the first that is free."""


class ServeEnd:
    """A connection's end, noted by any thread or by a signal handler. So it uses only single attribute writes, and a
    queue whose ``put`` may interrupt its own ``get`` (queue.SimpleQueue). A threading.Event would not do: the ``wait``
    that the handler has interrupted may hold its lock."""

    def __init__(self) -> None:
        self._over: SimpleQueue[None] = SimpleQueue()
        self.is_editor_gone = False
        self.signal = 0
        """The first signal that told mudroom to end."""

    def wait(self) -> None:
        """Wait for the end. Called once."""
        self._over.get()

    def finish(self) -> None:
        self._over.put(None)

    def editor_gone(self) -> None:
        self.is_editor_gone = True
        self.finish()

    def told(self, number: int) -> None:
        self.signal = self.signal or number
        self.editor_gone()


class Asking(NamedTuple):
    """The approvers for questions."""

    set_approver: Callable[[Callable[[CommandQuestion], CommandAnswer]], None] | None
    """Set the approver for commands; None: the session has one, and the editor is not asked."""
    otherwise: Callable[[CommandQuestion], CommandAnswer]
    """Asked before the editor has a session."""


def serve(session: Session, agent: AgentStart, asking: Asking, end: ServeEnd, ends: tuple[int, int]) -> int:
    """Serve the editor at ``ends``, its stdin and stdout, until it or the agent ends, or ``end`` is noted. Return the
    agent's exit code if it has ended first, otherwise 0. The descriptors are owned.

    Raise Refused if the policy does not let the agent run, CommandNotStarted if its program does not exist.
    """
    with workspace(session, agent.name, agent.fork) as at, _journalled(session, at.fork.name, agent.name) as outcome:
        if at.note:
            os.write(2, f"note: {at.note}\n".encode())
        place = AgentPlace(at.fork.name, os.fsdecode(session.project), agent.actor is not None, agent.name)
        outcome["exit_code"] = code = _Served(session, agent, place, end, ends).run(asking)
        return code


@contextmanager
def _journalled(session: Session, fork: str, agent: str) -> Iterator[dict[str, Any]]:
    def journal(data: dict[str, Any]) -> None:
        session.vault.journal.append("agent", fork, {"agent": agent, **data}, time=time.time_ns())

    journal({"state": "started"})
    outcome: dict[str, Any] = {}
    try:
        yield outcome
    except Exception as error:
        outcome["error"] = str(error)
        raise
    finally:
        journal({"state": "ended", **(outcome or {"error": "mudroom was interrupted"})})


class _Served:
    """One connection. Owner: the verb's thread."""

    def __init__(
        self, session: Session, agent: AgentStart, place: AgentPlace, end: ServeEnd, ends: tuple[int, int]
    ) -> None:
        self._session, self._agent, self._place, self._end = session, agent, place, end
        self._stdin, self._stdout = ends

    def run(self, asking: Asking) -> int:
        session, end, fork = self._session, self._end, self._place.fork
        ours, theirs = pipes()
        errors = ErrorStream(ours.stderr)
        editor, to_agent = Outbox(self._stdout, end.editor_gone), Outbox(ours.stdin)
        asked = self._directory, self._verdict, self._changes, self._remarks
        bridge = EditorBridge(self._place, *asked, editor, to_agent)
        bridge.files = ForkFileCalls(
            session.forks.files(fork), session.project, fork, lambda: flush_write(session.forks, fork, FLUSH)
        )
        bridge.terminals = terminals = ForkTerminals(
            session, fork, bridge.questions, bridge.terminal_changed, _shell(session), self._agent.actor
        )
        if asking.set_approver is not None:
            patience = session.actor.settings.approval_timeout
            asking.set_approver(bridge.questions.approver(patience, asking.otherwise))
            session.machine.ask_about_hosts(EditorForHosts(bridge.questions))
        process = self._started(theirs)
        reader = _thread(lambda: bridge.read_agent(ours.stdout), end.finish)
        _thread(lambda: bridge.read_editor(self._stdin), end.editor_gone)
        _thread(process.wait, end.finish)
        try:
            end.wait()
        finally:
            to_agent.close()
            code = process.wait(0 if end.signal else PATIENCE)
            if code is None:
                process.end()
                code = process.wait() or 0
            bridge.questions.close()
            terminals.close()
        reader.join(DRAIN)
        bridge.close(INTERNAL_ERROR, _ended(self._agent.name, code, errors.last_line(), fork))
        editor.close()
        editor.wait(DRAIN)
        return 0 if end.is_editor_gone else code

    def _started(self, theirs: Pipes) -> AgentProcess:
        """Start the agent with its ends of the streams, which are closed here."""
        agent = self._agent
        try:
            if agent.actor is not None:
                return start_inside(self._session, agent.argv, self._place.fork, agent.cwd, theirs, agent.actor)
            return start_outside(agent.argv, agent.cwd, theirs, agent.environment)
        finally:
            for descriptor in theirs:
                os.close(descriptor)

    def _directory(self, named: str) -> str | None:
        if not named.startswith("/") or "\0" in named:
            return None
        try:
            real = os.path.realpath(named.encode("utf-8", "surrogateescape"))
        except UnicodeEncodeError:  # a lone surrogate is in no file name
            return None
        return os.fsdecode(real) if is_below(real, self._session.project) else None

    def _verdict(self, words: tuple[bytes, ...]) -> Verdict:
        try:
            return self._session.approval.decide_on(words)
        except MudroomError as error:  # a policy file cannot be read
            return Verdict("deny", rule="policy", reason=str(error))

    def _remarks(self) -> str:
        remarks = part_or_none("remarks", "session")
        return "" if remarks is None else remarks.Remarks(self._session, self._place.fork).fetched()

    def _changes(self) -> tuple[str, Sequence[Change]]:
        changeset = self._session.forks.changeset(self._place.fork)
        return fingerprint(changeset), counted_changes(list(changeset.changes))


def _thread(run: Callable[[], object], then: Callable[[], None]) -> threading.Thread:
    """Start a thread that calls ``then`` after ``run``, also after an error."""

    def both() -> None:
        try:
            run()
        finally:
            then()

    thread = threading.Thread(target=both, daemon=True)
    thread.start()
    return thread


def _shell(session: Session) -> str:
    """Return the shell for shell lines: bash where the host has it, since models write for it."""
    return "/bin/bash" if session.granted().level != 2 and os.path.exists("/bin/bash") else "/bin/sh"


def _ended(agent: str, code: int, last: str, fork: str) -> str:
    said = f": {last}" if last else ""
    return f"{agent} has ended (exit code {code}){said}. Its changes are in the fork {fork}: mudroom diff {fork}"
