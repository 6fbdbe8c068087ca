"""Undo and redo at the command line: the changes are in their fork again, and a part of them is chosen."""

from __future__ import annotations

import json
import os

import pytest

from conftest import Place, tick
from screen import Screen
from test_vault_verb import MUDROOM, Cli

TEXT = "".join(f"line {number}\n" for number in range(1, 21))
FIVE = "for name in a b c d e; do echo new > $name; done"


@pytest.fixture
def cli(place: Place) -> Cli:
    place.write("f", TEXT)
    place.write("a", "old\n")
    return Cli(place)


def said(cli: Cli, *words: str, code: int = 0) -> str:
    done = cli(*words)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def there(cli: Cli) -> str:
    """The files that have the new text."""
    texts = {name: cli.place.project / name for name in "abcde"}
    return "".join(name for name, path in texts.items() if path.exists() and path.read_text() == "new\n")


def test_undo_names_the_fork_that_has_them_again(cli: Cli) -> None:
    said(cli, "exec", "--fork", "x", "--", "sh", "-c", FIVE)
    said(cli, "apply", "x", "--yes")
    assert "undone: u1, 1 brought back, 4 removed, 5 in x again\n" in said(cli, "undo")
    assert "+new" in said(cli, "diff", "x")
    assert "applied: 2 written" in said(cli, "apply", "x", "--yes", "a", "c")
    assert there(cli) == "ac"
    assert "redone: u1, 3 written, 0 removed, 3 out of x again\n" in said(cli, "redo")
    assert there(cli) == "abcde"
    assert "undone: u1, 0 brought back, 3 removed, 3 in x again\n" in said(cli, "undo", "u1")
    assert there(cli) == "ac"


def test_json_names_the_fork(cli: Cli) -> None:
    said(cli, "exec", "--fork", "x", "--", "sh", "-c", FIVE)
    said(cli, "apply", "x", "--yes")
    undone = json.loads(said(cli, "undo", "--json"))
    assert (undone["fork"], undone["again"]) == ("x", ["a", "b", "c", "d", "e"])


def test_redo_of_two_files_makes_the_fork_again(cli: Cli) -> None:
    done = cli("run", "--yes", "--", "sh", "-c", FIVE)
    assert done.returncode == 0
    said(cli, "undo")
    assert there(cli) == ""
    shown = said(cli, "redo", "u1", "a", "[c-d]")
    assert there(cli) == "acd"
    assert "applied: 3 written   mudroom undo takes it back (u2)" in shown and "the rest stays in run-" in shown
    fork = cli.json("ls")["forks"][0]["fork"]
    assert {one["path"] for one in cli.json("diff", fork)["changes"]["files"]} == {"b", "e"}
    said(cli, "redo")
    assert there(cli) == "abcde"


def test_redo_by_hunks(cli: Cli) -> None:
    said(cli, "run", "--yes", "--", "sh", "-c", "sed -i 's/^line 3$/three/; s/^line 15$/fifteen/' f; echo new > b")
    said(cli, "undo")
    screen = Screen(cli.place, *MUDROOM, "redo", "-p")
    for answer in ("n\r", "n\r", "y\r"):  # b, and the two of f
        screen.expect(r"\[y,n")
        screen.type(answer)
    screen.expect("applied: .{0,8}1 written")
    assert screen.exit_code() == 0
    assert (cli.place.project / "f").read_text() == TEXT.replace("line 15\n", "fifteen\n")
    assert there(cli) == ""


def test_redo_by_hunks_that_chooses_nothing_leaves_no_fork(cli: Cli) -> None:
    said(cli, "run", "--yes", "--", "sh", "-c", FIVE)
    said(cli, "undo")
    screen = Screen(cli.place, *MUDROOM, "redo", "-p")
    screen.expect(r"\[y,n")
    screen.type("q\r")
    screen.expect("nothing was chosen")
    assert screen.exit_code() == 0
    assert cli.json("ls")["forks"] == []
    assert "there is no terminal to ask on" in said(cli, "redo", "-p", code=125)
    assert "nothing in the fork matches *.rs" in said(cli, "redo", "u1", "*.rs", code=125)
    assert cli.json("ls")["forks"] == []
    assert "redone: u1" in said(cli, "redo")
    assert "u1 cannot be redone (it has not been undone)" in said(cli, "redo", "u1", "a", code=125)


