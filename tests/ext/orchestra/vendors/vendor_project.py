"""A pytest plugin for the checks that run where a vendor's package is installed."""

from __future__ import annotations

from pathlib import Path

import pytest


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
