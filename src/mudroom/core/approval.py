"""A question to somebody who may let a command run, and the answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from mudroom.core.verdict import Verdict


class CommandQuestion(NamedTuple):
    command: tuple[bytes, ...]
    cwd: bytes
    fork: str
    agent: str
    """Empty: none has been named."""
    verdict: Verdict
    pattern: str
    """The rule that an answer of "always" writes, as it would stand in the file; empty: none can be written."""
    fingerprint: str
    """Of all that was looked at: an answer to anything else is no answer to this."""


class CommandAnswer(NamedTuple):
    allow: bool
    keep: bool = False
    """Whether to write the rule."""
    by: str = ""
    """Who answered, for the journal: ``terminal``, ``queue``, ``nobody`` …"""
    reason: str = ""


CommandApprover = Callable[[CommandQuestion], CommandAnswer]
