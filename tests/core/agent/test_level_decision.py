"""At which level: a table, and what holds for all of it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mudroom.core.agent.card import AgentCard
from mudroom.core.agent.level_decision import LevelSupport, decide_level
from mudroom.core.agent.sandbox_level import LEVELS, REFUSE, LevelPolicy
from tiers import each

ALL = LevelSupport({})
CARD, BARE, BOXED, HELD = AgentCard("a"), AgentCard("a", 0), AgentCard("a", 1), AgentCard("a", 2)


@each(
    ("card", "policy", "asked", "level", "rule"),
    [
        (None, LevelPolicy(), None, 1, "default"),
        (None, LevelPolicy(), 0, 0, "--level"),
        (None, LevelPolicy(default=0), None, 1, "default"),
        (None, LevelPolicy(minimum=1), 0, 1, "levels.minimum"),
        (None, LevelPolicy(allow=(1, 2)), 0, None, "levels.allow"),
        (None, LevelPolicy(agents=(("a", REFUSE),)), 0, 0, "--level"),
        (CARD, LevelPolicy(), None, 0, "default"),
        (CARD, LevelPolicy(default=1), None, 1, "levels.default"),
        (BARE, LevelPolicy(default=1), None, 0, "sandboxLevel"),
        (BOXED, LevelPolicy(), 0, 0, "--level"),
        (BOXED, LevelPolicy(), None, 1, "sandboxLevel"),
        (HELD, LevelPolicy(), None, 2, "sandboxLevel"),
        (BARE, LevelPolicy(minimum=1), None, 1, "levels.minimum"),
        (BARE, LevelPolicy(minimum=2), None, 2, "levels.minimum"),
        (BOXED, LevelPolicy(minimum=1), None, 1, "sandboxLevel"),
        (BARE, LevelPolicy(agents=(("a", 1),)), None, 1, "levels.agents.a"),
        (BARE, LevelPolicy(agents=(("[ab]*", 1), ("b*", 2))), None, 1, "levels.agents.[ab]*"),
        (BARE, LevelPolicy(agents=(("b", 1),)), None, 0, "sandboxLevel"),
        (HELD, LevelPolicy(agents=(("a", 0),)), None, 2, "sandboxLevel"),
        (BARE, LevelPolicy(minimum=2, agents=(("a", 1),)), None, 2, "levels.minimum"),
        (BARE, LevelPolicy(minimum=1, agents=(("a", 2),)), None, 2, "levels.agents.a"),
        (BARE, LevelPolicy(agents=(("a", REFUSE),)), None, None, "levels.agents.a"),
        (BOXED, LevelPolicy(agents=(("a", REFUSE),)), 1, None, "levels.agents.a"),
        (BARE, LevelPolicy(allow=(1, 2)), None, None, "levels.allow"),
        (BARE, LevelPolicy(allow=(1, 2), minimum=1), None, 1, "levels.minimum"),
        (BARE, LevelPolicy(allow=(0,), minimum=1), None, None, "levels.allow"),
    ],
)
def test_who_decides(
    card: AgentCard | None, policy: LevelPolicy, asked: int | None, level: int | None, rule: str
) -> None:
    decision = decide_level(card, policy, ALL, asked=asked, default=0 if card else 1)
    assert (decision.level, decision.rule) == (level, rule)
    assert decision.reason.isprintable()


def test_what_the_machine_cannot_do_is_refused_and_not_replaced() -> None:
    means = LevelSupport({2: "no container engine"})
    decision = decide_level(HELD, LevelPolicy(), means)
    assert (decision.level, decision.rule, decision.reason) == (None, "machine", "no container engine")
    assert decide_level(BARE, LevelPolicy(minimum=2), means).level is None
    assert decide_level(HELD, LevelPolicy()).level == 2


levels = st.sampled_from(LEVELS)
policies = st.builds(
    LevelPolicy,
    st.none() | levels,
    levels,
    st.lists(levels, unique=True).map(tuple),
    st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from((REFUSE, *LEVELS)))).map(tuple),
)
cards = st.none() | st.builds(AgentCard, st.sampled_from("ab"), st.none() | levels)


@given(cards, policies, st.none() | levels, levels)
def test_nothing_is_lowered_and_nothing_is_raised_in_silence(
    card: AgentCard | None, policy: LevelPolicy, asked: int | None, default: int
) -> None:
    decision = decide_level(card, policy, ALL, asked=asked, default=default)
    if decision.level is not None:
        assert decision.level >= max(decision.asked, policy.minimum)
        assert decision.level in policy.allow
        assert (decision.level > decision.asked) == decision.is_raised == ("raised from" in decision.reason)


@given(cards, policies, st.none() | levels, levels)
def test_a_stricter_policy_never_gives_a_lower_level(
    card: AgentCard | None, policy: LevelPolicy, asked: int | None, minimum: int
) -> None:
    before = decide_level(card, policy, ALL, asked=asked).level
    after = decide_level(card, policy._replace(minimum=max(minimum, policy.minimum)), ALL, asked=asked).level
    assert after is None or (before is not None and after >= before) or before is None
