"""Rows of certification with a Windows Python, real jobs and processes. Wine has no AppContainer and confines nothing:
each row that has to be refused must fall there, and none may open anything."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

if sys.platform != "win32":
    pytest.skip("needs Windows, or dev/wine", allow_module_level=True)

from mudroom.certify.row import Certificate, closed, opens
from mudroom.certify.table import WINDOWS
from mudroom.certify.trial import certify
from mudroom.certify.volume import Volume
from mudroom.certify.windows_trial import windows_trial
from mudroom.sandbox.windows.client import WindowsClient
from mudroom.sandbox.windows.plan import WindowsMachine
from mudroom.vault.apply.rename import exchange, move
from test_client_on_windows import LIBRARY, without_container
from test_on_windows import NATIVE, WINE

TRIED = [row for row in WINDOWS if row.deed and row.way == "level 1"]


@pytest.mark.skipif(not WINE, reason="Windows confines")
def test_where_nothing_confines_each_row_falls_and_nothing_opens(tmp_path: Path) -> None:
    variables = dict(os.environ)
    machine = WindowsMachine(os.cpu_count() or 1)
    client = WindowsClient(NATIVE, variables=variables, machine=machine, shape=without_container)
    volume = Volume(lambda _directory: (None, "no apply runs here"), move, exchange)
    trial = windows_trial(client, LIBRARY, variables, volume=volume)._replace(patience=60.0)
    made = certify(TRIED, trial, str(tmp_path), Certificate("win32", "Windows", "AMD64", 0))
    client.close()
    found = {row.name: (row.verdict, row.found) for row in made.rows}
    wanted = {row.name: "held" if row.canary == "works" else "fell" for row in TRIED}
    assert {name: verdict for name, (verdict, _why) in found.items()} == wanted, found
    assert not opens(WINDOWS, made) and "platform" in closed(WINDOWS, made)
