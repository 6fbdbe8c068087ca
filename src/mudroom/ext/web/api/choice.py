"""The choice in an apply request, converted to paths and partial files."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

from mudroom.core.merge.pick import Pick
from mudroom.core.tree.change import counted_changes
from mudroom.core.tree.dependent_rows import needs, requirement_text, row_of, unmet_requirements
from mudroom.core.tree.flag import git_directory
from mudroom.core.tree.path import show_path
from mudroom.ext.review.parts import DecidedAsWhole, read_parts
from mudroom.ext.web.api.endpoint import path_of
from mudroom.ext.web.state.refusal import Refusal

if TYPE_CHECKING:
    from mudroom.core.merge.merge import PartialChoice
    from mudroom.core.tree.change import Change
    from mudroom.ext.web.shape import PickShape
    from mudroom.session import Session


class ChosenChanges(NamedTuple):
    paths: tuple[bytes, ...]
    parts: dict[bytes, PartialChoice]
    """The paths chosen only in part."""


def choice_of(
    session: Session, fork: str, changes: Sequence[Change], picks: Sequence[PickShape], *, git: bool = False
) -> ChosenChanges:
    """Return the choice. ``changes``: all changes in the fork. ``git``: if any row in a repository is chosen, all its
    changes are, except unchosen hooks and settings: a partial commit would break the repository. Raise Refusal for a
    path that is not among the changes, is named twice, or cannot be divided as requested; for a partial choice in a
    file whose conflict is decided; and for an empty choice."""
    by_path = {change.path: change for change in changes}
    picked: dict[bytes, PickShape] = {}
    for pick in picks:
        path = path_of(pick.id)
        if path not in by_path:
            raise Refusal(400, "bad-request", f"the fork has no change at {show_path(path)}", "look at it again")
        if picked.setdefault(path, pick) is not pick:
            raise Refusal(400, "bad-request", f"{show_path(path)} is chosen twice")
    wanted = {
        path: Pick(None if pick.blocks is None else frozenset(pick.blocks), pick.mode) for path, pick in picked.items()
    }
    try:
        parts = read_parts(session, fork, changes, wanted)
    except DecidedAsWhole as error:
        raise Refusal(409, "decided", error.message, error.hint) from None
    for path in parts.left:
        del picked[path]
    if not picked:
        raise Refusal(400, "bad-request", "nothing was chosen")
    paths = (*picked, *(_changes_of_repositories(changes, picked) if git else ()))
    _require_together(changes, set(paths))
    return ChosenChanges(paths, parts.chosen)


def _require_together(changes: Sequence[Change], wanted: set[bytes]) -> None:
    """Raise Refusal if a row is chosen without its required rows (core/tree/dependent_rows.py): an apply takes only
    rows that were shown as chosen."""
    for path, missing in unmet_requirements(wanted, needs(row_of(change) for change in counted_changes(changes))):
        raise Refusal(400, "bad-request", requirement_text(path, missing), "choose all of them")


def _changes_of_repositories(changes: Sequence[Change], wanted: Collection[bytes]) -> list[bytes]:
    units = {git_directory(path) for path in wanted} - {None}
    return [
        change.path
        for change in changes
        if change.path not in wanted and git_directory(change.path) in units and "protected" not in change.flags
    ]
