"""What a command is, and what is done about it. Values only; ``core/command/program/classification.py`` finds the
classes, ``core/command/policy.py`` decides.

Both lists are in order, from mild to strict: of several parts of a command the strictest one counts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

Action = Literal["allow", "allow_with_checkpoint", "require_approval", "deny"]
ACTIONS: tuple[Action, ...] = ("allow", "allow_with_checkpoint", "require_approval", "deny")
CommandClass = Literal["read_only", "mutating", "networked", "destructive", "unknown", "host_escape_risk"]
CLASSES: tuple[CommandClass, ...] = (
    "read_only",
    "mutating",
    "networked",
    "destructive",
    "unknown",
    "host_escape_risk",
)
_RANK = {name: rank for rank, name in enumerate(CLASSES)}


class CommandPart(NamedTuple):
    """One simple command of a command line, or a redirection, an assignment, a piece that cannot be read."""

    words: tuple[bytes, ...]
    """Those that are known without running anything, from the first on, as the program would get them."""
    complete: bool
    """Whether these are all of its words."""
    classes: tuple[CommandClass, ...]
    reason: str
    """A clause for people: ``removes files``."""


class Classification(NamedTuple):
    classes: tuple[CommandClass, ...]
    """Of all parts together, each once, in the order of ``CLASSES``."""
    parts: tuple[CommandPart, ...]

    @property
    def strictest(self) -> CommandClass:
        return self.classes[-1]


class Verdict(NamedTuple):
    action: Action = "allow"
    classes: tuple[CommandClass, ...] = ()
    rule: str = "default"
    """What decided: ``default``, ``class destructive``, ``policy.yaml:12`` …"""
    reason: str = "a command of the user's own"
    instead: str = ""
    """Of a denial: what would be allowed."""


def ordered(classes: Iterable[CommandClass]) -> tuple[CommandClass, ...]:
    """Each class once, from mild to strict."""
    return tuple(sorted(set(classes), key=_RANK.__getitem__))


def joined(parts: Iterable[CommandPart]) -> Classification:
    """A command that consists of these parts; one of none at all is unknown."""
    found = tuple(parts)
    classes = ordered(name for part in found for name in part.classes)
    return Classification(classes or ("unknown",), found)
