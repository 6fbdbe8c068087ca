"""A command's classes and the verdict on it, as values. ``core/command/program/classification.py`` finds the classes,
``core/command/policy.py`` decides.

Both lists are ordered from mild to strict. A command's strictest part counts.
"""

from __future__ import annotations

from collections.abc import Iterable

from mudroom.typing import Literal, NamedTuple

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
AimKind = Literal["processes", "path", "server", "loopback", "account", "host"]
"""processes: sends signals. path: reads or writes outside the project. server: asks a server on this machine.
loopback: asks one on its loopback. account: reads with an account at a remote service. host: changes a server on the
network."""


class Aim(NamedTuple):
    """A command's target outside the project. A sandbox may hold it (``core/command/protection.py``)."""

    kind: AimKind
    path: bytes = b""
    """For ``path``: absolute and normal, or ``~`` and the rest for a path in the home directory."""


class CommandPart(NamedTuple):
    """A simple command in a command line; or a redirection, an assignment, or a piece that cannot be parsed."""

    words: tuple[bytes, ...]
    """The leading words that are known without running anything, as the program would get them."""
    complete: bool
    """Whether ``words`` are all the part's words."""
    classes: tuple[CommandClass, ...]
    reason: str
    """A clause for people, such as ``removes files``."""
    aims: tuple[Aim, ...] = ()
    """All targets that make the part a ``host_escape_risk``; empty: it stays one at every level."""
    otherwise: tuple[CommandClass, ...] = ()
    """The classes if all aims are held."""


class Classification(NamedTuple):
    classes: tuple[CommandClass, ...]
    """All parts' classes, each once, in the order of ``CLASSES``."""
    parts: tuple[CommandPart, ...]

    @property
    def strictest(self) -> CommandClass:
        return self.classes[-1]


class Verdict(NamedTuple):
    action: Action = "allow"
    classes: tuple[CommandClass, ...] = ()
    rule: str = "default"
    """Where the decision comes from: ``default``, ``class destructive``, ``policy.yaml:12`` …"""
    reason: str = "a command of the user's own"
    instead: str = ""
    """For a denial: commands that would be allowed."""


def sort_classes(classes: Iterable[CommandClass]) -> tuple[CommandClass, ...]:
    """Return each class once, from mild to strict."""
    return tuple(sorted(set(classes), key=_RANK.__getitem__))


def join_parts(parts: Iterable[CommandPart]) -> Classification:
    """Return the classification for a command with these parts; a command without parts is unknown."""
    all_parts = tuple(parts)
    classes = sort_classes(name for part in all_parts for name in part.classes)
    return Classification(classes or ("unknown",), all_parts)
