"""The interface to level 2: containers around the sandboxes of a session's commands.

A satellite implements it (``core/registry.py``). Without the satellite, commands at level 2 are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager

from mudroom.core.registry import part
from mudroom.typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from mudroom.core.confinement.fallback import Mode
    from mudroom.core.confinement.limit import Limits, UnenforcedLimits
    from mudroom.core.confinement.plan import Plan
    from mudroom.core.confinement.spec import SandboxSpec
    from mudroom.core.settings import EngineChoice, Settings
    from mudroom.sandbox.client.client import Client
    from mudroom.vault.store.store import Vault


class EngineTraits(Protocol):
    @property
    def mode(self) -> Mode:
        """The strongest mode in its containers."""


class SessionContainers(Protocol):
    """One session's containers, used by all its threads. To be closed. The first use that needs an engine chooses it,
    and raises Unsupported if none is usable."""

    @property
    def engine(self) -> EngineTraits: ...

    def allowed(self, limits: Limits) -> UnenforcedLimits:
        """Return substitutes for limits that no container enforces, with notes. Raise Unsupported if such a limit is
        required."""

    def variables(
        self, image: str, *, home: bytes, cwd: bytes, proxy: bytes, extra: tuple[bytes, ...]
    ) -> dict[bytes, bytes]:
        """Return the variables for a command in an image."""

    def plan(self, spec: SandboxSpec, mode: Mode, machine: str, image: str) -> Plan:
        """Return the plan for a container that is made for the command's fork, or from a named image. Raise
        Unsupported, or ValueError for an unknown machine."""

    def lend(
        self, plan: Plan, settings: Settings, fork: str, local: Callable[[], Client]
    ) -> AbstractContextManager[Client]:
        """Return a container's client for one command. ``local``: returns this machine's launcher. Raise ContainerEnded
        if the container has ended before the command, Unsupported if the policy opens the host's network."""

    def forget(self, fork: str) -> None: ...

    def close(self) -> None: ...


class ContainerOutlook(Protocol):
    """The container that a command would get, as far as that is known without starting it."""

    @property
    def engine(self) -> EngineTraits: ...

    def as_json(self) -> dict[str, Any]: ...

    def lines(self, mode: Mode) -> Iterator[str]: ...


class LevelTwo(Protocol):
    def containers(self, vault: Vault, environ: Mapping[bytes, bytes], wanted: EngineChoice) -> SessionContainers: ...

    def why_none(self, environ: Mapping[bytes, bytes], wanted: EngineChoice) -> str:
        """Return why no container can be started, with the fix, in one line; an empty string if one can."""

    def needed(self, wanted: EngineChoice) -> str:
        """Return level 2's requirement, for a message."""

    def outlook(
        self, environ: Mapping[bytes, bytes], wanted: EngineChoice, state: bytes, image: str
    ) -> ContainerOutlook: ...


def level_two(what: str = "level 2") -> LevelTwo:
    """Return the satellite with containers. Raise NotInstalled if it is absent. ``what``: the user's request."""
    level: LevelTwo = part("level", "2", what)
    return level
