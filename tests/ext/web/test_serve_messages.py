"""Messages of the page's verb, each brought about by what a user would type."""

from __future__ import annotations

import os

from conftest import Place
from mudroom.ext.web.cli.new_project import open_folder
from test_messages_by_doing import Told, all_told, refused

__all__ = ["all_told"]  # a fixture

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
