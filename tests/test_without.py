"""Satellites are deleted in a copy of the tree (``dev/without``): the first minute works there, each of their verbs
answers in one line, and the kernel's tests pass."""

from __future__ import annotations

import subprocess

import pytest

from house import ROOMS, ROOT
from satellites import whole

SATELLITES = sorted(name.removeprefix("ext.") for name in ROOMS if name.startswith("ext."))


def without(*words: str) -> str:
    done = subprocess.run(
        [ROOT / "dev/without", *words], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()[-1]


@pytest.mark.deep
@whole
@pytest.mark.limit(300)
def test_the_kernel_stands_without_any_satellite() -> None:
    assert without("--all", "--", "none") == "without any satellite: the first minute works; no tests asked for"


@pytest.mark.deep
@pytest.mark.limit(7200)
@pytest.mark.parametrize("satellite", ["--all", *SATELLITES])
def test_the_tests_of_the_kernel_pass_without(satellite: str) -> None:
    assert "the first minute works; " in without(satellite, "--", "quick")


@whole
def test_a_satellite_that_is_not_there_is_named() -> None:
    done = subprocess.run([ROOT / "dev/without", "nothing"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "no satellite: nothing; there are: agents attempts" in done.stderr
