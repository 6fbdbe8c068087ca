"""The parts of the home that are a fork's own, for a command of an agent. The satellite ``agents`` stages them."""

from __future__ import annotations

from mudroom.core.registry import part
from mudroom.typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from mudroom.core.confinement.fallback import Mode
    from mudroom.session.confinement.confinement import Confinement
    from mudroom.session.confinement.grant import Grant
    from mudroom.vault.store.fork import Fork


class SharedFiles(Protocol):
    """Files that a command shares with the host, kept the same on both sides. Thread-safe."""

    def look(self, *, has_ended: bool = False) -> None:
        """Bring changes to the other side; to be called now and then while the command runs. ``has_ended``: one of the
        commands that share them has."""

    def close(self) -> list[str]:
        """Bring changes a last time: the commands have ended. Return notes, once."""


class AgentHomes(Protocol):
    def command_home(
        self, confinement: Confinement, fork: Fork, grant: Grant, mode: Mode, note: Callable[..., None]
    ) -> AbstractContextManager[tuple[Grant, SharedFiles | None]]:
        """Return the grant of a command with these parts at their places in the home, and the files that it shares with
        the host (None: it shares none), until it has ended. ``note`` is called with what is left out, and with logins
        that could not be kept. Hold the fork's lock; no process of the fork may live."""

    def settings_places(self) -> tuple[bytes, ...]:
        """Return the places of the settings of git and shells, relative to the home."""


def agent_homes() -> AgentHomes:
    homes: AgentHomes = part("agents", "home", "the home of an agent")
    return homes
