"""Session calls for a try's candidates. They run in one thread, one after another, and never while a candidate's review
uses the session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from mudroom.core.text.escaping import escape_line
from mudroom.core.tree.path import show_path
from mudroom.core.tree.quote import show_words
from mudroom.errors import MudroomError, UsageError
from mudroom.ext.attempts.candidate import ComparedPath, ResultGroup, TryReview, review_try
from mudroom.ext.review.rows import RowDifference, difference, stamp_of
from mudroom.ext.tui.diffrow import FileRows, FileText
from mudroom.ext.tui.review_model import KIND_NOTES, SessionCalls

if TYPE_CHECKING:
    from mudroom.core.tree.change import Change
    from mudroom.session import Session

BASE = -1
"""Stands for the original state in place of a candidate's index."""
Pair = tuple[int, int]
"""Indexes of the left and the right candidate."""


class Report(NamedTuple):
    title: str
    lines: tuple[str, ...]


class CandidateModel(SessionCalls):
    def __init__(self, session: Session, name: str) -> None:
        super().__init__(session)
        self.name = name

    def see(self) -> TryReview:
        return review_try(self.session, self.name)

    def stamp(self, review: TryReview) -> tuple[object, ...]:
        """Return a value that changes with the record and with each compared fork. It costs a few stat calls; any
        thread may call it."""
        vault = self.session.vault.path
        places = [vault + b"/attempts/" + self.name.encode() + b"/record"]
        for place in review.compared:
            fork = vault + b"/forks/" + review.candidates[place].attempt.fork.encode()
            places += (fork, fork + b"/record", fork + b"/state", fork + b"/running")
        return tuple(map(stamp_of, places))

    async def show(self, review: TryReview, path: ComparedPath, pair: Pair) -> FileRows | None:
        """Return a path's two sides for display, or None if others have been requested meanwhile."""
        return await self.ask_last(lambda: self._show(review, path, pair))

    def _show(self, review: TryReview, path: ComparedPath, pair: Pair) -> FileRows:
        names = tuple(side_name(review, place) for place in pair)
        heading = (show_path(path.path), f"left: {names[0]}   right: {names[1]}")
        if is_alike(path, pair):
            return FileRows((*heading, "both sides are the same"))
        states = ["base" if place == BASE else review.candidates[place].fork for place in pair]
        fork = states[1] if pair[1] != BASE else states[0]
        between = None if states == ["base", fork] else (states[0], states[1])
        try:
            shown = difference(self.session, fork, path.path, between=between, as_new=True)
        except UsageError:
            return FileRows((*heading, "both sides are the same, or a candidate has changed: R looks again"))
        except (MudroomError, OSError) as error:
            return FileRows((*heading, f"it cannot be shown: {error}"))
        text = FileText(*shown.texts.sides, shown.texts.blocks) if shown.texts is not None else None
        return FileRows((*heading, *_notes(shown, names)), None, text, divisible=False)

    def report(self, review: TryReview, place: int) -> Report:
        """Return the end of a candidate's output."""
        attempt = review.candidates[place].attempt
        title = f"Attempt {attempt.number}: {show_words(attempt.command)}"
        lines = attempt.report.decode("utf-8", "replace").splitlines()
        shown = tuple(escape_line(line.encode()).text.replace("\t", "    ") for line in lines)
        return Report(title, shown or ("nothing was printed",))


def _notes(shown: RowDifference, names: Sequence[str]) -> list[str]:
    """Return notes on differences that the lines do not show."""
    change: Change = shown.change
    old, new = change.base, change.staged
    notes = list(KIND_NOTES.get(shown.kind, ()))
    if old is None or new is None:
        name = names[0] if new is None else names[1]
        notes.append(f"only in {name}: {change.entry.kind}")
    elif old.kind != new.kind:
        notes.append(f"{old.kind} in {names[0]}, {new.kind} in {names[1]}")
    elif change.modes:
        notes.append(f"permissions {change.modes[0]:04o} in {names[0]}, {change.modes[1]:04o} in {names[1]}")
    for name, entry in zip(names, (old, new), strict=True):
        if entry is not None and entry.kind == "symlink":
            notes.append(f"{name}: a link to {show_path(entry.target)}")
        elif entry is not None and shown.kind in ("binary", "image"):
            notes.append(f"{name}: {entry.size:,} bytes")
    return notes


# --- which sides ---


def side_name(review: TryReview, place: int) -> str:
    return "the original" if place == BASE else f"attempt {review.candidates[place].attempt.number}"


def pair_of(path: ComparedPath) -> Pair:
    """Return the two sides that show the most: two results, or the single result against an unchanged candidate or the
    original."""
    firsts = [group.candidates[0] for group in path.groups]
    if len(firsts) > 1:
        return firsts[0], firsts[1]
    return (path.unchanged[0] if path.unchanged else BASE), firsts[0]


def is_alike(path: ComparedPath, pair: Pair) -> bool:
    """Return whether both sides are known to be equal at a path."""
    if pair[0] == pair[1]:
        return True
    left, right = _group(path, pair[0]), _group(path, pair[1])
    return left is right and (left is None or path.compared)


def _group(path: ComparedPath, place: int) -> ResultGroup | None:
    """Return a candidate's result at a path, or None if it left the path unchanged."""
    return next((group for group in path.groups if place in group.candidates), None)


def next_side(review: TryReview, place: int) -> int:
    """Return the side after this one, in the order: original, compared candidates."""
    places = [BASE, *review.compared]
    return places[(places.index(place) + 1) % len(places)] if place in places else BASE
