"""Pytest plugin: outcomes that outlive a run which is cut off, breaks off, or is followed by others.

``--outcomes FILE``: a line for each test at its end (outcome, test, reason of a skip or failure; separated by tabs).
Tests that it names as passed or skipped are not run again, so the same command goes on where the last one stopped; the
last line about a test counts. Use a new file for other sources.

A run that ends with an error of pytest or of one of its workers tells its failures, which pytest would not.

MUDROOM_FAILED names a directory: a run in which tests failed, and nothing else, leaves them there and exits with 0.
Whoever made the directory runs them again at the end, with once_more.py.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest

from deep_table import me

WIDER = ("ends more than the test", True)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("long runs")
    group.addoption("--outcomes", metavar="FILE", type=Path, help="go on with the run whose outcomes FILE holds")


def read(path: Path) -> dict[str, str]:
    """Return the last outcome of each test that the file names; a line that was cut off names none."""
    lines = path.read_text("utf-8").split("\n")[:-1] if path.exists() else []
    rows = [line.split("\t") for line in lines]
    return {row[1]: row[0] for row in rows if len(row) == 3}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    path = config.getoption("--outcomes")
    done = {name for name, outcome in read(path).items() if outcome != "failed"} if path else set()
    if done:
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in done])
        items[:] = [item for item in items if item.nodeid not in done]


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    if nextitem is None or nextitem.parent is not item.parent:
        item.user_properties.append(WIDER)  # fixtures of other tests end, too


class OutcomeFile:
    """Owner: the process that prints the reports."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._bad: dict[str, tuple[str, str]] = {}
        """Outcome and reason of the test that runs, once it is not passed."""
        text = path.read_bytes() if path.exists() else b""
        if text and not text.endswith(b"\n"):
            with path.open("ab") as stream:
                stream.write(b"\n")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed or (report.skipped and report.nodeid not in self._bad):
            self._bad[report.nodeid] = report.outcome, reason(report)
        if report.when == "teardown":
            outcome, why = self._bad.pop(report.nodeid, ("passed", ""))
            with self._path.open("a", encoding="utf-8", newline="\n") as stream:
                stream.write(f"{outcome}\t{report.nodeid}\t{why}\n")


class Failures:
    """Owner: the process that prints the reports."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._reports: list[pytest.TestReport] = []
        self._left = 0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._reports.append(report)

    def pytest_internalerror(self) -> None:
        for report in self._reports:
            sys.stdout.write(f"\nFAILED {report.nodeid} ({report.when})\n{report.longreprtext}\n")

    @pytest.hookimpl(wrapper=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> Generator[None, object, object]:
        """Before skip_budget.py, which may fail the run. pytest counts errors of the collection as failures, and those
        of a worker that died, too: then it has counted more."""
        again = [report for report in self._reports if is_of_one_test(report)]
        if self._directory and exitstatus == pytest.ExitCode.TESTS_FAILED and len(again) == session.testsfailed:
            rows = {report.nodeid: (how(), report.nodeid, reason(report)) for report in reversed(again)}
            descriptor, _path = tempfile.mkstemp(".json", dir=self._directory)
            with open(descriptor, "w", encoding="utf-8") as stream:
                json.dump(list(rows.values())[::-1], stream)
            self._left = len(rows)
            session.exitstatus = pytest.ExitCode.OK
        return (yield)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._left:
            terminalreporter.write_line(f"run again at the end of the whole run, alone: {self._left}", yellow=True)


def is_of_one_test(report: pytest.TestReport) -> bool:
    """Return whether the test alone can have failed: not the worker, and no fixture that it shares, whose end may be
    what finds something left behind."""
    return report.when in ("setup", "call") or (
        report.when == "teardown" and WIDER not in map(tuple, report.user_properties)
    )


def how() -> str:
    """Return who runs the tests, and where: a word that ``./check --again`` takes."""
    if sys.platform == "win32":
        return "wine"
    kinds = {"engines": "MUDROOM_TEST_ENGINES" in os.environ, "python": os.environ.get("MUDROOM_TEST_INIT") == "python"}
    return "-".join([*(kind for kind, here in kinds.items() if here), me()])


def reason(report: pytest.TestReport) -> str:
    """Return why it failed or was skipped, in one line."""
    if isinstance(report.longrepr, tuple):
        return " ".join(report.longrepr[2].split())
    lines = [line for line in report.longreprtext.splitlines() if line.startswith("E ")]
    return " ".join((lines[0][1:] if lines else report.longreprtext[-200:]).split())


def pytest_configure(config: pytest.Config) -> None:
    directory = os.environ.pop("MUDROOM_FAILED", "")  # what the tests start has failures of its own
    if hasattr(config, "workerinput"):  # a worker's reports are its controller's
        return
    config.pluginmanager.register(Failures(directory), "failures")
    if path := config.getoption("--outcomes"):
        config.pluginmanager.register(OutcomeFile(path), "outcome-file")
