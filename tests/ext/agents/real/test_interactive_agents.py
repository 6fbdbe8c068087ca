"""Two agents in a real terminal, under mudroom and without an option: they are started, asked, and ended by their own
command. What mudroom has to ask meanwhile does not take their keys or their screen."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import pytest
from model_server import ModelServer
from real_agents import BY_NAME, MUDROOM, RealAgent, Try

from test_real_agents import expected, place, record
from tmux import Tmux

pytestmark = [pytest.mark.deep, pytest.mark.both_users, pytest.mark.limit(200)]


class Interactive(NamedTuple):
    name: str
    words: tuple[str, ...]
    files: dict[str, str]
    """What a user's first start has left in the home; added to what is there. ``{project}`` is filled in."""
    ready: str
    """On the screen when it takes a prompt."""
    leave: str
    offered: str
    """On the screen when the command that leaves it has been typed."""


_CLAUDE: dict[str, Any] = {
    "hasCompletedOnboarding": True,
    "customApiKeyResponses": {"approved": ["sk-none"], "rejected": []},
    "projects": {"{project}": {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}},
}
TWO = (
    Interactive(
        "claude",
        ("claude", "--permission-mode", "acceptEdits", "--allowedTools", "Bash,Read,Edit,Write"),
        {".claude.json": json.dumps(_CLAUDE)},
        "\N{HEAVY RIGHT-POINTING ANGLE QUOTATION MARK ORNAMENT}",
        "/exit",
        "Exit the CLI",
    ),
    Interactive(
        "codex",
        ("codex", "--dangerously-bypass-approvals-and-sandbox"),
        {".codex/config.toml": '\n[projects."{project}"]\ntrust_level = "trusted"\n'},
        "Ask Codex",
        "/quit",
        "exit Codex",
    ),
)


@pytest.fixture(params=TWO, ids=lambda two: two.name)
def interactive(request: pytest.FixtureRequest) -> Interactive:
    return cast(Interactive, request.param)


@pytest.fixture
def here(tmp_path: Path, interactive: Interactive) -> Iterator[Try]:
    here = place(tmp_path, BY_NAME[interactive.name])
    yield here
    here.close()


def settle(here: Try, interactive: Interactive) -> None:
    """Write what the agent's first start leaves: no welcome, a project that is trusted."""
    for name, content in interactive.files.items():
        with open(here.home / name, "a", encoding="utf-8") as stream:
            stream.write(content.replace("{project}", str(here.project)))


def terminal(here: Try, server: ModelServer) -> Tmux:
    values = {name: value for name, value in here.environment(server).items() if name not in ("HOME", "TERM")}
    where = SimpleNamespace(project=here.project, home=here.home, state=here.home / ".local/state/mudroom")
    return Tmux(cast(Any, where), 100, 30, **values)


def play(tmux: Tmux, interactive: Interactive, line: str) -> None:
    """Start it, type one prompt, wait for its answer, and leave it."""
    tmux.type(f"clear; {line}; echo ended $?")
    tmux.until(interactive.ready)
    tmux.keys("-l", "Fix the test")
    tmux.until("Fix the test")
    tmux.keys("Enter")
    tmux.until("The test passes now.")
    tmux.keys("-l", interactive.leave)
    tmux.until(interactive.offered)
    tmux.keys("Enter")
    tmux.until("ended 0")


def test_an_agent_in_a_terminal(here: Try, interactive: Interactive) -> None:
    agent: RealAgent = here.agent
    with ModelServer(here.steps()) as server:
        here.prepare(server)
        settle(here, interactive)
        before, store = here.snapshot(), here.store()
        tmux = terminal(here, server)
        try:
            play(tmux, interactive, shlex.join((*MUDROOM, "agent", "run", "--", *interactive.words)))
        finally:
            tmux.close()
    figures = {"played": len(server.played()), "leaks": sorted(here.leaks(server))}
    record(agent, "in a terminal, level 1", untouched=here.snapshot() == before, **figures)
    assert server.played() == [step.name for step in server.steps]
    assert here.leaks(server) == set()
    assert here.snapshot() == before
    assert here.store() == store, "a file of the home has changed"
    rows = json.loads(here.mudroom("diff", agent.name, "--json"))["changes"]["files"]
    assert {row["path"] for row in rows if not row["path"].startswith(".git/")} == expected(agent)
