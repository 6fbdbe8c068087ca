"""Rows of certification with a Windows Python, real jobs and processes. Wine has no AppContainer and confines nothing:
each row that has to be refused must fall there, and none may open anything."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

if sys.platform != "win32":
    pytest.skip("needs Windows, or dev/wine", allow_module_level=True)

from mudroom.ext.certify import windows_deed
from mudroom.ext.certify.row import Certificate, TrialRow, closed, opens
from mudroom.ext.certify.table import WINDOWS
from mudroom.ext.certify.trial import alone, certify
from mudroom.ext.certify.volume import Volume
from mudroom.ext.certify.windows_trial import windows_trial
from mudroom.ext.windows.sandbox.bridge import relay_text
from mudroom.ext.windows.sandbox.client import WindowsClient
from mudroom.ext.windows.sandbox.plan import WindowsMachine
from mudroom.vault.apply.rename import exchange, move
from test_client_on_windows import LIBRARY, without_container
from test_on_windows import NATIVE, WINE

WINDOWS_DEEDS = {name for name in vars(windows_deed) if not name.startswith("_")}
OWN = [row for row in WINDOWS if row.deed and row.deed in WINDOWS_DEEDS and row.way != "gate"]
"""Rows whose deed no other system has, without those of the gate, each of which starts a relay first."""
TWIN = next(row for row in WINDOWS if row.name == "bridge_pipe")._replace(
    name="twin of the gate", deed="breakaway", canary="claim"
)
"""Holds if a connection comes through the relay and the bridge and is answered: jobs are refused by Wine, too."""
TRIED = [*OWN, TWIN, *(row for row in WINDOWS if row.name in ("cmd", "write", "tcp"))]
EVERY = [row for row in WINDOWS if row.deed and row.way != "vault"]
NOT_HERE = frozenset(("junction", "symlink", "share", "privileges", "memory", "processes"))
"""Rows that Wine cannot do, or does not keep: the control does not work, or the plan is refused."""
PATIENCE = 60.0
"""Seconds for a row: the first call of a service starts it, which takes long on a busy machine."""
ENFORCED = frozenset(("handles", "breakaway", "nested", TWIN.name))
"""Rows that Wine keeps as Windows does: lists of handles, and jobs."""


def tried(rows: Sequence[TrialRow], directory: str) -> Certificate:
    variables = dict(os.environ)
    machine = WindowsMachine(os.cpu_count() or 1, python=sys.executable, relay=relay_text())
    client = WindowsClient(NATIVE, variables=variables, machine=machine, shape=without_container)
    volume = Volume(lambda _directory: (None, "no apply runs here"), move, exchange)
    trial = windows_trial(client, LIBRARY, variables, volume=volume)
    trial = trial._replace(patience=PATIENCE, alone=lambda words: alone(words, PATIENCE))
    try:
        return certify(rows, trial, directory, Certificate("win32", "Windows", "AMD64", 0), clock=lambda: 0.0)
    finally:
        client.close()


def wanted(row: TrialRow) -> str:
    if row.name in NOT_HERE:
        return "not shown"
    return "held" if row.canary == "works" or row.name in ENFORCED else "fell"


@pytest.mark.skipif(not WINE, reason="Windows confines")
def test_where_nothing_confines_each_row_falls_and_nothing_opens(tmp_path: Path) -> None:
    looks_closed(tried(TRIED, str(tmp_path)), TRIED)


@pytest.mark.deep
@pytest.mark.skipif(not WINE, reason="Windows confines")
def test_where_nothing_confines_every_row_falls(tmp_path: Path) -> None:
    looks_closed(tried(EVERY, str(tmp_path)), EVERY)


def looks_closed(made: Certificate, rows: Sequence[TrialRow]) -> None:
    found = {row.name: (row.verdict, row.found) for row in made.rows}
    assert {name: verdict for name, (verdict, _why) in found.items()} == {row.name: wanted(row) for row in rows}, found
    assert not opens(WINDOWS, made) and "platform" in closed(WINDOWS, made)
