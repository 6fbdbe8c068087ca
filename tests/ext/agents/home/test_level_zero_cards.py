"""An agent at level 0 by its card: what it gets, and what the policy says."""

from __future__ import annotations

import json
import sys

import pytest

from conftest import Place, act_as
from furnished_home import card, furnished, short
from mudroom.core.agent.card import AgentCard
from mudroom.core.agent.sandbox_level import BARE, REFUSE, LevelPolicy
from mudroom.core.settings import Settings
from mudroom.errors import UsageError
from test_appearance import Machines, machines, require_not_looked_into
from test_level_zero import mudroom

__all__ = ["furnished", "machines", "short"]  # fixtures

pytestmark = pytest.mark.both_users


@pytest.mark.parametrize(
    ("levels", "note"),
    [
        (LevelPolicy(minimum=1), "raised from 0 to 1: the least that the policy permits (levels.minimum)"),
        (LevelPolicy(agents=(("agent", 1),)), "raised from 0 to 1: the least for agent (levels.agents.agent)"),
    ],
)
def test_the_policy_raises_and_it_is_said(furnished: Place, levels: LevelPolicy, note: str) -> None:
    session = furnished.session(Settings(levels=levels))
    act_as(session, card=card())
    result = session.run([b"ls", b"/home"])
    assert result.level == 1
    assert note in result.notes
    assert BARE not in result.notes


@pytest.mark.parametrize(
    "levels", [LevelPolicy(allow=(1, 2)), LevelPolicy(agents=(("agent", REFUSE),))], ids=["level", "agent"]
)
def test_the_policy_refuses_and_nothing_is_left(furnished: Place, levels: LevelPolicy) -> None:
    session = furnished.session(Settings(levels=levels))
    act_as(session, card=card())
    with pytest.raises(UsageError, match="the agent agent is refused"):
        session.run([b"true"])
    assert session.vault.forks() == []


def test_what_a_card_would_get(furnished: Place) -> None:
    path = furnished.write("card.json", json.dumps({"agentId": "x", "sandboxRequirements": {"needsKeychain": ["gh"]}}))
    done = mudroom(furnished, "agent", "check", "--json", str(path))
    found = json.loads(done.stdout)
    assert done.returncode == 0
    assert (found["schema"], found["level"], found["rule"], found["credentials"]) == (
        "mudroom.card/1",
        0,
        "default",
        ["gh"],
    )
    furnished.write(".mudroom/policy.yaml", "levels:\n  agents: {x: refuse}\n")
    done = mudroom(furnished, "agent", "check", str(path))
    assert done.returncode == 1
    assert "refused: the policy does not let x run here (levels.agents.x)" in done.stdout
    assert not (furnished.state / "vaults").exists()


def test_a_bad_card_is_one_line(place: Place) -> None:
    for text, message in (
        ("{", "card.json:1: this is not JSON"),
        ('{"agentId": "a", "agentId": "b"}', "card.json: 'agentId' is given twice"),
        ('{"agentId": "a", "needs": 1}', "card.json: the card has an unknown key 'needs'"),
        ("[" * 100_000, "card.json: nested too deeply"),
        ("\xff", "card.json:1: this is not UTF-8"),
        (" " * (1 << 20) + "{}", "card.json is larger than any card"),
    ):
        path = place.write("card.json", text.encode("latin-1"))
        done = mudroom(place, "exec", "--card", str(path), "--", "true")
        assert (done.returncode, done.stderr.count("\n")) == (125, 1), done
        assert message in done.stderr
    assert not place.state.exists()


def test_the_command_line_with_a_card(furnished: Place) -> None:
    path = furnished.write(
        "card.json", json.dumps({"agentId": "agent", "sandboxRequirements": {"needsKeychain": ["gh"]}})
    )
    tool = f"print(end=open('{furnished.home}/.config/gh/hosts.yml').read())"  # cat would be asked about
    done = mudroom(furnished, "exec", "--json", "--card", str(path), "--", sys.executable, "-c", tool)
    found = json.loads(done.stdout)
    assert (found["level"], found["credentials"], found["stdout"]) == (0, ["gh"], "HIDDEN")


def test_a_home_of_another_user_is_not_looked_into(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    require_not_looked_into(machines, monkeypatch, AgentCard("goose"))
