"""The rows chosen in a review. Pure: this module draws nothing and reads no files.

1. At first all rows are chosen, except those that must be named: protected paths and repositories.
2. A repository (``.git``) is one row: it is applied as a whole or not at all. Its hooks and settings are separate rows,
   and each must be chosen by itself.
3. If exactly the rows that need no name are chosen, the apply names no paths, like ``mudroom apply FORK --yes``.
4. Where a directory became a file or the reverse, rows depend on each other (core/tree/dependent_rows.py): an apply
   takes exactly the chosen rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from mudroom.core.merge.pick import WHOLE, Pick
from mudroom.core.tree.change import Change, counted_changes
from mudroom.core.tree.dependent_rows import DependentRow, Needs, complete_selection, has_turned, needs, row_of
from mudroom.core.tree.flag import NEW_REPOSITORY, PROTECTED, git_directory, is_protected, repository_of_each
from mudroom.core.tree.path import is_below

Mark = Literal["all", "part", "none"]
SIGNS: dict[Mark, str] = {"all": "[x]", "part": "[-]", "none": "[ ]"}


class Item(NamedTuple):
    """A review row: a change, or a repository with all its changes."""

    path: bytes
    change: Change
    inside: tuple[bytes, ...] = ()
    """The changes in a repository; empty if the row is a change."""

    @property
    def is_repository(self) -> bool:
        return bool(self.inside)

    @property
    def is_new_repository(self) -> bool:
        """Whether the row is a repository created in the fork: it is applied as a whole, like ordinary files."""
        return NEW_REPOSITORY in self.change.flags

    @property
    def to_be_named(self) -> bool:
        if self.is_new_repository:
            return PROTECTED in self.change.flags
        return self.is_repository or PROTECTED in self.change.flags or is_protected(self.path)


class Choice(NamedTuple):
    """A choice in the form that an apply takes. Empty ``paths``: all changes that need no name."""

    paths: tuple[bytes, ...]
    """Exactly these paths."""
    picks: Mapping[bytes, Pick]
    """The files chosen only in part."""
    items: tuple[Item, ...]
    """The chosen rows, in order."""

    @property
    def git(self) -> bool:
        """Whether a repository in the project is chosen."""
        return any(item.is_repository and not item.is_new_repository for item in self.items)


def items_of(changes: Sequence[Change]) -> tuple[Item, ...]:
    """Return the review's rows, in walking order."""
    rows: list[Item] = []
    repositories: dict[bytes, int] = {}
    inside: dict[int, list[bytes]] = {}
    new = repository_of_each(changes)
    for change in counted_changes(changes):
        git = new.get(change.path) or git_directory(change.path)
        is_single = git == change.path and change.entry.kind != "directory"
        if change.path not in new:
            is_single = git == change.path or is_protected(change.path)
        if git is None or is_single:
            rows.append(Item(change.path, change))
        elif git in repositories:
            row_number = repositories[git]
            inside[row_number].append(change.path)
        else:
            repositories[git] = len(rows)
            inside[len(rows)] = [change.path]
            rows.append(Item(git, change))
    for number, paths in inside.items():
        rows[number] = rows[number]._replace(inside=tuple(paths))
    return tuple(rows)


def first_choice(items: Sequence[Item]) -> dict[bytes, Pick]:
    return complete_picks(items, {item.path: WHOLE for item in items if not item.to_be_named}, None)


def complete_picks(
    items: Sequence[Item], picks: Mapping[bytes, Pick], before: Collection[bytes] | None
) -> dict[bytes, Pick]:
    """Return the choice with all required rows added. ``before``: the previous choice; None: drop rows whose required
    rows are missing."""
    needed = _needs(items)
    if not needed:
        return dict(picks)
    completed = complete_selection(picks.keys(), needed, before)
    return {item.path: picks.get(item.path, WHOLE) for item in items if item.path in completed}


def _needs(items: Sequence[Item]) -> Needs:
    """Return which rows each row requires. Called at every key that chooses; in most forks no row requires another."""
    if not any(has_turned(item.change) for item in items):
        return {}
    return needs(DependentRow(item.path) if item.is_repository else row_of(item.change) for item in items)


def mark_of(pick: Pick | None) -> Mark:
    if pick is None:
        return "none"
    return "all" if pick == WHOLE else "part"


