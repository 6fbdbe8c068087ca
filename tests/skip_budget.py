"""Pytest plugin: count skipped tests by reason, and fail a run that skips more than ``skips.toml`` lists.

    pytest --skip-budget root          # the pass ``root`` of the table
    pytest --skip-budget listed        # any number, but only for reasons that are in the table

A skipped test counts once, and so does a module that is skipped during collection. Under xdist only the controller
counts. Without ``--skip-budget`` the plugin does not count. The table is a list of

    [[skip]]
    reason = 'only root may mount'     # a regular expression for the whole reason
    user = 12                          # the most tests of this pass; a pass that is not named: none

Every skip belongs to the first entry that matches. A reason that no entry matches fails the run. If MUDROOM_FIGURES
names a file, a line per reason is appended to it: ``skip``, pass, count, most, reason, separated by tabs.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest

TABLE = Path(__file__).with_name("skips.toml")
LISTED = "listed"
"""The pass that accepts any number of skips for a listed reason."""


class Entry(NamedTuple):
    reason: re.Pattern[str]
    most: dict[str, int]
    """Per pass."""


class Row(NamedTuple):
    """Skips of one pass that match one entry, or none."""

    reason: str
    number: int
    most: int | None
    """None: any number."""

    @property
    def is_over(self) -> bool:
        return self.most is not None and self.number > self.most


def read_table(path: Path) -> list[Entry]:
    """Return the entries of a table. Raise ValueError if an entry has no reason, or a count that is not a whole
    number."""
    entries = []
    for written in tomllib.loads(path.read_text())["skip"]:
        most = {key: value for key, value in written.items() if key != "reason"}
        if not isinstance(written.get("reason"), str) or not all(type(count) is int for count in most.values()):
            raise ValueError(f"{path}: an entry is a reason and a whole number per pass, not {written}")
        entries.append(Entry(re.compile(written["reason"]), most))
    return entries


def compare(skipped: Counter[str], entries: list[Entry], name: str) -> list[Row]:
    """Return a row for each entry of the table that matches a skip, and a row for each reason that is not listed."""
    counts: Counter[int] = Counter()
    rows = []
    for reason, count in sorted(skipped.items()):
        found = next((index for index, entry in enumerate(entries) if entry.reason.fullmatch(reason)), None)
        if found is None:
            rows.append(Row(reason + " (not listed)", count, 0))
        else:
            counts[found] += count
    for index, count in sorted(counts.items()):
        most = None if name == LISTED else entries[index].most.get(name, 0)
        rows.append(Row(entries[index].reason.pattern, count, most))
    return rows


class SkipBudget:
    def __init__(self, name: str, table: Path) -> None:
        self.name = name
        self.table = table
        self.entries = read_table(table)
        self.skipped: Counter[str] = Counter()
        self._modules: set[str] = set()
        self.rows: list[Row] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            self.skipped[_reason(report.longrepr)] += 1

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped and report.nodeid not in self._modules:
            self._modules.add(report.nodeid)
            self.skipped[_reason(report.longrepr)] += 1

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        self.rows = compare(self.skipped, self.entries, self.name)
        if any(row.is_over for row in self.rows) and exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        self._append_figures()

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section(f"skips of the pass '{self.name}': {self.skipped.total()}")
        for row in self.rows:
            most = "any number" if row.most is None else f"at most {row.most}"
            line = f"{row.number:5} ({most})  {row.reason}"
            terminalreporter.write_line(line, red=row.is_over, bold=row.is_over)
        if any(row.is_over for row in self.rows):
            terminalreporter.write_line(
                f"FAILED: more tests are skipped than {self.table.name} lists for the pass '{self.name}'. Install what "
                "the reasons name, or list them there.",
                red=True,
            )

    def _append_figures(self) -> None:
        figures = os.environ.get("MUDROOM_FIGURES")
        if not figures:
            return
        with open(figures, "a") as file:
            for row in self.rows:
                most = "-" if row.most is None else row.most
                file.write(f"skip\t{self.name}\t{row.number}\t{most}\t{row.reason}\n")


def _reason(longrepr: object) -> str:
    """Return the reason of a skip. Pytest passes the file, the line and "Skipped: " with the reason."""
    text = str(longrepr[2]) if isinstance(longrepr, tuple) else str(longrepr)
    return " ".join(text.removeprefix("Skipped: ").split())


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("skip budget")
    group.addoption("--skip-budget", metavar="PASS", help="fail if more tests skip than the table lists for this pass")
    group.addoption("--skip-table", metavar="FILE", type=Path, default=TABLE, help="the table (tests/skips.toml)")


def pytest_configure(config: pytest.Config) -> None:
    name = config.getoption("--skip-budget")
    if name and not hasattr(config, "workerinput"):
        config.pluginmanager.register(SkipBudget(name, config.getoption("--skip-table")), "skip-budget-counter")
