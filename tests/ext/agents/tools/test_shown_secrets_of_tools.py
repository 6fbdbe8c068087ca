"""Secrets that commands were shown are in no answer of an agent's tools."""

from __future__ import annotations

from conftest import Place
from mudroom.ext.agents.tools.table import call
from mudroom.ext.agents.tools.workspace import ToolWorkspace
from test_shown_secrets import SHOWN_ENV, project, run

__all__ = ["project"]  # a fixture


def test_the_tools_of_an_agent(project: Place) -> None:
    run(project, b"echo more >> .env; echo x >> file", SHOWN_ENV)
    project.session().forks.checkpoint("f", "p")
    run(project, b"echo again >> .env; echo y >> file", SHOWN_ENV)
    workspace = ToolWorkspace(project.session(), "f")
    for since in ("", "p"):
        text = call(workspace, "diff", {"since": since}).text
        assert "hunter2" not in text and "+y" in text
        assert "# .env: a secret of the user's, which is not shown" in text
    for name, arguments in (("read", {"path": ".env"}), ("grep", {"pattern": "hunter2"})):
        assert "hunter2" not in call(workspace, name, arguments).text