def test_an_empty_fork_and_a_fork_that_is_gone_say_where_the_changes_are(cli: Cli) -> None:
    said(cli, "exec", "--fork", "x", "--", "sh", "-c", FIVE)
    said(cli, "apply", "x", "--yes")
    said(cli, "undo")
    said(cli, "discard", "x")
    words = "its changes were applied as u1 and undone: mudroom redo u1"
    assert words in said(cli, "diff", "x", code=125)
    said(cli, "exec", "--fork", "x", "--", "true")
    assert words in said(cli, "apply", "x", "--yes", code=125)
    assert words in said(cli, "diff", "x")


def test_a_refused_undo_has_a_way_on(cli: Cli) -> None:
    said(cli, "exec", "--fork", "x", "--", "sh", "-c", "sed -i 's/^line 3$/three/' f; echo new > b")
    said(cli, "apply", "x", "--yes")
    tick()
    cli.place.write("f", TEXT.replace("line 3\n", "mine\n"))
    shown = said(cli, "undo", code=3)
    assert "stays  f: changed in the project since it was applied" in shown and "while it was" not in shown
    assert "mudroom undo u1 --decide decides them" in shown
    assert "undone: u1, 0 brought back, 1 removed, 1 in x again" in shown, "f was not taken back"
    shown = said(cli, "undo", "u1", "--decide", code=3)
    assert "conflict  f: also changed in the project, in the same lines" in shown
    assert "mudroom resolve undo-u1 PATH --mine keeps the project's" in shown
    assert "--theirs takes the one from before u1" in shown
    said(cli, "resolve", "undo-u1", "f", "--theirs")
    assert "all is decided: mudroom apply undo-u1" in said(cli, "undo", "--decide")
    said(cli, "apply", "undo-u1", "--yes")
    assert (cli.place.project / "f").read_text() == TEXT
    assert "undo-u1" not in said(cli, "ls")
    said(cli, "undo")
    assert (cli.place.project / "f").read_text() == TEXT.replace("line 3\n", "mine\n")


def test_decide_undoes_first(cli: Cli) -> None:
    said(cli, "exec", "--fork", "x", "--", "sh", "-c", "echo new > b; printf 'a\\0b' > bin; rm a")
    said(cli, "apply", "x", "--yes")
    tick()
    cli.place.write("b", "new and mine\n")
    cli.place.write("a", "mine\n")
    report = cli("undo", "--decide", "--json")
    assert report.returncode == 3, report.stderr
    conflicts = json.loads(report.stdout)
    assert conflicts["fork"] == "undo-u1"
    assert {(one["path"], one["reason"]) for one in conflicts["conflicts"]} == {
        ("a", "also created in the project, but different"),
        ("b", "changed in the project since the command ran"),
    }
    assert not (cli.place.project / "bin").exists()
    said(cli, "resolve", "undo-u1", "b", "--theirs")
    said(cli, "resolve", "undo-u1", "a", "--mine")
    said(cli, "apply", "undo-u1", "--yes")
    assert not os.path.exists(cli.place.project / "b") and (cli.place.project / "a").read_text() == "mine\n"


def test_a_whole_undo_leaves_nothing_to_decide(cli: Cli) -> None:
    said(cli, "exec", "--fork", "x", "--", "sh", "-c", FIVE)
    said(cli, "apply", "x", "--yes")
    assert "undone: u1" in said(cli, "undo", "--decide")
    assert "u1 cannot be undone" in said(cli, "undo", "u1", "--decide", code=125)


def test_a_refused_redo_says_since(cli: Cli) -> None:
    said(cli, "exec", "--fork", "x", "--", "sh", "-c", "sed -i 's/^line 3$/three/' f; echo new > b")
    said(cli, "apply", "x", "--yes")
    said(cli, "undo")
    tick()
    cli.place.write("f", TEXT.replace("line 3\n", "mine\n"))
    cli.place.write("b", "mine\n")
    shown = said(cli, "redo", code=3)
    assert "stays  f: changed in the project since it was undone" in shown
    assert "stays  b: created in the project since then" in shown
    assert "f" in {one["path"] for one in cli.json("diff", "x")["changes"]["files"]}
