"""The actor of a command: on whose behalf it runs, and under which settings."""

from __future__ import annotations

from mudroom.core.settings import Settings
from mudroom.typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from mudroom.core.agent.card import AgentCard


class Actor(NamedTuple):
    """Immutable: fixed for a command."""

    settings: Settings = Settings()
    """The policy, with the options of the command line."""
    policy: Settings = Settings()
    """The policy files alone."""
    card: AgentCard | None = None
    level: int | None = None
    """The level that the user asked for; the policy decides."""
    agent: str | None = None
    """None: the user, whose commands are not judged."""

    def as_policy_says(self) -> Actor:
        """Return the actor of a verification: the policy files alone, without a card, and isolated.

        An agent may have written the code that is verified, and its tests. Access that the user has granted to one
        command is not granted to them."""
        return self._replace(settings=self.policy, card=None, level=max(self.level or 1, 1))
