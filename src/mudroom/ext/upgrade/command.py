"""A command whose mudroom is replaced meanwhile: an upgrade exchanges files while commands of the old version run.

Rules of this file:
1. No process runs modules of two versions. Before a module is loaded, the package's first file has to be as it was
   when this process began: of the same size and mtime. Each installer replaces it. Its inode number is not looked at,
   because file systems of FUSE may give a file another one.
2. ``Replaced`` ends a command as SIGTERM does, at any point, so forks and applies are as after that signal.
3. Another exception of a command that was replaced is told as the same: it may come of a missing file.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence

from mudroom.typing import Any

_FIRST = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(__file__))), "__init__.py")
_TOLD = b"mudroom: its files were replaced while this command ran: an upgrade? (mudroom status says what is kept)\n"


def _stamp() -> tuple[int, int]:
    try:
        found = os.stat(_FIRST)
    except OSError:
        return 0, 0  # removed
    return found.st_size, found.st_mtime_ns


_BEGAN = _stamp()


class Replaced(SystemExit):
    """Not an Exception: no part of the command may go on, and no thread prints a traceback."""


class _Finder:
    """A finder of ``sys.meta_path`` that finds nothing."""

    @staticmethod
    def find_spec(name: str, _path: object = None, _target: object = None) -> None:
        """Raise Replaced if the module would be another version's."""
        if name.startswith("mudroom.") and _stamp() != _BEGAN:
            raise Replaced(125)


sys.meta_path.insert(0, _Finder)


def run(
    argv: Sequence[str],
    environ: Mapping[bytes, bytes],
    client: Any = None,
    later: Callable[[bytes, Callable[[], None]], None] | None = None,
) -> int:
    """Run a verb as ``cli.main.run``, and return its exit code; 125, with one line, if mudroom was replaced."""
    try:
        from mudroom.cli.main import run as run_verb

        return run_verb(argv, environ, client, later)
    except (Replaced, Exception):
        if _stamp() == _BEGAN:
            raise
        os.write(2, _TOLD)
        return 125
