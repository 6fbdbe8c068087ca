"""Pytest plugin: which tests marked ``deep`` have been seen green, and which of them run today.

``tests/deep.toml`` has a row for each test function, written by ``dev/deep``:

    "net/test_it.py::test_it" = { seconds = 1.4, root = "2026-11-26 f9284fd5", user = "…", red = ["root"] }

``seconds`` are those of its longest example. ``root`` and ``user`` are the date and the commit at which all its
examples were last green for that user. ``red`` names the users for whom it failed when it last ran, ``skips`` those for
whom it was skipped. A commit with a "+" had changes beside it.

    --of-the-day SECONDS   a part of the selected tests that takes about so long; each day the next part
    --unseen COMMIT        without what the table says is green at this commit, for this user

The day is MUDROOM_SEED, which tiers.py sets to the date. Every room of tests has its share of each part. Tests that are
longer than SECONDS are in no part. A run of a part tells at its end what is red in the table, and how old the table is;
nothing fails by that. If MUDROOM_DEEP names a file, results are appended to it, and
``python tests/deep_table.py FILE COMMIT`` enters them in the table.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tomllib
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import NamedTuple

import pytest

TABLE = Path(__file__).with_name("deep.toml")
HEAD = "# Written by dev/deep; tests/deep_table.py says what a row is.\n"
USERS = ("root", "user")
UNKNOWN = 5.0
"""Seconds of a test without a row."""
STALE = 14
"""Days after which a green run is old."""


class Row(NamedTuple):
    seconds: float = UNKNOWN
    green: Mapping[str, str] = {}
    """Date and commit, by user."""
    red: tuple[str, ...] = ()
    skips: tuple[str, ...] = ()

    @property
    def last(self) -> str:
        """Return the date of the older one of the last green runs of both users; "" if there was none."""
        return min((seen.split()[0] for seen in self.green.values()), default="")


class Result(NamedTuple):
    """A phase of one example of a test."""

    user: str
    test: str
    """The name of the function's row."""
    example: str
    of: int
    """How many examples the run has of this test."""
    phase: str
    outcome: str
    seconds: float


def function_of(nodeid: str) -> str:
    return nodeid.partition("[")[0].removeprefix("tests/")


def me() -> str:
    return USERS[0] if sys.platform != "win32" and os.geteuid() == 0 else USERS[1]


def read_table(path: Path = TABLE) -> dict[str, Row]:
    if not path.exists():
        return {}
    return {
        name: Row(
            row["seconds"],
            {user: row[user] for user in USERS if user in row},
            tuple(row.get("red", ())),
            tuple(row.get("skips", ())),
        )
        for name, row in tomllib.loads(path.read_text()).items()
    }


def write_table(rows: Mapping[str, Row]) -> str:
    """Return the text of a table."""
    lines = [HEAD]
    for name, row in sorted(rows.items()):
        values = [f"seconds = {row.seconds:.1f}"]
        values += [f"{user} = {json.dumps(row.green[user])}" for user in USERS if user in row.green]
        values += [f"red = {json.dumps(row.red)}"] if row.red else []
        values += [f"skips = {json.dumps(row.skips)}"] if row.skips else []
        lines.append(f"{json.dumps(name)} = {{ {', '.join(values)} }}\n")
    return "".join(lines)


def enter(rows: Mapping[str, Row], results: Iterable[Result], seen: str) -> dict[str, Row]:
    """Return the table with these results, of a run at ``seen`` (a date and a commit). A test that failed is red; it is
    green if all its examples ended and one of them passed. A test that broke off keeps its row."""
    runs: defaultdict[str, defaultdict[str, list[Result]]] = defaultdict(lambda: defaultdict(list))
    for result in results:
        runs[result.test][result.user].append(result)
    entered = dict(rows)
    for test, by_user in runs.items():
        row = rows.get(test, Row())
        green, red, skips = dict(row.green), set(row.red), set(row.skips)
        for user, phases in by_user.items():
            outcomes = {phase.outcome for phase in phases if phase.phase == "call" or phase.outcome != "passed"}
            if "failed" in outcomes:
                red.add(user)
            elif sum(phase.phase == "teardown" for phase in phases) == phases[0].of:
                red.discard(user)
                green.pop(user, None)
                if "passed" in outcomes:
                    green[user] = seen
                    skips.discard(user)
                else:
                    skips.add(user)
        longest = longest_of(phase for phases in by_user.values() for phase in phases)
        entered[test] = Row(longest or row.seconds, green, tuple(sorted(red)), tuple(sorted(skips)))
    return entered


def longest_of(phases: Iterable[Result]) -> float:
    """Return the seconds of the longest example; 0 if all were skipped."""
    seconds: defaultdict[tuple[str, str], float] = defaultdict(float)
    ran = set()
    for phase in phases:
        seconds[phase.user, phase.example] += phase.seconds
        if phase.outcome != "skipped" and phase.phase == "call":
            ran.add((phase.user, phase.example))
    return max((seconds[example] for example in ran), default=0.0)


