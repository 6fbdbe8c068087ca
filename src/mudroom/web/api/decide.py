"""What waits for somebody to allow it, in all projects, and the answer.

Rules of this file:
1. A question has one end (``vault/approvals/question.py``): who is second is told how it ended, and by whom.
2. A rule is written only as it was shown; the answer stands, whether its rule can be written or not.
3. What is shown is a command's own words with nothing hidden (``core/tree/quote.py``), as on a terminal.
"""

from __future__ import annotations

import os
from contextlib import closing

from mudroom.core.approval.approval import CommandQuestion, HostQuestion, can_be_kept, rule_of
from mudroom.core.approval_queue import QueueRow
from mudroom.core.tree.path import show, show_path
from mudroom.core.tree.quote import LONGEST, show_words
from mudroom.errors import MudroomError, UsageError
from mudroom.session.upkeep import Queue, Vault, why_unusable
from mudroom.web import shape
from mudroom.web.api.endpoint import ApiCall, Endpoint
from mudroom.web.state.refusal import Refusal

RECENT = 50
"""Questions that have ended, at most."""
SHOWN = 20_000
"""Characters of a command: more than a terminal shows, since nobody has to scroll past them."""
_FILES = 200
_MS = 1_000_000
"""Nanoseconds."""


def questions(call: ApiCall) -> shape.QuestionsShape:
    waiting: list[shape.QuestionShape] = []
    ended: list[shape.QuestionShape] = []
    remarks: list[str] = []
    for vault in call.server.vaults():
        with closing(vault):
            if why_unusable(vault):
                continue
            try:
                rows = vault.approvals.rows()
            except MudroomError as error:
                remarks.append(str(error))
                continue
            waiting += [question_of(vault, row) for row in rows if row.decision is None]
            ended += [question_of(vault, row) for row in rows if row.decision is not None and call.query.ended]
    waiting.sort(key=lambda one: one.asked)
    ended.sort(key=lambda one: one.ended, reverse=True)
    return shape.QuestionsShape(waiting + ended[:RECENT], remarks)


def answer(call: ApiCall) -> shape.AnsweredShape:
    given: shape.AnswerShape = call.body
    with closing(call.server.vault(call.path["project"])) as vault:
        queue = vault.approvals
        row = _row(queue, call.path["question"])
        if given.keep:
            _require_shown(row, given)
        try:
            decision, ours = queue.decide(
                row.name, allow=given.allow, by="page", reason=given.reason.strip(), keep=given.keep
            )
        except UsageError as error:
            raise _gone(error) from None
        if not ours or decision.state not in ("allowed", "denied"):
            raise Refusal(409, "decided", _how(row._replace(decision=decision)))
        problem = _write_rule(call, row, given.allow) if given.keep else ""
        now = question_of(vault, _row(queue, row.name))
    return shape.AnsweredShape(now, ours, given.keep and not problem, problem)


def question_of(vault: Vault, row: QueueRow) -> shape.QuestionShape:
    asked, decision = row.asked, row.decision
    question = asked.question
    until = asked.when.time // _MS + int(asked.patience * 1000) if row.waiter else 0
    found = shape.QuestionShape(
        row.name,
        os.path.basename(vault.path).decode(),
        show_path(vault.project),
        asked.kind,
        row.state,
        asked.when.time // _MS,
        row.waiter != 0,
        _text(question.fork),
        _text(question.agent),
        "",
        "",
        note=_text(asked.note),
        can_keep=can_be_kept(question),
        until=until,
        used=row.used,
    )
    if found.can_keep:
        found.allow_rule, found.deny_rule = rule_of(question, True), rule_of(question, False)
    if decision is not None:
        found.by, found.reason, found.kept = _text(decision.by), _text(decision.reason), decision.keep
        found.ended = decision.when.time // _MS
    if isinstance(question, CommandQuestion):
        _tell_command(found, question)
    else:
        _tell_host(found, question)
    return found


def _tell_host(found: shape.QuestionShape, question: HostQuestion) -> None:
    found.what = f"{_text(question.host)}:{question.port}"
    found.why = f"no rule says whether it may be reached ({_text(question.way)})"


def _tell_command(found: shape.QuestionShape, question: CommandQuestion) -> None:
    verdict = question.verdict
    found.what = show_words(question.command, SHOWN if found.state == "waiting" else LONGEST)
    found.why = f"{', '.join(verdict.classes)}: {_text(verdict.reason)} ({_text(verdict.rule)})"
    found.cwd = show_path(question.cwd)
    found.terms = [_text(term) for term in question.terms]
    found.files = [show_path(path) for path, _digest in question.files[:_FILES]]
    if len(question.files) > _FILES:
        found.files.append(f"… and {len(question.files) - _FILES} more")


def _text(one: str) -> str:
    return show(one.encode("utf-8", "surrogatepass"))


def _row(queue: Queue, name: str) -> QueueRow:
    """Raises Refusal if there is no such question, MudroomError if they are not ours to answer."""
    try:
        return queue.row(name)
    except UsageError as error:
        raise _gone(error) from None


def _gone(error: UsageError) -> Refusal:
    return Refusal(404, "not-found", error.message, "questions are forgotten a day after they were asked")


def _require_shown(row: QueueRow, given: shape.AnswerShape) -> None:
    """Raises Refusal."""
    question = row.asked.question
    if not can_be_kept(question):
        raise Refusal(400, "bad-request", "no rule can be written for this command", "answer it for this once")
    if given.rule != rule_of(question, given.allow):
        raise Refusal(409, "moved", "the rule is not the one that was shown", "nothing was answered; look again")


def _how(row: QueueRow) -> str:
    """How a question has ended, in a line."""
    assert row.decision is not None
    why = f": {_text(row.decision.reason)}" if row.decision.reason else ""
    return f"it has ended already: {row.state} by {_text(row.decision.by)}{why}"


def _write_rule(call: ApiCall, row: QueueRow, allow: bool) -> str:
    """Why it could not be; empty if it was."""
    question, environment = row.asked.question, call.server.environment
    try:
        with call.server.session(call.path["project"]) as session:
            if isinstance(question, HostQuestion):
                environment.keep_host(session, question, allow)
            else:
                environment.keep_command(session, question.pattern, allow)
    except (MudroomError, Refusal, OSError) as error:
        return f"the answer holds, but its rule is not written: {error}"
    return ""


ENDPOINTS = (
    Endpoint(
        "GET",
        "/questions",
        "What waits for an answer, in all projects",
        questions,
        shape.QuestionsShape,
        query=shape.QuestionsQueryShape,
    ),
    Endpoint(
        "POST",
        "/projects/{project}/questions/{question}",
        "Answer a question; 409 if it has an answer already, or another rule would be written",
        answer,
        shape.AnsweredShape,
        shape.AnswerShape,
    ),
)
