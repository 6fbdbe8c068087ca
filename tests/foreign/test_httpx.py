"""httpx's own suite inside: it sees proxy variables, names that are refused, and ports of its own."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

import suite
from conftest import Place
from test_universal_pathlib import read_results

WORDS = [
    "-m",
    "pytest",
    "-q",
    "-p",
    "no:cacheprovider",
    "-o",
    "addopts=",
    "-o",
    "filterwarnings=",
    "--tb=line",
    "tests",
]


@pytest.mark.deep
@pytest.mark.foreign
@pytest.mark.both_users
@pytest.mark.limit(600)
@pytest.mark.parametrize("mode", ["overlay", "copy"])
def test_httpx(place: Place, mode: str) -> None:
    found = suite.source("httpx")
    shutil.copytree(found, place.project, dirs_exist_ok=True)
    python = ["env", "-u", "SSL_CERT_FILE", "-u", "SSL_CERT_DIR", "/usr/bin/python3", *WORDS, "--junitxml=results.xml"]
    environment = os.environ | {"PYTHONPATH": "libraries", "PYTHONDONTWRITEBYTECODE": "1"}
    environment = {name: value for name, value in environment.items() if not name.lower().endswith("_proxy")}
    subprocess.run(python, cwd=place.project, env=environment, capture_output=True, check=False, timeout=300)
    native = read_results(place.project / "results.xml")
    assert list(native.outcomes.values()).count("ok") > 1000
    (place.project / "results.xml").unlink()
    with suite.open_mode(place, mode) as session:
        inside = ["env", "PYTHONPATH=libraries", "PYTHONDONTWRITEBYTECODE=1", *python]
        result = session.run([os.fsencode(word) for word in inside], fork="f", timeout=500.0)
        assert not result.timed_out
        (place.root / "results.xml").write_bytes(suite.staged(session, "results.xml"))
    ran = read_results(place.root / "results.xml")
    lines = suite.surprises(native.outcomes, ran, suite.table("httpx"), mode)
    assert lines == [], "\n".join(lines)
