"""What somebody has ticked in a review, as what an apply takes: paths, and of some files only a part."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

from mudroom.core.merge.merge import PartialChoice
from mudroom.core.text.hunk import select
from mudroom.core.text.linediff import diff_lines, split_lines
from mudroom.core.tree.change import listed
from mudroom.core.tree.dependent_rows import lacking, lacks, needs, row_of
from mudroom.core.tree.flag import git_directory
from mudroom.core.tree.path import show_path
from mudroom.web.api.endpoint import path_of
from mudroom.web.state.refusal import Refusal

if TYPE_CHECKING:
    from mudroom.core.tree.change import Change
    from mudroom.session import Session
    from mudroom.web.shape import PickShape


class ChosenChanges(NamedTuple):
    paths: tuple[bytes, ...]
    parts: dict[bytes, PartialChoice]
    """Of the paths, those of which not all was chosen."""


def chosen(
    session: Session, fork: str, changes: Sequence[Change], picks: Sequence[PickShape], *, git: bool = False
) -> ChosenChanges:
    """``changes``: all of the fork's. ``git``: of a repository of which anything is chosen, all is, but for hooks and
    settings that are not: a part of a commit is a broken repository. Raises Refusal for what is not among the changes,
    is named twice, or cannot be divided as it is asked for; if a part is chosen of a file whose conflict is decided;
    and if nothing is left of what was chosen."""
    known = {change.path: change for change in changes}
    wanted: dict[bytes, PickShape] = {}
    for pick in picks:
        path = path_of(pick.id)
        if path not in known:
            raise Refusal(400, "bad-request", f"the fork has no change at {show_path(path)}", "look at it again")
        if wanted.setdefault(path, pick) is not pick:
            raise Refusal(400, "bad-request", f"{show_path(path)} is chosen twice")
    divided = {path for path, pick in wanted.items() if pick.blocks is not None or not pick.mode}
    parts: dict[bytes, PartialChoice] = {}
    for change, base, staged in session.changes.texts(fork, sorted(divided)) if divided else ():
        if change.path not in divided:
            continue  # it lies below one of them
        divided.remove(change.path)
        some, part = _part(change, base, staged, wanted[change.path])
        if not some:
            del wanted[change.path]
        elif part is not None:
            parts[change.path] = part
    if divided:
        raise Refusal(400, "bad-request", f"{show_path(min(divided))} can only be chosen as a whole")
    if not wanted:
        raise Refusal(400, "bad-request", "nothing was chosen")
    _require_undecided(session, fork, parts)
    paths = (*wanted, *(_repositories(changes, wanted) if git else ()))
    _require_together(changes, set(paths))
    return ChosenChanges(paths, parts)


def _require_together(changes: Sequence[Change], wanted: set[bytes]) -> None:
    """Nothing lands that was not shown as chosen (core/tree/dependent_rows.py)."""
    for path, missing in lacking(wanted, needs(row_of(change) for change in listed(changes))):
        raise Refusal(400, "bad-request", lacks(path, missing), "choose all of them")


def _require_undecided(session: Session, fork: str, parts: Collection[bytes]) -> None:
    """A decision is about all of a file: with a part of it, it would be a conflict again."""
    known = session.changes.conflict_paths(fork, sorted(parts)) if parts else {}
    decided = [path for path, is_decided in known.items() if is_decided]
    if decided:
        raise Refusal(
            409,
            "decided",
            f"the conflict of {show_path(decided[0])} is decided as a whole",
            "choose all of it, or undecide",
        )


def _repositories(changes: Sequence[Change], wanted: Collection[bytes]) -> list[bytes]:
    units = {git_directory(path) for path in wanted} - {None}
    return [
        change.path
        for change in changes
        if change.path not in wanted and git_directory(change.path) in units and "protected" not in change.flags
    ]


def _part(
    change: Change, base: bytes | None, staged: bytes | None, pick: PickShape
) -> tuple[bool, PartialChoice | None]:
    """Whether any of it is wanted, and which part if not all."""
    before, after = change.base, change.staged
    has_mode = before is not None and after is not None and before.mode != after.mode
    if base is None or staged is None or after is None:
        if pick.blocks is None and not has_mode:
            return True, None
        raise Refusal(400, "bad-request", f"{show_path(change.path)} can only be chosen as a whole")
    count = len(diff_lines(split_lines(base), split_lines(staged)))
    blocks = set(range(count)) if pick.blocks is None else set(pick.blocks)
    if not blocks <= set(range(count)):
        raise Refusal(400, "bad-request", f"{show_path(change.path)} has no such block: it has {count}, from 0")
    mode = after.mode if pick.mode or before is None else before.mode
    if len(blocks) == count and mode == after.mode:
        return True, None
    if not blocks and not (has_mode and pick.mode):
        return False, None
    return True, PartialChoice(select(base, staged, blocks), mode)
