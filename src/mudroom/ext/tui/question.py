"""A waiting question in the terminal: who asks for what, what each answer allows afterwards, and the answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from mudroom.cli.policy.approve import question_lines, write_rule
from mudroom.core.approval.approval import CommandAnswer, can_be_kept, hour_of, offers_of, rule_of

if TYPE_CHECKING:
    from mudroom.core.approval_queue import QueueRow
    from mudroom.session import Session

_ONCE, _NO = CommandAnswer(True, by="terminal"), CommandAnswer(False, by="terminal")


class ShownQuestion(NamedTuple):
    row: QueueRow
    lines: Sequence[str]
    answers: Sequence[tuple[str, CommandAnswer]]
    """Each with its words."""


def read_question(session: Session, name: str) -> ShownQuestion:
    """Return a question with the answers that it takes. Raise UsageError if it is gone."""
    row = session.vault.approvals.row(name)
    question, keeps = row.asked.question, can_be_kept(row.asked.question)
    answers = [("allow once", _ONCE)]
    if hour := hour_of(question):
        answers.append((f"for an hour: {hour}", _ONCE._replace(hour=True)))
    if keeps:
        answers.append((f"always, writes: {rule_of(question, True)}", _ONCE._replace(keep=True)))
    for offer in offers_of(question):
        kept = _ONCE._replace(allow=offer.allows, keep=True, rule=offer.rule)
        answers.append((f"{offer.words}, writes: {offer.rule}", kept))
    answers.append(("deny", _NO))
    if keeps:
        answers.append((f"never, writes: {rule_of(question, False)}", _NO._replace(keep=True)))
    return ShownQuestion(row, question_lines(row), answers)


def give_answer(session: Session, row: QueueRow, answer: CommandAnswer) -> str:
    """Answer a question, and write the rule that was shown. Return what has come of it. Raise MudroomError."""
    allow, keep, rule, hour = answer.allow, answer.keep, answer.rule, answer.hour
    decision, is_first = session.vault.approvals.decide(
        row.name, allow=allow, by=answer.by, keep=keep, rule=rule, hour=hour
    )
    if not is_first:
        return f"{row.name} has ended already: {decision.state}"
    problem = write_rule(row, answer, session) if keep else None
    return f"the answer holds, but its rule is not written: {problem}" if problem else f"{row.name} is {decision.state}"
