"""The examples of the library, run as their first lines say. No test is here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from conftest import Place
from rooms import environ_of

EXAMPLES = Path(__file__).resolve().parents[2] / "examples/library"


def run(place: Place, program: str, *words: str, **more: str) -> str:
    """Run an example on the project and return its output."""
    environment = environ_of(place, PYTHONPATH=os.environ.get("PYTHONPATH", ""), **more)
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / program), str(place.project), *words],
        env=environment, cwd=place.root, capture_output=True, text=True, check=False, timeout=80,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


def wants_words(program: str) -> None:
    """Without its words it says how it is run."""
    done = subprocess.run([sys.executable, str(EXAMPLES / program)], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and f"python {program} PROJECT" in done.stderr
    assert "Traceback" not in done.stderr
