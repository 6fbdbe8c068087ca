"""All probe findings, summarised for a newcomer: which levels are available here, and what to do about the others.
Pure."""

from __future__ import annotations

from collections.abc import Sequence

from mudroom.cli.doctor.probe import BESIDE, ENGINE, Finding
from mudroom.cli.doctor.report import Fix, fixes
from mudroom.typing import NamedTuple

_LIMIT, _CONTAINER = "limit: ", "containers: "


class Level(NamedTuple):
    level: int
    about: str
    state: str
    """yes, partly or no."""
    missing: tuple[str, ...]
    """Missing or weaker protections; if ``state`` is no, the reason."""


class FirstLook(NamedTuple):
    levels: tuple[Level, ...]
    limits: tuple[str, ...]
    no_limits: tuple[str, ...]
    fixes: tuple[Fix, ...]
    """Each fix once, in the order of the protections: level 1, limits, level 2."""


def first_look(findings: Sequence[Finding]) -> FirstLook:
    limits = [row for row in findings if row.protection.startswith(_LIMIT)]
    boxes = [row for row in findings if row.protection.startswith(_CONTAINER) or row.protection == ENGINE]
    walls = [row for row in findings if row not in limits and row not in boxes and row.protection != BESIDE]
    levels = (
        Level(0, "a staged view: nothing lands until you apply it", "yes", ()),
        _level(1, "and a sandbox: its own files, network gate, system calls", walls),
        _level(2, "and a container of Docker or Podman around it", boxes),
    )
    return FirstLook(
        levels,
        tuple(row.protection.removeprefix(_LIMIT) for row in limits if row.state == "strict"),
        tuple(row.protection.removeprefix(_LIMIT) for row in limits if row.state != "strict"),
        tuple(fixes([row for row in (*walls, *limits, *boxes) if row.state != "strict"])),
    )


def _level(number: int, about: str, rows: Sequence[Finding]) -> Level:
    weak = [row for row in rows if row.state != "strict"]
    first = rows[0] if rows else None
    if first is None or first.state in ("missing", "not probed"):
        return Level(number, about, "no", (first.found,) if first is not None else ())
    return Level(number, about, "partly" if weak else "yes", tuple(row.protection for row in weak))
