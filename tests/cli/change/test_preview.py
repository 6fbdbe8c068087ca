"""What an apply says about what it left out."""

from __future__ import annotations

import pytest

from conftest import Place
from mudroom.cli.change.preview import _later_lines, left_out
from mudroom.core.tree.change import Change
from mudroom.core.tree.entry import Entry
from test_vault_verb import Cli
from tiers import each

UNIT, NAMED, STAYS = (
    "left out, --git brings its commits: ",
    "left out, to be named if wanted: ",
    "stays because of what is in it: ",
)


@each(
    ("withheld", "lines"),
    [
        (b"", []),
        (b".git/HEAD .git/index .git/logs .git/logs/HEAD", [UNIT + ".git"]),
        (b".git .git/HEAD sub/.git sub/.git/HEAD", [UNIT + ".git, sub/.git"]),
        (b".git/HEAD .git/config", [UNIT + ".git", NAMED + ".git/config"]),
        (b".git/config .git/hooks .git/hooks/a", [NAMED + ".git/config, .git/hooks/a"]),
        (b"lib/.git", [NAMED + "lib/.git"]),
        (b"store/config store/hooks store/hooks/a", [NAMED + "store/config, store/hooks/a"]),
        (b"sub sub/.git sub/.git/HEAD", [UNIT + "sub/.git", STAYS + "sub"]),
        (b".mudroom .mudroom/policy.yaml", [NAMED + ".mudroom/policy.yaml"]),
    ],
)
def test_what_was_left_out(withheld: bytes, lines: list[str]) -> None:
    assert left_out(withheld.split()) == lines


def test_what_stays_although_commits_were_asked_for() -> None:
    [line] = left_out([b".git/index"], asks_git=True)
    assert line == "left out, the index is yours and only commits come over (git add stages here): .git"


def test_one_file_that_runs_later_is_one_file() -> None:
    entry = Entry("file", 0o644, 1, b"", 0, 1, 1, 0, 0, 0, 0)
    changes = [Change(b"__pycache__/a.pyc", "added", None, entry, flags=("executes-later",), runs="at the next import")]
    assert _later_lines(changes) == ["runs by itself later: __pycache__/ (1 file, at the next import)"]


def test_a_directory_without_a_file_counts_none() -> None:
    entry = Entry("directory", 0o755, 0, b"", 0, 1, 1, 0, 0, 0, 0)
    changes = [Change(b"node_modules", "added", None, entry, flags=("executes-later",), runs="at the next node")]
    assert _later_lines(changes) == ["runs by itself later: node_modules/ (at the next node)"]


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
