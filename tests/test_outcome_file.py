"""A run that was cut off goes on where it stopped, one that breaks off tells its failures (``outcome_file.py``)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TESTS = """
import os, pytest
def test_passes(): pass
def test_skips(): pytest.skip("no\\tlinks")
def test_fails(): assert os.environ.get("MENDED"), "torn"
def test_ends(): os.environ.get("MENDED") or os._exit(9)
def test_rest(): pass
"""


def start(place: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "outcome_file", *words]
    path = {"PYTHONPATH": str(Path(__file__).parent), "PATH": "/usr/bin:/bin", **environment}
    return subprocess.run(command, cwd=place, env=path, capture_output=True, text=True, check=False)


def run(place: Path, **environment: str) -> list[str]:
    """Run the tests, and return the file's lines."""
    (place / "test_it.py").write_text(TESTS)
    ended = start(place, "--outcomes", "file", **environment)
    assert not ended.stderr, ended.stderr
    return (place / "file").read_text().splitlines()


def test_a_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    lines = run(tmp_path)
    assert lines == [
        "passed\ttest_it.py::test_passes\t",
        "skipped\ttest_it.py::test_skips\tSkipped: no links",
        "failed\ttest_it.py::test_fails\tAssertionError: torn",
    ]
    with (tmp_path / "file").open("a") as stream:
        stream.write("passed\ttest_it.py::test_e")  # cut off in a line
    rest = run(tmp_path, MENDED="1")[4:]
    assert rest == [f"passed\ttest_it.py::test_{name}\t" for name in ("fails", "ends", "rest")]


BREAKS = "def pytest_runtest_logstart(nodeid): assert 'skips' not in nodeid, 'breaks'\n"


@pytest.mark.parametrize("workers", [[], ["-p", "xdist", "-n", "1"]], ids=["here", "xdist"])
def test_the_failures_before_a_break_are_told(tmp_path: Path, workers: list[str]) -> None:
    (tmp_path / "test_it.py").write_text(TESTS.replace("passes(): pass", "passes(): assert 1 == 2"))
    (tmp_path / "conftest.py").write_text(BREAKS)
    ended = start(tmp_path, *workers)
    assert ended.returncode == pytest.ExitCode.INTERNAL_ERROR, ended.stdout
    assert "test_passes (call)" in ended.stdout and "assert 1 == 2" in ended.stdout
