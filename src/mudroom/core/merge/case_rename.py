"""Files whose name changes only its case, where names that differ in case are the same: Windows. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from mudroom.core.merge.operations import Op
from mudroom.core.tree.windows_name import fold


def removed_first(ops: Iterable[Op]) -> tuple[Op, ...]:
    """Return the operations with the removal of a former name before the new name is placed, which could not be there
    beside it. The removed file is in its slot meanwhile: recovery and undo bring it back."""
    ops = tuple(ops)
    placed = {fold(op.path) for op in ops if op.old is None and op.new is not None}
    former = tuple(op for op in ops if op.kind == "remove" and fold(op.path) in placed)
    return (*(op._replace(after=b"") for op in former), *(op for op in ops if op not in former))
