"""mudroom's own questions, sent to the editor as permission requests: may a command run, may a host be reached.

Rules of this file:

1. Only the editor answers them: a question's identifier cannot be guessed, and the agent is not told it.
2. A question that ends without an answer (a cancelled turn, a timeout, a closed editor) refuses.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence

from mudroom.core.approval.approval import CommandAnswer, CommandQuestion, can_be_kept, rule_of
from mudroom.core.approval.shown_question import shown_question
from mudroom.core.network.flow import NOBODY, FlowAnswer, FlowQuestion
from mudroom.core.network.preset import Offer, offers
from mudroom.core.network.upload_host import upload_note
from mudroom.core.tree.path import show
from mudroom.core.tree.quote import show_words
from mudroom.ext.agents.acp.message import notification, request
from mudroom.ext.agents.acp.permission import one_line, text_content
from mudroom.typing import Any

OF_A_HOST = 55.0
"""Seconds to wait for an answer about a host: a little less than the gate waits."""
_OPTIONS = {
    "once": ("Allow once", "allow_once"),
    "always": ("Always allow", "allow_always"),
    "no": ("Refuse", "reject_once"),
    "never": ("Always refuse", "reject_always"),
}

_ALLOWING = ("once", "always")
_USUAL: Mapping[str, str] = {}
_OF_A_HOST = {"once": "Allow while this sandbox lives", "no": "Refuse while this sandbox lives"}
"""Other option names: the gate keeps an answer as long as it lives, which is as long as the agent inside."""


class EditorQuestion:
    """A question that mudroom asks. ``_changed`` guards the answer."""

    def __init__(self, identifier: str, session: str, call: str) -> None:
        self.id, self.session, self.call = identifier, session, call
        self.answer = ""
        """The chosen option's key; empty: none."""
        self.is_over = False
        self.options: Collection[str] = ()
        """The keys that were offered."""
        self._changed = threading.Condition()

    def end(self, answer: str) -> bool:
        """Set the answer, once. Return False if the question has ended already."""
        with self._changed:
            if self.is_over:
                return False
            self.answer, self.is_over = answer, True
            self._changed.notify_all()
            return True

    def wait(self, seconds: float) -> bool:
        """Return whether it has ended."""
        with self._changed:
            return self._changed.wait_for(lambda: self.is_over, seconds)


class Questions:
    """``_lock`` guards the attributes below it."""

    def __init__(self, ask: Callable[[str, bytes], None], tell: Callable[[bytes], None]) -> None:
        """``ask``: sends the editor a question with this identifier. ``tell``: sends a notification."""
        self._ask, self._tell = ask, tell
        self.here = threading.local()
        """``here.session``: the session whose call this thread serves."""
        self._lock = threading.Lock()
        self._open: dict[str, EditorQuestion] = {}
        self._last = ""
        self._closed = False

    def began(self, session: str) -> None:
        """Note the session that was active last: a question outside any call goes there."""
        with self._lock:
            self._last = session

    def close(self) -> None:
        """End all questions: the editor has gone."""
        with self._lock:
            self._closed = True
            questions = list(self._open.values())
        for question in questions:
            question.end("")

    def answered(self, identifier: str, result: Mapping[str, Any]) -> None:
        """Take the editor's answer."""
        with self._lock:
            question = self._open.get(identifier)
        outcome = result.get("outcome")
        chosen = outcome.get("optionId") if isinstance(outcome, dict) else None
        if question is not None:
            question.end(chosen if isinstance(chosen, str) and chosen in question.options else "")

    def put(
        self, call: dict[str, Any], *, keeps: bool, names: Mapping[str, str] = _USUAL, offered: Sequence[Offer] = ()
    ) -> EditorQuestion | None:
        """Ask a question. Return None if there is no session for it. ``call``: the tool call that is shown. ``names``:
        option names, where they are not the usual ones. ``offered``: further options, whose ids are their rules'
        labels."""
        session = getattr(self.here, "session", "")
        identifier = f"mudroom-{secrets.token_hex(16)}"
        with self._lock:
            session = session or self._last
            if not session or self._closed:
                return None
            question = self._open[identifier] = EditorQuestion(identifier, session, f"mudroom-{secrets.token_hex(8)}")
        keys = ("once", "always", "no", "never") if keeps else ("once", "no")
        rows = [(key, names.get(key, _OPTIONS[key][0]), _OPTIONS[key][1]) for key in keys]
        more = [(offer.label, offer.words, "allow_always" if offer.allows else "reject_always") for offer in offered]
        question.options = frozenset(key for key, _name, _kind in (*rows, *more))
        options = [{"optionId": key, "name": name, "kind": kind} for key, name, kind in (*rows[:2], *more, *rows[2:])]
        shown = {"toolCallId": question.call, "status": "pending", **call}
        params = {"sessionId": session, "toolCall": shown, "options": options}
        self._ask(identifier, request(identifier, "session/request_permission", params))
        return question

    def settle(self, question: EditorQuestion) -> str:
        """Close a question that has ended, or is not waited for any more. Return the answer."""
        if question.end(""):  # it is still shown
            self._tell(notification("$/cancel_request", {"requestId": question.id}))
        with self._lock:
            self._open.pop(question.id, None)
        status = "completed" if question.answer in _ALLOWING else "failed"
        update = {"sessionUpdate": "tool_call_update", "toolCallId": question.call, "status": status}
        self._tell(notification("session/update", {"sessionId": question.session, "update": update}))
        return question.answer

    # --- about a command ---

    def approver(
        self, patience: float, otherwise: Callable[[CommandQuestion], CommandAnswer]
    ) -> Callable[[CommandQuestion], CommandAnswer]:
        """Return an approver that asks the editor. ``otherwise``: asked while the editor has no session."""

        def approve(asked: CommandQuestion) -> CommandAnswer:
            question = self.put(_command_call(asked), keeps=can_be_kept(asked))
            if question is None:
                return otherwise(asked)
            withdrawn: Callable[[EditorQuestion], None] | None = getattr(self.here, "asking", None)
            if withdrawn is not None:
                withdrawn(question)
            question.wait(patience)
            answer = self.settle(question)
            if not answer:
                return CommandAnswer(False, by="nobody", reason="the editor gave no answer")
            return CommandAnswer(answer in ("once", "always"), answer in ("always", "never"), "editor")

        return approve