def parts(tests: Mapping[str, float], most: float) -> list[list[str]]:
    """Return lists of tests, given with their seconds, which take ``most`` seconds each and in which every room has
    its share. Tests that are longer are left out."""
    rooms: defaultdict[str, list[str]] = defaultdict(list)
    for test in sorted(name for name, seconds in tests.items() if seconds <= most):
        rooms[test.removeprefix("tests/").partition("/")[0]].append(test)
    spread = sorted((number / len(room), test) for room in rooms.values() for number, test in enumerate(room))
    made: list[list[str]] = []
    left = 0.0
    for _place, test in spread:
        if not made or tests[test] > left:
            made.append([])
            left = most
        made[-1].append(test)
        left -= tests[test]
    return made


def day_of(seed: str) -> int:
    try:
        return date.fromisoformat(seed).toordinal()
    except ValueError:
        return zlib.crc32(seed.encode())


def told(rows: Mapping[str, Row], tests: Iterable[str], today: date) -> list[str]:
    """Return the lines about what these tests' rows say."""
    here = {test: rows.get(test, Row()) for test in sorted(set(tests))}
    red = [f"{test} ({', '.join(row.red)})" for test, row in here.items() if row.red]
    dates = {test: row.last for test, row in here.items()}
    never = [test for test, last in dates.items() if not last]
    old = [last for last in dates.values() if last and (today - date.fromisoformat(last)).days > STALE]
    lines = [f"red when dev/deep ran it last: {one}" for one in red]
    if old or never:
        oldest = f", the oldest on {min(old)}" if old else ""
        lines.append(
            f"of {len(here)} deep tests, {len(old)} have not been seen green in {STALE} days{oldest}, and {len(never)} "
            "never: dev/deep --marked runs them"
        )
    return lines


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("deep tests")
    group.addoption("--of-the-day", metavar="SECONDS", type=float, help="run today's part of the selected tests")
    group.addoption("--unseen", metavar="COMMIT", help="without tests that deep.toml has as green at COMMIT")


class DeepTable:
    """Of one run, whose process owns it."""

    def __init__(self, config: pytest.Config, rows: Mapping[str, Row]) -> None:
        self.config = config
        self.rows = rows
        self.tests: set[str] = set()
        self.part = ""

    def seconds(self, item: pytest.Item) -> float:
        row = self.rows.get(function_of(item.nodeid), Row())
        return 0.0 if me() in row.skips else row.seconds

    def is_seen(self, test: str) -> bool:
        row, commit = self.rows.get(test, Row()), self.config.getoption("--unseen")
        return me() not in row.red and row.green.get(me(), "").split()[1:] == [commit]

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        examples = Counter(function_of(item.nodeid) for item in items)
        self.tests = set(examples)
        chosen = {item.nodeid for item in items if not self.is_seen(function_of(item.nodeid))}
        if most := self.config.getoption("--of-the-day"):
            made = parts({item.nodeid: self.seconds(item) for item in items}, most) or [[]]
            number = day_of(os.environ["MUDROOM_SEED"]) % len(made)
            chosen &= set(made[number])
            longer = len(items) - sum(map(len, made))
            self.part = f"part {number + 1} of {len(made)} of the deep tests, by the day; {longer} are too long for one"
        if len(chosen) < len(items):
            self.config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in chosen])
            items[:] = [item for item in items if item.nodeid in chosen]
        for item in items:
            if item.get_closest_marker("deep"):
                item.user_properties.append(("examples", examples[function_of(item.nodeid)]))

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and self.config.getoption("--unseen") is not None:
            session.exitstatus = pytest.ExitCode.OK  # all have been seen

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        log, examples = os.environ.get("MUDROOM_DEEP"), dict(report.user_properties).get("examples")
        if not log or examples is None or hasattr(self.config, "workerinput") or not os.path.exists(log):
            return  # the file is gone when dev/deep was interrupted, before its last test
        test, phase = function_of(report.nodeid), report.when
        outcome = "passed" if hasattr(report, "wasxfail") else report.outcome
        result = Result(me(), test, report.nodeid, int(str(examples)), phase, outcome, report.duration)
        with open(log, "a") as file:
            file.write(json.dumps(result) + "\n")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self.part:
            return
        lines = [self.part, *told(self.rows, self.tests, datetime.now(UTC).date())]
        for line in lines:
            terminalreporter.write_line(line)
        if figures := os.environ.get("MUDROOM_FIGURES"):
            with open(figures, "a") as file:
                file.writelines(f"told\t{line}\n" for line in lines)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(DeepTable(config, read_table()), "deep-table")


def main(log: str, commit: str, table: Path = TABLE) -> None:
    """Enter the results of a log in the table. Rows of tests that are gone are dropped."""
    lines = Path(log).read_text().splitlines()
    seen = f"{datetime.now(UTC).date()} {commit}"
    rows = enter(read_table(table), (Result(*json.loads(line)) for line in lines), seen)
    new = table.with_suffix(".new")
    new.write_text(write_table({test: row for test, row in rows.items() if is_a_test(table.parent, test)}))
    new.replace(table)


def is_a_test(tests: Path, test: str) -> bool:
    """Return whether there is still a function of this name in this file."""
    path, _colons, name = test.partition("::")
    file = tests / path
    return file.is_file() and re.search(rf"\b{re.escape(name.rpartition('::')[2])}\b", file.read_text()) is not None


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
