"""Approvals for commands and hosts: by the client, where it can ask its user (elicitation), and by the queue.

revision      the client asks its user               it cannot
handshake     a request ``elicitation/create``,       the queue, for ``WAIT`` seconds; then the call is answered
              and the queue beside it: the first      "waiting for approval", and the question stays
              answer counts
enveloped     the call ends with ``input_required``;  the same
              the client calls again with the answer

The command that wants to reach a host is running: its client is asked during the call, an enveloped one not at all.

Rules of this file:
1. Each question is in the queue: ``mudroom approve`` may answer it, and only its fingerprint's command is allowed.
2. A client's answer that was not offered refuses.
3. A client that goes away, or cancels, withdraws its question.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

from mudroom.core.approval.approval import CommandAnswer, CommandQuestion, can_be_kept, rule_of
from mudroom.core.approval.shown_question import shown_question
from mudroom.core.approval_queue import answer_of
from mudroom.core.network.flow import FlowQuestion
from mudroom.core.network.preset import offers
from mudroom.core.network.upload_host import upload_note
from mudroom.core.tree.path import show
from mudroom.core.tree.quote import show_words
from mudroom.errors import MudroomError
from mudroom.ext.agents.mcp.call import Call
from mudroom.ext.agents.mcp.message import Json
from mudroom.ext.agents.tools.workspace import ToolWorkspace
from mudroom.session import Session
from mudroom.session.confinement.host_approver import PendingQuestion
from mudroom.session.upkeep import HostApprover, Queue, Ticket
from mudroom.typing import Any

WAIT = 45.0
"""Seconds for an answer in the queue: less than the minute after which clients give up a call."""
LOOK = 2.0
_PAUSE = 0.1
"""Seconds between two looks where no descriptor signals a change."""
_BY = "client"
_ANSWERS = {"once": (True, False), "always": (True, True), "no": (False, False), "never": (False, True)}
"""Each answer: whether it allows, and whether it is kept as a rule."""
_NAMED = 5

Ask = Callable[[str, Json, Callable[[], bool]], Mapping[str, Any] | None]
"""Send a request to the client and return its result; None: it was refused, or the function returned True first."""


class InputNeeded:
    """Questions with which an enveloped call ends. Owner: the call's thread."""

    def __init__(self, answers: Mapping[str, Any]) -> None:
        """``answers``: those that the client has sent, by the question's name in the queue."""
        self.answers, self.requests = answers, dict[str, Json]()


class ClientApprover:
    """Asks about one call's commands."""

    def __init__(
        self, queue: Queue, call: Call, ask: Ask, needed: InputNeeded, patience: float, *, elicits: bool
    ) -> None:
        """``patience``: seconds to wait for the queue. ``elicits``: the client may ask its user."""
        self._queue, self._call, self._ask, self._needed = queue, call, ask, needed
        self._patience, self._elicits = patience, elicits and call.peer.asks_users

    def __call__(self, question: CommandQuestion) -> CommandAnswer:
        """Return the answer. Raise MudroomError if the queue cannot be used: the command is refused then."""
        with self._queue.put(question, 0) as ticket:
            decision = ticket.look()
            if decision is not None:
                return answer_of(decision)
            if not self._elicits:
                return self._queued(ticket)
            if self._call.peer.is_enveloped:
                return self._enveloped(ticket, question)
            return self._asked(ticket, question)

    def _queued(self, ticket: Ticket) -> CommandAnswer:
        name = ticket.asked.name
        self._call.progress(f"waiting for approval {name}: mudroom approve {name}")
        until = time.monotonic() + self._patience
        wait = self._waiter(ticket)
        while (decision := ticket.look()) is None:
            left = until - time.monotonic()
            if left <= 0:
                return CommandAnswer(False, by="queue", reason=f"waiting for approval {name}: mudroom approve {name}")
            if wait(min(left, LOOK)):
                decision = ticket.end("withdrawn", "the client has cancelled the call")[0]
                break
        return answer_of(decision)

    def _waiter(self, ticket: Ticket) -> Callable[[float], bool]:
        """Return a function that waits for a change in the queue, at most some seconds, and returns whether the call
        was cancelled."""
        cancellation = self._call.cancellation
        if sys.platform == "win32":  # neither has a descriptor that can be waited for

            def pause(seconds: float) -> bool:
                time.sleep(min(seconds, _PAUSE))
                return cancellation.is_set

            return pause
        return lambda seconds: ticket.pause(seconds, cancellation.fileno())

    def _enveloped(self, ticket: Ticket, question: CommandQuestion) -> CommandAnswer:
        name = ticket.asked.name
        if name in self._needed.answers:
            return _decided(ticket, question, self._needed.answers[name])
        self._needed.requests[name] = {"method": "elicitation/create", "params": _command_form(question, ticket)}
        return CommandAnswer(False, by="queue", reason=f"waiting for approval {name}: mudroom approve {name}")

    def _asked(self, ticket: Ticket, question: CommandQuestion) -> CommandAnswer:
        found: list[CommandAnswer] = []

        def answered_elsewhere() -> bool:
            decision = ticket.look() if not found else None
            if decision is not None:
                found.append(answer_of(decision))
            return bool(found)

        result = self._ask("elicitation/create", _command_form(question, ticket), answered_elsewhere)
        if found:
            return found[0]
        if self._call.cancellation.is_set:
            return answer_of(ticket.end("withdrawn", "the client has cancelled the call")[0])
        return _decided(ticket, question, result)


