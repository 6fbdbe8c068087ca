"""Waiting questions in all projects, and their answers.

Rules:

1. A question is decided once (``vault/approvals/question.py``): a second answer is refused with the first one and its
   origin.
2. A rule is written only if it is the rule that was shown. The answer counts even if the rule cannot be written.
3. A command is shown with its own words and no hidden characters (``core/tree/quote.py``), as on a terminal.
"""

from __future__ import annotations

import os
from contextlib import closing

from mudroom.cli.policy.approve import write_rule
from mudroom.core.approval.approval import (
    CommandAnswer,
    CommandQuestion,
    HostQuestion,
    can_be_kept,
    hour_of,
    offers_of,
    rule_of,
)
from mudroom.core.approval_queue import VALIDITY, QueueRow, is_repeated
from mudroom.core.network.upload_host import upload_note
from mudroom.core.text.answer_place import answered_by
from mudroom.core.tree.path import show_path, show_text
from mudroom.core.tree.quote import LONGEST, show_words
from mudroom.errors import MudroomError, UsageError
from mudroom.ext.web import shape
from mudroom.ext.web.api.endpoint import ApiCall, Endpoint
from mudroom.ext.web.state.refusal import Refusal
from mudroom.session.upkeep import Queue, Vault, why_unusable

RECENT = 50
"""Maximum decided questions sent."""
SHOWN = 20_000
"""Characters in a command: more than on a terminal, because a page does not scroll away."""
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
    waiting.sort(key=lambda row: row.asked)
    ended.sort(key=lambda row: row.ended, reverse=True)
    return shape.QuestionsShape(waiting + ended[:RECENT], remarks)


def answer(call: ApiCall) -> shape.AnsweredShape:
    request: shape.AnswerShape = call.body
    with closing(call.server.vault(call.path["project"])) as vault:
        queue = vault.approvals
        row = _row(queue, call.path["question"])
        if request.hour and (request.keep or not request.allow or not hour_of(row.asked.question)):
            raise Refusal(400, "bad-request", "this question cannot be answered so for an hour")
        offered = _require_shown(row, request) if request.keep else ""
        try:
            decision, is_first = queue.decide(
                row.name,
                allow=request.allow,
                by="page",
                reason=request.reason.strip(),
                keep=request.keep,
                rule=offered,
                hour=request.hour,
            )
        except UsageError as error:
            raise _unknown_question(error) from None
        if is_first and row.decision is not None:
            return shape.AnsweredShape(question_of(vault, row._replace(decision=decision)), is_first)
        if not is_first or decision.state not in ("allowed", "denied"):
            raise Refusal(409, "decided", _describe_end(row._replace(decision=decision)))
        writes = request.keep and not (row.asked.host is not None and row.asked.host.is_far)
        problem = _write_rule(call, row, request.allow, offered) if writes else ""
        updated = question_of(vault, _row(queue, row.name))
    return shape.AnsweredShape(updated, is_first, writes and not problem, problem)


def question_of(vault: Vault, row: QueueRow) -> shape.QuestionShape:
    asked, decision = row.asked, row.decision
    question = asked.question
    until = asked.when.time // _MS + int(asked.patience * 1000) if row.waiter else 0
    result = shape.QuestionShape(
        row.name,
        os.path.basename(vault.path).decode(),
        show_path(vault.project),
        asked.kind,
        row.state,
        asked.when.time // _MS,
        row.waiter != 0,
        show_text(question.fork),
        show_text(question.agent),
        "",
        "",
        note=show_text(asked.note),
        can_keep=can_be_kept(question),
        until=until,
        used=row.used,
    )
    if result.can_keep:
        result.allow_rule, result.deny_rule = rule_of(question, True), rule_of(question, False)
        result.offers = [
            shape.OfferShape(offer.rule, offer.words, offer.allows, list(offer.hosts)) for offer in offers_of(question)
        ]
    result.hour_rule = hour_of(question)
    if decision is not None:
        is_held = decision.state == "allowed" and is_repeated(decision, vault.approvals.moment())
        result.holds_until = decision.when.time // _MS + int(VALIDITY * 1000) if is_held else 0
        result.by, result.reason, result.kept = show_text(decision.by), show_text(decision.reason), decision.keep
        result.ended = decision.when.time // _MS
    if isinstance(question, CommandQuestion):
        _add_command(result, question)
    else:
        _add_host(result, question)
    return result


def _add_host(result: shape.QuestionShape, question: HostQuestion) -> None:
    result.what = f"{show_text(question.host)}:{question.port}"
    note = upload_note(question.host)
    result.why = f"no rule says whether it may be reached ({show_text(question.way)}){'; ' if note else ''}{note}"


def _add_command(result: shape.QuestionShape, question: CommandQuestion) -> None:
    verdict = question.verdict
    result.what = show_words(question.command, SHOWN if result.state == "waiting" else LONGEST)
    result.why = f"{', '.join(verdict.classes)}: {show_text(verdict.reason)} ({show_text(verdict.rule)})"
    result.cwd = show_path(question.cwd)
    result.terms = [show_text(term) for term in question.terms]
    result.files = [show_path(path) for path, _digest in question.files[:_FILES]]
    if len(question.files) > _FILES:
        result.files.append(f"… and {len(question.files) - _FILES} more")


def _row(queue: Queue, name: str) -> QueueRow:
    """Return a question's row. Raise Refusal if there is none, MudroomError if this user may not answer it."""
    try:
        return queue.row(name)
    except UsageError as error:
        raise _unknown_question(error) from None


def _unknown_question(error: UsageError) -> Refusal:
    return Refusal(404, "not-found", error.message, "questions are forgotten a day after they were asked")


def _require_shown(row: QueueRow, request: shape.AnswerShape) -> str:
    """Return the rule if it is one that the question offers, otherwise an empty string. Raise Refusal if the rule
    differs from those shown, or none can be written."""
    question = row.asked.question
    if not can_be_kept(question):
        raise Refusal(400, "bad-request", "no rule can be written for this command", "answer it for this once")
    if any((offer.rule, offer.allows) == (request.rule, request.allow) for offer in offers_of(question)):
        return request.rule
    if request.rule != rule_of(question, request.allow):
        raise Refusal(409, "moved", "the rule is not the one that was shown", "nothing was answered; look again")
    return ""


def _describe_end(row: QueueRow) -> str:
    """Return how a question was decided, in one line."""
    assert row.decision is not None
    why = f": {show_text(row.decision.reason)}" if row.decision.reason else ""
    return f"it has ended already: {row.state}{answered_by(show_text(row.decision.by))}{why}"


def _write_rule(call: ApiCall, row: QueueRow, allow: bool, offered: str) -> str:
    """Return why the rule could not be written; empty if it was."""
    try:
        with call.server.session(call.path["project"]) as session:
            problem: Exception | None = write_rule(row, CommandAnswer(allow, keep=True, rule=offered), session)
    except (MudroomError, Refusal, OSError) as error:
        problem = error
    return f"the answer holds, but its rule is not written: {problem}" if problem is not None else ""


ENDPOINTS = (
    Endpoint(
        "GET",
        "/questions",
        "Questions that wait for an answer, in all projects",
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
