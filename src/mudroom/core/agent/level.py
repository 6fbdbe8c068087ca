"""At which level an agent or a command runs: decided by the runtime, never by the agent. Pure.

In this order:

1. What is asked for: ``--level``, else the card's ``sandboxLevel``, else the policy's ``levels.default`` (for an agent)
   or ``run.level`` (for a command without a card).
2. The policy raises it: ``levels.minimum`` for everybody, ``levels.agents`` for one agent. The highest counts.
3. The policy refuses it: a level that is not in ``levels.allow``, an agent that is refused. Nothing is ever lowered,
   and nothing is raised to find a level that would be allowed.
4. The machine cannot do it: refused with the reason. A level that cannot be had is never replaced by another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from mudroom.core.agent.card import AgentCard

LEVELS = (0, 1, 2)
REFUSE = -1
"""In ``levels.agents``: this agent does not run here."""

BARE = (
    "level 0: no isolation (staged view only): the command has your network, can read nearly all that you can, and can "
    "ask what runs on this machine to act for it"
)


class LevelPolicy(NamedTuple):
    default: int | None = None
    minimum: int = 0
    allow: tuple[int, ...] = LEVELS
    agents: tuple[tuple[str, int], ...] = ()
    """(agentId, the least level for it, or REFUSE)."""


class LevelSupport(NamedTuple):
    """What the machine can do: why a level is out of reach, by level. One that is not named can be had."""

    lacking: Mapping[int, str] = {}
    """Only the level that was decided is looked up, so it may be found out then."""


NOW = LevelSupport()
"""What this version can do, on any machine that can confine a command at all."""


class LevelDecision(NamedTuple):
    level: int | None
    """None: refused."""
    asked: int
    rule: str
    """Which rule decided: ``--level``, ``sandboxLevel``, ``default``, or a setting of the policy, or ``machine``."""
    reason: str

    @property
    def is_raised(self) -> bool:
        return self.level is not None and self.level > self.asked


def decide_level(
    card: AgentCard | None,
    policy: LevelPolicy,
    means: LevelSupport = NOW,
    *,
    asked: int | None = None,
    default: int = 0,
) -> LevelDecision:
    """The level of an agent with this card, or of a command without one. ``asked``: on the command line. ``default``:
    where nobody says anything."""
    level, rule, reason = _asked(card, policy, asked, default)
    wanted = level
    for minimum, name, why in _minima(card, policy):
        if minimum == REFUSE:
            return LevelDecision(None, wanted, name, why)
        if minimum > level:
            level, rule, reason = minimum, name, f"raised from {wanted} to {minimum}: {why}"
    if level not in policy.allow:
        allowed = ", ".join(map(str, policy.allow)) or "none"
        return LevelDecision(
            None, wanted, "levels.allow", f"level {level} is not among those the policy allows: {allowed}"
        )
    if level in means.lacking:
        return LevelDecision(None, wanted, "machine", means.lacking[level])
    return LevelDecision(level, wanted, rule, reason)


def _asked(card: AgentCard | None, policy: LevelPolicy, asked: int | None, default: int) -> tuple[int, str, str]:
    if asked is not None:
        return asked, "--level", "asked for on the command line"
    if card is not None and card.level is not None:
        return card.level, "sandboxLevel", "as the agent's card asks"
    if card is not None and policy.default is not None:
        return policy.default, "levels.default", "the policy's level for a card that names none"
    return default, "default", "the level of whatever names none"


def _minima(card: AgentCard | None, policy: LevelPolicy) -> Iterable[tuple[int, str, str]]:
    for agent, least in policy.agents:
        if card is not None and agent == card.agent:
            why = f"the policy does not let {agent} run here" if least == REFUSE else f"the least for {agent}"
            yield least, f"levels.agents.{agent}", why
    yield policy.minimum, "levels.minimum", "the least that the policy permits"
