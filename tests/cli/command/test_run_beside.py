"""Own commands side by side: a question holds nothing, and a landing has the vault alone for its own time."""

from __future__ import annotations

import pytest

from conftest import Place
from screen import Screen
from test_vault_verb import MUDROOM, Cli

READ = "read word; echo $word > "


@pytest.fixture
def cli(place: Place) -> Cli:
    place.write("f", "old\n")
    return Cli(place)


def said(cli: Cli, *words: str, code: int = 0) -> str:
    done = cli(*words)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_a_question_holds_nothing(cli: Cli) -> None:
    screen = Screen(cli.place, *MUDROOM, "run", "--", "sh", "-c", "echo asked > a; echo asked > f")
    screen.expect(r"\[k\]eep for later: ")
    shown = said(cli, "run", "--yes", "--", "sh", "-c", "echo other > b")
    assert "applied: 1 written" in shown and "waiting" not in shown and "stopping" not in shown
    assert "undone: u1" in said(cli, "undo")
    screen.type("a\r")
    screen.expect("applied: .{0,8}2 written")
    assert screen.exit_code() == 0
    assert (cli.place.project / "a").read_text() == "asked\n"
    assert (cli.place.project / "f").read_text() == "asked\n"


def test_two_runs_go_side_by_side(cli: Cli) -> None:
    screen = Screen(cli.place, *MUDROOM, "run", "--yes", "--", "sh", "-c", f"echo ready; {READ} a")
    screen.expect("ready")
    other = Screen(cli.place, *MUDROOM, "run", "--yes", "--", "sh", "-c", f"echo ready; {READ} b")
    other.expect("ready")
    other.type("two\r")
    other.expect("applied: ")
    assert other.exit_code() == 0
    assert (cli.place.project / "b").read_text() == "two\n"
    screen.type("one\r")
    screen.expect("applied: ")
    assert screen.exit_code() == 0
    assert (cli.place.project / "a").read_text() == "one\n"


def test_two_runs_that_change_one_file_are_merged_or_in_conflict(cli: Cli) -> None:
    screen = Screen(cli.place, *MUDROOM, "run", "--", "sh", "-c", "echo asked > f")
    screen.expect(r"\[k\]eep for later: ")
    said(cli, "run", "--yes", "--", "sh", "-c", "echo other > f")
    screen.type("a\r")
    screen.expect("also changed in the project")
    assert screen.exit_code() == 3
    assert (cli.place.project / "f").read_text() == "other\n"


def test_a_fork_that_was_applied_elsewhere_while_the_question_waited(cli: Cli) -> None:
    screen = Screen(cli.place, *MUDROOM, "run", "--", "sh", "-c", "echo asked > a")
    screen.expect(r"\[k\]eep for later: ")
    name = cli.json("ls")["forks"][0]["fork"]
    said(cli, "apply", name, "--yes")
    screen.type("a\r")
    screen.expect(f"there is no fork named {name}")
    assert screen.exit_code() == 125
    assert (cli.place.project / "a").read_text() == "asked\n"


def test_the_pause_is_a_setting(cli: Cli) -> None:
    for value in ("always", "never", "30s"):
        cli.place.write(".mudroom/policy.yaml", f"user_commands: {{pause: {value}}}\n")
        assert "user_commands.pause: " in said(cli, "policy", "show")
        said(cli, "run", "--no", "--", "true")
    cli.place.write(".mudroom/policy.yaml", "user_commands: {pause: sometimes}\n")
    assert "user_commands.pause is 'sometimes', which is not a time" in said(cli, "run", "--", "true", code=125)
