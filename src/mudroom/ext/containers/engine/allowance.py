"""Split a command's limits at level 2 into those that its container enforces, substitutes and notes. Pure.

An engine makes a control group for each container alone. No group surrounds a project's containers, and no io limit
counts writes through the page cache everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator

from mudroom.core.confinement.limit import NAMES, Limits, command_limits, show_limit, stand_in, total_limits
from mudroom.errors import Unsupported
from mudroom.ext.containers.core.container import Engine
from mudroom.typing import Any, NamedTuple

BY_ENGINE = ("memory", "processes", "cpus")
OWN_PROCESSES = 4
"""The launcher, a template, its spare and an init are in the container's group, but are not counted for the user."""
OWN_MEMORY = 4 << 20
"""Bytes that they use: four static programs of 100 kB and what the kernel counts for them: stacks, page tables,
namespaces."""


class AllowedLimits(NamedTuple):
    limits: Limits
    """The limits that the container enforces, as it is to be started with: its own processes are included."""
    rlimits: tuple[tuple[int, int, int], ...] = ()
    """Substitutes for other limits."""
    notes: tuple[str, ...] = ()


def unenforced(limits: Limits, engine: Engine) -> Iterator[tuple[str, str, float]]:
    """Yield (field, kind, limit) for each requested limit that is not enforced."""
    able = getattr(engine, "limits", BY_ENGINE)
    for kind, limit in command_limits(limits):
        if kind not in BY_ENGINE or kind not in able:
            yield kind, kind, limit
    for kind, limit in total_limits(limits):
        yield "total_" + kind, kind, limit


def allow(limits: Limits, engine: Engine) -> AllowedLimits:
    """Split the limits. Raise Unsupported for a limit that is not enforced, unless the policy permits that."""
    missing = list(unenforced(limits, engine))
    if missing and limits.missing == "refuse":
        field, kind, limit = missing[0]
        raise Unsupported(
            f"at level 2 a limit of {NAMES[kind]}{_scope_text(field)}, {show_limit(kind, limit)},",
            "a control group that enforces it",
            f"containers of {engine.kind}, whose control groups do not",
            "use level 1, remove the limit, or permit running without it: limits: {missing: degrade} in the policy",
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


def _scope_text(field: str) -> str:
    return " of all commands together" if field.startswith("total_") else ""
