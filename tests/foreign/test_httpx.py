"""httpx's own tests: a client and a server on loopback, proxies of the environment, a trust store, two event
loops."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

import suite
from conftest import Place

pytestmark = [pytest.mark.deep, pytest.mark.foreign, pytest.mark.both_users, pytest.mark.limit(900)]
PYTHON = "/usr/bin/python3"
LEAST = 1_300
"""Tests that pass outside."""


def line(libraries: Path) -> str:
    words = "-m pytest -q -p no:cacheprovider --junitxml=results.xml"
    return f"PYTHONPATH={libraries} PYTHONDONTWRITEBYTECODE=1 LC_ALL=C.UTF-8 {PYTHON} {words} >output 2>&1 || true"


@pytest.fixture(scope="module")
def natively(tmp_path_factory: pytest.TempPathFactory) -> suite.Ran:
    found = suite.source("httpx")
    top = tmp_path_factory.mktemp("httpx")
    shutil.copytree(found, top / "project", ignore=shutil.ignore_patterns("libraries"))
    home = top / "home"
    home.mkdir()
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(home)}
    script = line(found / "libraries")
    subprocess.run(["sh", "-c", script], cwd=top / "project", env=environment, stdin=subprocess.DEVNULL, check=True)
    return suite.read_results(top / "project/results.xml")


@pytest.mark.parametrize("mode", ["overlay", "copy"])
def test_every_test_has_its_outcome(place: Place, natively: suite.Ran, mode: str) -> None:
    found = suite.source("httpx")
    assert list(natively.outcomes.values()).count("ok") >= LEAST
    shutil.copytree(found, place.project, dirs_exist_ok=True, ignore=shutil.ignore_patterns("libraries"))
    session = suite.open_mode(place, mode, found / "libraries")
    suite.run_in(session, place, line(found / "libraries"), mode)
    results = place.root / "results.xml"
    results.write_bytes(suite.staged(session, "results.xml"))
    ran = suite.read_results(results)
    if folder := os.environ.get("MUDROOM_FOREIGN_OUTPUT"):
        Path(folder, f"httpx {mode}").write_bytes(suite.staged(session, "output"))
    lines = suite.surprises(natively.outcomes, ran, suite.table("httpx"), mode)
    assert lines == [], "\n".join(lines)
