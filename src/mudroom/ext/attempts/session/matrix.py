"""Which forks of a project conflict: each with the project, and each with each other.

Nothing is run, and no fork is changed: conflicts are computed from the layers, as an apply and a union of attempts
compute them. Forks without a common path are not read. A pair that is not compared within the time says so.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from mudroom.core.tree.change import Changeset
from mudroom.errors import MudroomError
from mudroom.ext.attempts.session.union import conflicts_between
from mudroom.session.session import Session
from mudroom.typing import NamedTuple

BUDGET = 10.0
"""Seconds for all pairs."""
LATE = "not compared: out of time"


class MatrixCell(NamedTuple):
    one: str
    other: str
    """The second fork; empty for the project."""
    conflicts: tuple[bytes, ...] = ()
    problem: str = ""
    """Why the conflicts are not known."""


def matrix(session: Session, names: Sequence[str], *, budget: float = BUDGET) -> list[MatrixCell]:
    """Return a cell for each fork with the project, then for each pair, in the order of ``names``."""
    until = time.monotonic() + budget
    cells = [_with_project(session, name) for name in names]
    known = {cell.one: session.changes.of(cell.one) for cell in cells if not cell.problem}
    for place, one in enumerate(names):
        cells += [_pair(session, known, one, other, until) for other in names[place + 1 :]]
    return cells


def _with_project(session: Session, name: str) -> MatrixCell:
    look = session.changes.look(name)
    if look.in_use:
        return MatrixCell(name, "", problem=look.in_use)
    try:
        paths = session.changes.conflict_paths(name)
    except (MudroomError, OSError) as error:
        return MatrixCell(name, "", problem=_why(error))
    return MatrixCell(name, "", tuple(path for path, decided in paths.items() if not decided))


def _pair(session: Session, known: dict[str, Changeset], one: str, other: str, until: float) -> MatrixCell:
    if one not in known or other not in known:
        return MatrixCell(one, other, problem=f"not compared: {one if one not in known else other} cannot be read now")
    if time.monotonic() > until:
        return MatrixCell(one, other, problem=LATE)
    try:
        return MatrixCell(one, other, conflicts_between(session.vault, (one, known[one]), (other, known[other])))
    except (MudroomError, OSError) as error:
        return MatrixCell(one, other, problem=_why(error))


def _why(error: MudroomError | OSError) -> str:
    return error.message if isinstance(error, MudroomError) else error.strerror or str(error)
