"""The level at which an agent or a command runs. The runtime decides it, never the agent. Pure.

In this order:

1. The requested level: ``--level``, else the card's ``sandboxLevel``, else the policy's ``levels.default`` (for an
   agent) or ``run.level`` (for a command without a card).
2. The policy may raise it: ``levels.minimum`` for all, ``levels.agents`` for a single agent. The highest counts.
3. The policy may refuse it: a level that is not in ``levels.allow``, or an agent that is refused. A level is never
   lowered, and never raised to reach an allowed level.
4. The machine may not support it: refused with the reason. An unsupported level is never replaced by another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mudroom.core.agent.sandbox_level import REFUSE, LevelPolicy
from mudroom.core.tree.pattern import is_meant
from mudroom.typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from mudroom.core.agent.card import AgentCard


class LevelSupport(NamedTuple):
    """The levels that the machine supports."""

    lacking: Mapping[int, str] = {}
    """Level → reason why it is not supported; every other level is supported. Only the decided level is looked up, so
    the mapping may compute its answer then."""


NOW = LevelSupport()
"""This version's support on any machine that can confine commands at all."""


class LevelDecision(NamedTuple):
    level: int | None
    """None: refused."""
    asked: int
    rule: str
    """The deciding rule: ``--level``, ``sandboxLevel``, ``default``, a policy setting, or ``machine``."""
    reason: str

    @property
    def is_raised(self) -> bool:
        return self.level is not None and self.level > self.asked


def decide_level(
    card: AgentCard | None,
    policy: LevelPolicy,
    support: LevelSupport = NOW,
    *,
    asked: int | None = None,
    default: int = 0,
) -> LevelDecision:
    """Return the level for an agent with this card, or for a command without a card. ``asked``: from the command line.
    ``default``: used if no source sets a level."""
    level, rule, reason = _requested(card, policy, asked, default)
    requested = level
    for minimum, name, reason_for_minimum in _minima(card, policy):
        if minimum == REFUSE:
            return LevelDecision(None, requested, name, reason_for_minimum)
        if minimum > level:
            level, rule, reason = minimum, name, f"raised from {requested} to {minimum}: {reason_for_minimum}"
    if level not in policy.allow:
        allowed = ", ".join(map(str, policy.allow)) or "none"
        return LevelDecision(
            None, requested, "levels.allow", f"level {level} is not allowed by the policy, which allows: {allowed}"
        )
    if level in support.lacking:
        return LevelDecision(None, requested, "machine", support.lacking[level])
    return LevelDecision(level, requested, rule, reason)


def _requested(card: AgentCard | None, policy: LevelPolicy, asked: int | None, default: int) -> tuple[int, str, str]:
    if asked is not None:
        return asked, "--level", "asked for on the command line"
    if card is not None and card.level is not None:
        return card.level, "sandboxLevel", "as the agent's card asks"
    if card is not None and policy.default is not None:
        return policy.default, "levels.default", "the policy's level for a card without a level"
    return default, "default", "no level is requested"


def _minima(card: AgentCard | None, policy: LevelPolicy) -> Iterable[tuple[int, str, str]]:
    for agent, minimum in policy.agents:
        if card is not None and is_meant(card.agent, agent):
            reason = f"the policy does not let {agent} run here" if minimum == REFUSE else f"the least for {agent}"
            yield minimum, f"levels.agents.{agent}", reason
    yield policy.minimum, "levels.minimum", "the least that the policy permits"
