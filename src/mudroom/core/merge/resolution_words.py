"""What can be decided about a conflict, and the words for it: one table for the command line and the terminal review.
The page has the same in its own language, and a test holds it to these."""

from __future__ import annotations

from typing import Literal

Side = Literal["ours", "theirs", "both", "base"]
"""What becomes of a place of a text."""
Either = Literal["ours", "theirs", "both"]
"""What is asked for of a place, or of all of it, with one key or one option."""
Choice = Side | list[str]
"""A side, or lines instead, without their ends."""
Take = Literal["ours", "theirs", "content", "delete"]
"""What is kept of a whole file: the project's, the fork's, what was made of both, nothing."""

OPEN = "not decided"
SIDES: dict[Side, str] = {"ours": "the project's", "theirs": "the fork's", "both": "both", "base": "the original"}
LINES = "lines of your own"
TAKES: dict[str, str] = {"ours": SIDES["ours"], "theirs": SIDES["theirs"], "content": "merged", "delete": "deleted"}
"""By ``Take``."""


def said(choice: Choice | None) -> str:
    """What becomes of a place."""
    if choice is None:
        return OPEN
    return SIDES[choice] if isinstance(choice, str) else LINES


def said_of_take(take: str) -> str:
    """What becomes of a file. ``take``: as it is kept; one that is not known is said as it is."""
    return "decided: " + TAKES.get(take, take)
