"""The budget of skips: each test counts once under its reason, and too many skips fail a run that would pass."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from skip_budget import TABLE, compare

MODULE = """
import pytest

@pytest.mark.parametrize("number", range({count}))
def test_skips(number):
    pytest.skip("gcc is not installed")

@pytest.mark.skipif(True, reason="only root may mount")
def test_skips_by_mark(): pass

def test_passes(): pass

@pytest.mark.xfail
def test_fails_as_expected(): assert 0
"""
WHOLE = 'import pytest\npytest.importorskip("no_such_library", reason="the extra web")\ndef test_a(): pass\n'
LISTED = """
[[skip]]
reason = '(gcc|attr) is not installed'
user = 2
[[skip]]
reason = 'only root may mount'
user = 1
[[skip]]
reason = 'the extra .*'
user = 1
"""


def run(place: Path, count: int, *words: str, listed: str = LISTED) -> tuple[int, str]:
    """Return the exit status and the output of a run."""
    (place / "skips.toml").write_text(listed)
    (place / "test_whole.py").write_text(WHOLE)
    (place / "test_it.py").write_text(MODULE.format(count=count))
    command = [sys.executable, "-m", "pytest", "-p", "skip_budget", "-p", "no:cacheprovider", *words]
    environ = {"PYTHONPATH": str(TABLE.parent), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "MUDROOM_FIGURES": "figures"}
    done = subprocess.run(
        [*command, "--rootdir", ".", "--skip-table", "skips.toml"],
        cwd=place, env={**os.environ, **environ}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout


@pytest.mark.slow
@pytest.mark.limit(300)
@pytest.mark.parametrize(
    "workers", [(), pytest.param(("-p", "xdist", "-n", "2"), marks=pytest.mark.deep)], ids=["here", "xdist"]
)
def test_as_many_as_are_listed_pass_and_one_more_fails(tmp_path: Path, workers: tuple[str, ...]) -> None:
    status, said = run(tmp_path, 2, "--skip-budget", "user", *workers)
    assert status == 0, said
    assert sorted((tmp_path / "figures").read_text().splitlines()) == [
        "skip\tuser\t1\t1\tonly root may mount",
        "skip\tuser\t1\t1\tthe extra .*",
        "skip\tuser\t2\t2\t(gcc|attr) is not installed",
    ]
    status, said = run(tmp_path, 3, "--skip-budget", "user", *workers)
    assert status == 1, said
    assert "3 (at most 2)  (gcc|attr) is not installed\n" in said
    assert "FAILED: more tests are skipped than skips.toml lists for the pass 'user'" in said


@pytest.mark.slow
def test_a_pass_that_an_entry_does_not_name_may_skip_none_of_it(tmp_path: Path) -> None:
    assert run(tmp_path, 0, "--skip-budget", "root")[0] == 1


@pytest.mark.slow
def test_only_the_reason_counts_where_any_number_is_accepted(tmp_path: Path) -> None:
    assert run(tmp_path, 9, "--skip-budget", "listed")[0] == 0
    status, said = run(tmp_path, 9, "--skip-budget", "listed", listed=LISTED.replace("gcc", "tcc"))
    assert status == 1
    assert "9 (at most 0)  gcc is not installed (not listed)\n" in said


def test_a_skip_belongs_to_the_first_entry_that_matches() -> None:
    entries = [{"reason": "a", "user": 1}, {"reason": ".", "user": 5}]
    assert compare("aabc", entries, "user") == [("a", 2, 1), (".", 2, 5)]
    assert compare(["dd"], entries, "listed") == [("dd (not listed)", 1, 0)]


def test_the_table_names_only_passes_that_there_are() -> None:
    for entry in tomllib.loads(TABLE.read_text())["skip"]:
        assert entry.keys() <= {"reason", "root", "root-alone", "user", "user-alone"}, entry
        assert all(type(most) is int for name, most in entry.items() if name != "reason"), entry
        re.compile(entry["reason"])
