"""A command's actor: on whose behalf it runs, and under which settings."""

from __future__ import annotations

from mudroom.core.settings import Settings
from mudroom.typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from mudroom.core.agent.card import AgentCard


class Actor(NamedTuple):
    """Immutable: fixed for a command."""

    settings: Settings = Settings()
    """The policy with the command line's options."""
    policy: Settings = Settings()
    """The policy files alone."""
    card: AgentCard | None = None
    level: int | None = None
    """The level that the user requested; the policy decides."""
    agent: str | None = None
    """None: the user, whose commands are not judged."""

    def as_policy_says(self) -> Actor:
        """Return the actor for a verification: the policy files alone, without a card, and isolated.

        An agent may have written the verified code and its tests, so they do not get access that the user granted to a
        single command. It is no part of the fork that changes the home."""
        settings = self.policy._replace(home="private")
        return self._replace(settings=settings, card=None, level=max(self.level or 1, 1))
