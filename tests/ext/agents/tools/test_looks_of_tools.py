"""The tools of an agent say when they look at a fork that is in use."""

from __future__ import annotations

from conftest import Place
from mudroom.ext.agents.mcp import resource
from mudroom.ext.agents.tools.table import call
from mudroom.ext.agents.tools.workspace import ToolWorkspace
from test_looks import storing


def test_the_tools_of_an_agent_say_it(place: Place) -> None:
    session = place.session(agent="agent")
    background = storing(session)
    workspace = ToolWorkspace(session, "f")
    result = call(workspace, "diff", {})
    assert result.text.startswith("[f is running (") and "this is a look, not a review]\n" in result.text
    assert result.data["in_use"] == session.changes.look("f").in_use
    (content,) = resource.contents(workspace, resource.CHANGES)
    assert content["text"].startswith("f is running (")
    background.end()
