"""The rules about commands, and the decision that follows from them. Pure. ``core/command/program/classification.py``
finds a command's classes.

Each part of a command is decided by itself, and the strictest decision counts for the whole. For one part:

1. A deny rule that matches always wins.
2. Otherwise, among the matching rules: the longest pattern; at equal length, the rule whose source is nearest to the
   user (``RANKS``); at equal rank, the stricter action.
3. Without a matching rule: the strictest action that the part's classes have.

A rule with ``floor`` (from a policy that this machine's user has not trusted) does not take part in this; it can only
make the outcome stricter afterwards. A pattern is a prefix of words, with several alternatives for each word. A word
that is unknown before the command runs matches no pattern: where a stricter rule might match it, a milder rule counts
only if the classes are no stricter. The rules are guidance above a sandbox, not the boundary: there are more ways to
start a program than any pattern can name.
"""

from __future__ import annotations

from collections.abc import Iterable

from mudroom.core.command.verdict import ACTIONS, CLASSES, Action, Classification, CommandClass, CommandPart, Verdict
from mudroom.core.tree.path import show
from mudroom.typing import NamedTuple

Pattern = tuple[tuple[bytes, ...], ...]
"""For each position, the words that match there."""
RANKS = ("built-in", "project", "user", "local")
"""Where rules come from, the nearest to the user last. ``local``: answers given on this machine for this project."""
STRICTNESS = {action: number for number, action in enumerate(ACTIONS)}
BY_CLASS: dict[CommandClass, Action] = {
    "read_only": "allow",
    "mutating": "allow",
    "networked": "allow",
    "destructive": "allow_with_checkpoint",
    "unknown": "allow_with_checkpoint",
    "host_escape_risk": "require_approval",
}
"""Each class's action unless a policy sets another."""
_SYSTEM = (b"/bin/", b"/sbin/", b"/usr/bin/", b"/usr/sbin/", b"/usr/local/bin/", b"/usr/local/sbin/")
"""System directories: a program here is the program that its name says."""


class CommandRule(NamedTuple):
    pattern: Pattern
    action: Action
    source: str = ""
    """File and line, such as ``policy.yaml:12``."""
    reason: str = ""
    instead: str = ""
    agents: tuple[str, ...] = ()
    """Roles and agent ids to which the rule applies; empty: all."""
    match: tuple[str, ...] = ()
    """Command lines that the rule must match. Checked when the rule is loaded."""
    not_match: tuple[str, ...] = ()
    exact: bool = False
    """Whether the pattern must equal all words in the command, not only the first ones."""
    rank: int = 1
    """Index in ``RANKS``."""
    floor: bool = False
    """Whether the rule can only make a decision stricter."""
    bound: str = ""
    """The digest of the only question that the rule answers (``core/approval/fingerprint.py``); empty: it is about the
    words alone. Only a rule that allows is bound."""


class ClassRule(NamedTuple):
    name: CommandClass
    action: Action
    source: str = ""
    rank: int = 1


class Role(NamedTuple):
    name: str
    by_class: tuple[ClassRule, ...] = ()
    source: str = ""


class CommandPolicy(NamedTuple):
    by_class: tuple[ClassRule, ...] = ()
    """Actions that differ from ``BY_CLASS``."""
    rules: tuple[CommandRule, ...] = ()
    roles: tuple[Role, ...] = ()
    agents: tuple[tuple[str, str], ...] = ()
    """Pairs (agentId, role)."""
    machine: CommandPolicy | None = None
    """The machine's own policy, which decides each command by itself, too: the stricter verdict counts."""

    def role_of(self, agent: str | None) -> Role | None:
        name = dict(self.agents).get(agent or "")
        return next((role for role in self.roles if role.name == name), None)


class _Outcome(NamedTuple):
    action: Action
    rule: str
    reason: str
    instead: str = ""
    """The rule's own ``instead`` text."""
    fallback: str = ""
    """Generated text for a rule without ``instead``."""


def decide(classified: Classification, policy: CommandPolicy, agent: str | None = None, bound: str = "") -> Verdict:
    """Return the verdict on a command. ``agent``: agentId of the agent that runs it. ``bound``: the question's digest;
    rules that are bound to another do not count. Never raises."""
    verdict = _decide(classified, policy, agent, bound)
    least = _decide(classified, policy.machine, agent, bound) if policy.machine is not None else verdict
    return least if STRICTNESS[least.action] > STRICTNESS[verdict.action] else verdict


