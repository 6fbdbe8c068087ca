"""An agent on a worker, where its project and its home are another machine's."""

from __future__ import annotations

import pytest

from mudroom.core.agent.card import AgentCard
from test_appearance import Machines, machines, require_not_looked_into

__all__ = ["machines"]  # a fixture
pytestmark = pytest.mark.both_users


def test_a_home_of_another_user_is_not_looked_into(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    require_not_looked_into(machines, monkeypatch, AgentCard("goose"))
