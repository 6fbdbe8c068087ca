"""Find the command line's project without a session."""

from __future__ import annotations

import os

from mudroom.cli.terminal.context import Context
from mudroom.errors import UsageError
from mudroom.policy.config import places
from mudroom.stage import disk
from mudroom.stage.views.preflight import find_project


def working_directory() -> bytes:
    try:
        return os.getcwdb()  # on Windows with \\: for disk.real_path
    except FileNotFoundError:
        raise UsageError("the current directory does not exist any more", "cd to one that does") from None


def project_of(context: Context) -> bytes:
    """Return the project as a real path."""
    if context.project is not None:
        return disk.real_path(context.project)
    home = places(context.environ).home
    return find_project(disk.real_path(working_directory()), home)
