"""Paths of a fork on the command line: of its project, and of its parts in other projects and in the home.

A path is named as for other programs: from the current directory on, whole, or ``~/PATH``.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from mudroom.cli.project_session import project_paths, working_directory
from mudroom.core.tree.path import is_below, show_path
from mudroom.typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from mudroom.session import Session


class NamedPart(NamedTuple):
    session: Session
    name: str
    """The fork's there."""
    paths: list[bytes]
    """The named ones; empty: all."""
    root: bytes = b""
    """The other project, or the home; empty: the fork's own project."""
    label: str = ""

    def named(self, path: bytes) -> bytes:
        """Return a path as the command line names it."""
        return self.root + b"/" + path if self.root else path

    def shown(self, path: bytes) -> str:
        return show_path(self.named(path))


def named_parts(session: Session, name: str, words: Sequence[str]) -> list[NamedPart]:
    """Return the parts of a fork that the words name, its own project first; all parts without words."""
    parts = [NamedPart(session, name, [])]
    parts += [NamedPart(there, tied.name, [], tied.path, tied.label()) for tied, there in session.changes.parts(name)]
    chosen: dict[bytes, list[str]] = {}
    for word in words:
        path = os.fsencode(word)
        path = session.machine.confinement.own_home + path[1:] if path.startswith(b"~/") else path
        full = os.path.normpath(os.path.join(working_directory(), path))
        above = [part.session.project for part in parts if is_below(full, part.session.project)]
        root = max(above, key=len, default=session.project)
        chosen.setdefault(root, []).append(word if root == session.project else os.fsdecode(full))
    named = (part._replace(paths=project_paths(chosen.get(part.session.project, []), part.session)) for part in parts)
    return [part for part in named if not words or part.session.project in chosen]