class ClientForHosts:
    """Asks the client of a call about the hosts that its commands want to reach, beside the queue
    (``session/confinement/host_approver.py:RemoteApprover``). ``_lock`` guards the calls."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._lock = threading.Lock()
        self._calls: list[tuple[ToolWorkspace, Ask]] = []

    @contextmanager
    def serving(self, workspace: ToolWorkspace, call: Call, ask: Ask) -> Iterator[None]:
        """Ask this call's client meanwhile, if it can ask its user during a call."""
        serves = [(workspace, ask)] if call.peer.asks_users and not call.peer.is_enveloped else []
        with self._lock:
            self._calls += serves
        try:
            yield
        finally:
            with self._lock:
                for one in serves:
                    self._calls.remove(one)

    def begin(self, question: FlowQuestion) -> PendingQuestion:
        with self._lock:
            asks = [ask for workspace, ask in self._calls if workspace.fork_or_none == question.fork]
        agent = self._session.actor.agent or ""
        waiting = HostApprover(self._session.vault.approvals, agent, anyway=bool(asks)).begin(question)
        if asks and waiting.name:
            threading.Thread(target=self._elicit, args=(asks[-1], question, waiting.name), daemon=True).start()
        return waiting

    def _elicit(self, ask: Ask, question: FlowQuestion, name: str) -> None:
        """Ask the client, and answer the question in the queue as ``mudroom approve`` does."""
        queue = self._session.vault.approvals
        offered = {offer.label.split()[0]: offer for offer in offers(question.host, question.port, question.hold)}
        words = {
            "once": "Allow it for this command",
            "always": f"Always allow {question.host}:{question.port}",
            **{name: offer.words for name, offer in offered.items()},
            "no": "Refuse it for this command",
            "never": f"Never allow {question.host}:{question.port}",
        }
        note = upload_note(question.host)
        lines = [
            f"A command in the fork {_shown(question.fork)} wants to reach {_shown(question.host)}:{question.port}.",
            *([f"{_shown(question.host)}: {note}."] if note else []),
            f"  also: mudroom approve {name}",
        ]
        result = ask("elicitation/create", _form(lines, words), lambda: queue.decision(name) is not None)
        if result is None:
            return  # the queue has answered, or still may
        word = _word(result) if _word(result) in words else "no"
        offer = offered.get(word)
        with suppress(MudroomError):  # the command, and its question, may have ended; or the question still waits
            if offer is not None:
                queue.decide(name, allow=offer.allows, by=_BY, keep=True, rule=offer.rule)
            else:
                queue.decide(name, allow=word in ("once", "always"), by=_BY, keep=word in ("always", "never"))


def _word(result: object) -> str:
    """Return the answer in a client's result; empty: there is none."""
    given: Mapping[str, Any] = result if isinstance(result, Mapping) else {}
    content = given.get("content")
    word = content.get("answer") if isinstance(content, Mapping) and given.get("action") == "accept" else None
    return word if isinstance(word, str) else ""


def _decided(ticket: Ticket, question: CommandQuestion, result: object) -> CommandAnswer:
    """Return the decision in a client's result, or an earlier decision."""
    allow, keep = _ANSWERS.get(_word(result), (False, False))
    if keep and not can_be_kept(question):
        allow, keep = False, False
    return answer_of(ticket.end("allowed" if allow else "denied", "", _BY, keep)[0])


def _command_form(question: CommandQuestion, ticket: Ticket) -> Json:
    words = {"once": "Allow it this time", "no": "Refuse it"}
    if can_be_kept(question):
        words = {
            "once": "Allow it this time",
            "always": f"Always: {rule_of(question, True)}",
            "no": "Refuse it",
            "never": f"Never: {rule_of(question, False)}",
        }
    return _form(_lines(question, ticket), words)


def _form(lines: list[str], words: Mapping[str, str]) -> Json:
    answer = {
        "type": "string",
        "title": "Answer",
        "description": "; ".join(f"{name}: {text}" for name, text in words.items()),
        "enum": list(words),
    }
    schema = {"type": "object", "properties": {"answer": answer}, "required": ["answer"]}
    return {"message": "\n".join(lines), "requestedSchema": schema}


def _lines(question: CommandQuestion, ticket: Ticket) -> list[str]:
    """Return the question for a person: without control characters, and with the command as it would be run."""
    question = shown_question(question)
    verdict = question.verdict
    where = f"in the fork {_shown(question.fork)}" if question.fork else "in a new fork"
    lines = [
        f"{_shown(question.agent) or 'An agent'} wants to run, {where}:",
        f"  {show_words(question.command)}",
        f"  in {show(question.cwd)}",
        f"  {', '.join(verdict.classes)}: {_shown(verdict.reason)} ({_shown(verdict.rule)})",
    ]
    if question.terms:
        lines.append(f"  {', '.join(map(_shown, question.terms))}")
    if question.files:
        lines.append(f"  for {', '.join(show(path) for path, _digest in question.files[:_NAMED])} as of now")
    return [*lines, f"  also: mudroom approve {ticket.asked.name}"]


def _shown(text: str) -> str:
    return show(text.encode("utf-8", "surrogateescape"))
