"""A fork's own parts of the home, for an agent's command. The satellite ``agents`` stages them."""

from __future__ import annotations

from mudroom.core.registry import part, part_or_none
from mudroom.typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from mudroom.core.confinement.fallback import Mode
    from mudroom.core.settings import Settings
    from mudroom.session.confinement.confinement import Confinement
    from mudroom.session.confinement.grant import Grant
    from mudroom.vault.store.fork import Fork


class SharedFiles(Protocol):
    """Files that a command shares with the host, kept equal on both sides. Thread-safe."""

    def enter(self, home: int) -> None:
        """The command has its home (``Grant.files``). ``home``: a descriptor, which this closes."""

    def look(self, *, has_ended: bool = False) -> None:
        """Copy changes to the other side. Call this periodically while the command runs. ``has_ended``: a command that
        shares the files has ended."""

    def close(self) -> list[str]:
        """Copy changes a last time, after the commands have ended. Return notes, once."""


class AgentHomes(Protocol):
    def command_home(
        self,
        confinement: Confinement,
        fork: Fork,
        grant: Grant,
        mode: Mode,
        settings: Settings,
        note: Callable[..., None],
    ) -> AbstractContextManager[tuple[Grant, SharedFiles | None]]:
        """Return, until the command has ended, its grant with these parts at their places in the home, and the files
        that it shares with the host (None: it shares none). ``note`` is called with notes about parts that are left out
        and logins that could not be kept. Hold the fork's lock; none of the fork's processes may be alive."""

    def carry_homes(self, above: bytes, below: bytes) -> list[str]:
        """Copy the agents' stores of the fork at ``above`` to the new fork at ``below``. Return notes about stores that
        were left out."""

    def settings_places(self) -> tuple[bytes, ...]:
        """Return the paths of git's and the shells' settings, relative to the home."""


def agent_homes() -> AgentHomes:
    homes: AgentHomes = part("agents", "home", "the home of an agent")
    return homes


def carry_homes(above: bytes, below: bytes) -> list[str]:
    """Carry the agents' stores to a fork of a fork, so that their conversations go on in both."""
    homes: AgentHomes | None = part_or_none("agents", "home")
    return homes.carry_homes(above, below) if homes is not None else []
