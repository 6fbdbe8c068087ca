"""The verbs from their words to the project, in a Windows Python: each on a small project, with real commands in jobs.
Run by ``dev/wine``.

A record in which every row held opens the platform here, as a Windows would that had certified itself; commands run
in a shape without what Wine lacks (``test_client_on_windows.py``). Nothing else is different from a user's session.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

if sys.platform != "win32":
    pytest.skip("needs Windows, or dev/wine", allow_module_level=True)

from mudroom.errors import MudroomError, UsageError
from mudroom.ext.certify.identity import identity, tool_of
from mudroom.ext.certify.record import save
from mudroom.ext.certify.row import Certificate, RowResult
from mudroom.ext.certify.table import TABLES
from mudroom.ext.windows.cli.windows import start
from mudroom.ext.windows.sandbox.bridge import relay_text
from mudroom.ext.windows.sandbox.client import WindowsClient
from mudroom.ext.windows.sandbox.plan import WindowsMachine
from mudroom.ext.windows.stage import nt_private
from mudroom.policy.config import environment, places
from mudroom.stage import private_file
from mudroom.stage.private_directory import require_private
from test_client_on_windows import without_container
from test_on_windows import NATIVE, WINE


class Said(NamedTuple):
    code: int
    out: str
    err: str


def client_here(variables: Mapping[str, str]) -> WindowsClient:
    """Return a client without what Wine lacks."""
    machine = WindowsMachine(os.cpu_count() or 1, python=sys.executable, relay=relay_text())
    return WindowsClient(NATIVE, variables=variables, machine=machine, shape=without_container)


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
        client = client_here(os.environ)
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
        monkeypatch.setattr(nt_private, "is_own", lambda _descriptor: True)
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
    assert place.say("checkpoint", "--fork", "work", "three").code == 0
    assert place.say(*run, "echo four>> a.txt& del sub\\b.bin").code == 0
    shown = place.say("diff", "work").out
    assert "+three" in shown and "+four" in shown and "b.bin" in shown
    assert "work" in place.say("status").out
    assert place.say("rollback", "--fork", "work", "--yes", "three").code == 0
    assert "four" not in place.say("diff", "work").out
    assert place.say("apply", "--yes", "work").code == 0
    assert place.files() == {**before, "a.txt": b"one\r\ntwo\r\nthree\r\n"}
    assert place.say("undo", "--yes").code == 0
    assert place.files() == before
    events = [json.loads(line)["kind"] for line in place.say("log", "--json").out.splitlines()]
    assert {"run", "checkpoint", "rollback", "apply", "undo"} <= set(events)


def test_a_conflict_keeps_both_sides(place: Place) -> None:
    run = ("exec", "--fork", "work", "--net", "none", "--", "cmd", "/d", "/c")
    assert place.say(*run, "echo theirs> a.txt& echo new> new.txt").code == 0
    (place.project / "a.txt").write_bytes(b"mine\r\n")
    said = place.say("apply", "--yes", "work")
    assert said.code == 3
    assert place.files()["a.txt"] == b"mine\r\n"
    assert place.files()["new.txt"] == b"new\r\n"
    assert "-theirs" in place.say("diff", "work").out or "+theirs" in place.say("diff", "work").out


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("run",), 125, "no command was given"),
        (("run", "--net", "none", "--", "no-such-program"), 127, "no-such-program"),
        (("run", "--net", "none", "--level", "2", "--", "cmd", "/c", "exit"), 125, "level 2"),
        (("run", "--net", "none", "--open-files", "5", "--", "cmd", "/c", "exit"), 125, "open files"),
        (("exec", "--fork", "no/name", "--", "cmd"), 125, "no/name"),
        (("exec", "--background", "--fork", "w", "--net", "none", "--", "cmd"), 125, "background"),
        (("diff", "nothing"), 125, "nothing"),
        (("status", "--project", "C:sub"), 125, "relative to the current directory of drive C"),
        (("status", "--project", "\\\\server\\share"), 125, "a server or device"),
        (("status", "--project", "\\sub"), 125, "without a drive"),
        (("status", "--project", "NUL"), 125, "names a device"),
        (("status", "--project", "sub."), 125, "a space or dot at the end"),
        (("log", "--nothing"), 125, "--nothing"),
        (("apply", "--yes", "nothing"), 125, "nothing"),
        (("undo", "--yes"), 125, "nothing"),
        (("checkpoint", "--fork", "nothing"), 125, "nothing"),
        (("rollback", "--fork", "nothing", "--yes", "x"), 125, "nothing"),
        (("keeper", "status"), 125, "does not run on Windows yet"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(place: Place, words: tuple[str, ...], code: int, says: str) -> None:
    before = place.files()
    said = place.say(*words)
    assert (said.code, said.out) == (code, ""), said
    assert said.err.count("\n") == 1 and says in said.err and "Traceback" not in said.err, said.err
    assert place.files() == before


@pytest.mark.parametrize("fell", [None, "junction", "kill_9"])
def test_without_a_record_of_what_held_nothing_runs(place: Place, fell: str | None) -> None:
    if fell is None:
        for record in (place.root / "home" / "mudroom" / "certificates").glob("*.json"):
            record.unlink()
    else:
        place.certify(fell=(fell,))
    for words in (("run", "--net", "none", "--yes", "--", "cmd", "/d", "/c", "echo x> made.txt"), ("ls",)):
        for level in (("--level", "0"), ()) if words[0] == "run" else ((),):
            said = place.say(words[0], *level, *words[1:])
            assert said.code == 125 and said.err.count("\n") == 1
            assert ("certificate" if fell is None else fell) in said.err
    assert "made.txt" not in place.files()


def test_a_part_that_fell_is_closed_alone(place: Place) -> None:
    place.certify(fell=("restricted",))
    said = place.say("run", "--level", "0", "--net", "open", "--yes", "--", "cmd", "/d", "/c", "echo x> made.txt")
    assert said.code == 125 and "restricted fell" in said.err
    assert place.say(*RUN, "--yes", "--", "cmd", "/d", "/c", "echo x> made.txt").code == 0
    assert place.files()["made.txt"] == b"x\r\n"


def test_a_file_that_an_editor_holds_open_stays_and_lands_later(place: Place) -> None:
    run = ("exec", "--fork", "work", "--net", "none", "--", "cmd", "/d", "/c")
    assert place.say(*run, "echo theirs> a.txt").code == 0
    with (place.project / "a.txt").open("rb"):  # as Python opens it, nobody may replace it
        said = place.say("apply", "--yes", "work")
        assert said.code == 3 and "held open by another program" in said.err, said
    assert place.files()["a.txt"] == b"one\r\ntwo\r\n"
    assert place.say("apply", "--yes", "work").code == 0
    assert place.files()["a.txt"] == b"theirs\r\n"


def test_a_long_path_is_staged_as_any_other(place: Place) -> None:
    deep = place.project.joinpath(*["d" * 60] * 5)
    os.makedirs("\\\\?\\" + str(deep))
    Path("\\\\?\\" + str(deep / "file")).write_bytes(b"deep")
    said = place.say(*RUN, "--json", "--keep", "--", "cmd", "/d", "/c", "echo x> made.txt")
    assert said.code == 0, said
    assert "made.txt" in said.out and "dddd" not in said.out, said.out
    assert Path("\\\\?\\" + str(deep / "file")).read_bytes() == b"deep"


def test_a_limit_is_held_by_the_job_or_refused(place: Place) -> None:
    said = place.say(*RUN, "--memory", "1G", "--keep", "--", "cmd", "/d", "/c", "echo x> made.txt")
    if WINE:  # which forgets a job's limits: the plan is read back, and the command not started
        assert said.code == 125 and said.err.count("\n") == 1 and "limits of the job" in said.err, said
    else:
        assert said.code == 0, said
    assert "killed while" not in place.say("status").err  # nothing is left to be collected
    assert "made.txt" not in place.files()


def test_a_state_directory_that_others_may_enter_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nt_private, "is_private", lambda _descriptor: False)  # also where a list was set
    state = tmp_path / "state"
    inner = os.fsencode(state).replace(b"\\", b"/")
    with pytest.raises(MudroomError, match="cannot be closed to other users"):
        require_private(inner)
    assert state.is_dir()
    (state / "novel.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"is open to other users, and holds novel\.txt"):
        require_private(inner)
    with pytest.raises(UsageError, match="is a link or no directory"):
        require_private(inner + b"/novel.txt")
    assert private_file.read(inner + b"/novel.txt", 10) is None
    monkeypatch.setattr(nt_private, "is_private", lambda _descriptor: True)
    assert private_file.read(inner + b"/novel.txt", 10) == b"mine"