def _decide(classified: Classification, policy: CommandPolicy, agent: str | None, bound: str) -> Verdict:
    names, by_class = _rules_of_agent(policy, agent)
    rules = [
        rule
        for rule in policy.rules
        if rule.bound in ("", bound) and (not rule.agents or names.intersection(rule.agents))
    ]
    parts = classified.parts or (
        CommandPart((), False, classified.classes or ("unknown",), "the command is not known"),
    )
    outcomes = [_decide_part(part, rules, by_class) for part in parts]
    ranks = [max(map(CLASSES.index, part.classes), default=0) for part in parts]
    # The last among equals: a shell or wrapper comes before the command that it starts.
    worst = outcomes[
        max(range(len(outcomes)), key=lambda index: (STRICTNESS[outcomes[index].action], ranks[index], index))
    ]
    instead = ""
    if worst.action == "deny":
        instead = worst.instead or _allowed_patterns(classified, rules) or worst.fallback or _milder_classes(by_class)
    return Verdict(worst.action, classified.classes, worst.rule, worst.reason, instead)


def class_actions(policy: CommandPolicy, agent: str | None = None) -> dict[CommandClass, ClassRule]:
    """Return the rule for each class. They hold for parts that no command rule matches."""
    rules = _rules_of_agent(policy, agent)[1]
    least = _rules_of_agent(policy.machine, agent)[1] if policy.machine is not None else rules
    return {name: max(rules[name], least[name], key=lambda rule: STRICTNESS[rule.action]) for name in rules}


def has_rule(policy: CommandPolicy, name: CommandClass, agent: str | None = None) -> bool:
    """Return whether a policy file sets this class's action. It then holds for the class at every level."""
    return class_actions(policy, agent)[name].rank > 0


def matches(rule: CommandRule, part: CommandPart) -> bool:
    """Return whether the rule's pattern is a prefix of the part's known words. An exact rule must equal all of them."""
    pattern, words = rule.pattern, part.words
    if not pattern or len(pattern) > len(words):
        return False
    if rule.exact and (len(pattern) != len(words) or not part.complete):
        return False
    return _same_program(rule, words[0]) and all(map(tuple.__contains__, pattern[1:], words[1:]))


def may_match(rule: CommandRule, part: CommandPart) -> bool:
    """Return whether some values for the unknown words would make the rule match."""
    words = part.words
    if part.complete or not rule.pattern:
        return False
    if not words:
        return True
    if len(words) >= len(rule.pattern):
        return rule.exact and len(words) == len(rule.pattern) and matches(rule._replace(exact=False), part)
    return _same_program(rule, words[0]) and all(map(tuple.__contains__, rule.pattern[1:], words[1:]))


def exact_pattern(
    classified: Classification, policy: CommandPolicy | None = None, agent: str | None = None
) -> str | None:
    """Return the pattern that the answer "always" writes (an argument for ``policy/command_answers.py:remember``): each
    part's exact words, with `` ; `` between parts. Return None if a part that needs a rule is not fully known before it
    runs.

    With a policy, a part needs a rule if the policy asks about it; without a policy, if it does more than read. There
    is no pattern for a part about which the machine's own policy asks: a rule would not change that.
    """
    from mudroom.core.command.pattern_text import quote_words

    texts: list[str] = []
    for part in classified.parts:
        if policy is None:
            asks = part.classes != ("read_only",)
        else:
            alone = Classification(part.classes, (part,))
            asks = decide(alone, policy, agent).action == "require_approval"
            if policy.machine is not None and _decide(alone, policy.machine, agent, "").action == "require_approval":
                return None
        if not asks:
            continue
        if not part.complete or not part.words:
            return None
        text = quote_words(part.words)
        if text is None:
            return None
        texts += [text] if text not in texts else []
    return " ; ".join(texts) or None


def rules_of_pattern(pattern: str, action: Action) -> tuple[CommandRule, ...]:
    """Return the rules for the answer "always" (or "never") to a pattern from ``exact_pattern``."""
    from mudroom.core.command.pattern_text import split_all, split_bound

    pattern, bound = split_bound(pattern)
    local = CommandRule((), action, "asked", exact=True, rank=RANKS.index("local"), bound=bound)
    return tuple(local._replace(pattern=tuple((word,) for word in words)) for words in split_all(pattern))


def show_pattern(rule: CommandRule) -> str:
    """Return the pattern as text for people: ``npm (install|ci) …``."""
    return show_words(rule) + ("" if rule.exact else " …") + (" as it was approved" if rule.bound else "")


def show_words(rule: CommandRule) -> str:
    return " ".join(
        show(b"|".join(alternatives)) if len(alternatives) == 1 else f"({show(b'|'.join(alternatives))})"
        for alternatives in rule.pattern
    )


