"""The plugin of pytest, by the example of the library and by small files of tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from conftest import Place
from library_examples import EXAMPLES
from rooms import environ_of, open_room

pytestmark = pytest.mark.slow

PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "mudroom"]
ALONE = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONDONTWRITEBYTECODE": "1"}
"""Without the plugins of the tests' requirements, which take seconds to load; ``-p`` names mudroom's entry point."""


def test_the_plugin_gives_each_test_a_fork(place: Place) -> None:
    shutil.copy(EXAMPLES / "test_in_a_fork.py", place.project)
    place.write("test_fails.py", "def test_it(mudroom):\n    mudroom.write('seen', 'x')\n    assert False\n")
    place.write("pytest.ini", "[pytest]\n")
    before = sorted(os.listdir(place.project))

    def tests(*words: str) -> str:
        return subprocess.run(
            [*PYTEST, *words], cwd=place.project, env=environ_of(place, **ALONE), capture_output=True, text=True,
            check=False, timeout=80,
        ).stdout  # fmt: skip

    assert "2 passed, 1 failed" in (out := tests()) or "1 failed, 2 passed" in out, out
    with open_room(place) as room:
        assert room.forks() == []
        assert "kept: mudroom diff run-" in tests("--mudroom-keep", "test_fails.py")
        assert [room.changes(fork.name).paths for fork in room.forks()] == [["seen"]]
    assert sorted(os.listdir(place.project)) == before


def test_the_plugin_loads_nothing_for_tests_without_it(place: Place) -> None:
    place.write("test_plain.py", "import sys\ndef test_it():\n    assert 'mudroom.library' not in sys.modules\n")
    done = subprocess.run(
        PYTEST,
        cwd=place.project, env=environ_of(place, **ALONE), capture_output=True, text=True, check=False, timeout=80,
    )  # fmt: skip
    assert "1 passed" in done.stdout, done.stdout
