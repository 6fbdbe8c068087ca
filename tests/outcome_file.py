"""Pytest plugin of long runs that may be cut off, as those of ``dev/wine``: a file of outcomes, and parts of a run.

``--outcomes FILE``: a line for each test at its end (outcome, test, reason of a skip or failure; separated by tabs).
Tests that it names as passed or skipped are not run again, so the same command goes on where the last one stopped; the
last line about a test counts. Use a new file for other sources. ``--part I/N``: one of N parts, by the tests' names.
"""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("long runs")
    group.addoption("--outcomes", metavar="FILE", type=Path, help="go on with the run whose outcomes FILE holds")
    group.addoption("--part", metavar="I/N", type=part, help="run part I of N")


def part(words: str) -> tuple[int, int]:
    number, _slash, of = words.partition("/")
    if not (number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of)):
        raise ValueError(words)
    return int(number), int(of)


def read(path: Path) -> dict[str, str]:
    """Return the last outcome of each test that the file names; a line that was cut off names none."""
    lines = path.read_text("utf-8").split("\n")[:-1] if path.exists() else []
    rows = [line.split("\t") for line in lines]
    return {row[1]: row[0] for row in rows if len(row) == 3}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    path, (number, of) = config.getoption("--outcomes"), config.getoption("--part") or (1, 1)
    done = {name for name, outcome in read(path).items() if outcome != "failed"} if path else set()
    rest: dict[bool, list[pytest.Item]] = {True: [], False: []}
    for item in items:
        rest[item.nodeid not in done and zlib.crc32(item.nodeid.encode()) % of == number - 1].append(item)
    if rest[False]:
        config.hook.pytest_deselected(items=rest[False])
        items[:] = rest[True]


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
            self._bad[report.nodeid] = report.outcome, " ".join(reason(report).split())
        if report.when == "teardown":
            outcome, why = self._bad.pop(report.nodeid, ("passed", ""))
            with self._path.open("a", encoding="utf-8", newline="\n") as stream:
                stream.write(f"{outcome}\t{report.nodeid}\t{why}\n")


def reason(report: pytest.TestReport) -> str:
    if isinstance(report.longrepr, tuple):
        return report.longrepr[2]
    lines = [line for line in report.longreprtext.splitlines() if line.startswith("E ")]
    return lines[0][1:] if lines else report.longreprtext[-200:]


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("--outcomes")
    if path and not hasattr(config, "workerinput"):  # a worker's reports are its controller's
        config.pluginmanager.register(OutcomeFile(path), "outcome-file")
