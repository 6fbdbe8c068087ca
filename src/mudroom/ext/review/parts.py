"""The files that are chosen only in part, in the form that an apply takes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from mudroom.core.merge.pick import Pick, chosen_part, is_whole
from mudroom.core.text.linediff import diff_lines, split_lines
from mudroom.core.tree.path import show_path
from mudroom.errors import UsageError
from mudroom.ext.review.roots import ReviewRoot, by_root
from mudroom.typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from mudroom.core.merge.merge import PartialChoice
    from mudroom.core.tree.change import Change
    from mudroom.session import Session


class ChosenParts(NamedTuple):
    chosen: dict[bytes, PartialChoice]
    """The files chosen only in part. A file of which all is chosen is not among them."""
    left: frozenset[bytes]
    """The files of which nothing is chosen."""


class DecidedAsWhole(UsageError):
    """A part is chosen of a file whose conflict is decided: the decision is about the whole file, and a part would
    conflict again."""

    def __init__(self, path: bytes) -> None:
        super().__init__(
            f"the conflict of {show_path(path)} is decided as a whole", "choose all of it, or take the decision back"
        )


def read_parts(session: Session, fork: str, changes: Sequence[Change], picks: Mapping[bytes, Pick]) -> ChosenParts:
    """Return the parts for picks other than ``WHOLE``. ``changes``: all changes, as reviewed. Raise UsageError if a
    file cannot be divided as requested, ForkMoved if it is not the reviewed one."""
    chosen: dict[bytes, PartialChoice] = {}
    left: set[bytes] = set()
    divided = {path: pick for path, pick in picks.items() if pick != Pick()}
    for root, wanted in by_root(session, fork, divided) if divided else ():
        reviewed = [root.inner_change(change) for change in changes if root.holds(change.path)]
        part = _read_root(root, reviewed, wanted)
        chosen |= {root.outer(path): choice for path, choice in part.chosen.items()}
        left |= {root.outer(path) for path in part.left}
    return ChosenParts(chosen, frozenset(left))


def _read_root(root: ReviewRoot, changes: Sequence[Change], picks: Mapping[bytes, Pick]) -> ChosenParts:
    session, fork = root.session, root.fork
    chosen: dict[bytes, PartialChoice] = {}
    left: set[bytes] = set()
    divided = set(picks)
    for change, old, new in session.changes.texts(fork, sorted(divided), reviewed=changes) if divided else ():
        if change.path not in divided:
            continue  # a path below a divided path
        divided.remove(change.path)
        pick = picks[change.path]
        if old is None or new is None:
            if pick.blocks is not None or change.modes:
                raise _indivisible(root.outer(change.path))
            continue
        count = len(diff_lines(split_lines(old), split_lines(new)))
        _require_blocks(root.outer(change.path), pick.blocks or (), count)
        part = chosen_part(change, old, new, pick)
        if part is None:
            left.add(change.path)
        elif not is_whole(part, change, new):
            chosen[change.path] = part
    if divided:
        raise _indivisible(root.outer(min(divided)))
    decisions = session.changes.conflict_paths(fork, sorted(chosen)) if chosen else {}
    for path, is_decided in decisions.items():
        if is_decided:
            raise DecidedAsWhole(root.outer(path))
    return ChosenParts(chosen, frozenset(left))


def _indivisible(path: bytes) -> UsageError:
    return UsageError(f"{show_path(path)} can only be chosen as a whole", "choose all of it, or nothing")


def _require_blocks(path: bytes, blocks: Collection[int], count: int) -> None:
    if not set(blocks) <= set(range(count)):
        raise UsageError(f"{show_path(path)} has no such block: it has {count}, from 0", "look at it again")
