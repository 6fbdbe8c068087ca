"""The pure modules of the page, by Node's own test runner: one run of all that lies in ``page/``."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent / "page"
NODE = shutil.which("node")


@pytest.mark.skipif(NODE is None, reason="node is not installed: it runs the modules of the page")
def test_the_pure_modules_of_the_page() -> None:
    files = sorted(map(str, HERE.glob("*.test.mjs")))
    assert files
    run = subprocess.run([str(NODE), "--test", *files], capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, run.stdout[-8000:] + run.stderr[-2000:]
