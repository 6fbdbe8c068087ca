"""The sandbox levels and a policy's settings about them. Pure; ``core/agent/level_decision.py`` decides."""

from __future__ import annotations

from mudroom.typing import NamedTuple

LEVELS = (0, 1, 2)
REFUSE = -1
"""In ``levels.agents``: this agent may not run here."""

BARE = (
    "level 0: no isolation (staged view only): the command has your network, can read nearly all that you can, and can "
    "ask what runs on this machine to act for it"
)


class LevelPolicy(NamedTuple):
    default: int | None = None
    minimum: int = 0
    allow: tuple[int, ...] = LEVELS
    agents: tuple[tuple[str, int], ...] = ()
    """Pairs (agentId, its lowest level or REFUSE)."""
