"""A pytest plugin for the checks that run where a vendor's package is installed."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

PAGE = Path(__file__).parents[4] / "docs/ORCHESTRA.md"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project, with a state directory of its own."""
    monkeypatch.setenv("MUDROOM_STATE", str(tmp_path / "state"))
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    project = tmp_path / "proj"
    project.mkdir()
    (project / "a.txt").write_text("hello\n")
    (project / ".env").write_text("TOKEN=secret\n")
    return project


def run_of_page(heading: str, project: Path, **given: Any) -> dict[str, Any]:
    """Run the block below a heading of docs/ORCHESTRA.md beside the project, with these names. Return all names."""
    found = re.search(rf"^## {re.escape(heading)}$.*?^```python$(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert found is not None, heading
    os.chdir(project.parent)
    names = dict(given)
    exec(compile(found[1], heading, "exec"), names)
    return names
