"""Renames that change only a name's case, on Windows, where names that differ only in case are the same. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from mudroom.core.merge.operations import Op
from mudroom.core.tree.windows_name import fold


def removed_first(ops: Iterable[Op]) -> tuple[Op, ...]:
    """Return the operations, reordered: the old name is removed before the new name is placed, because both cannot
    exist at once. Meanwhile the removed file is in its slot: recovery and undo bring it back."""
    ops = tuple(ops)
    placed = {fold(op.path) for op in ops if op.old is None and op.new is not None}
    former = tuple(op for op in ops if op.kind == "remove" and fold(op.path) in placed)
    # ``after`` would delay the removal until the new name is placed
    return (*(op._replace(after=b"") for op in former), *(op for op in ops if op not in former))
