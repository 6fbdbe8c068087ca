"""Bounded texts for results: a long text's beginning and end, with a line about the omitted middle. Pure."""

from __future__ import annotations

MOST = 30_000
"""Characters in a result's text. Claude Code warns when an MCP tool returns 10,000 tokens, and cuts at 25,000."""
_HEAD = 10_000
LONGEST_LINE = 2_000
"""Characters of a line that ``read`` and ``grep`` show."""


def middle_out(text: str, rest: str) -> tuple[str, bool]:
    """Return the text and whether it was cut. ``rest``: how to get the rest, with ``{start}`` for the first omitted
    character."""
    if len(text) <= MOST:
        return text, False
    start = text.rfind("\n", _HEAD // 2, _HEAD) + 1 or _HEAD
    tail = len(text) - (MOST - start)
    end = text.find("\n", tail, tail + (MOST - start) // 2) + 1 or tail
    how = rest.format(start=start)
    return f"{text[:start]}[… {end - start:,} characters are left out: {how}]\n{text[end:]}", True


def first_part(text: str, rest: str, most: int = MOST) -> tuple[str, bool]:
    """Return whole lines from the beginning, and whether the text was cut. ``rest``: how to get the rest."""
    if len(text) <= most:
        return text, False
    end = text.rfind("\n", 0, most) + 1 or most
    return f"{text[:end]}[… {len(text) - end:,} characters are left out: {rest}]\n", True


def short_line(line: str) -> str:
    if len(line) <= LONGEST_LINE:
        return line
    return f"{line[:LONGEST_LINE]}… ({len(line) - LONGEST_LINE:,} characters more)"


def decoded(data: bytes) -> str:
    """Return output or file content as text that JSON can hold."""
    return data.decode("utf-8", "replace")
