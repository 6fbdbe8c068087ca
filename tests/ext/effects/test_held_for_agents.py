"""What an agent sends is held. Its tools show the held effects of its fork, and an apply of its own sends none."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from yard import COMMIT, Yard, yard

from mudroom.core.network.host_rules import HostRule
from mudroom.ext.agents.tools.apply import APPLY
from mudroom.ext.agents.tools.table import call
from mudroom.ext.agents.tools.tool import ALONE
from mudroom.ext.agents.tools.workspace import ToolWorkspace
from mudroom.session.project_session import open_project

__all__ = ["yard"]
pytestmark = [pytest.mark.both_users]


def test_an_agent_drops_what_it_has_pushed(yard: Yard) -> None:
    with yard.session() as session:
        pushes = "git push -q origin HEAD:main; git push -q origin HEAD:refs/heads/topic"
        yard.run(session, f"git remote set-url origin {yard.url()}; {COMMIT}{pushes}")
        workspace = ToolWorkspace(session, "f")
        (_first, second) = call(workspace, "status", {}).data["held"]
        assert second["needs"] == ["push:1"]
        dropped = call(workspace, "drop_held", {"effects": ["push:2"]})
        assert dropped.text.startswith("push:2 is dropped: refs/heads/topic to ")
        assert [row["name"] for row in dropped.data["held"]] == ["push:1"]
        assert call(workspace, "drop_held", {"effects": ["push:2"]}).is_error
        assert [row.name for row in session.changes.pushes("f")] == ["push:1"]
    assert yard.forge.pushes() == 0


def test_diff_and_status_show_a_held_push_and_apply_leaves_it(yard: Yard) -> None:
    with yard.session() as session:
        yard.run(session, f"git remote set-url origin {yard.url()}; {COMMIT}git push -q origin HEAD:main")
        workspace = ToolWorkspace(session, "f")
        diff, status = call(workspace, "diff", {}), call(workspace, "status", {})
        line = f"push:1  push {yard.url()} refs/heads/main: 1 commit, protected name"
        assert f"# {line}\n" in diff.text
        assert f"held until the user applies it: {line}\n" in status.text
        for result in (diff, status):
            (row,) = result.data["held"]
            assert (row["name"], row["state"], row["refs"][0]["commits"][0]["subject"]) == ("push:1", "held", "second")
            assert call(workspace, "diff", {"paths": ["a"]}).data["held"], "of the fork, whatever paths are shown"
        done = APPLY.function(workspace, {"paths": None}, ALONE)
        assert "push:1 is not sent: mudroom apply f push:1 does" in done.text
        assert [row.state for row in session.changes.pushes("f")] == ["held"]
    assert yard.forge.pushes() == 0


@pytest.mark.parametrize(
    ("agent", "rule", "is_held"),
    [
        ("coder", "*.github.com", True),
        ("coder", "profile copilot api.github.com", True),
        ("coder", "card helper api.github.com", True),
        ("coder", "policy.yaml:1 api.github.com", False),
        (None, "*.github.com", False),
    ],
)
def test_an_agent_s_change_waits_where_no_word_of_the_user_allows_its_host(
    yard: Yard, agent: str | None, rule: str, is_held: bool
) -> None:
    source, _space, pattern = rule.rpartition(" ")
    allowed = HostRule("allow", pattern, (yard.api_port,), private=True, source=source)
    with yard.session(allowed, agent=agent) as session:
        url = f"https://api.github.com:{yard.api_port}/items/1"
        done = yard.run(session, f"curl -s -w '\\n%{{http_code}}' -X PUT -d '{{}}' {url}")
        status = done.stdout.splitlines()[-1]
        assert [row.kind for row in session.changes.pushes("f")] == (["request"] if is_held else [])
        assert (status, yard.api.effects()) == ((b"202", 0) if is_held else (b"201", 1)), done
        if is_held:
            (row,) = session.changes.apply("f", pushes=["request:1"], exact=True).applied.pushes
            assert (row.state, row.why, yard.api.effects()) == ("sent", "", 1)


def test_the_rules_of_an_agent_s_session_hold_what_presets_allow(tmp_path: Path) -> None:
    """At level 1; a preset may be in the policy, in an answer on this machine, or among the rules of a profile."""
    project, home = tmp_path / "project", tmp_path / "home"
    (project / ".mudroom").mkdir(parents=True)
    home.mkdir()
    environ = {b"HOME": os.fsencode(home), b"PATH": b"/usr/bin:/bin", b"MUDROOM_TRUST_POLICY": b"1"}

    def held_hosts(agent: str | None, level: int = 1, also: Sequence[HostRule] = ()) -> set[str]:
        with open_project(os.fsencode(project), environ, agent=agent, also=also) as session:
            settings = session.actor.settings._replace(network="gate")
            stored = session.machine.stored_rules(session.actor._replace(settings=settings), level)
            return {rule.pattern for rule in stored if rule.hold}

    assert held_hosts("coder") == set()
    profile = [HostRule("allow", "github.com", source="profile copilot")]
    assert held_hosts("coder", also=profile) == {"github.com"}
    (project / ".mudroom/policy.yaml").write_text("network: {allow: ['@npm']}\n")
    npm = {"registry.npmjs.org", "registry.yarnpkg.com"}
    assert held_hosts("coder") == npm
    assert held_hosts(None) == held_hosts("coder", 0) == set()
    (project / ".mudroom/policy.yaml").unlink()
    (project / ".mudroom/local").mkdir(mode=0o700)
    answers = project / ".mudroom/local/permissions.yaml"
    answers.write_text("allow:\n  - '@npm'\n")
    answers.chmod(0o600)
    assert held_hosts("coder") == npm
