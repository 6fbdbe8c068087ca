"""The projects of a fork with parts (``mudroom run --root``, ``--home``), for a review of all of them as one.

A path in another project is absolute in a review: in rows, choices, conflicts and requests. No path of the fork's own
project is. Each part is read and decided by its own session, with that project's secrets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from mudroom.core.merge.apply_summary import apply_words, undo_words
from mudroom.core.tree.change import Change, Remark
from mudroom.core.tree.path import is_below, show, show_path
from mudroom.errors import UsageError
from mudroom.typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar
from mudroom.vault.forks.ties import Tie

if TYPE_CHECKING:
    from mudroom.core.merge.merge import PartialChoice
    from mudroom.session import ApplyResult, ForkConflict, LandingResult, Session

_HOME = Tie(b"", b"", is_home=True).label()
AGAIN = "look again: the fork has changed"
T = TypeVar("T")


class ReviewRoot(NamedTuple):
    """A project in which a fork has changes."""

    session: Session
    fork: str
    """Name there."""
    path: bytes
    """The project's path; empty for the fork's own."""
    label: str = ""
    """As it is named to the user; empty for the fork's own."""

    def outer(self, path: bytes) -> bytes:
        """Return a path in this project as the review has it."""
        return _below(self.path, path)

    def inner(self, path: bytes) -> bytes:
        """Return a path that lies in this project as the project has it."""
        return path[len(self.path) + 1 :] if self.path else path

    def holds(self, path: bytes) -> bool:
        """Return whether a path of the review may lie in this project; of several the longest has it."""
        return is_below(path, self.path) and path != self.path if self.path else not path.startswith(b"/")

    def change(self, change: Change) -> Change:
        return _with_paths(change, self.outer) if self.path else change

    def inner_change(self, change: Change) -> Change:
        return _with_paths(change, self.inner) if self.path else change

    def remark(self, remark: Remark) -> Remark:
        return _remark(self.path, remark)

    def conflict(self, conflict: ForkConflict) -> ForkConflict:
        """Return a conflict for display; its sides have the project's paths."""
        return conflict._replace(path=self.outer(conflict.path)) if self.path else conflict


def _below(root: bytes, path: bytes) -> bytes:
    return root + b"/" + path if root and path else path


def _remark(root: bytes, remark: Remark) -> Remark:
    return remark._replace(path=_below(root, remark.path))


def _with_paths(change: Change, place: Callable[[bytes], bytes]) -> Change:
    paths = (change.path, change.source, change.moved_to, change.link_to)
    path, source, moved_to, link_to = (place(path) if path else path for path in paths)
    return change._replace(path=path, source=source, moved_to=moved_to, link_to=link_to)


def roots_of(session: Session, fork: str) -> list[ReviewRoot]:
    """Return the projects of a fork, its own first. Raise MudroomError if a part is missing."""
    found = [ReviewRoot(session, fork, b"")]
    for tied, there in session.changes.parts(fork):
        there.vault.reading = session.vault.reading
        found.append(ReviewRoot(there, tied.name, tied.path, tied.label()))
    return found


def root_of(session: Session, fork: str, path: bytes) -> ReviewRoot:
    """Return the project in which a path of the review lies. Raise UsageError if there is none."""
    if not path.startswith(b"/"):
        return ReviewRoot(session, fork, b"")
    found = root_holding(roots_of(session, fork), path)
    if found is None:
        raise UsageError(f"the fork has no change at {show(path)}", AGAIN)
    return found


def drift_of(session: Session, fork: str) -> list[Remark]:
    """Return the changed paths of a fork that its projects have changed since, too."""
    return [root.remark(remark) for root in roots_of(session, fork) for remark in root.session.changes.drift(root.fork)]


def by_root(session: Session, fork: str, values: Mapping[bytes, T]) -> list[tuple[ReviewRoot, dict[bytes, T]]]:
    """Return the values by project, under the project's paths; those of the fork's own project are first. Raise
    UsageError for a path that lies in none."""
    roots = (
        roots_of(session, fork) if any(path.startswith(b"/") for path in values) else [ReviewRoot(session, fork, b"")]
    )
    found: dict[bytes, tuple[ReviewRoot, dict[bytes, T]]] = {b"": (roots[0], {})}
    for path, value in values.items():
        root = root_holding(roots, path)
        if root is None:
            raise UsageError(f"the fork has no change at {show(path)}", AGAIN)
        found.setdefault(root.path, (root, {}))[1][root.inner(path)] = value
    return list(found.values())


