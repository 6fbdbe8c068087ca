"""A real agent of whose fork another one is made while it works: its conversation goes on in both, by its own words.

``codex fork`` takes a terminal."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from model_server import ModelServer
from real_agents import BY_NAME, MUDROOM, Try
from scenario import Step

from clocks import give_way
from mudroom.ext.agents.catalog import Catalog

pytestmark = [pytest.mark.deep, pytest.mark.both_users, pytest.mark.limit(300)]

STEPS = (
    Step("tell", "echo the-first-result"),
    Step("wait", "touch waiting; until [ -e go ]; do sleep 0.1; done; echo the-second-result"),
    Step("finish", content="Done."),
)


@pytest.mark.parametrize("name", ("claude", "opencode"))
def test_a_conversation_goes_on_in_a_live_fork(tmp_path: Path, name: str) -> None:
    agent = BY_NAME[name]
    if not agent.version:
        pytest.skip(f"real agent absent: {name} (dev/agents --fetch installs it)")
    here = Try(tmp_path, agent)
    try:
        with ModelServer(STEPS) as server:
            here.prepare(server)
            environment = here.environment(server)
            working = subprocess.Popen(
                [*MUDROOM, "agent", "run", "--fork", "a", "--", *here.words()],
                cwd=here.project, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            )  # fmt: skip
            try:
                while not list(here.home.glob(".local/state/mudroom/vaults/*/layers/*/tree/waiting")):
                    assert working.poll() is None
                    give_way()
                told = here.mudroom("fork", "new", "b", "--from", "a", "--live")
                words = " ".join((name, *Catalog().profile(name).continued))
                assert f"mudroom agent run --fork b -- {words}" in told
                here.mudroom("exec", "--fork", "b", "--", "touch", "go")
                before = len(server.replies)
                going_on = (*here.words(), *Catalog().profile(name).continued)
                ended = here.run((*MUDROOM, "agent", "run", "--fork", "b", "--", *going_on), environment)
                assert ended.code == 0 and "Done." in ended.output, (ended, server.errors)
                assert len(server.replies) > before
                assert all(reply.step > 0 for reply in server.replies[before:]), "it knows the first result"
                assert "the-first-result" in server.results[0]
                assert working.poll() is None
            finally:
                working.terminate()
                working.communicate()
    finally:
        here.close()
