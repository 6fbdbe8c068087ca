"""Rows of certification about the vault, with the calls of Windows: renames, swaps, copies and FlushFileBuffers."""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

if sys.platform != "win32":
    pytest.skip("needs Windows, or dev/wine", allow_module_level=True)

from mudroom.ext.certify.killed_apply import run_apply, try_killed_apply
from mudroom.ext.certify.record import encode
from mudroom.ext.certify.row import Certificate, closed, opens
from mudroom.ext.certify.table import WINDOWS
from mudroom.ext.certify.trial import Trial, certify
from mudroom.ext.certify.volume import Volume, try_volume
from mudroom.ext.windows.stage import nt_private
from mudroom.stage import disk
from mudroom.vault.apply.rename import exchange, move

WANTED = {"copy_apart": "held", "no_replace": "held", "swap": "held", "flush": "held", "one_step": "not shown",
          "sharing": "held"}  # fmt: skip
"""NTFS swaps no two names in one step."""
if not hasattr(disk, "pread"):
    del WANTED["copy_apart"]  # os.pread is missing on Windows, and a copy without clones reads by it


def no_apply(_directory: str) -> tuple[bool | None, str]:
    return None, "no apply runs here"


VOLUME = Volume(no_apply, move, exchange)


@pytest.mark.parametrize("name", WANTED)
def test_a_row_of_the_vault(tmp_path: Path, name: str) -> None:
    verdict, why, _number = try_volume(name, VOLUME, str(tmp_path))
    assert verdict == WANTED[name], why


def test_a_rename_that_replaces_and_a_flush_that_does_nothing_fall(tmp_path: Path) -> None:
    volume = VOLUME._replace(move=lambda old, new: disk.rename(*old, *new), flush=lambda _descriptor: None)
    for name in ("no_replace", "flush"):
        (tmp_path / name).mkdir()
        assert try_volume(name, volume, str(tmp_path / name))[0] == "fell"


@pytest.mark.deep
@pytest.mark.limit(400)
def test_an_apply_that_is_killed_in_each_state_is_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    private = "from mudroom.ext.windows.stage import nt_private; nt_private.is_private = lambda _descriptor: True; "

    def run(words: Sequence[str]) -> int:  # Wine keeps no list of access
        return run_apply(
            [word.replace("from mudroom.ext.certify", private + "from mudroom.ext.certify") for word in words]
        )

    monkeypatch.setattr(nt_private, "is_private", lambda _descriptor: True)
    killed = functools.partial(try_killed_apply, run=run)
    verdict, why, _number = try_volume("kill_9", VOLUME._replace(killed_apply=killed), str(tmp_path))
    assert (verdict, why) == ("held", "whole after 5 kills, and undone")


def test_the_table_of_windows_is_tried_and_stays_closed(tmp_path: Path) -> None:
    def none(*_arguments: object) -> object:
        raise AssertionError("no row asks for a sandbox")

    facts = Certificate("win32", "Windows", "AMD64", 0)
    trial = Trial(none, none, VOLUME)  # type: ignore[arg-type]
    table = [row for row in WINDOWS if not row.deed or row.name in (*WANTED, "kill_9")]
    made = certify(table, trial, str(tmp_path), facts)
    assert not opens(WINDOWS, made) and "platform" in closed(WINDOWS, made)
    assert {row["name"] for row in encode(made)["rows"] if row["verdict"] == "held"} >= {
        name for name, verdict in WANTED.items() if verdict == "held"
    }
