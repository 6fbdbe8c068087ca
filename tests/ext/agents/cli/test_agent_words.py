"""Wrong words of the verbs of agents."""

from __future__ import annotations

import os

import pytest

from conftest import Place
from mudroom.cli.main import run
from test_narrow_lists import require_narrow
from test_usage_messages import ENVIRON, require_told

WRONG = {
    "agent": "agent needs an action: run, ls, show, settings, check, card (mudroom agent --help)",
    "agent list": "agent has no action 'list' (did you mean mudroom agent ls? mudroom agent --help)",
    "agent claude": "agent has no action 'claude' (mudroom agent run claude runs it; mudroom agent --help)",
    "hook install": "hook install needs agent: claude, codex, ",
    "hook uninstall claude": "there is no action 'uninstall' of hook (mudroom hook install claude --remove)",
    "agent ls --all": "agent has no option --all (mudroom agent --help)",
}


def test_a_wrong_word_names_the_right_one(capfd: pytest.CaptureFixture[str]) -> None:
    require_told(WRONG, capfd)


def test_a_shim_has_a_directory(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, place: Place
) -> None:
    """An empty word, of an unset variable, was the current directory: the project."""
    monkeypatch.chdir(place.project)
    before = os.listdir()
    assert run(["hook", "shell", ""], ENVIRON) == 125
    assert "DIR is empty" in capfd.readouterr().err and os.listdir() == before


def test_the_list_of_agents_is_no_wider_than_the_terminal(place: Place) -> None:
    require_narrow(place, ("agent ls",))
