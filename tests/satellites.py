"""Marks for tests that need satellites. ``dev/without`` deletes some, and the kernel's other tests pass then, too."""

from __future__ import annotations

import pytest

from house import ROOMS, ROOT

NAMES = tuple(name.removeprefix("ext.") for name in ROOMS if name.startswith("ext."))


def needs(*names: str) -> pytest.MarkDecorator:
    """Return the mark for a test that needs these folders of ``mudroom/ext``."""
    is_complete = all((ROOT / "src/mudroom/ext" / name).is_dir() for name in names)
    return pytest.mark.skipif(not is_complete, reason="a satellite is absent")


whole = needs(*NAMES)
"""For a test that reads the whole tree, or a list of all of it."""
