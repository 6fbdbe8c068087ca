"""Messages of the verbs of agents, each brought about by what a user would type or write."""

from __future__ import annotations

import os
import shlex

import pytest

from conftest import Place
from mudroom.cli.main import run
from mudroom.ext.agents.card import load_card
from mudroom.ext.agents.catalog import Catalog
from test_messages_by_doing import Told, all_told, environ_of, refused

__all__ = ["all_told"]  # a fixture

LINES = {
    "acp --json -- x": "--json is not for acp: its standard output belongs to the editor (leave it out)",
    "agent run --on big --fork f -- true": "--on is not for --fork and --artifacts",
    "agent run": "no agent was named, and none that mudroom knows is on PATH (mudroom agent ls lists them)",
    "hook run": "hook run takes the name of one agent (mudroom hook run claude)",
    "hook shell a:b": "/a:b cannot be an entry of PATH (name another directory)",
    "agent settings f --land x": "f has not changed ~/x (mudroom agent settings f)",
    "agent show nosuch": "there is no profile of an agent 'nosuch' (known: aider, amp, claude,",
    "acp -- no-such-program": "no-such-program: no such program on PATH (name a program that is on PATH, or its path)",
}


def test_wrong_lines(all_told: Told) -> None:
    all_told(LINES)


def test_wrong_files(place: Place) -> None:
    """Of profiles and cards."""
    agents = place.home / "agents"
    agents.mkdir()
    for name, text in (
        ("other", 'format = 1\nname = "x"\nprograms = ["x"]\n'),
        ("broken", "name =\n"),
        ("large", "#" * (1 << 19)),
    ):
        (agents / f"{name}.toml").write_text(text)
    (agents / "closed.toml").mkdir()
    catalog = Catalog(os.fsencode(place.home))
    profiles = (
        ("other", "other.toml: name is 'x' (name = \"other\", as the file is called)"),
        ("broken", "broken.toml: this is not TOML: "),
        ("large", "large.toml is larger than any profile (256"),
        ("closed", "closed.toml: Is a directory"),
    )
    refused(profiles, catalog.profile)
    cards = (
        (place.write("card.json", '{"agentId": }'), "card.json:1: this is not JSON: "),
        (place.write("large.json", " " * (1 << 21)), "large.json is larger than any card ("),
        (place.project, "Is a directory"),
    )
    refused(cards, lambda path: load_card(os.fsencode(path)))


def test_wrong_places(place: Place, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    environ = environ_of(place)

    def told(line: str) -> str:
        assert run(shlex.split(line), environ) in (1, 125), line
        return capfd.readouterr().err

    monkeypatch.chdir(place.project)
    settings = place.write(".claude/settings.local.json", "#" * (1 << 25))
    assert "is larger than any settings file" in told("hook install claude")
    settings.unlink()
    settings.symlink_to("missing")
    assert "missing, which does not exist (remove it, or make that file)" in told("hook install claude")
    assert "hook run takes the name of one agent" in told("hook run a b")


def test_a_fork_without_a_checkpoint(all_told: Told) -> None:
    told = "f has no checkpoint from which it differs (mudroom checkpoint --fork f lists them)"
    all_told({"rollback --fork f": told})
