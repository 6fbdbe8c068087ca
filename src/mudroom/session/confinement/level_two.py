"""Level 2, as a session asks for it: containers around the sandboxes of its commands.

A satellite has them (``core/registry.py``). Where it is absent, a command at level 2 is refused.
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
        """The strongest mode of commands in its containers."""


class SessionContainers(Protocol):
    """The containers of one session, used by all its threads. To be closed. The first use that needs an engine chooses
    it, and raises Unsupported if none is usable."""

    @property
    def engine(self) -> EngineTraits: ...

    def allowed(self, limits: Limits) -> UnenforcedLimits:
        """Raise Unsupported for a required limit that no container enforces."""

    def variables(
        self, image: str, *, home: bytes, cwd: bytes, proxy: bytes, extra: tuple[bytes, ...]
    ) -> dict[bytes, bytes]:
        """Return the variables for a command in an image."""

    def plan(self, spec: SandboxSpec, mode: Mode, machine: str, image: str) -> Plan:
        """Return the plan in a container that is made for the command's fork, or from a named image. Raise
        Unsupported, ValueError for an unknown machine."""

    def lend(
        self, plan: Plan, settings: Settings, fork: str, local: Callable[[], Client]
    ) -> AbstractContextManager[Client]:
        """Return the client of a container, for one command. ``local``: returns the launcher of this machine. Raise
        ContainerEnded if it has ended before the command, Unsupported if the policy opens the host's network."""

    def forget(self, fork: str) -> None: ...

    def close(self) -> None: ...


class ContainerOutlook(Protocol):
    """The container that a command would get, as far as known without starting a container."""

    @property
    def engine(self) -> EngineTraits: ...

    def as_json(self) -> dict[str, Any]: ...

    def lines(self, mode: Mode) -> Iterator[str]: ...


class LevelTwo(Protocol):
    def containers(self, vault: Vault, environ: Mapping[bytes, bytes], wanted: EngineChoice) -> SessionContainers: ...

    def why_none(self, environ: Mapping[bytes, bytes], wanted: EngineChoice) -> str:
        """Return why no container can be started, with the fix, in one line; empty if one can."""

    def needed(self, wanted: EngineChoice) -> str:
        """Return the requirement of level 2, for a message."""

    def outlook(
        self, environ: Mapping[bytes, bytes], wanted: EngineChoice, state: bytes, image: str
    ) -> ContainerOutlook: ...


def level_two(what: str = "level 2") -> LevelTwo:
    """Return the part of mudroom with containers. Raise NotInstalled; ``what`` is what the user asked for."""
    level: LevelTwo = part("level", "2", what)
    return level
