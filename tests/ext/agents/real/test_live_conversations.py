"""A real agent of whose fork another one is made while it works: its conversation goes on in both, by its own words.

``codex fork`` takes a terminal; without one it goes on by ``codex exec resume``."""

from __future__ import annotations

from pathlib import Path

import pytest
from live_agent import driver, require_apart, turn
from model_server import ModelServer
from real_agents import BY_NAME, Try

pytestmark = [pytest.mark.deep, pytest.mark.both_users, pytest.mark.limit(300)]


@pytest.mark.parametrize(
    ("name", "terminal"),
    [("claude", False), ("opencode", False), ("codex", False), ("codex", True)],
    ids=["claude", "opencode", "codex", "codex in a terminal"],
)
def test_a_conversation_goes_on_in_a_live_fork(tmp_path: Path, name: str, terminal: bool) -> None:
    if not BY_NAME[name].version:
        pytest.skip(f"real agent absent: {name} (dev/agents --fetch installs it)")
    here = Try(tmp_path, BY_NAME[name])
    try:
        with ModelServer(()) as server:
            agent = driver(here, server, terminal=terminal)
            with agent.working():
                turn(agent, "b", "Go on in b")
            require_apart(agent, "Go on in b")
    finally:
        here.close()
