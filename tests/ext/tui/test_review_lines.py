"""Messages of the review's verb, each brought about by what a user would type."""

from __future__ import annotations

from conftest import Place
from mudroom.cli.main import run
from test_messages_by_doing import Told, all_told, environ_of
from test_vault_verb import Cli

__all__ = ["all_told"]  # a fixture

LINES = {
    "review f": "there is no terminal to review in (mudroom diff shows it, mudroom apply -p asks,",
}


def test_wrong_lines(all_told: Told) -> None:
    all_told(LINES)


def test_a_try_is_no_fork(all_told: Told, place: Place) -> None:
    assert run(["try", "-n", "1", "--", "true"], environ_of(place)) == 0
    all_told({"review t1 --json": "t1 is a try, not a fork (mudroom try show t1 --json)"})


def test_an_empty_directory_counts(place: Place) -> None:
    place.write("src/a", "1\n")
    (place.project / "src/lib").mkdir()
    cli = Cli(place)
    assert cli("exec", "--fork", "x", "--", "rm", "-rf", "src").returncode == 0
    assert sorted(one["path"] for one in cli.json("review", "x")["changes"]["files"]) == ["src/a", "src/lib"]
