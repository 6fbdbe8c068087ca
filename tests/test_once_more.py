"""Tests that fail in a whole run are run again at its end; those that then pass are listed (``once_more.py``)."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

import pytest

from deep_table import is_a_test
from once_more import LONGEST, TABLE, Failure, main, on_list, short
from outcome_file import how

ONCE = """
import os, pytest
def count(name, now=open):
    with open(name, "a+") as file:
        file.write("x")
        return file.tell()
@pytest.mark.parametrize("word", ["a b", "c::d[e]", "new\\nline", "-q", "é'\\"$(id) of"])
def test_once(word): assert count("once" + str(len(word))) > 1, "/tmp/gone/by is torn\\nin two"
"""
AGAIN = (
    ONCE + "def test_always(): assert 1 == 2\n"
    "def test_later(): assert count('later') not in (1, 3), 'the third time'\n"
    "def test_skips(): count('skips') == 1 or pytest.skip('no more'); assert 0\n"
)
SETUP = ONCE + "@pytest.fixture\ndef it(): assert count('setup') > 1\ndef test_setup(it): pass\n"
OWN_END = (
    ONCE + "@pytest.fixture\ndef it():\n    yield\n    assert count('end') > 1\n"
    "def test_own_end(it): pass\ndef test_last(): pass\n"
)
SHARED_END = (
    ONCE + "@pytest.fixture(scope='session', autouse=True)\ndef all_of_them():\n    yield\n"
    "    assert count('shared') > 1, 'left behind'\n"
)
CRASH = ONCE + "def test_ends(): count('ends') == 1 and os._exit(9)\n"
SKIPS_MUCH = ONCE + "def test_skips(): pytest.skip('nobody listed this')\n"
TESTS = str(Path(__file__).parent)
XDIST = ("-p", "xdist", "-n", "2")


class Run:
    """A whole run of a pass of one file: what fails is run again, as ``./check`` does."""

    def __init__(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.place, self.left, self.table = place, place / "failed", place / "unsteady.toml"
        (place / "tests").mkdir()
        self.left.mkdir()
        self.table.write_text("# the list\n")
        self.command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "outcome_file"]
        again = f"import subprocess, sys; sys.exit(subprocess.run([*{self.command!r}, *sys.argv[2:]]).returncode)"
        self.again = [sys.executable, "-c", again]
        monkeypatch.setenv("PYTHONPATH", TESTS)
        monkeypatch.setenv("MUDROOM_FAILED", str(self.left))
        monkeypatch.setenv("MUDROOM_FIGURES", str(place / "figures"))
        monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
        monkeypatch.chdir(place)

    def first(self, tests: str, *words: str) -> int:
        (self.place / "tests/test_it.py").write_text(tests)
        done = subprocess.run([*self.command, *words, "tests"], capture_output=True, text=True, check=False)
        assert ("run again at the end" in done.stdout) is bool(list(self.left.iterdir())), done.stdout
        return done.returncode

    def end(self) -> int:
        return main(self.left, self.again, self.table)

    @property
    def listed(self) -> list[dict[str, str]]:
        rows: list[dict[str, str]] = tomllib.loads(self.table.read_text()).get("unsteady", [])
        return rows


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    return Run(tmp_path, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tests", "workers"),
    [(ONCE, ()), (ONCE, XDIST), (SETUP, ()), (OWN_END, ())],
    ids=["call", "call, xdist", "setup", "teardown"],
)
def test_one_that_passes_three_times_is_listed(
    run: Run, tests: str, workers: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run.first(tests, *workers) == 0
    assert run.end() == 0
    rows = [row for row in run.listed if "test_once" in row["test"]]
    assert len(rows) == 5 and len({row["test"] for row in run.listed}) == len(run.listed)
    assert rows[0].keys() == {"test", "commit", "message"}
    assert rows[0]["message"] == f"{how()}: AssertionError: …/by is torn"
    assert f"unsteady: {rows[0]['test']} ({how()})" in capsys.readouterr().out
    told = (run.place / "figures").read_text().replace("told\t", "").partition(".toml:\n")[2]
    assert tomllib.loads(told)["unsteady"] == run.listed, "it can be pasted"


@pytest.mark.slow
def test_one_that_fails_again_fails_the_run(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert (run.first(AGAIN), run.end()) == (0, 1)
    said = capsys.readouterr().out
    for bad in ("always", "later", "skips"):
        assert f"failed again: tests/test_it.py::test_{bad} ({how()})" in said
    assert {row["test"].partition("[")[0] for row in run.listed} == {"tests/test_it.py::test_once"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tests", "words", "status"),
    [
        (SHARED_END, (), 1),
        (SHARED_END, XDIST, 1),
        (CRASH, (*XDIST, "--dist", "loadfile", "--max-worker-restart", "0"), 1),
        (ONCE + "import nothing_of_this_name\n", (), 2),
        (ONCE + "import nothing_of_this_name\n", XDIST, 1),
        (ONCE, ("--no-such-option",), 4),
        (SKIPS_MUCH, ("-p", "skip_budget", "--skip-budget", "user"), 1),
        (SKIPS_MUCH, ("-p", "skip_budget", "--skip-budget", "user", *XDIST), 1),
    ],
    ids=["shared", "shared, xdist", "crash", "import", "import, xdist", "usage", "skips", "skips, xdist"],
)
def test_what_is_no_failure_of_a_test_stays_one(run: Run, tests: str, words: tuple[str, ...], status: int) -> None:
    assert run.first(tests, *words) == status


@pytest.mark.slow
def test_a_shared_fixture_that_fails_the_second_time_fails_the_run(run: Run) -> None:
    assert run.first(SHARED_END.replace("shared') > 1", "shared') != 2")) == 0
    assert run.end() == 1


@pytest.mark.slow
def test_more_than_twenty_are_not_run_again(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    many = ONCE + "@pytest.mark.parametrize('n', range(16))\ndef test_many(n): assert count(f'n{n}') > 1\n"
    assert (run.first(many), run.end()) == (0, 1)
    assert capsys.readouterr().out == "21 tests failed: too many to run again (at most 20)\n"
    assert run.listed == []


@pytest.mark.slow
def test_one_that_is_listed_already_fails_the_run(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    before = Failure("root", "tests/test_it.py::test_once[a b]", "earlier").row("aaaaaaaa")
    run.table.write_text(before)
    assert (run.first(ONCE), run.end()) == (0, 1)
    assert f"unsteady, and on the list twice: tests/test_it.py::test_once[a b] ({how()})" in capsys.readouterr().out
    assert on_list(run.table)["tests/test_it.py::test_once[a b]"] == 2


@pytest.mark.slow
def test_the_same_test_as_both_users_is_on_the_list_twice(run: Run) -> None:
    (run.place / "tests/test_it.py").write_text("def test_it(): pass\n")
    rows = [("root", "tests/test_it.py::test_it", "a"), ("user", "tests/test_it.py::test_it", "b")]
    (run.left / "a").write_text(json.dumps(rows))
    assert run.end() == 1


@pytest.mark.parametrize("left", ["", "[[1]]", '[["user", "tests/a'], ids=["empty", "short", "cut off"])
def test_what_is_damaged_fails_the_run(run: Run, left: str) -> None:
    (run.left / "a").write_text(left)
    with pytest.raises((ValueError, TypeError)):
        run.end()
    script = [sys.executable, str(TABLE.with_name("once_more.py"))]
    for directory in (run.left, run.place / "missing"):
        done = subprocess.run([*script, str(directory)], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr.count("\n")) == (1, 1), done.stderr
        assert done.stderr.startswith("the failed tests are not run again: ")


def test_a_message_is_one_short_line_without_places_and_secrets() -> None:
    token = "ghp_" + "a1B2c3D4e5" * 3 + "f6G7h8"
    said = short(f"assert 'Z:\\\\tmp\\\\x.py' == '/var/tmp/mudroom.x/y'\n  {token}\x7f 1/2 " + "z" * 900)
    assert said.startswith("assert '…/x.py' == '…/y' [redacted]? 1/2 zz"), said
    assert len(said) == LONGEST


def test_the_list_names_each_test_once_and_only_tests() -> None:
    listed = on_list(TABLE)
    assert [test for test, count in Counter(listed).items() if count > 1] == []
    for test in listed:
        assert is_a_test(TABLE.parent, test.partition("[")[0].removeprefix("tests/")), test
