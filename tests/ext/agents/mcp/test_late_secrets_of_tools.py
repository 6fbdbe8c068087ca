"""A secret that comes into the project while the tools of an agent work: none has it."""

from __future__ import annotations

import pytest
from wire import server

from conftest import Place
from test_late_secrets import DELAYS, LOOK, appear, fill, gone, pass_time


@pytest.mark.slow
def test_in_the_tools_of_an_agent(place: Place) -> None:
    """``mudroom mcp`` keeps one session as long as its client is there."""
    fill(place, 5)
    with server(place, "--fork", "f") as peer:
        peer.initialize()
        assert not peer.call("bash", command="true").get("isError")
        for delay in DELAYS:
            appear(place)
            pass_time(delay)
            for tool, arguments in (
                ("bash", {"command": LOOK.decode()}),
                ("read", {"path": ".env"}),
                ("grep", {"pattern": "swordfish"}),
            ):
                assert "swordfish-47" not in str(peer.call(tool, **arguments)), (delay, tool)
            gone(place)
