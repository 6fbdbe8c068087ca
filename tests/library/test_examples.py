"""The example of the library that needs no satellite."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from conftest import Place
from library_examples import EXAMPLES
from rooms import environ_of

pytestmark = pytest.mark.slow


def test_the_notebook_runs(place: Place) -> None:
    """Its code cells, one after the other in one namespace, as a kernel does."""
    notebook = json.loads((EXAMPLES / "tour.ipynb").read_text())
    assert (notebook["nbformat"], {cell["cell_type"] for cell in notebook["cells"]}) == (4, {"markdown", "code"})
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] for cell in notebook["cells"] if cell["cell_type"] == "code")
    program = "import json, sys\nspace = {}\nfor cell in json.load(sys.stdin): exec(cell, space)"
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=json.dumps(cells), cwd=place.project, env=environ_of(place), capture_output=True, text=True, check=False,
        timeout=80,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert "added     greeting.txt  +1 -0" in done.stdout and "+good morning" in done.stdout
