"""Tests that fail in a whole run are run again at its end; those that then pass are listed (``once_more.py``)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from once_more import MOST

FAILS = """
import os, pytest
@pytest.mark.parametrize("word", ["a b", "c::d[e]", "new\\nline", "é'\\"$(id) of"])
def test_fails(word): assert 0
"""
SETUP = "@pytest.fixture\ndef it(): assert 0\ndef test_fails(it): pass\n"
END = "@pytest.fixture(scope='session', autouse=True)\ndef it():\n    yield\n    assert 0\n"
SKIPS = "def test_skips(): pytest.skip('nobody listed this')\n"
MANY = f"@pytest.mark.parametrize('n', range({MOST}))\ndef test_many(n): assert 0\n"
ROOT = Path(__file__).parents[1]
XDIST = ("-p", "xdist", "-n", "2", "--dist", "loadfile", "--max-worker-restart", "0")
NAMES = [r"a b", r"c::d[e]", r"new\nline", r"""\xe9'"$(id) of"""]


def run(place: Path, tests: str, *words: str) -> tuple[int, list[str]]:
    """Return the exit status of a run, and the tests that it left."""
    (place / "test_it.py").write_text(FAILS + tests)
    plugins = ("-p", "no:cacheprovider", "-p", "once_more", "-p", "skip_budget")
    environ = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT / "tests"), "MUDROOM_FAILED": "failed"}
    environ["MUDROOM_FIGURES"] = str(place / "figures")  # not among those of the run that this test is in
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *plugins, *words, "test_it.py"],
        cwd=place, env={**os.environ, **environ}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    left = place / "failed"
    return done.returncode, left.read_text().splitlines() if left.exists() else []


@pytest.mark.slow
@pytest.mark.parametrize("workers", [(), pytest.param(XDIST, marks=pytest.mark.deep)], ids=["here", "xdist"])
def test_failed_tests_are_left_and_no_failure_yet(tmp_path: Path, workers: tuple[str, ...]) -> None:
    status, left = run(tmp_path, "", *workers)
    assert (status, left) == (0, [f"test_it.py::test_fails[{name}]" for name in NAMES])
    assert run(tmp_path, "", *workers, *left) == (0, left), "pytest takes the names"


@pytest.mark.slow
def test_a_setup_is_a_part_of_its_test(tmp_path: Path) -> None:
    assert run(tmp_path, SETUP)[0] == 0


@pytest.mark.deep
@pytest.mark.slow
@pytest.mark.parametrize(
    ("tests", "words", "status"),
    [
        (END, (), 1),
        (END, XDIST, 1),
        ("def test_ends(): os._exit(9)\n", XDIST, 1),
        ("import nothing_of_this_name\n", (), 2),
        ("import nothing_of_this_name\n", XDIST, 1),
        ("", ("--no-such-option",), 4),
        (SKIPS, ("--skip-budget", "user"), 1),
        (SKIPS, ("--skip-budget", "user", *XDIST), 1),
        (MANY, (), 1),
    ],
    ids=["shared", "shared, xdist", "crash", "import", "import, xdist", "usage", "skips", "skips, xdist", "many"],
)
def test_what_is_no_failure_of_a_test_stays_one(
    tmp_path: Path, tests: str, words: tuple[str, ...], status: int
) -> None:
    assert run(tmp_path, tests, *words)[0] == status


@pytest.mark.parametrize(
    ("passes", "listed", "status", "added"),
    [(3, "", 0, ["t::a[b c]", "t::d"]), (2, "", 1, []), (3, "t::a[b c]\n", 1, ["t::a[b c]", "t::d"])],
    ids=["unsteady", "failed again", "on the list"],
)
def test_those_that_pass_three_times_are_listed(
    tmp_path: Path, passes: int, listed: str, status: int, added: list[str]
) -> None:
    table = tmp_path / "tests/unsteady.txt"
    table.parent.mkdir()
    table.write_text(listed)
    (tmp_path / "failed").write_text("t::a[b c]\nt::d\n")
    command = f'again() {{ echo "$*" >>ran; [ $(wc -l <ran) -le {passes} ]; }}; once_more failed again user'
    done = subprocess.run(
        ["bash", "-c", f"set -euo pipefail; . '{ROOT}/dev/setup.sh'; {command}"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == status, done.stderr
    assert (tmp_path / "ran").read_text() == "user t::a[b c] t::d\n" * 3
    assert table.read_text() == listed + "".join(f"{test}\n" for test in added)
