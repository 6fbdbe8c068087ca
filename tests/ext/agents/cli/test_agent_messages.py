"""Messages of the verbs of agents, each brought about by what a user would type or write."""

from __future__ import annotations

import os
import shlex
import sys

import pytest

from conftest import Place
from mudroom.cli.main import run
from mudroom.ext.agents.card import load_card
from mudroom.ext.agents.catalog import Catalog
from mudroom.ext.agents.cli import hook_shell
from screen import Screen
from test_approve_verb import Approving
from test_messages_by_doing import Told, all_told, environ_of, refused
from test_messages_of_machines import Told as ToldOf
from test_messages_of_machines import terminal_lines, told
from test_narrow_lists import require_narrow
from test_taken_terminal import BELL, FULL_SCREEN, PUSH, cli
from test_usage_messages import ENVIRON, require_told

__all__ = ["all_told", "cli", "told"]  # fixtures

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


def test_a_protocol_is_not_for_a_person(place: Place) -> None:
    assert terminal_lines(place, "mcp") == (
        "mudroom: mudroom mcp speaks a protocol on its standard input, and that is a terminal "
        "(claude mcp add mudroom -- mudroom mcp lets a client start it)\n"
    )


def test_inside_a_sandbox(told: ToldOf) -> None:
    assert told("mcp", MUDROOM="1") == (
        "mudroom: mudroom mcp runs inside mudroom, where its forks would be lost with the sandbox "
        "(the client's own commands and edits are staged already: leave the server out)\n"
    )


def test_a_machine_without_a_shell(told: ToldOf, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """As an image without one."""
    monkeypatch.setattr(hook_shell, "_DIRECTORIES", ("/nowhere/bin", "/nowhere/sbin"))
    assert told(f"hook shell {place.root}/shims") == (
        "mudroom: no shell is installed in /nowhere/bin, /nowhere/sbin (install bash, or dash)\n"
    )


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


def test_an_agents_denied_host_never_asks(cli: Approving) -> None:
    """By its profile: telemetry."""
    place = cli.place
    programs = place.home / "bin"
    programs.mkdir()
    (programs / "claude").write_text(f"#!{sys.executable}\n{FULL_SCREEN}")
    (programs / "claude").chmod(0o755)
    words = [sys.executable, "-m", "mudroom", "agent", "run", "--", "claude", "statsig.anthropic.com:443"]
    path = f"{programs}:{os.environ['PATH']}"
    screen = Screen(place, "env", f"PATH={path}", *words, columns=300)
    seen = screen.expect("told HTTP/1.1 403.*changed nothing").string.decode()
    assert "Allow" not in seen and PUSH not in seen and BELL not in seen
    assert screen.exit_code() == 0
    assert cli.queue.rows() == []
