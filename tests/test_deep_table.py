"""The table of deep tests: what is entered, what it tells, and that each test has its day."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from collections import Counter
from datetime import date
from pathlib import Path

import pytest

from deep_table import (
    STALE,
    TABLE,
    Result,
    Row,
    day_of,
    enter,
    main,
    parts,
    read_table,
    told,
    write_table,
)

THEN, NOW = "2026-11-01 aaaaaaaa", "2026-11-26 bbbbbbbb"


def ran(
    outcome: str, *, user: str = "user", test: str = "net/test_a.py::test_a", example: str = "", of: int = 1
) -> list[Result]:
    """Return the phases of one example, of which each takes half a second."""
    skipped = outcome == "skipped"
    said = {"setup": "skipped" if skipped else "passed", "call": outcome, "teardown": "passed"}
    phases = ["setup", "teardown"] if skipped else ["setup", "call", "teardown"]
    return [Result(user, test, f"tests/{test}{example}", of, phase, said[phase], 0.5) for phase in phases]


KNOWN = {"net/test_a.py::test_a": Row(9.0, {"root": THEN, "user": THEN})}


@pytest.mark.parametrize(
    ("results", "green", "red"),
    [
        (ran("passed"), {"root": THEN, "user": NOW}, ()),
        (ran("failed"), {"root": THEN, "user": THEN}, ("user",)),
        (ran("failed") + ran("passed", user="root"), {"root": NOW, "user": THEN}, ("user",)),
        (ran("skipped"), {"root": THEN}, ()),
        (ran("passed", example="[a]", of=2), {"root": THEN, "user": THEN}, ()),
        (ran("passed", example="[a]", of=2) + ran("skipped", example="[b]", of=2), {"root": THEN, "user": NOW}, ()),
        (
            ran("passed", example="[a]", of=2) + ran("failed", example="[b]", of=2),
            {"root": THEN, "user": THEN},
            ("user",),
        ),
        (ran("failed", example="[a]", of=2), {"root": THEN, "user": THEN}, ("user",)),
        (ran("passed")[:2], {"root": THEN, "user": THEN}, ()),
    ],
    ids=[
        "green",
        "red",
        "red and green",
        "skipped",
        "broken off",
        "all ran",
        "one is red",
        "broken off, red",
        "no end",
    ],
)
def test_what_is_entered(results: list[Result], green: dict[str, str], red: tuple[str, ...]) -> None:
    row = enter(KNOWN, results, NOW)["net/test_a.py::test_a"]
    assert (dict(row.green), row.red) == (green, red)


def test_a_red_test_is_red_until_it_is_seen_green() -> None:
    rows = enter(KNOWN, ran("failed"), NOW)
    assert enter(rows, ran("passed", example="[a]", of=2), NOW)["net/test_a.py::test_a"].red == ("user",)
    assert enter(rows, ran("passed", user="root"), NOW)["net/test_a.py::test_a"].red == ("user",)
    assert enter(rows, ran("passed"), NOW)["net/test_a.py::test_a"].red == ()


def test_a_skipped_test_is_so_until_it_passes() -> None:
    rows = enter(KNOWN, ran("skipped"), NOW)
    assert rows["net/test_a.py::test_a"].skips == ("user",)
    assert enter(rows, ran("passed"), NOW)["net/test_a.py::test_a"].skips == ()


def test_the_seconds_are_those_of_the_longest_example_that_ran() -> None:
    assert enter(KNOWN, ran("passed"), NOW)["net/test_a.py::test_a"].seconds == 1.5
    assert enter(KNOWN, ran("skipped"), NOW)["net/test_a.py::test_a"].seconds == 9.0


def test_the_table_is_written_as_it_is_read(tmp_path: Path) -> None:
    rows = {"a/test_b.py::test_c": Row(1.5, {"root": THEN}, ("user",), ("root", "user")), **KNOWN}
    (tmp_path / "deep.toml").write_text(write_table(rows))
    assert read_table(tmp_path / "deep.toml") == rows
    assert read_table(tmp_path / "none") == {}


def test_the_committed_table_is_one() -> None:
    assert TABLE.read_text() == write_table(read_table())


@pytest.mark.parametrize("most", [5.0, 25.0])
def test_each_test_has_its_day_and_each_room_its_share_of_a_part(most: float) -> None:
    rooms = {"vault": 40, "web": 120, "net": 3}
    tests = {f"tests/{room}/test_a.py::test_{n}": n % 4 + 0.5 for room, count in rooms.items() for n in range(count)}
    long = {"tests/vault/test_long.py::test_it": 26.0}
    made = parts(tests | long, most)
    assert sorted(test for part in made for test in part) == sorted(tests)
    assert all(sum(tests[test] for test in part) <= most for part in made)
    for part in made:
        found = Counter(test.split("/")[1] for test in part)
        assert all(abs(found[room] - len(part) * count / len(tests)) <= 1.5 for room, count in rooms.items()), found


def test_parts_follow_each_other_by_the_day() -> None:
    assert day_of("20261201") == day_of("20261130") + 1
    assert day_of("any words") == day_of("any words")


def test_what_is_red_or_old_is_told() -> None:
    today = date(2026, 11, 26)
    rows = {
        "a::new": Row(1, {"root": "2026-11-25 c", "user": f"2026-11-{26 - STALE} c"}),
        "a::old": Row(1, {"root": "2026-11-25 c", "user": "2026-10-03 c"}),
        "a::older": Row(1, {"user": "2026-09-03 c"}),
        "a::red": Row(1, {"user": "2026-11-26 c"}, ("root",)),
        "a::gone": Row(1, {}, ("root",)),
    }
    assert told(rows, ["a::new"], today) == []
    assert told(rows, ["a::new", "a::old", "a::older", "a::red", "a::none"], today) == [
        "red when dev/deep ran it last: a::red (root)",
        "of 5 deep tests, 2 have not been seen green in 14 days, the oldest on 2026-09-03, and 1 never: "
        "dev/deep --marked runs them",
    ]


@pytest.mark.slow
def test_a_run_is_entered_and_the_next_one_goes_on(tmp_path: Path) -> None:
    tests = tmp_path / "tests"
    tests.mkdir()
    (tests / "deep_table.py").write_bytes(
        TABLE.with_name("deep_table.py").read_bytes()
    )  # its table is the one beside it
    (tests / "test_it.py").write_text(
        "import pytest\n"
        "pytestmark = pytest.mark.deep\n"
        "@pytest.mark.parametrize('n', range(2))\n"
        "def test_red(n): assert n\n"
        "def test_green(): pass\n"
        "def test_skipped(): pytest.skip()\n"
    )

    (tmp_path / "log").touch()

    def run() -> str:
        words = ["-p", "deep_table", "-p", "no:cacheprovider", "-o", "markers=deep", "--unseen", "bbbbbbbb", "-q"]
        environ = {"PYTHONPATH": str(tests), "MUDROOM_DEEP": str(tmp_path / "log"), "PATH": "/usr/bin:/bin"}
        environ |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "MUDROOM_SEED": "20261126"}
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *words, "--rootdir", "."],
            cwd=tmp_path, env=environ, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.stderr == "" and done.returncode == ("1 failed" in done.stdout)
        return done.stdout

    assert "1 failed, 2 passed, 1 skipped" in run()
    main(str(tmp_path / "log"), "bbbbbbbb", tests / "deep.toml")
    rows = tomllib.loads((tests / "deep.toml").read_text())
    (user,) = rows["test_it.py::test_red"]["red"]
    assert rows["test_it.py::test_green"][user].endswith(" bbbbbbbb")
    assert rows["test_it.py::test_skipped"].keys() == {"seconds", "skips"}
    assert "1 failed, 1 passed, 1 skipped, 1 deselected" in run()
    (tests / "test_it.py").write_text("def test_green(): pass\n")
    main(str(tmp_path / "log"), "bbbbbbbb", tests / "deep.toml")
    assert tomllib.loads((tests / "deep.toml").read_text()).keys() == {"test_it.py::test_green"}
    assert run().startswith("\n1 deselected")
