"""A waiting question in the terminal: who asks for what, what each answer allows afterwards, and the answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from mudroom.cli.policy.approve import keep_host, question_lines
from mudroom.core.approval.approval import HostQuestion, can_be_kept, hour_of, offers_of, rule_of
from mudroom.errors import MudroomError
from mudroom.session.project_session import remember_command

if TYPE_CHECKING:
    from mudroom.core.approval_queue import QueueRow
    from mudroom.session import Session


class OfferedAnswer(NamedTuple):
    words: str
    allow: bool
    keep: bool = False
    rule: str = ""
    """The rule that the question offers; empty: its own."""
    hour: bool = False


class ShownQuestion(NamedTuple):
    row: QueueRow
    lines: Sequence[str]
    answers: Sequence[OfferedAnswer]


def read_question(session: Session, name: str) -> ShownQuestion:
    """Return a question with the answers that it takes. Raise UsageError if it is gone."""
    row = session.vault.approvals.row(name)
    question = row.asked.question
    answers = [OfferedAnswer("allow once", True)]
    if hour := hour_of(question):
        answers.append(OfferedAnswer(f"for an hour: {hour}", True, hour=True))
    if can_be_kept(question):
        answers.append(OfferedAnswer(f"always, writes: {rule_of(question, True)}", True, keep=True))
    answers += [
        OfferedAnswer(f"{offer.words}, writes: {offer.rule}", offer.allows, True, offer.rule)
        for offer in offers_of(question)
    ]
    answers.append(OfferedAnswer("deny", False))
    if can_be_kept(question):
        answers.append(OfferedAnswer(f"never, writes: {rule_of(question, False)}", False, keep=True))
    return ShownQuestion(row, question_lines(row), answers)


def give_answer(session: Session, row: QueueRow, answer: OfferedAnswer) -> str:
    """Answer a question, and write the rule that was shown. Return what has come of it. Raise MudroomError."""
    question = row.asked.question
    decision, is_first = session.vault.approvals.decide(
        row.name, allow=answer.allow, by="terminal", keep=answer.keep, rule=answer.rule, hour=answer.hour
    )
    if not is_first:
        return f"{row.name} has ended already: {decision.state}"
    if answer.keep:
        try:
            if isinstance(question, HostQuestion):
                keep_host(session, question, answer.allow, answer.rule)
            else:
                remember_command(session, question.rule(answer.allow), answer.allow)
        except MudroomError as error:
            return f"the answer holds, but its rule is not written: {error.message}"
    return f"{row.name} is {decision.state}"
