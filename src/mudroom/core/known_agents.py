"""The kernel's interface to the known agents and their cards, which the satellite ``agents`` implements."""

from __future__ import annotations

from mudroom.core.registry import part, part_or_none
from mudroom.typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mudroom.core.agent.card import AgentCard, OpenedCredentials
    from mudroom.core.network.host_rules import HostRule
    from mudroom.core.settings import Settings


class KnownAgents(Protocol):
    def names(self) -> list[str]:
        """Return all agents' names in alphabetical order."""

    def has(self, name: str) -> bool:
        """Return whether an agent has this name, or a program of this name."""

    def installed(self, is_there: Callable[[str], bool], /) -> list[str]:
        """Return the names of the agents for which ``is_there`` finds a program."""

    def inner_sandbox(self, program: str, level: int, /) -> str:
        """Return a clause that says how to switch off the sandbox that a program makes for itself; empty if that is
        unknown."""


def known_agents(user: bytes) -> KnownAgents:
    """Return the known agents. ``user``: the user's policy directory, which can have profiles, too."""
    module = part_or_none("agents", "catalog")
    agents: KnownAgents = module.Catalog(user) if module is not None else _NoAgents()
    return agents


class _NoAgents:
    def names(self) -> list[str]:
        return []

    def has(self, name: str) -> bool:
        """Raise NotInstalled for an agent that the satellite would know."""
        from mudroom.core.tree.credential_stores import AGENTS

        if name in AGENTS:
            part("agents", "catalog", f"mudroom {name}")
        return False

    def installed(self, _is_there: Callable[[str], bool]) -> list[str]:
        return []

    def inner_sandbox(self, _program: str, _level: int) -> str:
        return ""


class AgentCards(Protocol):
    def load_card(self, path: bytes) -> AgentCard:
        """Return the card in a file. Raise UsageError, with one line that names the file."""

    def with_card_network(self, card: AgentCard, settings: Settings, mode: str | None) -> Settings:
        """Return the settings without network if the card needs none, unless the user has given a mode."""

    def trusted_hosts(self, card: AgentCard, project: bytes, environ: Mapping[bytes, bytes]) -> tuple[HostRule, ...]:
        """Return the card's hosts if the policy trusts its agent to name them without asking the user; otherwise
        none."""

    def opened_by(self, card: AgentCard, home: bytes, environ: Mapping[bytes, bytes]) -> OpenedCredentials:
        """Return the credentials that a card names, as found on this machine."""


def agent_cards(what: str) -> AgentCards:
    """Return the module that reads cards. Raise NotInstalled if it is absent. ``what``: what the user asked for."""
    cards: AgentCards = part("agents", "card", what)
    return cards
