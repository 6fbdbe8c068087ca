"""The grants of a fork, on its disk."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from inner_path import inner
from mudroom.errors import MudroomError
from mudroom.ext.agents.core.fork_consent import ShownPort
from mudroom.ext.agents.links.fork_grants import edit_grants
from mudroom.vault.store.store import open_vault
from whole_text import whole


def test_grants_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    vault = open_vault(inner(tmp_path / "state"), inner(tmp_path / "p"))
    fork = vault.new_fork("f")
    os.mkdir(fork.path + b"/consent.new")
    why = "Permission denied" if sys.platform == "win32" else "Is a directory"
    with pytest.raises(MudroomError, match=whole(f"the grants of the fork f cannot be written: {why}")):
        edit_grants(vault, fork, lambda grants: grants._replace(shows=(ShownPort(8000),)))
    os.rmdir(fork.path + b"/consent.new")
    assert edit_grants(vault, fork, lambda grants: grants._replace(shows=(ShownPort(8000),)))
    vault.close()
