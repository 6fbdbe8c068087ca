"""Which forks of a project conflict: each with the project, and each with each other.

Nothing is run, and no fork is changed: conflicts are computed from the layers, as an apply and a union of attempts
compute them. Forks without a common path are not read. A pair that is not compared within the time says so.

A server keeps the cells (``MatrixCache``). A cell depends on the records of its forks, the decisions about their
conflicts, and the project's entries at the paths that they have changed. It is valid while their stamps are the same.
"""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from itertools import combinations, groupby

from mudroom.core.tree.change import Changeset
from mudroom.core.tree.entry import Entry
from mudroom.core.tree.path import name as name_of
from mudroom.core.tree.path import parent
from mudroom.errors import MudroomError
from mudroom.ext.attempts.session.union import conflicts_between
from mudroom.session.session import Session
from mudroom.stage.beneath import directory, is_absence, look, open_root
from mudroom.stage.stamp import is_settled, stamp_of
from mudroom.typing import NamedTuple

BUDGET = 10.0
"""Seconds for all cells. One that has begun is finished."""
LATE = "not compared: out of time"
_PARTS = (b"", b"/record", b"/state", b"/resolutions")
_MOST_LOOKED = 20_000
"""Changed paths of a fork: the cells of a fork with more are not kept."""
_CACHED = 5_000


class MatrixCell(NamedTuple):
    one: str
    other: str
    """The second fork; empty for the project."""
    conflicts: tuple[bytes, ...] = ()
    problem: str = ""
    """Why the conflicts are not known."""
    verified: bool | None = None
    """Whether the policy's verify command passes on both together (``verdict.py``); None: not known."""
    verified_at: int = 0
    """When it ran, in nanoseconds since 1970."""


_Place = tuple[bytes, str, str]
"""A vault and the two names of a cell."""
_Known = dict[str, Changeset | None]
"""The changes of the forks that were read; None: such a fork cannot be read now."""


class MatrixCache:
    """Cells that were computed, for a server. ``_lock`` guards them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cells: OrderedDict[_Place, tuple[bytes, MatrixCell]] = OrderedDict()

    def get(self, place: _Place, key: bytes) -> MatrixCell | None:
        with self._lock:
            kept = self._cells.get(place)
            return kept[1] if kept is not None and kept[0] == key else None

    def put(self, place: _Place, key: bytes, cell: MatrixCell) -> None:
        with self._lock:
            self._cells[place] = key, cell
            self._cells.move_to_end(place)
            while len(self._cells) > _CACHED:
                self._cells.popitem(last=False)


def matrix(
    session: Session, names: Sequence[str], *, budget: float = BUDGET, cache: MatrixCache | None = None
) -> list[MatrixCell]:
    """Return a cell for each fork with the project, then for each pair, in the order of ``names``."""
    until = time.monotonic() + budget
    stamps = {name: fork_stamp(session, name) if cache is not None else b"" for name in names}
    known: _Known = {}
    cells: list[MatrixCell] = []
    for one, other in (*((name, "") for name in names), *combinations(names, 2)):
        is_kept = bool(stamps[one] and (not other or stamps[other]))
        place, key = (session.vault.path, one, other), stamps[one] + (stamps[other] if other else b"")
        cell = cache.get(place, key) if cache is not None and is_kept else None
        if cell is None:
            if time.monotonic() > until:
                cell = MatrixCell(one, other, problem=LATE)
            else:
                cell = _pair(session, known, one, other) if other else _with_project(session, known, one)
            if cache is not None and is_kept and not cell.problem:
                cache.put(place, key, cell)
        cells.append(cell)
    return cells


def _with_project(session: Session, known: _Known, name: str) -> MatrixCell:
    try:
        problem = _read(session, known, name)
        conflicts = _undecided(session, name) if not problem else ()
        for tied, there in session.changes.parts(name) if not problem else ():
            conflicts += tuple(tied.path + b"/" + path for path in _undecided(there, tied.name))
    except (MudroomError, OSError) as error:
        return MatrixCell(name, "", problem=_why(error))
    return MatrixCell(name, "", conflicts, problem)


def _undecided(session: Session, name: str) -> tuple[bytes, ...]:
    return tuple(path for path, decided in session.changes.conflict_paths(name).items() if not decided)


def _pair(session: Session, known: _Known, one: str, other: str) -> MatrixCell:
    sides: list[tuple[str, Changeset]] = []
    try:
        for name in (one, other):
            if name not in known:
                _read(session, known, name)
            changes = known[name]
            if changes is None:
                return MatrixCell(one, other, problem=f"not compared: {name} cannot be read now")
            sides.append((name, changes))
        return MatrixCell(
            one, other, conflicts_between(session.vault, *sides) + _in_other_projects(session, one, other)
        )
    except (MudroomError, OSError) as error:
        return MatrixCell(one, other, problem=_why(error))


def _in_other_projects(session: Session, one: str, other: str) -> tuple[bytes, ...]:
    """Return the conflicts of two forks in projects, or the home, in which both have a part. The paths are absolute."""
    parts = {tied.path: tied.name for tied, _there in session.changes.parts(one)}
    found: tuple[bytes, ...] = ()
    for tied, there in session.changes.parts(other) if parts else ():
        if tied.path in parts:
            names = parts[tied.path], tied.name
            conflicts = conflicts_between(there.vault, *((name, there.changes.of(name)) for name in names))
            found += tuple(tied.path + b"/" + path for path in conflicts)
    return found


def _read(session: Session, known: _Known, name: str) -> str:
    """Add a fork's changes to ``known``. Return why the fork cannot be read now, or an empty string."""
    known[name] = None
    look = session.changes.look(name)
    if not look.in_use:
        known[name] = look.changeset
    return look.in_use


def _why(error: MudroomError | OSError) -> str:
    return error.message if isinstance(error, MudroomError) else error.strerror or str(error)


def fork_stamp(session: Session, name: str) -> bytes:
    """Return a digest of all that a fork's cells depend on, or nothing if it may change unseen."""
    now = time.time_ns()
    try:
        fork = session.vault.find(name)
        if fork is None or any(os.path.lexists(fork.path + part) for part in (b"/running", b"/mount")):
            return b""
        stamps = [stamp_of(fork.path + part) for part in _PARTS]
        changes = fork.record.changeset.changes if fork.record is not None else ()
        paths = {path for each in changes for path in (each.path, each.source, each.moved_to) if path}
        entries = list(_entries(session.vault.source, sorted(paths))) if len(paths) <= _MOST_LOOKED else None
        parts = [fork_stamp(there, tied.name) for tied, there in session.changes.parts(name)]
    except (MudroomError, OSError):
        return b""
    if (
        not all(parts)
        or entries is None
        or not all(is_settled(each.ctime, now) for each in (*stamps, *entries) if each is not None)
    ):
        return b""
    found = (session.actor.policy.merge_rules, fork.created, stamps, entries, parts)
    return blake2b(repr(found).encode(), digest_size=20).digest()


def _entries(project: bytes, paths: Sequence[bytes]) -> Iterator[Entry | None]:
    """Yield the project's entry at each path; None: it has none."""
    root = open_root(project)
    try:
        for above, group in groupby(sorted(paths, key=lambda path: (parent(path), path)), parent):
            names = [name_of(path) for path in group]
            try:
                with directory(root, above) as opened:
                    yield from [look(opened, name) for name in names]
            except OSError as error:
                if not is_absence(error):
                    raise
                yield from [None] * len(names)
    finally:
        os.close(root)
