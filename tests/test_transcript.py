"""A whole session of an agent, with the real command line: docs/evidence/TRANSCRIPT.md is what this plays, DAY.md a
user's day at a terminal."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from tiers import daily
from transcript import day
from transcript.play import Stage
from transcript.project import make_project
from transcript.steps import PYTHON, STEPS, Command, Verb

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed"),
    pytest.mark.skipif(not os.path.exists(PYTHON), reason=f"{PYTHON} is not installed"),
]

APPLIED = next(number for number, step in enumerate(STEPS) if isinstance(step, Verb) and "apply" in step.words)


@pytest.mark.deep
@pytest.mark.limit(300)
def test_an_agent_s_session_from_end_to_end(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    make_project(stage.project)
    readme = (stage.project / "README.md").read_text()
    for number, step in enumerate(STEPS):
        played = stage.play(step)
        told = f"step {number}: {played.typed}\n{played.shown}"
        assert played.exit_code == step.exit_code, told
        if isinstance(step, Command):
            assert played.result is not None
            assert played.result["verdict"]["action"] == step.action, f"{told}\n{played.result['verdict']}"
            assert (played.result["checkpoint"] is not None) == (step.action != "allow" and step.exit_code != 126), told
        if number < APPLIED:
            assert (stage.project / "README.md").read_text() == readme, told
    assert "ledger.render" in (stage.project / "README.md").read_text()
    assert not (stage.project / "ledger/report.py").exists()
    assert (stage.project / "ledger/formats/csv.py").exists()


@pytest.mark.limit(120)
@pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed")
@pytest.mark.parametrize("columns", daily(day.WIDTHS))
def test_a_day_at_a_terminal(tmp_path: Path, columns: int, nothing_left: None) -> None:
    for step, ran in day.play(tmp_path / "d", columns):
        told = f"{step.typed}\n{ran.printed}"
        assert ran.exit_code == step.code, told
        assert re.sub(r"\s+", " ", step.says) in re.sub(r"\s+", " ", ran.printed), told
        assert "waiting for" not in ran.printed, told
        own = [] if step.beside else ran.printed.splitlines()
        assert not [line for line in own if len(line) > columns and not re.search("/home/you|→|mudroom ", line)], told
