"""Changes that run by themselves later."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from mudroom.core.tree.change import Change
from mudroom.core.tree.entry import Entry
from mudroom.stage import disk
from mudroom.stage.originals.later_flags import flag_later
from mudroom.stage.source import OpenSource


def test_a_change_below_what_mudroom_runs_from_is_flagged_on_each_system(tmp_path: Path) -> None:
    """Python's own paths have backslashes on Windows, a project's none."""
    project, _slash, name = disk.real_path(os.fsencode(sys.prefix)).rpartition(b"/")
    entry = Entry("file", 0o644, 1, b"", 1, 2, 1, 0, 0, 3, 4)
    changes = [Change(path, "added", None, entry) for path in (name + b"/made", name + b"2/made")]
    nothing = OpenSource(disk.real_path(os.fsencode(tmp_path)))
    try:
        flagged = flag_later(changes, nothing, nothing, project)
    finally:
        nothing.close()
    assert ["mudroom itself" in change.runs for change in flagged] == [True, False]