def _rules_of_agent(policy: CommandPolicy, agent: str | None) -> tuple[frozenset[str], dict[CommandClass, ClassRule]]:
    """Return the agent's names in rules (its id and its role), and the rule for each class. The role's class rule
    replaces the general one, unless its source is farther from the user and its action is milder."""
    role = policy.role_of(agent)
    names = frozenset(name for name in (agent, role.name if role else None) if name)
    rules = {name: ClassRule(name, action, rank=0) for name, action in BY_CLASS.items()}
    rules |= {class_rule.name: class_rule for class_rule in policy.by_class}
    for class_rule in role.by_class if role is not None else ():
        general = rules[class_rule.name]
        if class_rule.rank >= general.rank or STRICTNESS[class_rule.action] > STRICTNESS[general.action]:
            rules[class_rule.name] = class_rule
    return names, rules


def _decide_part(part: CommandPart, rules: Iterable[CommandRule], by_class: dict[CommandClass, ClassRule]) -> _Outcome:
    matching = [rule for rule in rules if matches(rule, part)]
    denied = max((rule for rule in matching if rule.action == "deny"), key=_precedence, default=None)
    if denied is not None:
        return _by_rule(denied, part)
    outcome = _by_best(matching, [rule for rule in rules if may_match(rule, part)], _by_class(part, by_class), part)
    floors = [rule for rule in matching if rule.floor]
    floor = max(floors, key=lambda rule: (STRICTNESS[rule.action], _precedence(rule)), default=None)
    if floor is not None and STRICTNESS[floor.action] > STRICTNESS[outcome.action]:
        return _by_rule(floor, part)
    return outcome


def _by_best(
    matching: Iterable[CommandRule], possible: Iterable[CommandRule], by_class: _Outcome, part: CommandPart
) -> _Outcome:
    best = max((rule for rule in matching if not rule.floor), key=_precedence, default=None)
    if best is None:
        return by_class
    # An unknown word may be the one that a stricter rule names.
    in_doubt = any(STRICTNESS[rule.action] > STRICTNESS[best.action] for rule in possible)
    if in_doubt and STRICTNESS[by_class.action] > STRICTNESS[best.action]:
        return by_class
    return _by_rule(best, part)


def _precedence(rule: CommandRule) -> tuple[int, bool, bool, int, int]:
    return len(rule.pattern), rule.exact, bool(rule.bound), rule.rank, STRICTNESS[rule.action]


def _by_rule(rule: CommandRule, part: CommandPart) -> _Outcome:
    reason = rule.reason or f"a rule for {show_pattern(rule)}" + (f": {part.reason}" if part.reason else "")
    return _Outcome(
        rule.action,
        rule.source or "rule",
        reason,
        rule.instead,
        f"allowed: commands that do not begin with {show_words(rule)}",
    )


def _by_class(part: CommandPart, by_class: dict[CommandClass, ClassRule]) -> _Outcome:
    classes = part.classes or ("unknown",)
    class_rule = max(
        (by_class[name] for name in classes),
        key=lambda class_rule: (STRICTNESS[class_rule.action], CLASSES.index(class_rule.name)),
    )
    shown = show(b" ".join(part.words[:3]))
    reason = f"{shown}: {part.reason}" if shown and part.reason else part.reason or shown or class_rule.name
    if class_rule.source:
        return _Outcome(class_rule.action, f"class {class_rule.name}", f"{reason} ({class_rule.source})")
    return _Outcome(
        class_rule.action, "default" if class_rule.action == "allow" else f"class {class_rule.name}", reason
    )


def _same_program(rule: CommandRule, word: bytes) -> bool:
    """Return whether ``word`` names the rule's program: ``/bin/rm`` is ``rm``. An allow rule matches a path only in
    system directories, since a program anywhere else can be anything."""
    names = rule.pattern[0]
    if word in names:
        return True
    directory, slash, name = word.rpartition(b"/")
    if not slash or name not in names:
        return False
    return STRICTNESS[rule.action] >= STRICTNESS["require_approval"] or directory + slash in _SYSTEM


def _allowed_patterns(classified: Classification, rules: Iterable[CommandRule]) -> str:
    """Return a text that lists patterns allowed by rules for the same programs; empty if there are none."""
    programs = {part.words[0].rpartition(b"/")[2] for part in classified.parts if part.words}
    denied = {rule.pattern for rule in rules if rule.action == "deny"}
    milder = [
        rule
        for rule in rules
        if STRICTNESS[rule.action] < STRICTNESS["require_approval"] and not rule.floor and rule.pattern not in denied
    ]
    near = [show_pattern(rule) for rule in milder if programs.intersection(rule.pattern[0])]
    return "allowed: " + ", ".join(near[:3]) if near else ""


def _milder_classes(by_class: dict[CommandClass, ClassRule]) -> str:
    free = [name for name in CLASSES if STRICTNESS[by_class[name].action] < STRICTNESS["require_approval"]]
    return "allowed: commands that are only " + " or ".join(free).replace("_", " ") if free else ""
