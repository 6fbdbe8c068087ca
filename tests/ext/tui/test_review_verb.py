"""``mudroom review`` where it cannot be drawn, and what it prints for programs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import Place, environment

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
