"""Run modules of CPython's own tests, and write the outcome of each test: a program for the interpreter that they
belong to, in a sandbox or outside. It imports the standard library alone.

    python3 python_runner.py RESULTS LEFT_OUT MODULE…      LEFT_OUT: patterns of tests that are not run, as JSON

RESULTS gets a line per test: outcome, test, seconds, detail, separated by tabs. An outcome is ``ok``, ``skip``,
``fail`` (also of an error), or ``died``, of a module whose process ended, or did not end within ``PATIENCE``. Each
module is run by a process of its own, in an empty directory below the current one.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
import time
import unittest
import warnings
from fnmatch import fnmatchcase
from typing import Any

PATIENCE = 100.0
"""Seconds for a module."""
WORST = ("ok", "skip", "fail")


class Outcomes(unittest.TestResult):
    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path
        self._outcome = ("ok", "")
        self._began = 0.0

    def startTest(self, test: unittest.TestCase) -> None:  # noqa: N802 - unittest's names
        super().startTest(test)
        self._outcome, self._began = ("ok", ""), time.monotonic()

    def stopTest(self, test: unittest.TestCase) -> None:  # noqa: N802
        super().stopTest(test)
        self.write(test.id(), *self._outcome)

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:  # noqa: N802
        self._add(test, "skip", reason)

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:  # noqa: N802
        self._add(test, "fail", _last_line(err))

    addError = addFailure  # noqa: N815

    def addSubTest(self, test: unittest.TestCase, subtest: unittest.TestCase, err: Any) -> None:  # noqa: ARG002, N802
        if err is not None:
            self._add(test, "skip" if issubclass(err[0], unittest.SkipTest) else "fail", _last_line(err))

    def addUnexpectedSuccess(self, test: unittest.TestCase) -> None:  # noqa: N802
        self._add(test, "fail", "unexpected success")

    def _add(self, test: unittest.TestCase, outcome: str, detail: str) -> None:
        if not isinstance(test, unittest.TestCase) or not hasattr(test, "_testMethodName"):
            self.write(test.id(), outcome, detail)  # of a class or a module
        elif WORST.index(outcome) > WORST.index(self._outcome[0]):
            self._outcome = (outcome, detail)

    def write(self, name: str, outcome: str, detail: str) -> None:
        seconds = time.monotonic() - self._began
        with open(self._path, "a", encoding="utf-8", errors="backslashreplace") as file:
            file.write("\t".join((outcome, name, f"{seconds:.2f}", " ".join(detail.split()))) + "\n")


def _last_line(err: Any) -> str:
    return f"{err[0].__name__}: {err[1]}"


def run_module(results: str, left_out: list[str], name: str) -> None:
    """Run the tests of one module in this process."""
    support: Any = importlib.import_module("test.support")
    support.use_resources = ["subprocess", "cpu"]  # no network, no big files, no sound
    support.verbose = 0
    outcomes = Outcomes(results)
    warnings.simplefilter("ignore")
    try:
        loaded = unittest.defaultTestLoader.loadTestsFromName("test." + name)
    except unittest.SkipTest as error:
        outcomes.write("test." + name, "skip", str(error))
        return
    keep(loaded, left_out).run(outcomes)


def keep(loaded: unittest.TestSuite, left_out: list[str]) -> unittest.TestSuite:
    """Return the same suites without some of their tests."""
    kept = unittest.TestSuite()
    for one in loaded:
        if isinstance(one, unittest.TestSuite):
            kept.addTest(keep(one, left_out))
        elif not any(fnmatchcase(one.id(), pattern) for pattern in left_out):
            kept.addTest(one)
    return kept


def main() -> None:
    results, left_out, *modules = sys.argv[1:]
    if modules[0] == "--one":
        run_module(results, json.loads(left_out), modules[1])
        sys.stdout.flush()
        os._exit(0)  # threads of tests may stay
    for number, module in enumerate(modules):
        place = os.path.join(os.getcwd(), f"m{number}")
        os.mkdir(place)
        words = [sys.executable, "-s", os.path.abspath(__file__), os.path.abspath(results), left_out, "--one", module]
        why = ""
        try:
            done = subprocess.run(
                words,
                cwd=place,
                env={**os.environ, "TMPDIR": place},
                stdin=subprocess.DEVNULL,
                timeout=PATIENCE,
                check=False,
            )
            why = f"exit status {done.returncode}" if done.returncode else ""
        except subprocess.TimeoutExpired:
            why = f"no end in {PATIENCE:.0f} s"
        if why:
            with open(results, "a", encoding="utf-8") as file:
                file.write(f"died\ttest.{module}\t0\t{why}\n")
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    main()
