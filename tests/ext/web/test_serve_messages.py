"""Messages of the page's verb: wrong words and lines, a path, and another system."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from conftest import Place
from mudroom.errors import MudroomError, UsageError
from mudroom.ext.web.cli import page_server
from mudroom.ext.web.cli.new_project import open_folder
from test_messages_by_doing import Told, all_told, refused
from test_usage_messages import require_told
from whole_text import whole

__all__ = ["all_told"]  # fixtures

LINES = {
    "serve --host-name http://a": "'http://a' is not the name of a host (as in --host-name box.example, without http://)",
    "serve --host-name a:99999": "'a:99999' names no port (1 to 65535, as in --host-name localhost:8080)",
    "serve --link": "no mudroom serve runs here (mudroom serve starts one)",
}


def test_wrong_lines(all_told: Told) -> None:
    all_told(LINES)


def test_a_folder_outside(place: Place) -> None:
    roots = [os.fsencode(place.root)]
    folders = (("/etc", "/etc is not below a folder that may be looked into (mudroom serve --root DIR)"),)

    def look(path: str) -> None:
        with open_folder(roots, os.fsencode(path)):
            pass

    refused(folders, look)


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


WRONG = {
    "serve x": "serve takes no argument x (mudroom serve --help)",
    "serve 8080": "serve takes no argument 8080 (mudroom serve --port 8080)",
    "web": "there is no verb 'web' (did you mean mudroom serve --open?)",
}


def test_a_wrong_word_names_the_right_one(capfd: pytest.CaptureFixture[str]) -> None:
    require_told(WRONG, capfd)
