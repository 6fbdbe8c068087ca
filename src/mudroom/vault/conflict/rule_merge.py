"""A conflict settled by rule. The rules are those of the satellite ``merging``: without it there is none."""

from __future__ import annotations

from mudroom.core.merge.diff3 import MergedText
from mudroom.core.registry import part_or_none
from mudroom.typing import NamedTuple


class RuleMerge(NamedTuple):
    """A text whose conflicts are all settled by rule."""

    content: bytes
    words: str
    """The rules, such as ``both sides only insert``."""


def settle(path: bytes, merged: MergedText) -> RuleMerge | None:
    """Return the text with every conflict settled by rule, or None. ``path`` tells the language."""
    rules = part_or_none("merging", "rules")
    settled: RuleMerge | None = rules.settle(path, merged) if rules is not None else None
    return settled
