"""Signs in added lines that a reviewer looks at first: rows of ``data/review_signs.txt``. Pure.

A sign proves nothing, and its absence neither: it orders hunks of one risk.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache

from mudroom.core.text.invisible_characters import is_seen
from mudroom.core.text.table import read_table
from mudroom.typing import NamedTuple

WIDEST = 2_000
"""Bytes of a line that are examined. A longer line is a sign of its own in code."""


class Sign(NamedTuple):
    reason: str
    weight: int
    """From 1 to 3."""


class _SignRow(NamedTuple):
    sign: Sign
    pattern: re.Pattern[str]


UNSEEN = Sign("has characters that are not seen", 3)
LONG = Sign("has a line that is too long to read", 1)


def signs_of(removed: Iterable[bytes], added: Sequence[bytes]) -> tuple[Sign, ...]:
    """Return the signs of a changed block, the heaviest first. Lines that it removes as well are none."""
    before = {line.strip() for line in removed}
    signs: dict[Sign, None] = {}
    for line in added:
        if line.strip() in before:
            continue
        text = line[:WIDEST].decode("utf-8", "replace").rstrip("\r\n")
        if len(line) > WIDEST:
            signs[LONG] = None
        if not text.isascii() and not is_seen(text.replace("\t", " ").lstrip("\ufeff")):
            signs[UNSEEN] = None
        for row in _rows():
            if row.sign not in signs and row.pattern.search(text):
                signs[row.sign] = None
    return tuple(sorted(signs, key=lambda sign: -sign.weight))


@cache
def _rows() -> tuple[_SignRow, ...]:
    rows = (row.split(" | ", 2) for row in read_table("review_signs"))
    return tuple(
        _SignRow(Sign(reason, int(weight)), re.compile(pattern.strip(), re.IGNORECASE))
        for reason, weight, pattern in rows
    )
