"""The budget of skips: each test counts once under its reason, and too many skips fail a run that would pass."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from skip_budget import TABLE, Row, compare, read_table

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


class Run:
    def __init__(self, place: Path) -> None:
        self.place = place
        (place / "skips.toml").write_text(LISTED)
        (place / "test_whole.py").write_text(WHOLE)

    def __call__(self, count: int, *words: str) -> subprocess.CompletedProcess[str]:
        (self.place / "test_it.py").write_text(MODULE.format(count=count))
        command = [sys.executable, "-m", "pytest", "-p", "skip_budget", "-p", "no:cacheprovider", *words]
        environ = {**os.environ, "PYTHONPATH": str(TABLE.parent), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        environ["MUDROOM_FIGURES"] = str(self.place / "figures")
        return subprocess.run(
            [*command, "--rootdir", ".", "--skip-table", "skips.toml"],
            cwd=self.place,
            env=environ,
            capture_output=True,
            text=True,
            check=False,
        )

    @property
    def figures(self) -> list[str]:
        return (self.place / "figures").read_text().splitlines()


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


@pytest.mark.slow
@pytest.mark.limit(300)
@pytest.mark.parametrize("workers", [(), ("-p", "xdist", "-n", "2")], ids=["here", "xdist"])
def test_as_many_as_are_listed_pass_and_one_more_fails(run: Run, workers: tuple[str, ...]) -> None:
    done = run(2, "--skip-budget", "user", *workers)
    assert done.returncode == 0, done.stdout
    assert "skips of the pass 'user': 4" in done.stdout
    assert run.figures == [
        "skip\tuser\t2\t2\t(gcc|attr) is not installed",
        "skip\tuser\t1\t1\tonly root may mount",
        "skip\tuser\t1\t1\tthe extra .*",
    ]
    done = run(3, "--skip-budget", "user", *workers)
    assert done.returncode == 1, done.stdout
    assert "    3 (at most 2)  (gcc|attr) is not installed\n" in done.stdout
    assert "FAILED: more tests are skipped than skips.toml lists for the pass 'user'" in done.stdout


@pytest.mark.slow
def test_a_pass_that_an_entry_does_not_name_may_skip_none_of_it(run: Run) -> None:
    assert run(0, "--skip-budget", "root").returncode == 1


@pytest.mark.slow
def test_only_the_reason_counts_where_any_number_is_accepted(run: Run) -> None:
    assert run(9, "--skip-budget", "listed").returncode == 0
    (run.place / "skips.toml").write_text(LISTED.replace("gcc", "tcc"))
    done = run(9, "--skip-budget", "listed")
    assert done.returncode == 1
    assert "    9 (at most 0)  gcc is not installed (not listed)\n" in done.stdout


@pytest.mark.slow
def test_nothing_is_counted_without_the_option(run: Run) -> None:
    done = run(9)
    assert (done.returncode, "skips of the pass" in done.stdout) == (0, False)


def test_a_skip_belongs_to_the_first_entry_that_matches(tmp_path: Path) -> None:
    table = tmp_path / "table"
    table.write_text("[[skip]]\nreason = 'a'\nuser = 1\n[[skip]]\nreason = '.'\nuser = 5\n")
    rows = compare(Counter(a=2, b=1, c=1, dd=1), read_table(table), "user")
    assert rows == [Row("dd (not listed)", 1, 0), Row("a", 2, 1), Row(".", 2, 5)]
    assert [row.is_over for row in rows] == [True, True, False]


@pytest.mark.parametrize("entry", ["user = 1", "reason = 'a'\nuser = '1'", "reason = 'a'\nuser = true"])
def test_an_entry_that_is_wrong_is_refused(tmp_path: Path, entry: str) -> None:
    table = tmp_path / "table"
    table.write_text(f"[[skip]]\n{entry}\n")
    with pytest.raises(ValueError, match="a whole number per pass"):
        read_table(table)


def test_the_table_can_be_read_and_names_only_passes_that_there_are() -> None:
    passes = {name for entry in read_table(TABLE) for name in entry.most}
    assert passes <= {"root", "root-alone", "user", "user-alone"}, passes
