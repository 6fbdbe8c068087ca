"""An agent's tools show the held effects of its fork, and an apply of its own sends none of them."""

from __future__ import annotations

import pytest
from yard import COMMIT, Yard, yard

from mudroom.ext.agents.tools.apply import APPLY
from mudroom.ext.agents.tools.table import call
from mudroom.ext.agents.tools.tool import ALONE
from mudroom.ext.agents.tools.workspace import ToolWorkspace

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
