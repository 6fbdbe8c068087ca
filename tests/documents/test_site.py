"""The site builds without a warning: no link leads nowhere, no page is cut."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from documents.machine import ROOT
from documents.reference import COMMANDS, commands_page


def build(builder: str, work: Path) -> Path:
    """Return the built site. Raise AssertionError for any warning. The page of options is not in the repository."""
    if not COMMANDS.exists():
        COMMANDS.write_text(commands_page())
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", builder, "-d", work / "trees",
         ROOT / "docs", work / "site"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    return work / "site"


@pytest.mark.deep
@pytest.mark.slow
def test_the_pages_are_read_strictly(tmp_path: Path) -> None:
    """Their links are also those of ``test_docs.py``."""
    build("dummy", tmp_path)


@pytest.mark.deep
def test_the_site_builds_strictly(tmp_path: Path) -> None:
    site = build("html", tmp_path)
    assert (site / "howto/agent.html").exists()
    assert 'href="decisions' not in (site / "index.html").read_text(), "records of decisions are not in the menu"