class EditorForHosts:
    """Ask the editor about hosts (``session/confinement/host_approver.py:RemoteApprover``)."""

    def __init__(self, questions: Questions) -> None:
        self._questions = questions

    def begin(self, question: FlowQuestion) -> HostWait:
        place = f"{question.host}:{question.port}"
        note = upload_note(question.host)
        text = f"mudroom: a command in the fork {one_line(question.fork)} wants to reach {one_line(place)}."
        text += f" {one_line(question.host)}: {note}." if note else ""
        call = {"title": f"Reach {one_line(place)}", "kind": "fetch", "content": [text_content(text)]}
        offered = offers(question.host, question.port, question.hold)
        put = self._questions.put(call, keeps=True, names=_OF_A_HOST, offered=offered)
        return HostWait(self._questions, put, offered)


class HostWait:
    """A question about a host that is open in the editor.

    Owner: the thread that attends to the gate.
    """

    def __init__(self, questions: Questions, question: EditorQuestion | None, offered: Sequence[Offer] = ()) -> None:
        """``offered``: the rules that the question offers."""
        self._questions, self._question, self._offered = questions, question, offered
        self._until = time.monotonic() + OF_A_HOST
        self._answer: FlowAnswer | None = NOBODY if question is None else None

    def fileno(self) -> int:
        return -1

    def look(self) -> FlowAnswer | None:
        question = self._question
        if self._answer is None and question is not None and (question.is_over or time.monotonic() >= self._until):
            chosen = self._questions.settle(question)
            why = "" if chosen else "and the editor gave no answer"
            self._answer = FlowAnswer(chosen in _ALLOWING, chosen in ("always", "never"), why)
            for offer in self._offered:
                if offer.label == chosen:
                    self._answer = FlowAnswer(offer.allows, keep=True, rule=offer.rule)
        return self._answer

    def close(self) -> None:
        if self._answer is None and self._question is not None:
            self._questions.settle(self._question)
            self._answer = NOBODY


def _command_call(asked: CommandQuestion) -> dict[str, Any]:
    asked = shown_question(asked)
    verdict = asked.verdict
    place = f"in the fork {asked.fork}" if asked.fork else "in a new fork"
    lines = [
        f"mudroom asks, since the policy wants it ({one_line(verdict.rule)}): {one_line(verdict.reason)}.",
        f"It runs {place}, in {show(asked.cwd)}; {', '.join(map(one_line, asked.terms))}.",
    ]
    if can_be_kept(asked):
        always, never = (one_line(rule_of(asked, allow)) for allow in (True, False))
        lines.append(f"“Always” writes the rule: {always}. “Never”: {never}.")
    words = show_words(asked.command)
    return {
        "title": one_line(words),
        "kind": "execute",
        "content": [text_content("\n\n".join(lines))],
        "rawInput": {"command": words},
    }
