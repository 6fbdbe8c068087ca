"""The actor of a command: on whose behalf it runs, and under which settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from mudroom.core.settings import Settings

if TYPE_CHECKING:
    from mudroom.core.agent.card import AgentCard


class Actor(NamedTuple):
    """Fixed for a command. Another actor is another value: nothing of it is ever changed in place."""

    settings: Settings = Settings()
    """The policy, with what a command line has added to it."""
    policy: Settings = Settings()
    """The policy files alone."""
    card: AgentCard | None = None
    level: int | None = None
    """The level that the user asked for; the policy decides."""
    agent: str | None = None
    """None: the user. Nobody judges the user's own commands."""

    def as_policy_says(self) -> Actor:
        """Return the actor of a verification: the policy files alone, without a card, and isolated.

        An agent may have written what is verified, and the tests that verify it. What the user has opened to one
        command is not open to them."""
        return self._replace(settings=self.policy, card=None, level=max(self.level or 1, 1))
