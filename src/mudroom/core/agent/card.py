"""An agent card: an agent's stated requirements. ``core/agent/level_decision.py`` decides about them; the satellite
``agents`` reads cards and finds the credentials that they name.

The agent's author writes the card, so no key in it grants anything by itself.
"""

from __future__ import annotations

from mudroom.core.agent.endpoint import EndpointAddress
from mudroom.core.confinement.spec import Bind
from mudroom.typing import NamedTuple


class AgentStore(NamedTuple):
    name: str
    directories: tuple[bytes, ...] = ()
    """Relative to the home directory, like all paths in this class."""
    files: tuple[bytes, ...] = ()
    tokens: tuple[bytes, ...] = ()
    state: tuple[str, ...] = ()
    """Patterns."""
    keys: tuple[tuple[bytes, tuple[str, ...]], ...] = ()
    """By file: parts of its JSON, such as ``projects.*.mcpServers``."""
    renewed: tuple[tuple[bytes, tuple[str, ...]], ...] = ()
    """By file: the tokens in its JSON, such as ``*.access``, which an agent renews."""
    transcripts: tuple[str, ...] = ()
    """Patterns for its conversations."""

    @property
    def places(self) -> tuple[bytes, ...]:
        return (*self.directories, *self.files)


class StorePlace(NamedTuple):
    """A store's directory or file, as found on a host."""

    path: bytes
    source: bytes
    """The real path on the host; empty if it does not exist, or must not be read."""
    is_directory: bool


class StagedStore(NamedTuple):
    store: AgentStore
    places: tuple[StorePlace, ...]


class Requirements(NamedTuple):
    oauth: bool | tuple[str, ...] = False
    """Credential stores by name (``core/tree/credential_stores.py``) or as ``~/PATH``; True: the store with the
    agent's name."""
    keychain: bool | tuple[str, ...] = False
    """As ``oauth``; True: the desktop's keyring."""
    network: bool | tuple[str, ...] | None = None
    """Host rules (``core/network/host_rules.py``, ``parse_rule``); True: any host; False: the agent needs no network,
    and gets none; None: the card does not say."""
    gpu: bool = False
    forks: tuple[tuple[str, str], ...] = ()
    """Ports that the agent wants to show to other forks or reach in them, as pairs (side, rule)
    (``ext/agents/core/fork_consent.py``)."""


class AgentCard(NamedTuple):
    agent: str
    level: int | None = None
    """None: the card does not say."""
    needs: Requirements = Requirements()
    name: str = ""
    """Shown to people, like the next two fields."""
    description: str = ""
    version: str = ""
    artifacts: tuple[str, ...] = ()
    """Patterns (``ext/agents/core/artifact.py``) for files that are collected after the agent has ended."""
    branch: bool | str = False
    """Whether the agent's commits become a branch in the real repository, or the branch's name."""
    environment: tuple[str, ...] = ()
    """Names of variables that the agent uses."""
    image: str = ""
    """Container image at level 2; empty: the card does not say."""
    digest: str = ""
    """SHA-256 of the card file in hexadecimal; ``profile:NAME`` for a card made from a profile."""
    endpoint: EndpointAddress | None = None
    """The address, inside the sandbox, at which its server for other agents listens."""
    store: AgentStore | None = None
    """The agent's own store, if its profile names one. No key in a card sets it."""


class OpenedCredentials(NamedTuple):
    """The named stores as found on a host."""

    stores: tuple[str, ...] = ()
    """Open stores, as a card names them."""
    live: tuple[Bind, ...] = ()
    named: tuple[bytes, ...] = ()
    """Their paths, and the targets of symlinks in the home directory."""
    variables: tuple[bytes, ...] = ()
    abstract: bool = False
    staged: tuple[StagedStore, ...] = ()
    """Agents' stores, which are copied into the fork."""
    notes: tuple[str, ...] = ()
