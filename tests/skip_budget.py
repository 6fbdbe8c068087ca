"""Pytest plugin: count skipped tests by reason, and fail a run that skips more than ``skips.toml`` lists.

    pytest --skip-budget root          # the pass ``root`` of the table
    pytest --skip-budget listed        # any number, but only for reasons that are in the table

A skipped test counts once, and so does a module that is skipped during collection. Under xdist only the controller
counts. The table is a list of

    [[skip]]
    reason = 'only root may mount'     # a regular expression for the whole reason
    user = 12                          # the most tests of this pass; a pass that is not named: none

Every skip belongs to the first entry that matches. If MUDROOM_FIGURES names a file, a line per entry is appended to it,
which is printed at the end of the whole run (``dev/setup.sh``).
"""

from __future__ import annotations

import os
import re
import tomllib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

TABLE = Path(__file__).with_name("skips.toml")
LISTED = "listed"
"""The pass that accepts any number of skips for a listed reason."""


def compare(reasons: Iterable[str], entries: list[dict[str, Any]], name: str) -> list[tuple[str, int, float]]:
    """Return each matching entry's reason, with the number of its skips and the most that the pass may have."""
    skips: Counter[tuple[str, float]] = Counter()
    for reason in reasons:
        entry = next((one for one in entries if re.fullmatch(one["reason"], reason)), None)
        if entry is None:
            skips[reason + " (not listed)", 0] += 1
        else:
            skips[entry["reason"], float("inf") if name == LISTED else entry.get(name, 0)] += 1
    return [(reason, number, most) for (reason, most), number in skips.items()]


class SkipBudget:
    def __init__(self, name: str, table: Path) -> None:
        self._name = name
        self._entries: list[dict[str, Any]] = tomllib.loads(table.read_text())["skip"]
        self._skipped: list[str] = []
        self._modules: set[str] = set()
        self._over: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            self._skipped.append(_reason(report.longrepr))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.skipped and report.nodeid not in self._modules:
            self._modules.add(report.nodeid)
            self._skipped.append(_reason(report.longrepr))

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        rows = compare(self._skipped, self._entries, self._name)
        self._over = [f"{number} (at most {most})  {reason}" for reason, number, most in rows if number > most]
        if self._over and exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        with open(os.environ.get("MUDROOM_FIGURES", os.devnull), "a") as file:
            file.writelines(f"skip\t{self._name}\t{number}\t{most}\t{reason}\n" for reason, number, most in rows)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._over:
            words = "FAILED: more tests are skipped than skips.toml lists for the pass"
            for line in (f"{words} '{self._name}'. Install what the reasons name, or list them there.", *self._over):
                terminalreporter.write_line(line, red=True)


def _reason(longrepr: object) -> str:
    """Return the reason of a skip. Pytest passes the file, the line and "Skipped: " with the reason."""
    text = str(longrepr[2]) if isinstance(longrepr, tuple) else str(longrepr)
    return " ".join(text.removeprefix("Skipped: ").split())


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--skip-budget", metavar="PASS", help="fail if more tests skip than the table lists for this pass")
    parser.addoption("--skip-table", metavar="FILE", type=Path, default=TABLE, help="the table (tests/skips.toml)")


def pytest_configure(config: pytest.Config) -> None:
    name = config.getoption("--skip-budget")
    if name and not hasattr(config, "workerinput"):
        config.pluginmanager.register(SkipBudget(name, config.getoption("--skip-table")), "skip-budget-counter")
