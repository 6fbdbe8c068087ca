"""The verbs from their words to the project, in a Windows Python: each on a small project, with real commands in jobs.
Run by ``dev/wine``.

A record in which every row held opens the platform here, as a Windows would that had certified itself; commands run
in a shape without what Wine lacks (``test_client_on_windows.py``). Nothing else is different from a user's session.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

if sys.platform != "win32":
    pytest.skip("needs Windows, or dev/wine", allow_module_level=True)

from mudroom.certify.identity import identity, tool_of
from mudroom.certify.record import save
from mudroom.certify.row import Certificate, RowResult
from mudroom.certify.table import TABLES
from mudroom.cli.windows import start
from mudroom.policy.config import environment, places
from mudroom.sandbox.windows.client import WindowsClient
from mudroom.sandbox.windows.plan import WindowsMachine
from mudroom.stage import nt_private
from test_client_on_windows import without_container
from test_on_windows import NATIVE, WINE


class Said(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def values(self) -> Any:
        return json.loads(self.out)


class Place:
    """A project with two files, the state of a user of its own, and the certificate of this machine."""

    def __init__(self, root: Path, capture: pytest.CaptureFixture[str]) -> None:
        self.project, self.root, self._capture = root / "project", root, capture
        self.project.mkdir()
        (self.project / "a.txt").write_bytes(b"one\r\ntwo\r\n")
        (self.project / "sub").mkdir()
        (self.project / "sub" / "b.bin").write_bytes(bytes(range(256)))

    def certify(self, fell: Sequence[str] = ()) -> None:
        """Write the record of a machine on which every row held, except ``fell``."""
        state = places(environment()).state
        os.makedirs(state, exist_ok=True)
        rows = tuple(RowResult(row.name, "fell" if row.name in fell else "held") for row in TABLES["win32"])
        here = identity("win32", state, tool_of("win32"))
        save(state, here, Certificate("win32", here.system, here.machine, 0, rows))

    def say(self, *words: str) -> Said:
        """Run ``mudroom`` with these words, in this process."""
        client = WindowsClient(
            NATIVE, variables=os.environ, machine=WindowsMachine(os.cpu_count() or 1), shape=without_container
        )
        self._capture.readouterr()
        try:
            code = start(words, client)
        finally:
            client.close()
        out, err = self._capture.readouterr()
        return Said(code, out, err)

    def files(self) -> dict[str, bytes]:
        found = (path for path in self.project.rglob("*") if path.is_file())
        return {path.relative_to(self.project).as_posix(): path.read_bytes() for path in found}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Iterator[Place]:
    home = tmp_path / "home"
    home.mkdir()
    for name in ("USERPROFILE", "LOCALAPPDATA", "APPDATA"):
        monkeypatch.setenv(name, str(home))
    monkeypatch.delenv("MUDROOM_STATE", raising=False)
    if WINE:  # which keeps a list as a mode, with an entry of Everyone
        monkeypatch.setattr(nt_private, "is_private", lambda _descriptor: True)
    made = Place(tmp_path, capfd)
    made.certify()
    monkeypatch.chdir(made.project)
    yield made


RUN = ("run", "--net", "none")


def test_run_shows_and_applies(place: Place) -> None:
    said = place.say(*RUN, "--yes", "--", "cmd", "/d", "/c", "echo three>> a.txt& echo new> made.txt& del sub\\b.bin")
    assert said.code == 0, said
    assert place.files() == {"a.txt": b"one\r\ntwo\r\nthree\r\n", "made.txt": b"new\r\n"}


def test_a_fork_from_its_command_to_the_project_and_back(place: Place) -> None:
    """exec, status, diff, checkpoint, rollback, apply, undo, log: each result to the byte."""
    before = place.files()
    run = ("exec", "--fork", "work", "--net", "none", "--level", "1", "--", "cmd", "/d", "/c")
    assert place.say(*run, "echo three>> a.txt").code == 0
    assert place.files() == before
    assert place.say("checkpoint", "work", "three").code == 0
    assert place.say(*run, "echo four>> a.txt& del sub\\b.bin").code == 0
    shown = place.say("diff", "work").out
    assert "+three" in shown and "+four" in shown and "b.bin" in shown
    assert "work" in place.say("status").out
    assert place.say("rollback", "work", "three").code == 0
    assert "four" not in place.say("diff", "work").out
    assert place.say("apply", "work").code == 0
    assert place.files() == {**before, "a.txt": b"one\r\ntwo\r\nthree\r\n"}
    assert place.say("undo").code == 0
    assert place.files() == before
    log = place.say("log").out
    assert all(word in log for word in ("checkpoint", "rollback", "apply", "undo"))
