"""A real agent by its profile under each verb that starts a program: it reaches its model, and is logged in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from model_server import ModelServer
from real_agents import BY_NAME, MUDROOM, Try
from scenario import Step

pytestmark = [pytest.mark.deep, pytest.mark.both_users, pytest.mark.limit(200)]

STEPS = (Step("look", "ls -la"), Step("finish", content="Done."))
VERBS = [("run", "--no"), ("exec",), ("exec", "--fork", "a"), ("try", "-n", "1")]


@pytest.fixture(params=["claude", "codex", "opencode", "mini-swe-agent"])
def here(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Try]:
    agent = BY_NAME[request.param]
    if not agent.version:
        pytest.skip(f"real agent absent: {agent.name} (dev/agents --fetch installs it)")
    here = Try(tmp_path, agent)
    yield here
    here.close()


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_every_verb_starts_an_agent_by_its_profile(here: Try, verb: tuple[str, ...]) -> None:
    steps = (*STEPS[:-1], STEPS[-1]._replace(command=here.agent.last)) if here.agent.last else STEPS
    with ModelServer(steps) as server:
        here.prepare(server)
        ended = here.run((*MUDROOM, *verb, "--", *here.words()), here.environment(server))
        assert server.played() == ["look", "finish"], (ended.output, server.errors)
    assert ended.code == 0, ended.output
