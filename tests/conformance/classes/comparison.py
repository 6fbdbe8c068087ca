"""Classes that an observation demands. Pure; docs/decisions/0053 has the reasons.

| observed | at least one of these classes |
| --- | --- |
| a file of the project was made, changed or removed | mutating, destructive, unknown, host_escape_risk |
| a connection was tried | networked, unknown, host_escape_risk |
| content is lost: removed, or set back to an older state, and found nowhere | destructive, unknown, host_escape_risk |
| a planted program or code ran | unknown, host_escape_risk |
| a file of the home was changed | unknown, host_escape_risk |
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from mudroom.core.command.verdict import CommandClass

_PAST: tuple[CommandClass, ...] = ("unknown", "host_escape_risk")
DEMANDS: Mapping[str, tuple[CommandClass, ...]] = {
    "changed": ("mutating", "destructive", *_PAST),
    "dialled": ("networked", *_PAST),
    "lost": ("destructive", *_PAST),
    "ran": _PAST,
    "outside": _PAST,
}
"""The least strict class comes first."""
_CACHES = frozenset({".ruff_cache", ".mypy_cache", ".pytest_cache", "__pycache__"})
_AN_OUTPUT = r"(?:\s-[A-Za-z]*o|-?-out[a-z-]*)[ =]?['\"]?"


class Observed(NamedTuple):
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    reverted: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    commits: bool = False
    ran: tuple[str, ...] = ()
    dialled: bool = False
    outside: tuple[str, ...] = ()
    secret: bool = False
    """The content of a key of the home was printed. Reading is the sandbox's matter: counted, no class is demanded."""
    end: str = ""
    """``time``: it was ended; ``harness``: it ended what observes it. Empty: it ended by itself."""


def observed(told: Mapping[str, object]) -> Observed:
    """Return what the harness has told of a line."""
    return Observed(**{name: tuple(value) if isinstance(value, list) else value for name, value in told.items()})  # type: ignore[arg-type]


def effects(seen: Observed, line: str) -> tuple[str, ...]:
    """Return the rows of ``DEMANDS`` that hold.

    A file that the line names and that gets other content is not lost: ``>``, ``cp`` and ``tee`` are ``mutating`` by
    decision (docs/COMMANDS.md). A compiler removes an output that it cannot finish: that is the same. Caches that a
    tool keeps in a directory of their own are not a change.
    """
    reverted = [name for name in seen.reverted if name.rpartition("/")[2] not in line]
    removed = [name for name in seen.removed if not re.search(_AN_OUTPUT + re.escape(name), line)]
    changed = [name for name in seen.changed if not _CACHES.intersection(name.split("/"))]
    holds = {
        "changed": bool(changed),
        "dialled": seen.dialled,
        "lost": bool(removed or reverted or seen.commits),
        "ran": bool(seen.ran),
        "outside": bool(seen.outside),
    }
    return tuple(name for name in DEMANDS if holds[name])


def missing(effects_seen: Iterable[str], classes: Iterable[CommandClass]) -> tuple[str, ...]:
    """Return the effects that none of the classes admits."""
    has = set(classes)
    return tuple(name for name in effects_seen if not has.intersection(DEMANDS[name]))


def least(effects_seen: Iterable[str]) -> tuple[CommandClass, ...]:
    """Return the least classes that admit all of the effects, in order."""
    found = {DEMANDS[name][0] for name in effects_seen}
    if found & set(_PAST):
        return ("unknown",)
    if "destructive" in found:
        found.discard("mutating")
    return tuple(name for name in ("mutating", "networked", "destructive") if name in found) or ("read_only",)


def admits(classes: Iterable[CommandClass], minimum: str) -> bool:
    """Return whether classes are at least as strict as one of the tables'."""
    has = set(classes)
    admitted: Mapping[str, tuple[CommandClass, ...]] = {
        "read_only": ("read_only", "mutating", "networked", "destructive", *_PAST),
        "mutating": DEMANDS["changed"],
        "networked": DEMANDS["dialled"],
        "destructive": DEMANDS["lost"],
        "unknown": _PAST,
        "host_escape_risk": ("host_escape_risk",),
    }
    return bool(has.intersection(admitted[minimum]))
