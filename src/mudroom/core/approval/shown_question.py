"""A command question as people see it: without secrets, but with everything that may act. Pure.

The answer is bound to the fingerprint, which covers the whole command, so hiding a value changes no decision. But an
agent could hide a command where a secret is expected: ``A_TOKEN=$(…)`` or ``PASS=reboot; $PASS``. So a value is hidden
only if it has no shell metacharacter, is no path and does not read as a name (``redaction.is_inert``), or if mudroom
knows it as a secret. If a value is hidden, no rule is offered, since the rule would have to contain it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from mudroom.core.approval.approval import CommandQuestion
from mudroom.core.text.redaction import redact, redact_argv, redact_reason


def shown_question(question: CommandQuestion, known: Collection[str] = ()) -> CommandQuestion:
    """Return the question without secrets. ``known``: secret values. A question that was shown before stays as it
    is."""
    verdict, words = question.verdict, question.rule(False)
    holds_secret = holds_secrets(question.command, known) or redact(words, known) != words
    return question._replace(
        command=redact_argv(question.command, known, inert=True),
        verdict=verdict._replace(
            reason=redact_reason(verdict.reason, known, inert=True), instead=redact(verdict.instead, known, inert=True)
        ),
        pattern="" if holds_secret else question.pattern,
    )


def holds_secrets(words: Sequence[bytes], known: Collection[str]) -> bool:
    """Return whether a command contains a secret. If so, no rule is written, since it would put the secret in the
    policy."""
    return redact_argv(words, known) != tuple(words)
