"""What is chosen of a fork's changes. Values and decisions; nothing is drawn and nothing is read.

1. At first everything is chosen but what has to be named: what is protected, and repositories.
2. A repository (``.git``) is one row: it is applied as a whole or not at all. Its hooks and settings are rows of
   their own, and each has to be chosen by itself.
3. If all is chosen that needs no name, no path is named: so the apply is the one of ``mudroom apply FORK --yes``.
4. Where a directory has become a file, or a file a directory, rows go together (core/tree/dependent_rows.py): what is
   chosen is
   all that an apply takes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from mudroom.core.tree.change import Change, counted_changes
from mudroom.core.tree.dependent_rows import DependentRow, Needs, complete_selection, has_turned, needs, row_of
from mudroom.core.tree.flag import git_directory, is_protected
from mudroom.core.tree.path import is_below

Mark = Literal["all", "part", "none"]
SIGNS: dict[Mark, str] = {"all": "[x]", "part": "[-]", "none": "[ ]"}


class Pick(NamedTuple):
    """What is wanted of one file."""

    blocks: frozenset[int] | None = None
    """Changed blocks; None: all of the file."""
    mode: bool = True
    """Whether a change of its permissions is."""


WHOLE = Pick()


class Item(NamedTuple):
    """A row of the review: a change, or a repository with all the changes in it."""

    path: bytes
    change: Change
    inside: tuple[bytes, ...] = ()
    """Of a repository: the changes that it stands for."""

    @property
    def is_repository(self) -> bool:
        return bool(self.inside)

    @property
    def to_be_named(self) -> bool:
        return self.is_repository or is_protected(self.path)


class Choice(NamedTuple):
    """For an apply. ``paths`` empty: everything that needs no name."""

    paths: tuple[bytes, ...]
    """Only what is at them."""
    picks: Mapping[bytes, Pick]
    """Files of which not all is wanted."""
    items: tuple[Item, ...]
    """What a person has chosen, in order."""

    @property
    def git(self) -> bool:
        """Whether repositories are among it."""
        return any(item.is_repository for item in self.items)


def items_of(changes: Sequence[Change]) -> tuple[Item, ...]:
    """The rows of a review, in walking order."""
    found: list[Item] = []
    repositories: dict[bytes, int] = {}
    inside: dict[int, list[bytes]] = {}
    for change in counted_changes(changes):
        git = git_directory(change.path)
        if git is None or git == change.path or is_protected(change.path):
            found.append(Item(change.path, change))
        elif git in repositories:
            place = repositories[git]
            inside[place].append(change.path)
        else:
            repositories[git] = len(found)
            inside[len(found)] = [change.path]
            found.append(Item(git, change))
    for number, paths in inside.items():
        found[number] = found[number]._replace(inside=tuple(paths))
    return tuple(found)


def first_choice(items: Sequence[Item]) -> dict[bytes, Pick]:
    return gathered(items, {item.path: WHOLE for item in items if not item.to_be_named}, None)


def gathered(items: Sequence[Item], picks: Mapping[bytes, Pick], before: Collection[bytes] | None) -> dict[bytes, Pick]:
    """With what goes together. ``before``: what was chosen; None: what lacks something is not chosen."""
    needed = _needs(items)
    if not needed:
        return dict(picks)
    found = complete_selection(picks.keys(), needed, before)
    return {item.path: picks.get(item.path, WHOLE) for item in items if item.path in found}


def _needs(items: Sequence[Item]) -> Needs:
    """Asked for at every key that chooses: mostly there is nothing of the kind."""
    if not any(has_turned(item.change) for item in items):
        return {}
    return needs(DependentRow(item.path) if item.is_repository else row_of(item.change) for item in items)


def mark_of(pick: Pick | None) -> Mark:
    if pick is None:
        return "none"
    return "all" if pick == WHOLE else "part"


def mark_of_all(marks: Iterable[Mark]) -> Mark:
    found = set(marks)
    return found.pop() if len(found) == 1 else "part" if found else "none"


def toggle_block(
    pick: Pick | None, blocks: frozenset[int], all_blocks: frozenset[int], *, has_mode: bool
) -> Pick | None:
    """Choose these blocks, or leave them out if all of them are chosen."""
    now = wanted_blocks(pick, all_blocks)
    mode = has_mode and pick is not None and pick.mode
    return settled(now - blocks if blocks <= now else now | blocks, mode, all_blocks, has_mode=has_mode)


def toggle_mode(pick: Pick | None, all_blocks: frozenset[int]) -> Pick | None:
    mode = pick is not None and pick.mode
    return settled(wanted_blocks(pick, all_blocks), not mode, all_blocks, has_mode=True)


def wanted_blocks(pick: Pick | None, all_blocks: frozenset[int]) -> frozenset[int]:
    if pick is None:
        return frozenset()
    return all_blocks if pick.blocks is None else pick.blocks & all_blocks


def settled(blocks: frozenset[int], mode: bool, all_blocks: frozenset[int], *, has_mode: bool) -> Pick | None:
    """The same choice in its one form: WHOLE if it is all, None if it is nothing."""
    if blocks == all_blocks and (mode or not has_mode):
        return WHOLE
    if not blocks and not (mode and has_mode):
        return None
    return Pick(None if blocks == all_blocks else blocks, mode if has_mode else True)


def chosen(items: Sequence[Item], picks: Mapping[bytes, Pick]) -> Choice | None:
    """For an apply; None if nothing is chosen."""
    wanted = tuple(item for item in items if item.path in picks)
    if not wanted:
        return None
    parts = {item.path: picks[item.path] for item in wanted if picks[item.path] != WHOLE}
    if not parts and all((item.path in picks) != item.to_be_named for item in items):
        return Choice((), {}, wanted)
    paths = [path for item in wanted for path in (item.inside or (item.path,))]
    return Choice(tuple(paths), parts, wanted)


def kept(before: Sequence[Item], after: Sequence[Item], picks: Mapping[bytes, Pick]) -> dict[bytes, Pick]:
    """The choice, when a fork is looked at again. Of what has changed in it since, a choice of parts is none any more:
    the parts are others. What has come since is chosen as at first."""
    known = {item.path: item for item in before}
    found = {}
    for item in after:
        pick = picks.get(item.path) if item.path in known else None if item.to_be_named else WHOLE
        if pick is not None and (pick == WHOLE or known.get(item.path) == item):
            found[item.path] = pick
    return gathered(after, found, None)


def is_covered(path: bytes, items: Sequence[Item]) -> bool:
    return any(is_below(path, item.path) for item in items)


FLAGS: tuple[tuple[str, str, str], ...] = (
    ("executes-later", "!", "runs by itself later"),
    ("secret", "S", "may hold secrets"),
    ("protected", "P", "is left out unless it is chosen by name"),
    ("conflict", "C", "conflicts with the project"),
    ("binary", "B", "binary"),
    ("large", "L", "large"),
    ("ignored", "I", "ignored by git"),
)
"""Flag, sign, words: what the list shows and the filters know."""
_KNOWN, _NONE = frozenset(flag for flag, _sign, _words in FLAGS), frozenset[str]()


def flags_of(item: Item, tags: Iterable[str], conflicts: Mapping[bytes, bool]) -> frozenset[str]:
    """``tags``: as ``reviewing`` has them. ``conflicts``: by path, whether it is decided."""
    found = _NONE if item.is_repository else _KNOWN.intersection(tags)
    if item.to_be_named:
        found |= {"protected"}
    if conflicts and any(not conflicts.get(path, True) for path in (item.path, *item.inside)):
        found |= {"conflict"}
    return found


def signs(flags: Iterable[str]) -> str:
    known = set(flags)
    return "".join(sign for flag, sign, _words in FLAGS if flag in known)
