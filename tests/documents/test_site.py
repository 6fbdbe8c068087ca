"""The site builds without a warning: no link leads nowhere, no page is cut."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from documents.machine import ROOT


@pytest.mark.slow
def test_the_site_builds_strictly(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "-d", tmp_path / "trees",
         ROOT / "docs", tmp_path / "site"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "site/howto/agent.html").exists()
    assert 'href="decisions' not in (tmp_path / "site/index.html").read_text(), (
        "records of decisions are not in the menu"
    )