def mark_of_all(marks: Iterable[Mark]) -> Mark:
    distinct = set(marks)
    return distinct.pop() if len(distinct) == 1 else "part" if distinct else "none"


def toggle_block(
    pick: Pick | None, blocks: frozenset[int], all_blocks: frozenset[int], *, has_mode: bool
) -> Pick | None:
    """Toggle blocks: deselect them if all are chosen, otherwise choose them."""
    now = wanted_blocks(pick, all_blocks)
    mode = has_mode and pick is not None and pick.mode
    return normalise_pick(now - blocks if blocks <= now else now | blocks, mode, all_blocks, has_mode=has_mode)


def toggle_mode(pick: Pick | None, all_blocks: frozenset[int]) -> Pick | None:
    mode = pick is not None and pick.mode
    return normalise_pick(wanted_blocks(pick, all_blocks), not mode, all_blocks, has_mode=True)


def wanted_blocks(pick: Pick | None, all_blocks: frozenset[int]) -> frozenset[int]:
    if pick is None:
        return frozenset()
    return all_blocks if pick.blocks is None else pick.blocks & all_blocks


def normalise_pick(blocks: frozenset[int], mode: bool, all_blocks: frozenset[int], *, has_mode: bool) -> Pick | None:
    """Return a choice in normal form: WHOLE if complete, None if empty."""
    if blocks == all_blocks and (mode or not has_mode):
        return WHOLE
    if not blocks and not (mode and has_mode):
        return None
    return Pick(None if blocks == all_blocks else blocks, mode if has_mode else True)


def choice_of(items: Sequence[Item], picks: Mapping[bytes, Pick]) -> Choice | None:
    """Return the choice for an apply, or None if no row is chosen."""
    selected = tuple(item for item in items if item.path in picks)
    if not selected:
        return None
    parts = {item.path: picks[item.path] for item in selected if picks[item.path] != WHOLE}
    if not parts and all((item.path in picks) != item.to_be_named for item in items):
        return Choice((), {}, selected)
    paths = [path for item in selected for path in (item.inside or (item.path,))]
    return Choice(tuple(paths), parts, selected)


def carry_picks(before: Sequence[Item], after: Sequence[Item], picks: Mapping[bytes, Pick]) -> dict[bytes, Pick]:
    """Return the choice for a fork that has been read again. If a row has changed, its chosen blocks are dropped: block
    numbers now mean other blocks. New rows are chosen as at first."""
    rows_before = {item.path: item for item in before}
    picks_now = {}
    for item in after:
        pick = picks.get(item.path) if item.path in rows_before else None if item.to_be_named else WHOLE
        if pick is not None and (pick == WHOLE or rows_before.get(item.path) == item):
            picks_now[item.path] = pick
    return complete_picks(after, picks_now, None)


def is_covered(path: bytes, items: Sequence[Item]) -> bool:
    return any(is_below(path, item.path) for item in items)


FLAGS: tuple[tuple[str, str, str], ...] = (
    ("executes-later", "!", "runs by itself later"),
    ("secret", "S", "may hold secrets"),
    ("protected", "P", "is left out unless it is chosen by name"),
    ("leads-outside", "O", "is a link that leads out of the project"),
    ("reduced-mode", "M", "lands with fewer permissions than the fork has"),
    ("conflict", "C", "conflicts with the project"),
    ("binary", "B", "binary"),
    ("large", "L", "large"),
    ("ignored", "I", "ignored by git"),
)
"""Flag, sign, words: shown in the list and offered as filters."""
_KNOWN, _NONE = frozenset(flag for flag, _sign, _words in FLAGS), frozenset[str]()


def flags_of(item: Item, tags: Iterable[str], conflicts: Mapping[bytes, bool]) -> frozenset[str]:
    """Return a row's flags. ``tags``: from ``ext/review/rows.py``. ``conflicts``: path → whether it is decided."""
    flags = _NONE if item.is_repository else _KNOWN.intersection(tags)
    if item.to_be_named:
        flags |= {"protected"}
    if conflicts and any(not conflicts.get(path, True) for path in (item.path, *item.inside)):
        flags |= {"conflict"}
    return flags


def signs(flags: Iterable[str]) -> str:
    flag_set = set(flags)
    return "".join(sign for flag, sign, _words in FLAGS if flag in flag_set)
