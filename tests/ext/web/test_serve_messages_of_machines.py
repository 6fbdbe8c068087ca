"""Messages of the page on another system, and about a path."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mudroom.errors import MudroomError, UsageError
from mudroom.ext.web.cli import page_server
from mudroom.ext.web.cli.new_project import open_folder
from whole_text import whole


def test_the_page_on_windows_starts_nothing_in_the_background(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_server, "sys", SimpleNamespace(platform="win32"))
    told = "no command runs in the background on Windows (mudroom exec --fork f -- COMMAND)"
    with pytest.raises(MudroomError, match=whole(told)):
        page_server._start(cast(Any, None), b"/p", "f", (b"true",), None)


def test_a_path_that_is_written_in_another_way(tmp_path: Path) -> None:
    root = os.fsencode(tmp_path)
    (tmp_path / "x").mkdir()
    with (
        pytest.raises(UsageError, match=whole(f"{tmp_path}//x is not a normalised path (write {tmp_path}/x)")),
        open_folder([root], root + b"//x"),
    ):
        pass
