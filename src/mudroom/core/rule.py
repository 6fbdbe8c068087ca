"""How one program's words are judged: a table entry says what the program does, what its options and subcommands add.

Long options may be cut short (``--del`` for ``--delete``) and short ones run together (``-ro``): both count when they
could be meant. A word that is only known when the command runs may be an option: it is unknown wherever the
program has an option that matters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

from mudroom.core.place import Finding, Scene, names_credentials, written
from mudroom.core.verdict import CommandClass
from mudroom.core.word import Word

Classes = tuple[CommandClass, ...]
READ: Classes = ("read_only",)
CHANGE: Classes = ("mutating",)
REACH: Classes = ("networked",)
FETCH: Classes = ("mutating", "networked")
LOSE: Classes = ("destructive",)
UNSURE: Classes = ("unknown",)
ESCAPE: Classes = ("host_escape_risk",)
_CHANGES = frozenset({"mutating", "destructive"})


class Option(NamedTuple):
    """``names``: ``-o --output``; a name without dashes is a word at any place, one with ``=`` last a beginning."""

    names: str
    classes: Classes
    reason: str


class Rule(NamedTuple):
    classes: Classes
    reason: str
    options: tuple[Option, ...] = ()
    targets: Literal["none", "all", "last"] = "none"
    """Which operands are written, and so have to be in the project."""
    subcommands: Mapping[bytes, Rule] | None = None
    valued: frozenset[bytes] = frozenset()
    """Options before the subcommand that take the next word as their value."""
    flags: frozenset[bytes] = frozenset()
    """Options before the subcommand that stand alone and do not matter."""
    style: Literal["gnu", "single"] = "gnu"
    """``single``: long options with one dash (``find -delete``), never run together."""
    judge: Callable[[Sequence[Word], Scene], Finding] | None = None
    """Judges all words in place of this entry."""


def option(names: str, classes: Classes, reason: str) -> Option:
    return Option(names, classes, reason)


def words_of(text: str) -> frozenset[bytes]:
    return frozenset(text.encode().split())


def same(names: str, rule: Rule) -> dict[bytes, Rule]:
    """One entry for several names."""
    return dict.fromkeys(names.encode().split(), rule)


def _could_be(word: bytes, name: bytes, style: str) -> bool:
    if not name.startswith(b"-"):
        return word.startswith(name) if name.endswith(b"=") else word == name
    if name.startswith(b"--"):
        head = word.partition(b"=")[0]
        return len(head) > 2 and head.startswith(b"--") and name.startswith(head)
    if style == "single" or len(name) > 2:
        return word.partition(b"=")[0] == name
    return word.startswith(b"-") and not word.startswith(b"--") and name[1:] in word[1:]


def added(words: Sequence[Word], rule: Rule) -> tuple[set[CommandClass], str]:
    """What the options add, and why (of the strictest that was seen first)."""
    classes: set[CommandClass] = set()
    reason, over = "", False
    for word in words:
        if word.literal and word.text == b"--" and rule.style == "gnu":
            over = True
            continue
        if not word.literal and (word.may_be_option if not over else False):
            classes.add("unknown")
            reason = reason or "an option that cannot be told"
            continue
        for entry in rule.options:
            for name in entry.names.encode().split():
                if (not over or not name.startswith(b"-")) and _could_be(word.text, name, rule.style):
                    classes.update(entry.classes)
                    reason = reason or entry.reason
    return classes, reason


def operands(words: Sequence[Word]) -> list[Word]:
    """The words that are not options (the values of options are among them)."""
    for at, word in enumerate(words):
        if word.literal and word.text == b"--":
            return [*operands(words[:at]), *words[at + 1 :]]
    return [word for word in words if not (word.literal and word.text.startswith(b"-") and word.text != b"-")]


def _targets(words: Sequence[Word], rule: Rule, changed: bool) -> Sequence[Word]:
    if rule.targets == "last":
        pointed = [
            word if word.text.startswith(b"--t") else words[at + 1]
            for at, word in enumerate(words)
            if (word.text == b"-t" and at + 1 < len(words)) or word.text.startswith(b"--target-directory=")
        ]
        return [*pointed, *operands(words)[-1:]]
    if rule.targets == "all":
        plain = operands(words)
        return [*plain, *(word for word in words if word.text.startswith(b"-") and b"=" in word.text)]
    return [word for word in words if b"/" in word.text] if changed else ()


def judged(words: Sequence[Word], rule: Rule, scene: Scene) -> Finding:
    """What a program does that is called with these words (the first is its name)."""
    if rule.judge is not None:
        return rule.judge(words, scene)
    rest = words[1:]
    if rule.subcommands is not None:
        return _by_subcommand(words, rule, scene)
    classes: set[CommandClass] = set(rule.classes)
    why = rule.reason
    if rule.options:
        more, reason = added(rest, rule)
        classes |= more
        why = reason or why
        changed = bool(more & _CHANGES)
    else:
        changed = False
    if classes & _CHANGES:
        more_classes, reason = written(_targets(rest, rule, changed), scene)
        classes.update(more_classes)
        why = f"{why}, {reason}" if reason else why
    if any(names_credentials(word) for word in rest):
        classes.add("host_escape_risk")
        why += ", names a place of keys"
    return Finding(tidy(classes), why)


def tidy(classes: set[CommandClass]) -> Classes:
    """Without ``read_only`` beside anything else, in the order of strictness."""
    order: Classes = ("mutating", "networked", "destructive", "unknown", "host_escape_risk")
    return tuple(name for name in order if name in classes) or READ


def subcommand(words: Sequence[Word], rule: Rule) -> tuple[int | None, bool]:
    """Where the subcommand stands (None: nowhere), and whether all options before it are known."""
    at, sure = 1, True
    while at < len(words):
        word = words[at]
        if not word.start.startswith(b"-"):
            return at, sure
        if word.text in rule.valued:
            at += 2
            continue
        head = word.text.partition(b"=")[0]
        sure = sure and word.literal and (word.text in rule.flags or (b"=" in word.text and head in rule.valued))
        at += 1
    return None, sure


def _by_subcommand(words: Sequence[Word], rule: Rule, scene: Scene) -> Finding:
    at, sure = subcommand(words, rule)
    assert rule.subcommands is not None
    if at is None:
        alone = all(word.text in INFORMS for word in words[1:])
        return Finding(READ, "tells about itself") if alone and len(words) > 1 else Finding(rule.classes, rule.reason)
    found = rule.subcommands.get(words[at].text) if words[at].literal else None
    if found is None:
        return Finding(UNSURE, "a subcommand that is not in the tables")
    inner = judged(words[at:], found, scene)
    more, reason = added(words[1:at], rule) if rule.options else (set[CommandClass](), "")
    if not sure and not more:
        more, reason = {"unknown"}, "an option before the subcommand that is not in the tables"
    return Finding(tidy({*inner.classes, *more}), reason or inner.reason, inner.parts)


INFORMS = frozenset({b"--version", b"--help", b"-V", b"-h", b"-v"})
"""Alone behind a program's name, these only tell about it."""
