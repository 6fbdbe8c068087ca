"""An apply that landed nothing: what the review says of it and of its undo."""

from __future__ import annotations

from conftest import tick
from mudroom.ext.tui import summary
from mudroom.ext.tui.choice import Choice
from mudroom.ext.tui.review_model import ReviewModel
from test_undo_of_dropped import cli, decided_for_ours
from test_vault_verb import Cli

__all__ = ["cli"]  # a fixture


def test_full_screen_and_in_the_list(cli: Cli) -> None:
    decided_for_ours(cli)
    session = cli.place.session()
    with session.alone("a test"):
        landed = session.changes.apply("try-1")
        assert summary.landed(landed, Choice((), {}, ()))[0] == [("the project stays as it is", "good")]
        (one,) = session.changes.applied()
        assert (one.written, one.kept) == (0, 1)
        rows = summary.undone(session.changes.undo())
    assert rows[0] == [("the project stays as it is, 1 file is in try-1 again", "good")]


def test_what_an_undo_left_and_why_a_fork_is_empty(cli: Cli) -> None:
    place = cli.place
    place.write("f", "one\n")
    for fork, script in (("x", "echo two > f"), ("y", "echo new > g")):
        assert cli("exec", "--fork", fork, "--", "sh", "-c", script).returncode == 0
        assert cli("apply", fork, "--yes").returncode == 0
    session = place.session()
    with session.alone("a test"):
        session.changes.undo("u2")
        assert ReviewModel(session, "x").why_empty() == "the fork holds no changes"
    tick()
    place.write("f", "mine\n")
    with session.alone("a test"):
        rows = summary.undone(session.changes.undo("u1"))
    assert [("mudroom undo u1 --decide decides them", "dim")] in rows
    assert ReviewModel(session, "x").why_empty() == "its changes were applied as u1 and undone: mudroom redo u1"
