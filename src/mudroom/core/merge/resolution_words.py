"""The possible resolutions and their names, shared by the command line and the terminal review. The page has the same
table in JavaScript; a test compares the two."""

from __future__ import annotations

from mudroom.typing import Literal

Side = Literal["ours", "theirs", "both", "base"]
"""Resolutions for one conflict in a text."""
Either = Literal["ours", "theirs", "both"]
"""Resolutions for one conflict, or for all conflicts in a file, with one key or one option."""
Choice = Side | list[str]
"""A side, or replacing lines without line ends."""
Take = Literal["ours", "theirs", "content", "delete"]
"""Resolutions for a whole file: the project's version, the fork's, the merged content, deleted."""

OPEN = "not decided"
SIDES: dict[Side, str] = {"ours": "the project's", "theirs": "the fork's", "both": "both", "base": "the original"}
LINES = "lines of your own"
TAKES: dict[str, str] = {"ours": SIDES["ours"], "theirs": SIDES["theirs"], "content": "merged", "delete": "deleted"}
"""Names for a file's resolution, by ``Take``."""


def choice_words(choice: Choice | None) -> str:
    """Return the name of a conflict's resolution."""
    if choice is None:
        return OPEN
    return SIDES[choice] if isinstance(choice, str) else LINES


def take_words(take: str) -> str:
    """Return the name of a file's resolution. An unknown ``take`` is returned as it is."""
    return "decided: " + TAKES.get(take, take)
