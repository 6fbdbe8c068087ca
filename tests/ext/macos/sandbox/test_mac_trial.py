"""``mudroom doctor`` on a Mac where Seatbelt confines nothing, is refused, or works."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from macbox import fake_sandbox_exec

from mudroom.core.confinement.protection import Finding
from mudroom.ext.macos import trial
from mudroom.ext.macos.client import DarwinClient
from mudroom.ext.macos.platform import examine
from mudroom.ext.macos.trial import _try_connecting, _try_reading, _try_signalling, _try_writing


def examined(tmp_path: Path, tool: bytes) -> dict[str, Finding]:
    place = tmp_path / "d"
    place.mkdir()
    environ = {b"PATH": os.environb[b"PATH"]}
    client = DarwinClient(tool=tool)
    found = examine(bytes(place), home=bytes(tmp_path / "home"), environ=environ, client=client)
    return {one.protection: one for one in found}


PROBED = (
    "nothing is written outside of the copy",
    "nothing is read but what is shown",
    "no network",
    "no servers of the host",
    "other processes cannot be signalled",
)


def test_a_sandbox_that_confines_nothing_is_found_out(tmp_path: Path) -> None:
    found = examined(tmp_path, fake_sandbox_exec(tmp_path))
    assert found["a sandbox"].state == "strict"  # it starts programs
    assert {name: found[name].state for name in PROBED} == dict.fromkeys(PROBED, "missing")


@pytest.mark.parametrize("nested", [True, False])
def test_no_sandbox_at_all(tmp_path: Path, nested: bool) -> None:
    tool = fake_sandbox_exec(tmp_path, nested=True) if nested else bytes(tmp_path / "nothing")
    found = examined(tmp_path, tool)
    assert found["a sandbox"].state == "missing" and "another" in found["a sandbox"].fix
    assert ("sandbox_apply: Operation not permitted" in found["a sandbox"].found) is nested
    assert not set(PROBED) & set(found)


def test_a_sandbox_that_does_its_work(tmp_path: Path) -> None:
    place = bytes(tmp_path)
    (tmp_path / "work").mkdir()

    def refuses(script: str) -> int:
        """Run acts on the copy and on itself; refuse the rest."""
        work = tmp_path / "work"
        if "work/inside" in script:
            (work / "inside").touch()
        elif "work/copy" in script:
            (work / "copy").write_bytes((work / "own").read_bytes() if "work/own" in script else b"")
        elif script.endswith(" -ISc pass"):
            return 0
        return 3 << 8

    found = [
        _try_writing(refuses, place),
        _try_reading(refuses, place),
        *_try_connecting(refuses, place),
        _try_signalling(refuses),
    ]
    assert [(one.protection, one.state) for one in found] == [(name, "strict") for name in PROBED]


@pytest.mark.parametrize("status", [0, 256, 71 << 8, 126 << 8, 9])
def test_a_probe_that_did_not_run_proves_nothing(tmp_path: Path, status: int) -> None:
    place = bytes(tmp_path)
    (tmp_path / "work").mkdir()

    def run(script: str) -> int:
        if "> " in script:
            (tmp_path / "work" / "copy").touch()  # as a shell does if its program is then not found
        return status

    found = [_try_writing(run, place), _try_reading(run, place), *_try_connecting(run, place), _try_signalling(run)]
    assert [one.state for one in found] == ["not probed"] * 5


def test_what_is_so_on_every_mac_is_said() -> None:
    always: tuple[Finding, ...] = trial._ALWAYS
    assert {one.state for one in always} == {"strict", "degraded", "missing"}
    assert all(one.fix for one in always if one.state == "degraded")
