"""A part of a changed file, as a reviewer chooses it: changed blocks, and the change of its mode. Pure."""

from __future__ import annotations

from mudroom.core.merge.merge import PartialChoice
from mudroom.core.text.hunk import select_blocks
from mudroom.core.tree.change import Change
from mudroom.typing import NamedTuple


class Pick(NamedTuple):
    """The chosen part of a file."""

    blocks: frozenset[int] | None = None
    """The chosen changed blocks; None: the whole file."""
    mode: bool = True
    """Whether its mode change is chosen."""


WHOLE = Pick()


def chosen_part(change: Change, old: bytes, new: bytes, pick: Pick) -> PartialChoice | None:
    """Return what a file with these texts becomes if only ``pick`` is applied; None if nothing of it is chosen."""
    assert change.staged is not None
    modes = change.modes
    if pick.blocks is not None and not pick.blocks and not (modes and pick.mode):
        return None
    content = new if pick.blocks is None else select_blocks(old, new, pick.blocks)
    return PartialChoice(content, modes[0] if modes and not pick.mode else change.staged.mode)


def is_whole(part: PartialChoice, change: Change, new: bytes) -> bool:
    return change.staged is not None and part == PartialChoice(new, change.staged.mode)
