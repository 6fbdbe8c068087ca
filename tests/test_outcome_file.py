"""A long run that was cut off goes on where it stopped, and can be divided (``outcome_file.py``)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from outcome_file import part, pytest_collection_modifyitems

TESTS = """
import os, pytest
def test_passes(): pass
def test_skips(): pytest.skip("no\\tlinks")
def test_fails(): assert os.environ.get("MENDED"), "torn"
def test_ends(): os.environ.get("MENDED") or os._exit(9)
def test_rest(): pass
"""


def run(place: Path, *words: str, **environment: str) -> list[str]:
    """Run the tests, and return the file's lines."""
    (place / "test_it.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "outcome_file"]
    path = {"PYTHONPATH": str(Path(__file__).parent), "PATH": "/usr/bin:/bin", **environment}
    ended = subprocess.run(
        [*command, "--outcomes", "file", *words], cwd=place, env=path, capture_output=True, text=True, check=False
    )
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


class Items:
    """A collection of tests, and the part that is left of it."""

    def __init__(self, chosen: tuple[int, int]) -> None:
        self.left = [SimpleNamespace(nodeid=f"test_it.py::test_{number}") for number in range(40)]
        self.deselected: list[object] = []
        self.hook = SimpleNamespace(pytest_deselected=self._deselect)
        self._options = {"--part": chosen, "--outcomes": None}
        pytest_collection_modifyitems(self, self.left)  # type: ignore[arg-type]

    def _deselect(self, items: list[object]) -> None:
        self.deselected += items

    def getoption(self, name: str) -> object:
        return self._options[name]


def test_parts_are_the_whole() -> None:
    parts = [Items((number, 3)) for number in (1, 2, 3)]
    names = [item.nodeid for items in parts for item in items.left]
    assert len(names) == len(set(names)) == 40
    assert all(items.left and len(items.left) + len(items.deselected) == 40 for items in parts)


@pytest.mark.parametrize("words", ["0/3", "4/3", "1", "a/b", "-1/3", "1/3/3"])
def test_no_part_of_anything(words: str) -> None:
    with pytest.raises(ValueError, match=words):
        part(words)
