"""A question about a command as people see it: without secrets, but with everything that may act. Pure.

The answer is bound to the fingerprint, which is of the whole command; so hiding a value changes no decision. An agent
could hide a command in the place of a secret, ``A_TOKEN=$(…)`` or ``PASS=reboot; $PASS``: a value is hidden only if
it has no character of a shell's grammar, is no path and reads as no name (``redaction.is_inert``), or if it is a value
that mudroom knows. Where a value is hidden no rule is offered, since it would have to hold it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from mudroom.core.approval.approval import CommandQuestion
from mudroom.core.text.redaction import redact, redact_argv, redact_reason


def shown_question(question: CommandQuestion, known: Collection[str] = ()) -> CommandQuestion:
    """Return the question without secrets. ``known``: values that are secret. A question that was shown before stays as
    it is."""
    verdict, pattern = question.verdict, question.pattern
    holds_secret = holds_secrets(question.command, known) or redact(pattern, known) != pattern
    return question._replace(
        command=redact_argv(question.command, known, inert=True),
        verdict=verdict._replace(
            reason=redact_reason(verdict.reason, known, inert=True), instead=redact(verdict.instead, known, inert=True)
        ),
        pattern="" if holds_secret else pattern,
    )


def holds_secrets(words: Sequence[bytes], known: Collection[str]) -> bool:
    """Return whether a command has a secret: then no rule about it is written, since the policy file would hold it."""
    return redact_argv(words, known) != tuple(words)
