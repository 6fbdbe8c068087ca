"""The agents that mudroom knows, as the kernel asks for them. Their profiles are in the satellite ``agents``."""

from __future__ import annotations

from mudroom.core.agent.credential_stores import AGENTS
from mudroom.core.registry import part, part_or_none
from mudroom.typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable


class KnownAgents(Protocol):
    def names(self) -> list[str]:
        """Return the names of all agents, in alphabetical order."""

    def has(self, name: str) -> bool:
        """Return whether an agent has this name."""

    def installed(self, is_there: Callable[[str], bool], /) -> list[str]:
        """Return the names of the agents of which ``is_there`` finds a program."""

    def inner_sandbox(self, program: str, level: int, /) -> str:
        """Return a clause about the sandbox that a program makes for itself: how it is switched off. Empty if that is
        not known."""


def known_agents(user: bytes) -> KnownAgents:
    """Return the known agents. ``user``: the directory of the user's policy, which may have profiles, too."""
    module = part_or_none("agents", "catalog")
    agents: KnownAgents = module.Catalog(user) if module is not None else _NoAgents()
    return agents


class _NoAgents:
    def names(self) -> list[str]:
        return []

    def has(self, name: str) -> bool:
        """Raise NotInstalled for an agent that the satellite would know."""
        if name in AGENTS:
            part("agents", "catalog", f"mudroom {name}")
        return False

    def installed(self, _is_there: Callable[[str], bool]) -> list[str]:
        return []

    def inner_sandbox(self, _program: str, _level: int) -> str:
        return ""
