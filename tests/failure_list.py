"""A run that breaks off tells its failures: pytest prints them at its end, which an error of pytest or of one of its
workers takes away."""

from __future__ import annotations

import sys

import pytest


class FailureList:
    def __init__(self) -> None:
        self._failures: list[pytest.TestReport] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failures.append(report)

    def pytest_internalerror(self) -> None:
        for report in self._failures:
            sys.stdout.write(f"\nFAILED {report.nodeid} ({report.when})\n{report.longreprtext}\n")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # a worker's reports are its controller's
        config.pluginmanager.register(FailureList(), "failure-list")
