"""What is decided about a command, from what is known of its parts."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudroom.core.command.pattern_text import bind, quote_words, split_all, split_words
from mudroom.core.command.policy import (
    BY_CLASS,
    STRICTNESS,
    ClassRule,
    CommandPolicy,
    CommandRule,
    Role,
    class_actions,
    decide,
    exact_pattern,
    matches,
    rules_of_pattern,
    show_pattern,
)
from mudroom.core.command.verdict import ACTIONS, CLASSES, Action, CommandClass, CommandPart, Verdict, join_parts
from tiers import each


def part(text: str, *classes: CommandClass, complete: bool = True) -> CommandPart:
    return CommandPart(split_words(text) if text else (), complete, classes or ("read_only",), "")


def rule(text: str, action: Action, **more: object) -> CommandRule:
    found = CommandRule(tuple((word,) for word in split_words(text)), action, source=f"{action} {text}")
    return found._replace(**more)  # type: ignore[arg-type]


def verdict(policy: CommandPolicy, *parts: CommandPart, agent: str | None = None) -> Verdict:
    return decide(join_parts(parts), policy, agent)


def action(rules: list[CommandRule], *parts: CommandPart, agent: str | None = None) -> Action:
    return verdict(CommandPolicy(rules=tuple(rules)), *parts, agent=agent).action


@pytest.mark.parametrize("name", CLASSES)
def test_without_a_policy_the_classes_decide(name: CommandClass) -> None:
    found = verdict(CommandPolicy(), part("a b", name))
    assert (found.action, found.classes) == (BY_CLASS[name], (name,))
    assert found.rule == ("default" if found.action == "allow" else f"class {name}")


def test_of_nothing_at_all_nothing_is_known() -> None:
    assert verdict(CommandPolicy())[:3] == ("allow_with_checkpoint", ("unknown",), "class unknown")


def test_the_strictest_part_decides() -> None:
    parts = [
        part("ls"),
        part("rm -rf x", "destructive"),
        part("docker run", "host_escape_risk"),
        part("make", "mutating"),
    ]
    for order in permutations(parts):
        assert verdict(CommandPolicy(), *order).rule == "class host_escape_risk"


def test_a_denial_wins_over_whatever_is_longer_or_nearer() -> None:
    deny = rule("git push", "deny", rank=0)
    allow = rule("git push origin main", "allow", rank=3)
    assert action([allow, deny], part("git push origin main", "networked")) == "deny"


@each(
    ("rules", "expected"),
    [
        ([rule("git push", "require_approval"), rule("git push origin", "allow")], "allow"),
        ([rule("git push", "allow", rank=1), rule("git push", "require_approval", rank=2)], "require_approval"),
        ([rule("git push", "allow", rank=2), rule("git push", "require_approval", rank=1)], "allow"),
        ([rule("git push", "allow"), rule("git push", "require_approval")], "require_approval"),
        ([rule("git push origin main", "require_approval"), rule("git push", "allow")], "require_approval"),
        ([rule("git push origin main", "allow", exact=True), rule("git push", "require_approval")], "allow"),
        ([rule("git push", "allow", exact=True), rule("git", "require_approval")], "require_approval"),
        ([rule("git push origin main -f", "allow")], "allow"),
        ([rule("git push", "require_approval", floor=True), rule("git push origin", "allow")], "require_approval"),
        ([rule("git push", "allow", floor=True), rule("git", "require_approval")], "require_approval"),
        ([rule("git", "allow_with_checkpoint", floor=True)], "allow_with_checkpoint"),
    ],
)
def test_the_longest_then_the_nearest_then_the_stricter(rules: list[CommandRule], expected: Action) -> None:
    for order in permutations(rules):
        assert action(list(order), part("git push origin main", "networked")) == expected


def test_a_bound_rule_answers_its_question_alone() -> None:
    digest, command = "0a" * 16, part("a b", "unknown")
    (bound,) = rules_of_pattern(bind("a b", digest), "allow")
    for others, expected in (
        ([], "allow"),
        ([rule("a b", "require_approval", exact=True, rank=3)], "allow"),
        ([rule("a", "deny")], "deny"),
        ([rule("a", "require_approval", floor=True)], "require_approval"),
    ):
        policy = CommandPolicy((ClassRule("unknown", "require_approval"),), (bound, *others))
        assert decide(join_parts([command]), policy, bound=digest).action == expected
        for other in ("", "0b" * 16):
            assert decide(join_parts([command]), policy, bound=other).action in ("require_approval", "deny")


def test_a_floor_never_makes_anything_milder() -> None:
    floors = [rule("sudo", one, floor=True) for one in ACTIONS[:3]]
    deny = CommandPolicy((ClassRule("host_escape_risk", "deny", "user policy.yaml:1", 2),), tuple(floors))
    found = verdict(deny, part("sudo reboot", "host_escape_risk"))
    assert (found.action, found.rule) == ("deny", "class host_escape_risk")
    assert found.reason.endswith("(user policy.yaml:1)")


@each(
    ("text", "complete", "pattern", "exact", "expected"),
    [
        ("npm ci", True, "npm ci", False, True),
        ("npm ci --x", True, "npm ci", False, True),
        ("npm ci --x", True, "npm ci", True, False),
        ("npm", True, "npm ci", False, False),
        ("npm", False, "npm ci", False, False),
        ("npm ci", False, "npm ci", False, True),
        ("npm ci", False, "npm ci", True, False),
        ("npm cix", True, "npm ci", False, False),
        ("", False, "npm", False, False),
    ],
)
def test_a_pattern_is_a_prefix_of_known_words(
    text: str, complete: bool, pattern: str, exact: bool, expected: bool
) -> None:
    assert matches(rule(pattern, "allow", exact=exact), part(text, complete=complete)) is expected


def test_words_that_are_not_known_may_be_what_a_stricter_rule_is_about() -> None:
    rules = [rule("git push", "allow"), rule("git push --force", "deny")]
    push = part("git push", "host_escape_risk", complete=False)
    assert verdict(CommandPolicy(rules=tuple(rules)), push).rule == "class host_escape_risk"
    assert action(rules, push._replace(complete=True)) == "allow"
    assert action(rules, part("git push origin", "host_escape_risk", complete=False)) == "allow"  # it is not --force


def test_each_word_may_be_one_of_several() -> None:
    found = CommandRule(((b"npm", b"yarn"), (b"install", b"ci")), "deny")
    assert [matches(found, part(text)) for text in ("npm ci", "yarn install x", "npm run", "pnpm ci")] == [
        True,
        True,
        False,
        False,
    ]
    assert show_pattern(found) == "(npm|yarn) (install|ci) …"


@pytest.mark.parametrize(
    ("word", "denied", "allowed"),
    [
        ("rm", True, True),
        ("/bin/rm", True, True),
        ("/tmp/rm", True, False),
        ("./rm", True, False),
        ("arm", False, False),
    ],
)
def test_a_program_by_its_path(word: str, denied: bool, allowed: bool) -> None:
    assert matches(rule("rm", "deny"), part(word)) is denied
    assert matches(rule("rm", "require_approval"), part(word)) is denied
    assert matches(rule("rm", "allow"), part(word)) is allowed


def test_roles() -> None:
    policy = CommandPolicy(
        by_class=(ClassRule("networked", "deny", "user policy.yaml:2", 2),),
        rules=(rule("make", "deny", agents=("reviewer",)), rule("ls", "deny", agents=("codex",))),
        roles=(
            Role(
                "reviewer", (ClassRule("mutating", "deny", "policy.yaml:5", 1), ClassRule("networked", "allow", "", 1))
            ),
            Role("builder", (ClassRule("networked", "allow", "", 2),)),
        ),
        agents=(("claude", "reviewer"), ("codex", "builder")),
    )
    assert [verdict(policy, part("make"), agent=who).action for who in (None, "claude", "codex")] == [
        "allow",
        "deny",
        "allow",
    ]
    assert [verdict(policy, part("ls"), agent=who).action for who in (None, "claude", "codex")] == [
        "allow",
        "allow",
        "deny",
    ]
    assert verdict(policy, part("x", "mutating"), agent="claude").rule == "class mutating"
    assert class_actions(policy, "claude")["networked"].action == "deny", (
        "a project's role does not undo the user's word"
    )
    assert class_actions(policy, "codex")["networked"].action == "allow"
    assert class_actions(policy, "nobody")["networked"].action == "deny"


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ([rule("git push --force", "deny", instead="git push --force-with-lease")], "git push --force-with-lease"),
        ([rule("git push --force", "deny"), rule("git push origin", "allow")], "allowed: git push origin …"),
        ([rule("git push --force", "deny")], "allowed: commands that do not begin with git push --force"),
    ],
)
def test_a_denial_says_what_would_be_allowed(rules: list[CommandRule], expected: str) -> None:
    found = verdict(CommandPolicy(rules=tuple(rules)), part("git push --force"))
    assert (found.action, found.instead) == ("deny", expected)


def test_a_class_that_is_denied_names_those_that_are_not() -> None:
    strict = CommandPolicy(tuple(ClassRule(name, "deny") for name in CLASSES[1:]))
    assert verdict(strict, part("make", "mutating")).instead == "allowed: commands that are only read only"
    assert verdict(CommandPolicy((*strict.by_class, ClassRule("read_only", "deny"))), part("ls")).instead == ""


# --- what "always" writes -------------------------------------------------------------------------------------------


def test_what_always_would_write() -> None:
    rm, cd, push = part("rm -rf 'a b'", "destructive"), part("cd x"), part("git push", "networked")
    assert exact_pattern(join_parts([cd, rm])) == "rm -rf 'a b'"
    assert exact_pattern(join_parts([rm, push, rm])) == "rm -rf 'a b' ; git push"
    assert exact_pattern(join_parts([rm._replace(complete=False)])) is None
    assert exact_pattern(join_parts([CommandPart((), False, ("mutating",), "writes a file")])) is None
    assert exact_pattern(join_parts([CommandPart((b"\xff",), True, ("unknown",), "")])) is None
    assert exact_pattern(join_parts([CommandPart((b"a\nb",), True, ("unknown",), "")])) is None
    asks = CommandPolicy(rules=(rule("git push", "require_approval"),))
    writes = CommandPart((), False, ("mutating",), "writes a file")
    assert exact_pattern(join_parts([rm, push, writes]), asks) == "git push"
    assert exact_pattern(join_parts([rm]), asks) is None


words = st.lists(
    st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")) | st.just(" "), max_size=6), min_size=1
)


@given(words)
def test_quoted_words_are_read_as_they_were(texts: list[str]) -> None:
    found = tuple(text.encode() for text in texts)
    quoted = quote_words(found)
    assert quoted is not None
    assert split_words(quoted) == found
    assert split_all(f"{quoted} ; ls") == [found, (b"ls",)]


@each(
    "text", ["", "  ", "a; b", "a | b", "a && b", "$x", '"$x"', "`x`", "a *", "'x", '"x', "x\\", "a > b", "a\nb", "~/x"]
)
def test_what_a_shell_would_act_on_is_no_pattern(text: str) -> None:
    with pytest.raises(ValueError):
        split_words(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("git push", (b"git", b"push")),
        (" a\\ b 'c d'e \"f\\\"g\" ''", (b"a b", b"c de", b'f"g', b"")),
        ("git reset HEAD~1", (b"git", b"reset", b"HEAD~1")),
        ("a '*' \"b#c\" d#e", (b"a", b"*", b"b#c", b"d#e")),
    ],
)
def test_words_of_a_pattern(text: str, expected: tuple[bytes, ...]) -> None:
    assert split_words(text) == expected


# --- whatever the rules are -----------------------------------------------------------------------------------------

_word = st.sampled_from("abc")
_parts = st.builds(
    lambda text, complete, classes: CommandPart(tuple(one.encode() for one in text), complete, tuple(classes), ""),
    st.lists(_word, max_size=4),
    st.booleans(),
    st.lists(st.sampled_from(CLASSES), min_size=1, max_size=2),
)
_rules = st.builds(
    lambda text, action, rank, exact, floor: CommandRule(
        tuple((one.encode(),) for one in text), action, rank=rank, exact=exact, floor=floor
    ),
    st.lists(_word, min_size=1, max_size=3),
    st.sampled_from(ACTIONS),
    st.integers(0, 3),
    st.booleans(),
    st.booleans(),
)


@given(
    st.lists(_rules, max_size=6), st.lists(_parts, min_size=1, max_size=4), _parts, st.randoms(use_true_random=False)
)
def test_properties(rules: list[CommandRule], parts: list[CommandPart], more: CommandPart, random: object) -> None:
    policy = CommandPolicy(rules=tuple(rules))
    found = verdict(policy, *parts)
    assert found.action in ACTIONS
    # another part never makes a command milder
    assert STRICTNESS[verdict(policy, *parts, more).action] >= STRICTNESS[found.action]
    # neither does a floor, nor a denial
    tight = [one._replace(floor=True) for one in rules] + [one._replace(action="deny") for one in rules[:1]]
    for one in tight:
        wider = CommandPolicy(rules=(*rules, one))
        assert STRICTNESS[verdict(wider, *parts).action] >= STRICTNESS[found.action]
    # the order of the rules does not matter
    shuffled = list(rules)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert verdict(CommandPolicy(rules=tuple(shuffled)), *parts).action == found.action
    # of a part of which less is known a rule allows no more than of the same known whole, or its class says
    for some in parts:
        vague = verdict(policy, some._replace(complete=False))
        by_class = decide(join_parts([some]), CommandPolicy())
        whole = verdict(policy, some._replace(complete=True))
        least = min(STRICTNESS[by_class.action], STRICTNESS[whole.action])
        assert STRICTNESS[vague.action] >= least
