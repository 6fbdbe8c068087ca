"""Paths of the home and of other projects on the command line: named alike by diff, apply, resolve and undo."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from box import if_namespaces
from conftest import Place, environment, tick
from forked import run

pytestmark = if_namespaces


@pytest.fixture
def lib(place: Place) -> Path:
    """Beside a project that lies in the home."""
    place.project.rmdir()
    place.project = place.home / "code/project"
    place.project.mkdir(parents=True)
    path = place.root / "lib"
    path.mkdir()
    (path / "code").write_text("one\n")
    (place.home / ".rc").write_text("a\n")
    place.write("here", "h\n")
    return path


SCRIPT = "echo mine > here; echo b > ~/.rc; echo c > ~/.made; echo two > ../../../lib/code"


def mudroom(place: Place, *words: str, code: int = 0) -> str:
    env = environment(place) | {"EDITOR": "false"}
    ran = run([*words], cwd=place.project, env=env)
    assert ran.returncode == code, (ran.stdout, ran.stderr)
    return ran.stdout + ran.stderr


def staged(place: Place, lib: Path) -> None:
    mudroom(place, "run", "--home", "--root", str(lib), "--keep", "--", "sh", "-ec", SCRIPT)


def test_a_diff_of_paths_shows_these_alone(place: Place, lib: Path) -> None:
    staged(place, lib)
    names = ("+mine", "+b", "+c", "+two")
    for word, shown in (("here", "+mine"), ("~/.rc", "+b"), (str(place.home / ".made"), "+c"), (str(lib), "+two")):
        out = mudroom(place, "diff", "--fork", fork(place), word)
        assert [name for name in names if name in out] == [shown], out
    out = mudroom(place, "diff", "--fork", fork(place), "--stat", "~/.rc", "here", "~/.none")
    assert (".rc" in out, "here" in out, ".made" in out) == (True, True, False)
    assert f"no change at {place.home}/.none" in out


def fork(place: Place) -> str:
    name: str = json.loads(mudroom(place, "ls", "--json"))["forks"][0]["fork"]
    return name


def test_an_apply_of_paths_brings_these_alone(place: Place, lib: Path) -> None:
    staged(place, lib)
    mudroom(place, "apply", "--yes", fork(place), "here", "~/.rc")
    assert [(place.project / "here").read_text(), (place.home / ".rc").read_text()] == ["mine\n", "b\n"]
    assert not (place.home / ".made").exists()
    mudroom(place, "apply", "--yes", fork(place), "~/.m*")
    assert (place.home / ".made").exists()
    assert (lib / "code").read_text() == "one\n"


def test_a_conflict_of_the_home_is_listed_and_decided(place: Place, lib: Path) -> None:
    staged(place, lib)
    tick()
    (place.home / ".rc").write_text("x\n")
    (lib / "code").write_text("y\n")
    name = fork(place)
    out = mudroom(place, "resolve", name, code=3)
    assert f"{place.home}/.rc: " in out
    assert f"{lib}/code: " in out
    assert f"conflict {place.home}/.rc" in mudroom(place, "diff", name, "--conflicts", "~/.rc", code=3)
    rows = json.loads(mudroom(place, "resolve", "--json", name, code=3))["conflicts"]
    assert [(row["root"], row["path"]) for row in rows] == [(str(place.home), ".rc"), (str(lib), "code")]
    mudroom(place, "resolve", name, "~/.rc", "--theirs", code=0)
    out = mudroom(place, "resolve", name, "~/.nothing", "--theirs", code=125)
    assert "the fork has no change at .nothing" in out
    mudroom(place, "resolve", name, str(lib), "--both")
    mudroom(place, "apply", "--yes", name)
    assert [(place.home / ".rc").read_text(), (lib / "code").read_text()] == ["b\n", "y\ntwo\n"]


def test_what_an_undo_leaves_in_the_home_is_decided(place: Place, lib: Path) -> None:
    staged(place, lib)
    mudroom(place, "apply", "--yes", fork(place))
    tick()
    (place.home / ".rc").write_text("mine\n")
    out = mudroom(place, "undo", code=3)
    assert "mudroom undo u1 --decide decides them" in out
    assert (lib / "code").read_text() == "one\n"
    out = mudroom(place, "undo", "u1", "--decide", code=3)
    assert f"{place.home}/.rc: " in out
    mudroom(place, "resolve", "undo-u1", "~/.rc", "--theirs")
    mudroom(place, "apply", "--yes", "undo-u1")
    assert (place.home / ".rc").read_text() == "a\n"
    assert os.listdir(place.home / "code/project") == ["here"]


def test_two_states_are_compared_in_all_parts(place: Place, lib: Path) -> None:
    staged(place, lib)
    name = fork(place)
    mudroom(place, "checkpoint", "--fork", name, "cp")
    assert mudroom(place, "diff", f"{name}@cp", name) == ""
    mudroom(place, "exec", "--fork", name, "--", "sh", "-c", "echo d > ~/.rc; echo three > ../../../lib/code")
    out = mudroom(place, "diff", f"{name}@cp", name)
    assert [line for line in out.splitlines() if line[:1] in "#-+" and line[:3] not in ("---", "+++")] == [
        "# in your home:",
        "-b",
        "+d",
        f"# in {lib}:",
        "-two",
        "+three",
    ]
    stat = mudroom(place, "diff", f"{name}@cp", name, "--stat", "~/.rc")
    assert (" in your home:" in stat, ".rc" in stat, str(lib) in stat) == (True, True, False)
    found = json.loads(mudroom(place, "diff", f"{name}@cp", name, "--json"))
    assert (
        found["changes"]["files"],
        [[row["path"] for row in each["changes"]["files"]] for each in found["roots"]],
    ) == (
        [],
        [[".rc"], ["code"]],
    )


def test_a_fork_without_a_part_has_no_changes_there(place: Place, lib: Path) -> None:
    staged(place, lib)
    name = fork(place)
    mudroom(place, "fork", "new", "other")
    out = mudroom(place, "diff", "other", name)
    assert ("+mine" in out, "+two" in out, "+c" in out) == (True, True, True)
    out = mudroom(place, "diff", name, "other", "~/.made")
    assert ("-mine" in out, "-c" in out) == (False, True)


def test_a_home_that_holds_mudrooms_own_state(place: Place, lib: Path) -> None:
    """As it is by default: the layers of the home's part lie in the home, and overlayfs takes none of them as a lower
    directory beside it. Each agent's command that changes something is preceded by a checkpoint."""
    env = environment(place) | {"MUDROOM_STATE": str(place.home / ".local/state/mudroom")}

    def told(*words: str) -> str:
        ran = run([*words], cwd=place.project, env=env)
        assert ran.returncode == 0, (words, ran.stdout, ran.stderr)
        return ran.stdout

    told("exec", "--home", "--fork", "f", "--", "sh", "-ec", "mkdir ~/.t; echo 1 > ~/.t/v; echo b > ~/.rc")
    for script in ("echo 2 > ~/.t/v; rm ~/.rc", "echo c > ~/.rc; rm -r ~/.t", "mkdir ~/.t; echo 3 > ~/.t/w"):
        told("exec", "--fork", "f", "--", "sh", "-ec", script)
    assert told("exec", "--fork", "f", "--", "sh", "-c", "cat ~/.rc; ls ~/.t") == "c\nw\n"
    points = [row["checkpoint"] for row in json.loads(told("checkpoint", "--fork", "f", "--json"))["checkpoints"]]
    told("fork", "new", "g", "--from", "f")
    told("rollback", "--fork", "f", points[2])
    assert told("exec", "--fork", "f", "--", "sh", "-c", "cat ~/.t/v; ls ~/.rc 2>/dev/null || echo none") == "2\nnone\n"
    assert told("exec", "--fork", "g", "--", "sh", "-c", "cat ~/.rc; ls ~/.t") == "c\nw\n"
    told("apply", "--yes", "g")
    assert ((place.home / ".rc").read_text(), os.listdir(place.home / ".t")) == ("c\n", ["w"])
    told("undo")
    assert ((place.home / ".rc").read_text(), (place.home / ".t").exists()) == ("a\n", False)
