"""Which limits a command has in a container, and what is said of those that no container holds. Pure.

A container's control group is its engine's, one for each container; there is none around those of a project, and none
of its limits of reading and writing counts what goes through the page cache everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from mudroom.core.confinement.container import Engine
from mudroom.core.confinement.limit import NAMES, Limits, command_limits, show_limit, stand_in, total_limits
from mudroom.errors import Unsupported

BY_ENGINE = ("memory", "processes", "cpus")
OWN_PROCESSES = 4
"""The launcher, a template, its spare and an init are in the container's group, but not what the user counts."""
OWN_MEMORY = 24 << 20
"""Bytes of theirs: four small interpreters, which share most of their pages."""


class AllowedLimits(NamedTuple):
    limits: Limits
    """Those that the container holds: what it is to be started with, its own processes included."""
    rlimits: tuple[tuple[int, int, int], ...] = ()
    """In the place of others."""
    notes: tuple[str, ...] = ()


def lacking(limits: Limits, engine: Engine) -> Iterator[tuple[str, str, float]]:
    """(field, kind, limit) of what is asked for and not held."""
    able = getattr(engine, "limits", BY_ENGINE)
    for kind, limit in command_limits(limits):
        if kind not in BY_ENGINE or kind not in able:
            yield kind, kind, limit
    for kind, limit in total_limits(limits):
        yield "total_" + kind, kind, limit


def allow(limits: Limits, engine: Engine) -> AllowedLimits:
    """Raises Unsupported for a limit that is not held, unless the policy permits that it is missing."""
    missing = list(lacking(limits, engine))
    if missing and limits.missing == "refuse":
        field, kind, limit = missing[0]
        raise Unsupported(
            f"at level 2 a limit of {NAMES[kind]}{_whose(field)}, {show_limit(kind, limit)},",
            "a control group that holds it",
            f"containers of {engine.kind}, whose groups do not",
            "use level 1, take the limit away, or permit to go on without: limits: {missing: degrade} in the policy",
        )
    notes, rlimits, changes = [], [], dict[str, Any]()
    for field, kind, limit in missing:
        if field == kind:
            rlimit, lost = stand_in(kind, limit, counts_processes=False)
            rlimits += [rlimit] if rlimit is not None else []
        else:
            lost = f"limit of all commands together: {NAMES[kind]}, {show_limit(kind, limit)}: not enforced"
        notes.append(f"{lost} (level 2, {engine.kind})")
        changes[field] = None
    held = limits._replace(**changes)
    return AllowedLimits(
        held._replace(
            memory=None if held.memory is None else held.memory + OWN_MEMORY,
            processes=None if held.processes is None else held.processes + OWN_PROCESSES,
        ),
        tuple(rlimits),
        tuple(notes),
    )


def _whose(field: str) -> str:
    return " of all commands together" if field.startswith("total_") else ""