def root_holding(roots: Iterable[ReviewRoot], path: bytes) -> ReviewRoot | None:
    """Return the project in which a path of the review lies, or None."""
    return max((root for root in roots if root.holds(path)), key=lambda root: len(root.path), default=None)


def holder_of(path: bytes, roots: Iterable[bytes]) -> bytes:
    """Return the longest of these project paths that a path of the review lies in; empty: none."""
    return max((root for root in roots if is_below(path, root)), key=len, default=b"")


def named_directory(path: bytes, labels: Mapping[bytes, str]) -> str:
    """Return a directory of the review for display, in another project below its name. ``labels``: the names of the
    other projects, by path."""
    root = holder_of(path, labels)
    if not root or labels[root] != _HOME:
        return show_path(path) + "/"
    return f"{_HOME}: {show_path(path[len(root) + 1 :])}/" if path != root else _HOME


def options_of_choice(
    session: Session, fork: str, paths: Iterable[bytes], parts: Mapping[bytes, PartialChoice]
) -> dict[str, Any]:
    """Return the options of ``Changes.apply`` for exactly these paths of the review, of all projects."""
    (_own, first), *others = by_root(session, fork, dict.fromkeys(paths))
    (_own, first_parts), *other_parts = by_root(session, fork, parts)
    options: dict[str, Any] = {"paths": tuple(first), "parts": first_parts, "exact": True}
    if session.changes.parts(fork):
        options["roots"] = {root.path: tuple(chosen) for root, chosen in others}
        options["root_parts"] = {root.path: chosen for root, chosen in other_parts}
    return options


def whole_landing(landed: LandingResult) -> LandingResult:
    """Return an apply's outcome with that in other projects added, under the review's paths."""
    for tied, there in landed.roots:
        outer = partial(_below, tied.path)
        landed = landed._replace(
            applied=_joined(landed.applied, there.applied, tied.path),
            remaining=landed.remaining + there.remaining,
            withheld=(*landed.withheld, *map(outer, there.withheld)),
            told=landed.told | set(map(outer, there.told)),
            merged=(*landed.merged, *map(outer, there.merged)),
            kept=(*landed.kept, *map(outer, there.kept)),
        )
    return landed


def whole_turn(applied: ApplyResult, home: bytes = b"~") -> ApplyResult:
    """Return the outcome of an undo or redo with that in other projects added, under the review's paths."""
    for label, there in applied.roots:
        applied = _joined(applied, there, home if label == _HOME else label.encode())
    return applied


def _joined(applied: ApplyResult, there: ApplyResult, root: bytes) -> ApplyResult:
    conflicts = (conflict._replace(path=_below(root, conflict.path)) for conflict in there.conflicts)
    return applied._replace(
        written=applied.written + there.written,
        removed=applied.removed + there.removed,
        conflicts=(*applied.conflicts, *conflicts),
        remarks=(*applied.remarks, *(_remark(root, remark) for remark in there.remarks)),
        again=(*applied.again, *(_below(root, path) for path in there.again)),
    )


def landed_words(landed: LandingResult) -> str:
    """Summarise an apply, by projects."""
    return _by_project(
        (label, apply_words(one.applied.written, one.applied.removed, len(one.kept), one.refs_moved))
        for label, one in (("", landed), *((root.tied.label(), root.landed) for root in landed.roots))
    )


def turned_words(action: Literal["undo", "redo"], applied: ApplyResult) -> str:
    """Summarise an undo or redo, by projects."""
    return _by_project(
        (label, undo_words(action, one.written, one.removed, len(one.again), one.holder, len(one.refs)))
        for label, one in (("", applied), *applied.roots)
    )


def _by_project(rows: Iterable[tuple[str, str]]) -> str:
    return "; ".join(f"in {label}: {words}" if label else words for label, words in rows)
