"""The choice in an apply request, converted to paths and partial files."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

from mudroom.core.merge.merge import PartialChoice
from mudroom.core.text.hunk import select_blocks
from mudroom.core.text.linediff import diff_lines, split_lines
from mudroom.core.tree.change import counted_changes
from mudroom.core.tree.dependent_rows import needs, requirement_text, row_of, unmet_requirements
from mudroom.core.tree.flag import git_directory
from mudroom.core.tree.path import show_path
from mudroom.ext.web.api.endpoint import path_of
from mudroom.ext.web.state.refusal import Refusal

if TYPE_CHECKING:
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
    divided = {path for path, pick in picked.items() if pick.blocks is not None or not pick.mode}
    parts: dict[bytes, PartialChoice] = {}
    for change, base, staged in session.changes.texts(fork, sorted(divided), reviewed=changes) if divided else ():
        if change.path not in divided:
            continue  # a path below a divided path
        divided.remove(change.path)
        is_any, part = _part(change, base, staged, picked[change.path])
        if not is_any:
            del picked[change.path]
        elif part is not None:
            parts[change.path] = part
    if divided:
        raise Refusal(400, "bad-request", f"{show_path(min(divided))} can only be chosen as a whole")
    if not picked:
        raise Refusal(400, "bad-request", "nothing was chosen")
    _require_undecided(session, fork, parts)
    paths = (*picked, *(_changes_of_repositories(changes, picked) if git else ()))
    _require_together(changes, set(paths))
    return ChosenChanges(paths, parts)


def _require_together(changes: Sequence[Change], wanted: set[bytes]) -> None:
    """Raise Refusal if a row is chosen without its required rows (core/tree/dependent_rows.py): an apply takes only
    rows that were shown as chosen."""
    for path, missing in unmet_requirements(wanted, needs(row_of(change) for change in counted_changes(changes))):
        raise Refusal(400, "bad-request", requirement_text(path, missing), "choose all of them")


def _require_undecided(session: Session, fork: str, parts: Collection[bytes]) -> None:
    """Raise Refusal for a partial choice in a decided file: the decision covers the whole file, and a part would
    conflict again."""
    decisions = session.changes.conflict_paths(fork, sorted(parts)) if parts else {}
    decided = [path for path, is_decided in decisions.items() if is_decided]
    if decided:
        raise Refusal(
            409,
            "decided",
            f"the conflict of {show_path(decided[0])} is decided as a whole",
            "choose all of it, or undecide",
        )


def _changes_of_repositories(changes: Sequence[Change], wanted: Collection[bytes]) -> list[bytes]:
    units = {git_directory(path) for path in wanted} - {None}
    return [
        change.path
        for change in changes
        if change.path not in wanted and git_directory(change.path) in units and "protected" not in change.flags
    ]


def _part(
    change: Change, base: bytes | None, staged: bytes | None, pick: PickShape
) -> tuple[bool, PartialChoice | None]:
    """Return whether any part is chosen, and that part if it is not the whole file."""
    base_entry, staged_entry = change.base, change.staged
    has_mode = base_entry is not None and staged_entry is not None and base_entry.mode != staged_entry.mode
    if base is None or staged is None or staged_entry is None:
        if pick.blocks is None and not has_mode:
            return True, None
        raise Refusal(400, "bad-request", f"{show_path(change.path)} can only be chosen as a whole")
    count = len(diff_lines(split_lines(base), split_lines(staged)))
    blocks = set(range(count)) if pick.blocks is None else set(pick.blocks)
    if not blocks <= set(range(count)):
        raise Refusal(400, "bad-request", f"{show_path(change.path)} has no such block: it has {count}, from 0")
    mode = staged_entry.mode if pick.mode or base_entry is None else base_entry.mode
    if len(blocks) == count and mode == staged_entry.mode:
        return True, None
    if not blocks and not (has_mode and pick.mode):
        return False, None
    return True, PartialChoice(select_blocks(base, staged, blocks), mode)
