"""Whatever a stranger writes into a policy: until it is trusted, no command is freer than without it."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from mudroom.core.command.policy import STRICTNESS, decide
from mudroom.core.command.verdict import ACTIONS, CLASSES, CommandPart, join_parts
from mudroom.core.network.host_rules import Request
from mudroom.core.network.host_rules import decide as decide_host
from mudroom.core.settings import Settings
from mudroom.errors import UsageError
from mudroom.policy.combine import LOCAL, PROJECT, USER, _with_rank, believed, merge, project_items, roles_of
from mudroom.policy.parse import GivenSetting, parse, settings_from
from mudroom.policy.trust import judge
from tiers import examples

WORDS = ("a", "b", "c")
ROLES = ("r", "s", "x")
AGENTS = ("x", "y")
HOSTS = ("h.example", "i.example", "*.example")

_pattern = st.lists(st.sampled_from(WORDS), min_size=1, max_size=3)
_action = st.sampled_from(ACTIONS)
_classes = st.dictionaries(st.sampled_from(CLASSES), _action, max_size=3)
_rule = st.fixed_dictionaries(
    {"pattern": _pattern, "action": _action},
    optional={"exact": st.booleans(), "agents": st.lists(st.sampled_from(ROLES + AGENTS), max_size=1)},
)
_role_rule = st.fixed_dictionaries({"pattern": _pattern, "action": _action}, optional={"exact": st.booleans()})
_role = st.fixed_dictionaries({}, optional={"classes": _classes, "rules": st.lists(_role_rule, max_size=2)})
_hosts = st.lists(st.sampled_from(HOSTS), max_size=2)
_mode = st.sampled_from(["none", "gate", "open"])
POLICIES = st.fixed_dictionaries(
    {},
    optional={
        "roles": st.dictionaries(st.sampled_from(ROLES), _role),
        "commands": st.fixed_dictionaries(
            {},
            optional={
                "classes": _classes,
                "rules": st.lists(_rule, max_size=4),
                "background": st.sampled_from(["allow", "require_approval", "deny"]),
            },
        ),
        "agents": st.dictionaries(st.sampled_from(AGENTS), st.sampled_from(ROLES), max_size=2),
        "network": st.fixed_dictionaries(
            {},
            optional={
                "allow": _hosts,
                "ask": _hosts,
                "deny": _hosts,
                "mode": st.sampled_from(["none", "gate", "open"]),
            },
        ),
        "limits": st.fixed_dictionaries({}, optional={"memory": st.sampled_from(["1GB", "2GB"])}),
        "levels": st.fixed_dictionaries({}, optional={"minimum": st.sampled_from([0, 1, 2])}),
        "user_commands": st.fixed_dictionaries(
            {}, optional={"auto_apply": st.sampled_from(["never", "trusted", "always"]), "trusted": st.just(["a"])}
        ),
    },
)
PARTS = st.builds(
    lambda words, complete, classes: CommandPart(tuple(word.encode() for word in words), complete, tuple(classes), ""),
    st.lists(st.sampled_from(WORDS), max_size=4),
    st.booleans(),
    st.lists(st.sampled_from(CLASSES), min_size=1, max_size=2),
)


def given_by(policy: dict[str, Any], rank: int) -> list[GivenSetting]:
    found = parse(json.dumps(policy).encode(), f"/p{rank}/policy.yaml")
    return [_with_rank(one._replace(local=rank == LOCAL), rank) for one in found]


def unseen(layers: dict[int, list[GivenSetting]]) -> Settings:
    judged = judge(b"/nowhere", b"/nowhere/state", project_items(layers), roles_of(layers), trusts_all=False)
    return settings_from(merge(believed(layers, judged)), judged.left_out)


@settings(max_examples=examples(200))
@given(user=POLICIES, project=POLICIES, local=POLICIES | st.just({}), parts=st.lists(PARTS, min_size=1, max_size=2))
def test_what_nobody_has_seen_makes_nothing_freer(
    user: dict[str, Any], project: dict[str, Any], local: dict[str, Any], parts: list[CommandPart]
) -> None:
    own = {PROJECT: [], USER: given_by(user, USER), LOCAL: []}
    try:
        before = unseen(own)
        after = unseen({**own, PROJECT: given_by(project, PROJECT), LOCAL: given_by(local, LOCAL)})
    except UsageError:
        return  # no command runs at all
    for agent in (None, *AGENTS):
        least = decide(join_parts(parts), before.commands, agent)
        found = decide(join_parts(parts), after.commands, agent)
        assert STRICTNESS[found.action] >= STRICTNESS[least.action], (agent, least, found)
    assert STRICTNESS[after.background] >= STRICTNESS[before.background]
    order = ("open", "auto", "gate", "none")
    assert order.index(after.network) >= order.index(before.network)
    rank = {"allow": 0, "ask": 1, "deny": 2}
    for host in ("h.example", "i.example", "other.test"):
        request = Request(host, 443)
        assert rank[decide_host(request, after.hosts).action] >= rank[decide_host(request, before.hosts).action]
    assert (after.limits.memory or 1 << 62) <= (before.limits.memory or 1 << 62)
    assert after.levels.minimum >= before.levels.minimum
    assert ("always", "trusted", "never").index(after.auto_apply) >= ("always", "trusted", "never").index(
        before.auto_apply
    )
    assert set(after.trusted) <= set(before.trusted)
