"""Files that git ignores are one row at the end of each summary; JSON names them all."""

from __future__ import annotations

import pytest

from conftest import Place
from test_vault_verb import Cli

ROW = "ignored by git: 12 files, 24 B (build/, src/__pycache__/m.pyc)"


@pytest.fixture
def cli(place: Place) -> Cli:
    place.write(".gitignore", "build/\n__pycache__/\n")
    place.write("src/m.py", "1\n")
    return Cli(place)


SCRIPT = """mkdir -p build/d src/__pycache__; echo 1 > z; echo 2 > src/__pycache__/m.pyc
for i in 1 2 3 4 5 6 7 8 9 10 11; do echo 1 > build/d/$i; done"""


def test_ignored_files_are_one_row_in_every_summary(cli: Cli) -> None:
    kept = cli("run", "--keep", "--", "sh", "-c", SCRIPT.replace("11;", "b;"))
    assert "would change 13 files\n  z  new, +1\n  " + ROW + "\n" in kept.stderr
    (name,) = (row["fork"] for row in cli.json("ls")["forks"])
    assert cli("diff", "--stat").stdout.splitlines() == [" z | +1 -0  added", " " + ROW, " 13 files changed, +2 -0"]
    assert len(cli.json("diff")["changes"]["files"]) == 13
    assert cli("exec", "--fork", name, "--", "rm", "z").returncode == 0
    stat = cli("diff", "--stat").stdout
    assert stat.splitlines() == [" " + ROW, " 12 files changed, +1 -0"]


def test_a_file_that_the_fork_alone_ignores_is_a_row_of_its_own(cli: Cli) -> None:
    done = cli("run", "--no", "--", "sh", "-c", "echo 'z' > .gitignore; echo 1 > z; mkdir build; echo 1 > build/a")
    assert "  .gitignore  +1 -2\n  z           new, +1\n  ignored by git: 1 file, 2 B (build/a)\n" in done.stderr
