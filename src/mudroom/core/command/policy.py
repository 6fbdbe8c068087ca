"""What is done about a command: rules and the one decision. Pure. ``core/command/program/classification.py`` says what
a command is.

Rules of this file: each part of a command is decided by itself, and the strictest decides the whole. For one part

1. a deny rule that matches wins, always;
2. else of the rules that match the longest pattern, then the one from nearest the user (``RANKS``), then the stricter;
3. else what its classes say, the strictest of them.

A rule that may only tighten (``floor``: those of a policy that nobody here has trusted) is left out of this, and raises
what came of it. A pattern is a prefix of words; each word one of several. Where a word is not known before the command
runs, no pattern reaches it: where a stricter rule may apply, a milder one counts only if the classes are no stricter.
This is guidance above a sandbox, not the boundary: a program can be started in more ways than any pattern names.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from mudroom.core.command.verdict import ACTIONS, CLASSES, Action, Classification, CommandClass, CommandPart, Verdict
from mudroom.core.tree.path import show

Pattern = tuple[tuple[bytes, ...], ...]
"""By place, the words that may stand there."""
RANKS = ("built-in", "project", "user", "local")
"""Where a rule can come from, the nearest to the user last. ``local``: this machine's answers for this project."""
STRICTNESS = {action: number for number, action in enumerate(ACTIONS)}
BY_CLASS: dict[CommandClass, Action] = {
    "read_only": "allow",
    "mutating": "allow",
    "networked": "allow",
    "destructive": "allow_with_checkpoint",
    "unknown": "allow_with_checkpoint",
    "host_escape_risk": "require_approval",
}
"""Where no policy says anything."""
_SYSTEM = (b"/bin/", b"/sbin/", b"/usr/bin/", b"/usr/sbin/", b"/usr/local/bin/", b"/usr/local/sbin/")
"""Directories whose programs are what their names say."""


class CommandRule(NamedTuple):
    pattern: Pattern
    action: Action
    source: str = ""
    """``policy.yaml:12``."""
    reason: str = ""
    instead: str = ""
    agents: tuple[str, ...] = ()
    """Roles and agents that it is for; empty: everybody."""
    match: tuple[str, ...] = ()
    """Command lines in which it has to match something, checked when it is loaded."""
    not_match: tuple[str, ...] = ()
    exact: bool = False
    """The pattern is all words, not the first of them."""
    rank: int = 1
    """Index in ``RANKS``."""
    floor: bool = False
    """It can make a decision stricter, never milder."""


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
    """What differs from ``BY_CLASS``."""
    rules: tuple[CommandRule, ...] = ()
    roles: tuple[Role, ...] = ()
    agents: tuple[tuple[str, str], ...] = ()
    """(agentId, role)."""

    def role_of(self, agent: str | None) -> Role | None:
        name = dict(self.agents).get(agent or "")
        return next((role for role in self.roles if role.name == name), None)


class _Found(NamedTuple):
    action: Action
    rule: str
    reason: str
    instead: str = ""
    """What the rule says itself."""
    else_: str = ""
    """What can be said of any such rule."""


def decide(classified: Classification, policy: CommandPolicy, agent: str | None = None) -> Verdict:
    """What is done about a command. ``agent``: the agentId of who runs it. Never raises."""
    who, by_class = _standing(policy, agent)
    rules = [rule for rule in policy.rules if not rule.agents or who.intersection(rule.agents)]
    parts = classified.parts or (CommandPart((), False, classified.classes or ("unknown",), "nothing is known of it"),)
    found = [_decide_part(part, rules, by_class) for part in parts]
    ranks = [max(map(CLASSES.index, part.classes), default=0) for part in parts]
    # Of equals the last: a shell, and whatever else starts something, comes before what it starts.
    worst = found[max(range(len(found)), key=lambda at: (STRICTNESS[found[at].action], ranks[at], at))]
    instead = ""
    if worst.action == "deny":
        instead = worst.instead or _allowed(classified, rules) or worst.else_ or _milder_classes(by_class)
    return Verdict(worst.action, classified.classes, worst.rule, worst.reason, instead)


def class_actions(policy: CommandPolicy, agent: str | None = None) -> dict[CommandClass, ClassRule]:
    """What holds for each class where no rule matches."""
    return _standing(policy, agent)[1]


def matches(rule: CommandRule, part: CommandPart) -> bool:
    """Whether the rule's pattern is a prefix of the part's known words (of an exact one: is all of them)."""
    pattern, words = rule.pattern, part.words
    if not pattern or len(pattern) > len(words):
        return False
    if rule.exact and (len(pattern) != len(words) or not part.complete):
        return False
    return _same_program(rule, words[0]) and all(map(tuple.__contains__, pattern[1:], words[1:]))


def may_match(rule: CommandRule, part: CommandPart) -> bool:
    """Whether it would match for some values of the words that are not known."""
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
    """What an answer of "always" would write (``rulebook.remember`` takes it): the words of each part, exactly and to
    the last, with `` ; `` between parts. None if a part that needs a rule is not known whole before it runs.

    With a policy those parts need a rule that it asks about; without one all that do more than read."""
    from mudroom.core.command.pattern_text import quote_words

    found: list[str] = []
    for part in classified.parts:
        if policy is None:
            asks = part.classes != ("read_only",)
        else:
            asks = decide(Classification(part.classes, (part,)), policy, agent).action == "require_approval"
        if not asks:
            continue
        if not part.complete or not part.words:
            return None
        text = quote_words(part.words)
        if text is None:
            return None
        found += [text] if text not in found else []
    return " ; ".join(found) or None


