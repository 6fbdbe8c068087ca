"""``mudroom review`` where it cannot be drawn, and what it prints for programs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import Place, environment, tick
from mudroom.cli.main import run
from mudroom.ext.tui import summary
from mudroom.ext.tui.choice import Choice
from mudroom.ext.tui.cli.review import install_hint
from mudroom.ext.tui.review_model import ReviewModel
from test_messages_by_doing import Told, all_told, environ_of
from test_undo_of_dropped import cli, decided_for_ours
from test_vault_verb import Cli

__all__ = ["all_told", "cli"]  # fixtures

ROOT = Path(__file__).parents[3]


def mudroom(place: Place, *words: str, before: str = "") -> subprocess.CompletedProcess[str]:
    """``before``: what is done in the process first."""
    code = f"import sys; {before}\nfrom mudroom.cli import main\nsys.argv = ['mudroom', *{list(words)!r}]\nmain()"
    environ = environment(place, PYTHONPATH=os.pathsep.join(sys.path))
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=place.project,
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def staged(place: Place) -> None:
    place.write("text", "".join(f"line {number}\n" for number in range(40)))
    session = place.session()
    script = b"sed -i 's/line 3$/x/; s/line 30$/y/' text; echo '{}' > package.json; printf 'a\\0' > bin"
    session.run([b"sh", b"-c", script], fork="f")


def test_without_a_terminal(place: Place, staged: None) -> None:
    done = mudroom(place, "review", "f")
    assert done.returncode == 125 and done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert "no terminal to review in" in line and "mudroom diff" in line and "mudroom serve" in line


def test_without_the_extra(place: Place, staged: None) -> None:
    hide = "import os, importlib.util as u; f = u.find_spec; os.isatty = lambda _fd: True;"
    hide += "u.find_spec = lambda name, *more: None if name == 'textual' else f(name, *more)"
    done = mudroom(place, "review", "f", before=hide)
    assert done.returncode == 125
    assert done.stderr.strip() == "mudroom: mudroom review needs textual (pip install 'textual>=6')"


def test_json(place: Place, staged: None) -> None:
    done = mudroom(place, "review", "--json", before="sys.modules['textual'] = None")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["schema"] == "mudroom.review/1" and told["fork"] == "f" and len(told["reviewed"]) == 40
    rows = {row["path"]: (row["hunks"], row["tags"]) for row in told["changes"]["files"]}
    assert rows["text"][0] == 2 and rows["bin"] == (0, ["binary"])
    assert rows["package.json"] == (1, ["executes-later"])


def test_json_of_no_fork_and_of_several(place: Place) -> None:
    place.session().forks.new("a")
    assert mudroom(place, "review", "--json", "b").returncode == 125
    place.session().forks.new("b")
    done = mudroom(place, "review", "--json")
    assert done.returncode == 125 and "there are 2 forks" in done.stderr


def test_a_hint_is_in_the_words_of_the_tool_that_installed_mudroom() -> None:
    assert install_hint("tui", "/home/a/.local/share/pipx/venvs/mudroom") == "pipx inject mudroom 'textual>=6'"
    assert install_hint("tui", "/home/a/.local/share/uv/tools/mudroom").startswith("uv pip install --python /home/a")
    assert install_hint("tui", "/home/a/.venv") == "pip install 'textual>=6'"


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
