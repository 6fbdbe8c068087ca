"""Pytest plugin: a run in which only tests failed leaves them to be run again.

MUDROOM_FAILED names a file: such a run writes the failed tests to it, at most ``MOST``, and exits with 0. ``./check``
runs them again at its end. What may be a failure of more than one test stays one: a crash, an error of the collection,
too many skips, the end of a fixture.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path

import pytest

MOST = 20


class Failures:
    """Owner: the process that prints the reports."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._tests: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and report.when in ("setup", "call"):
            self._tests.append(report.nodeid)

    @pytest.hookimpl(wrapper=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> Generator[None, object, object]:
        """Before skip_budget.py, which may fail the run."""
        if exitstatus == pytest.ExitCode.TESTS_FAILED and len(self._tests) == session.testsfailed <= MOST:
            self._path.write_text("".join(f"{test}\n" for test in self._tests))
            session.exitstatus = pytest.ExitCode.OK
        return (yield)


def pytest_configure(config: pytest.Config) -> None:
    path = os.environ.pop("MUDROOM_FAILED", "")  # what the tests start has failures of its own
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Failures(Path(path)), "failures")
