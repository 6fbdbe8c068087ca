"""``mudroom diff --view``: files by their parts, the others as text; and the same as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from mudroom.cli.change.part_paths import NamedPart, named_parts
from mudroom.core.tree.change import Change, counted_changes
from mudroom.core.tree.path import is_below
from mudroom.ext.views.kinds.row import FileView
from mudroom.ext.views.lines import view_lines
from mudroom.ext.views.reader import view_of

if TYPE_CHECKING:
    from mudroom.session import Session


def view_diff(parts: Sequence[NamedPart], without: Callable[[Change], bool]) -> Iterator[bytes]:
    """Yield the views of the parts' chosen files, then the other files as unified diffs. ``without``: changes of the
    fork's own project that are left out."""
    for part in parts:
        if part.root:
            yield b"# in %s:\n" % part.label.encode()
        left_out = (lambda _change: False) if part.root else without
        shown: set[bytes] = set()
        for change, view in _views(part):
            if left_out(change):
                continue
            name = part.shown(change.path)
            if view.problem:
                yield f"# {name}: no view: {view.problem}\n".encode()
                continue
            shown.add(change.path)
            (head, _style), *lines = view_lines(view)
            yield f"# {name}: {head}\n".encode()
            yield from (f"{line}\n".encode() for line, _style in lines)
        rest = partial(_is_left_out, shown, left_out)
        yield from part.session.changes.diff(part.name, part.paths, without=rest)


def _is_left_out(shown: set[bytes], left_out: Callable[[Change], bool], change: Change) -> bool:
    return change.path in shown or left_out(change)


def views_to_json(session: Session, fork: str, words: Sequence[str]) -> list[dict[str, Any]]:
    """Return the views of a fork's files for ``--json``; of these paths, if there are ``words``."""
    return [
        {"path": part.shown(change.path), **msgspec.to_builtins(view)}
        for part in named_parts(session, fork, words)
        for change, view in _views(part)
    ]


def _views(part: NamedPart) -> Iterator[tuple[Change, FileView]]:
    for change in counted_changes(part.session.forks.changeset(part.name).changes):
        if change.moved_to or (part.paths and not any(is_below(change.path, path) for path in part.paths)):
            continue
        view = view_of(part.session, part.name, change.path)
        if view is not None:
            yield change, view
