"""An apply that landed nothing: what the review says of it and of its undo."""

from __future__ import annotations

from mudroom.ext.tui import summary
from mudroom.ext.tui.choice import Choice
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
