"""An agent card: the requirements that an agent states. The decisions are made elsewhere
(``core/agent/level_decision.py``). The satellite ``agents`` reads cards, and finds the credentials that they name.

The agent's author writes the card: no key of it grants anything by itself.
"""

from __future__ import annotations

from mudroom.core.agent.endpoint import EndpointAddress
from mudroom.core.confinement.spec import Bind
from mudroom.typing import NamedTuple


class AgentStore(NamedTuple):
    name: str
    directories: tuple[bytes, ...] = ()
    """Relative to the home, like all paths here."""
    files: tuple[bytes, ...] = ()
    tokens: tuple[bytes, ...] = ()
    state: tuple[str, ...] = ()
    """Patterns."""
    keys: tuple[tuple[bytes, tuple[str, ...]], ...] = ()
    """By file: parts of its JSON, as ``projects.*.mcpServers``."""

    @property
    def places(self) -> tuple[bytes, ...]:
        return (*self.directories, *self.files)


class StorePlace(NamedTuple):
    """A directory or file of a store, as found on a host."""

    path: bytes
    source: bytes
    """Its real path on the host; empty if it is not there, or must not be read."""
    is_directory: bool


class StagedStore(NamedTuple):
    store: AgentStore
    places: tuple[StorePlace, ...]


class Requirements(NamedTuple):
    oauth: bool | tuple[str, ...] = False
    """Credential stores by name (``core/agent/credential_stores.py``) or as ``~/PATH``; True: the store with the
    agent's name."""
    keychain: bool | tuple[str, ...] = False
    """As ``oauth``; True: the desktop's keyring."""
    network: bool | tuple[str, ...] | None = None
    """Host rules (``core/network/host_rules.py``, ``parse_rule``); True: any host; False: the agent needs no network,
    and gets none; None: the card does not say."""
    gpu: bool = False
    forks: tuple[tuple[str, str], ...] = ()
    """Ports that it would show to other forks, or reach in them, as pairs of the side and the rule
    (``ext/agents/core/fork_consent.py``)."""


class AgentCard(NamedTuple):
    agent: str
    level: int | None = None
    """None: the card does not say."""
    needs: Requirements = Requirements()
    name: str = ""
    """Shown to people, like the next two."""
    description: str = ""
    version: str = ""
    artifacts: tuple[str, ...] = ()
    """Patterns (``ext/agents/core/artifact.py``) of files that are collected after the agent has ended."""
    branch: bool | str = False
    """Whether its commits are wanted as a branch of the real repository, or the branch's name."""
    environment: tuple[str, ...] = ()
    """Names of variables that the agent uses."""
    image: str = ""
    """Container image at level 2; empty: the card does not say."""
    digest: str = ""
    """SHA-256 of the card file, hexadecimal; ``profile:NAME`` for a card that was made of a profile."""
    endpoint: EndpointAddress | None = None
    """Where its server for other agents listens, inside."""
    store: AgentStore | None = None
    """The agent's own store, if its profile names one; no key of a card."""


class OpenedCredentials(NamedTuple):
    """The named stores as found on a host."""

    stores: tuple[str, ...] = ()
    """Open stores, as a card names them."""
    live: tuple[Bind, ...] = ()
    named: tuple[bytes, ...] = ()
    """Their paths, and the targets of symlinks in the home."""
    variables: tuple[bytes, ...] = ()
    abstract: bool = False
    staged: tuple[StagedStore, ...] = ()
    """Stores of agents: what is copied into the fork."""
    notes: tuple[str, ...] = ()
