"""An apply that landed nothing, for the project's was decided for: what it, its undo and its redo say of that."""

from __future__ import annotations

import json

import pytest

from conftest import Place, tick
from mudroom.core.merge.apply_summary import apply_words, undo_words
from test_vault_verb import Cli

TEXT = "".join(f"line {number}\n" for number in range(1, 21))


@pytest.fixture
def cli(place: Place) -> Cli:
    place.write("f", TEXT)
    return Cli(place)


def said(cli: Cli, *words: str) -> str:
    done = cli(*words)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def decided_for_ours(cli: Cli, also: str = "") -> None:
    said(cli, "exec", "--fork", "try-1", "--", "sh", "-c", "sed -i 's/^line 5$/theirs/' f" + also)
    tick()
    cli.place.write("f", TEXT.replace("line 5\n", "ours\n"))
    said(cli, "resolve", "try-1", "f", "--mine")


def test_on_a_terminal(cli: Cli) -> None:
    decided_for_ours(cli)
    assert "applied: the project stays as it is " in said(cli, "apply", "try-1", "--yes")
    assert "undone: u1, the project stays as it is, 1 file is in try-1 again\n" in said(cli, "undo")
    assert "redone: u1, the project stays as it is, 1 file is out of try-1 again\n" in said(cli, "redo")


def test_for_programs(cli: Cli) -> None:
    decided_for_ours(cli, "; echo x > new")
    said(cli, "apply", "try-1", "--yes")
    undone = json.loads(said(cli, "undo", "--json"))
    assert (undone["written"], undone["removed"], undone["again"], undone["fork"]) == (0, 1, ["f"], "try-1")
    redone = json.loads(said(cli, "redo", "--json"))
    assert (redone["written"], redone["again"], redone["fork"]) == (1, ["f"], "try-1")
    assert "again=1" in said(cli, "log")


def test_a_fork_that_has_gone_on_keeps_it(cli: Cli) -> None:
    decided_for_ours(cli)
    session = cli.place.session()
    with session.alone("a test"):
        session.changes.apply("try-1")
        assert session.changes.undo().again == (b"f",)
    said(cli, "exec", "--fork", "try-1", "--", "touch", "more")
    with session.alone("a test"):
        redone = session.changes.redo()
    assert (redone.again, redone.holder) == ((), "")
    assert [remark.path for remark in redone.remarks] == [b"f"]


def test_in_words() -> None:
    assert apply_words(0, 0, 0) == "0 written"
    assert apply_words(2, 1, 3) == "2 written, 1 removed"
    assert undo_words("undo", 1, 2, 0, "") == "1 brought back, 2 removed"
    assert undo_words("undo", 1, 0, 2, "try-1") == "1 brought back, 0 removed, 2 in try-1 again"
    assert undo_words("redo", 0, 0, 2, "x") == "the project stays as it is, 2 files are out of x again"
