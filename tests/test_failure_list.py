"""A run that breaks off tells its failures (``failure_list.py``)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

TESTS = "def test_first(): assert 1 == 2\ndef test_second(): pass\n"
BREAKS = "def pytest_runtest_logstart(nodeid): assert 'second' not in nodeid, 'breaks'\n"


@pytest.mark.parametrize("workers", [[], ["-p", "xdist", "-n", "1"]])
def test_the_failures_before_the_break_are_told(tmp_path: Path, workers: list[str]) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "conftest.py").write_text(BREAKS)
    words = [sys.executable, "-m", "pytest", "-q", "-p", "failure_list", *workers, str(tmp_path)]
    path = {"PYTHONPATH": str(Path(__file__).parent), "PATH": "/usr/bin:/bin"}
    ended = subprocess.run(words, cwd=tmp_path, env=path, capture_output=True, text=True, check=False)
    assert ended.returncode == pytest.ExitCode.INTERNAL_ERROR, ended.stdout
    assert "test_first (call)" in ended.stdout and "assert 1 == 2" in ended.stdout
