"""Rules that can be read and make no sense."""

from __future__ import annotations

from mudroom.core.command.contradiction import contradictions, covers, locked_out, unreachable_rules, unused_roles
from mudroom.core.command.pattern_text import split_words
from mudroom.core.command.policy import ClassRule, CommandPolicy, CommandRule, Role
from mudroom.core.command.verdict import CLASSES, Action
from tiers import each


def rule(text: str, action: Action, source: str = "", **more: object) -> CommandRule:
    found = CommandRule(tuple(tuple(word.split(b"|")) for word in split_words(text)), action, source)
    return found._replace(**more)  # type: ignore[arg-type]


def test_the_same_commands_twice() -> None:
    rules = [
        rule("git push", "deny", "policy.yaml:2"),
        rule("git push", "allow", "policy.yaml:3"),
        rule("git push", "deny", "policy.yaml:4"),
        rule("git push", "allow", "policy.yaml:5", exact=True),
        rule("git push", "allow", "policy.yaml:6", agents=("a",)),
    ]
    found = list(contradictions(rules))
    assert [(one.severity, one.where) for one in found] == [("error", "policy.yaml:3"), ("warning", "policy.yaml:4")]
    assert found[0].text == "git push … is allow here and deny in policy.yaml:2"


@each(
    ("wide", "narrow", "expected"),
    [
        (rule("git", "deny"), rule("git push", "allow"), True),
        (rule("git push", "deny"), rule("git", "allow"), False),
        (rule("'npm|yarn' ci", "deny"), rule("npm ci -x", "allow"), True),
        (rule("npm ci", "deny"), rule("'npm|yarn' ci", "allow"), False),
        (rule("git", "deny", exact=True), rule("git", "allow"), False),
        (rule("git", "deny", exact=True), rule("git", "allow", exact=True), True),
        (rule("git", "deny", agents=("a",)), rule("git", "allow"), False),
        (rule("git", "deny", agents=("a", "b")), rule("git", "allow", agents=("a",)), True),
        (rule("git", "deny"), rule("git", "allow", agents=("a",)), True),
    ],
)
def test_what_a_denial_covers(wide: CommandRule, narrow: CommandRule, expected: bool) -> None:
    assert covers(wide, narrow) is expected
    assert len(list(unreachable_rules([narrow, wide]))) == expected


NOTHING = tuple(ClassRule(name, "deny") for name in CLASSES)


@each(
    ("policy", "severities"),
    [
        (CommandPolicy(), []),
        (CommandPolicy(NOTHING), ["error"]),
        (CommandPolicy(NOTHING[1:]), []),
        (CommandPolicy(NOTHING, (rule("make", "allow"),)), []),
        (CommandPolicy(NOTHING, (rule("make", "allow"), rule("make", "deny"))), ["error"]),
        (CommandPolicy(NOTHING, (rule("make", "require_approval", floor=True),)), ["error"]),
        (CommandPolicy(NOTHING, (), (Role("r"),), (("a", "r"),)), ["error"]),
        (CommandPolicy(NOTHING, (), (Role("r", (ClassRule("read_only", "allow"),)),), (("a", "r"),)), ["warning"]),
        (CommandPolicy((), (), (Role("r", NOTHING),), (("a", "r"),)), ["warning"]),
        (CommandPolicy(NOTHING, (rule("make", "allow", agents=("r",)),), (Role("r"),), (("a", "r"),)), ["warning"]),
    ],
)
def test_nothing_is_left(policy: CommandPolicy, severities: list[str]) -> None:
    assert [one.severity for one in locked_out(policy)] == severities


def test_a_role_that_nobody_has() -> None:
    found = list(
        unused_roles(CommandPolicy(roles=(Role("a"), Role("b", source="policy.yaml:3")), agents=(("x", "a"),)))
    )
    assert [(one.where, one.text) for one in found] == [("policy.yaml:3", "no agent has the role b")]
