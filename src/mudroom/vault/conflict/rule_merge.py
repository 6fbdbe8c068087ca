"""Conflicts settled by rule, and lock files made again: by the satellite ``merging``, without which neither is."""

from __future__ import annotations

from mudroom.core.merge.diff3 import MergedText
from mudroom.core.registry import part_or_none
from mudroom.typing import NamedTuple


class RuleMerge(NamedTuple):
    """A text whose conflicts are all settled by rule."""

    content: bytes
    words: str
    """The rules, such as ``both sides only insert``."""

    @property
    def how(self) -> str:
        return f"merged by rule: {self.words}"


def settle(path: bytes, merged: MergedText) -> RuleMerge | None:
    """Return the text with every conflict settled by rule, or None. ``path`` tells the language."""
    rules = part_or_none("merging", "rules")
    settled: RuleMerge | None = rules.settle(path, merged) if rules is not None else None
    return settled


def command_of(path: bytes, ours: bytes | None, theirs: bytes | None) -> str:
    """Return the command that makes a lock file again; empty if the path is none."""
    locks = part_or_none("merging", "locks")
    return str(locks.command_of(path, ours, theirs)) if locks is not None else ""