def rules_of_pattern(pattern: str, action: Action) -> tuple[CommandRule, ...]:
    """The rules that an answer of "always" (or "never") makes of what ``exact_pattern`` gave."""
    from mudroom.core.command.pattern_text import split_all

    return tuple(
        CommandRule(tuple((word,) for word in words), action, "asked", exact=True, rank=RANKS.index("local"))
        for words in split_all(pattern)
    )


def show_pattern(rule: CommandRule) -> str:
    """For people: ``npm (install|ci) …``."""
    return show_words(rule) if rule.exact else show_words(rule) + " …"


def show_words(rule: CommandRule) -> str:
    return " ".join(show(b"|".join(one)) if len(one) == 1 else f"({show(b'|'.join(one))})" for one in rule.pattern)


def _standing(policy: CommandPolicy, agent: str | None) -> tuple[frozenset[str], dict[CommandClass, ClassRule]]:
    """Whose rules hold, and what holds for each class. A role says otherwise than what is for everybody, but not
    milder if it comes from farther from the user."""
    role = policy.role_of(agent)
    who = frozenset(name for name in (agent, role.name if role else None) if name)
    found = {name: ClassRule(name, action, rank=0) for name, action in BY_CLASS.items()}
    found |= {one.name: one for one in policy.by_class}
    for one in role.by_class if role is not None else ():
        general = found[one.name]
        if one.rank >= general.rank or STRICTNESS[one.action] > STRICTNESS[general.action]:
            found[one.name] = one
    return who, found


def _decide_part(part: CommandPart, rules: Iterable[CommandRule], by_class: dict[CommandClass, ClassRule]) -> _Found:
    matching = [rule for rule in rules if matches(rule, part)]
    denied = max((rule for rule in matching if rule.action == "deny"), key=_precedence, default=None)
    if denied is not None:
        return _by_rule(denied, part)
    found = _by_best(matching, [rule for rule in rules if may_match(rule, part)], _by_class(part, by_class), part)
    floors = [rule for rule in matching if rule.floor]
    floor = max(floors, key=lambda rule: (STRICTNESS[rule.action], _precedence(rule)), default=None)
    if floor is not None and STRICTNESS[floor.action] > STRICTNESS[found.action]:
        return _by_rule(floor, part)
    return found


def _by_best(
    matching: Iterable[CommandRule], possible: Iterable[CommandRule], by_class: _Found, part: CommandPart
) -> _Found:
    best = max((rule for rule in matching if not rule.floor), key=_precedence, default=None)
    if best is None:
        return by_class
    # What is not known may be what a stricter rule is about.
    in_doubt = any(STRICTNESS[one.action] > STRICTNESS[best.action] for one in possible)
    if in_doubt and STRICTNESS[by_class.action] > STRICTNESS[best.action]:
        return by_class
    return _by_rule(best, part)


def _precedence(rule: CommandRule) -> tuple[int, bool, int, int]:
    return len(rule.pattern), rule.exact, rule.rank, STRICTNESS[rule.action]


def _by_rule(rule: CommandRule, part: CommandPart) -> _Found:
    reason = rule.reason or f"a rule for {show_pattern(rule)}" + (f": {part.reason}" if part.reason else "")
    return _Found(
        rule.action,
        rule.source or "rule",
        reason,
        rule.instead,
        f"allowed: what does not begin with {show_words(rule)}",
    )


def _by_class(part: CommandPart, by_class: dict[CommandClass, ClassRule]) -> _Found:
    classes = part.classes or ("unknown",)
    one = max((by_class[name] for name in classes), key=lambda one: (STRICTNESS[one.action], CLASSES.index(one.name)))
    shown = show(b" ".join(part.words[:3]))
    reason = f"{shown}: {part.reason}" if shown and part.reason else part.reason or shown or one.name
    if one.source:
        return _Found(one.action, f"class {one.name}", f"{reason} ({one.source})")
    return _Found(one.action, "default" if one.action == "allow" else f"class {one.name}", reason)


def _same_program(rule: CommandRule, word: bytes) -> bool:
    """``/bin/rm`` is rm. Of what is allowed only in the system's directories: any other may be anybody's."""
    names = rule.pattern[0]
    if word in names:
        return True
    directory, slash, name = word.rpartition(b"/")
    if not slash or name not in names:
        return False
    return STRICTNESS[rule.action] >= STRICTNESS["require_approval"] or directory + slash in _SYSTEM


def _allowed(classified: Classification, rules: Iterable[CommandRule]) -> str:
    """What rules allow of the same programs."""
    programs = {part.words[0].rpartition(b"/")[2] for part in classified.parts if part.words}
    milder = [rule for rule in rules if STRICTNESS[rule.action] < STRICTNESS["require_approval"] and not rule.floor]
    near = [show_pattern(rule) for rule in milder if programs.intersection(rule.pattern[0])]
    return "allowed: " + ", ".join(near[:3]) if near else ""


def _milder_classes(by_class: dict[CommandClass, ClassRule]) -> str:
    free = [name for name in CLASSES if STRICTNESS[by_class[name].action] < STRICTNESS["require_approval"]]
    return "allowed: what is only " + " or ".join(free).replace("_", " ") if free else ""
