"""``mudroom ls --matrix``: forks with the project and with each other, from their layers alone."""

from __future__ import annotations

from collections.abc import Sequence

from conftest import Place, tick
from mudroom.ext.attempts.cli.matrix import table
from mudroom.ext.attempts.session.matrix import LATE, MatrixCell, matrix
from mudroom.session import Session
from test_vault_verb import Cli

NONE = {"verified": None, "verified_at": None}
TEXT = "".join(f"line {number}\n" for number in range(1, 21))


def made(place: Place, scripts: dict[str, str]) -> Session:
    place.write("f", TEXT)
    session = place.session()
    for name, script in scripts.items():
        session.run([b"sh", b"-c", script.encode()], fork=name)
    return session


SCRIPTS = {
    "a": "sed -i 's/^line 3$/a/' f",
    "b": "sed -i 's/^line 3$/b/' f; rm -f g",
    "c": "sed -i 's/^line 18$/c/' f",
    "d": "echo d > d",
}


def found(cells: Sequence[MatrixCell]) -> dict[tuple[str, str], tuple[bytes, ...]]:
    assert not [cell for cell in cells if cell.problem]
    return {(cell.one, cell.other): cell.conflicts for cell in cells if cell.conflicts}


def test_each_pair_is_compared_and_nothing_changes(place: Place) -> None:
    session = made(place, SCRIPTS)
    before = [session.changes.of(name) for name in SCRIPTS]
    cells = matrix(session, list(SCRIPTS))
    assert len(cells) == 4 + 6
    assert found(cells) == {("a", "b"): (b"f",)}
    tick()
    place.write("f", TEXT.replace("line 18\n", "the user\n"))
    assert found(matrix(session, list(SCRIPTS))) == {("a", "b"): (b"f",), ("c", ""): (b"f",)}
    assert [session.changes.of(name) for name in SCRIPTS] == before
    assert {fork.name for fork in session.vault.forks()} == set(SCRIPTS)


def test_a_directory_here_is_a_file_there(place: Place) -> None:
    session = made(place, {"a": "echo > n", "b": "mkdir n; echo > n/m", "c": "mkdir n; echo > n/o"})
    assert found(matrix(session, ["a", "b", "c"])).keys() == {("a", "b"), ("a", "c")}


def test_without_time_no_pair_is_said_to_be_clean(place: Place) -> None:
    session = made(place, {"a": "echo 1 > n", "b": "echo 2 > n"})
    cells = matrix(session, ["a", "b"], budget=-1)
    assert [cell.problem for cell in cells] == [LATE] * 3


def test_the_table_has_each_pair_once() -> None:
    cells = [MatrixCell("one", ""), MatrixCell("two", "", (b"f", b"g")), MatrixCell("one", "two", problem=LATE)]
    assert list(table(["one", "two"], cells)) == [
        "     project      one",
        "one  clean",
        "two  2 conflicts  ?",
        "two and the project: f, g",
        f"one and two: {LATE}",
    ]


def test_the_verb(place: Place) -> None:
    cli = Cli(place)
    assert cli("ls", "--matrix").stderr == "no forks\n"
    place.write("f", TEXT)
    for name in "ab":
        assert cli("exec", "--fork", name, "--", "sh", "-c", SCRIPTS[name]).returncode == 0
    done = cli("ls", "--matrix")
    assert (done.returncode, done.stdout) == (
        3,
        "   project  a\na  clean\nb  clean    1 conflict\na and b: f\n",
    )
    shown = cli.json("ls", "--matrix", code=3)
    assert shown["pairs"][-1] == {"fork": "a", "other": "b", "conflicts": ["f"], "problem": None} | NONE
