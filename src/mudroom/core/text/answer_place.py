"""Where a question was answered, in words."""

from __future__ import annotations

ANSWERED = {
    "nobody": "",
    "queue": "",
    "terminal": " on the terminal",
    "page": " on the page",
    "client": " by the client",
}


def answered_by(by: str) -> str:
    """Return the place or program that answered, as words after "refused" or "allowed"; empty if there was no answer,
    whose reason then stands alone."""
    return ANSWERED.get(by, f" by {by or 'the approver'}")
