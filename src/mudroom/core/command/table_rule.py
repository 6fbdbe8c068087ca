"""How one program's words are judged: a table entry says what the program does, what its options and subcommands add.

Long options may be cut short (``--del`` for ``--delete``) and short ones run together (``-ro``): both count when they
could be meant. A word that is only known when the command runs may be an option: it is unknown wherever the
program has an option that matters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from mudroom.core.command.locations import CommandFinding, Scene, names_credentials, written
from mudroom.core.command.verdict import CommandClass
from mudroom.core.command.word import Word

Classes = tuple[CommandClass, ...]
Style = Literal["gnu", "single"]
READ: Classes = ("read_only",)
CHANGE: Classes = ("mutating",)
REACH: Classes = ("networked",)
FETCH: Classes = ("mutating", "networked")
LOSE: Classes = ("destructive",)
UNSURE: Classes = ("unknown",)
ESCAPE: Classes = ("host_escape_risk",)
_CHANGES = frozenset({"mutating", "destructive"})
INFORMS = frozenset({b"--version", b"--help", b"-V", b"-h", b"-v"})
"""Alone behind a program's name, these only tell about it."""


class ProgramOption(NamedTuple):
    """A name without dashes is a word at any place, one with ``=`` or ``*`` last a beginning."""

    names: tuple[bytes, ...]
    classes: Classes
    reason: str


class ProgramRule(NamedTuple):
    classes: Classes
    reason: str
    options: tuple[ProgramOption, ...] = ()
    targets: Literal["none", "all", "last"] = "none"
    """Which operands are written, and so have to be in the project."""
    subcommands: Mapping[bytes, ProgramRule] | None = None
    flags: frozenset[bytes] = frozenset()
    """Options before the subcommand that stand alone and do not matter."""
    takes: frozenset[bytes] = frozenset()
    """Options that take the next word as their value."""
    softened: frozenset[bytes] = frozenset()
    """Options with which it only reads."""
    style: Style = "gnu"
    """``single``: long options with one dash (``find -delete``), never run together."""
    judge: Callable[[Sequence[Word], Scene], CommandFinding] | None = None
    """Judges all words in place of this entry."""


def option(names: str, classes: Classes, reason: str) -> ProgramOption:
    return ProgramOption(tuple(names.encode().split()), classes, reason)


def names(text: str) -> frozenset[bytes]:
    return frozenset(text.encode().split())


def same(text: str, rule: ProgramRule) -> dict[bytes, ProgramRule]:
    """One entry for several names."""
    return dict.fromkeys(text.encode().split(), rule)


def could_be(word: bytes, name: bytes, style: Style = "gnu") -> bool:
    """Whether a program might take this word for that option."""
    if not name.startswith(b"-"):
        return word.startswith(name.rstrip(b"*")) if name.endswith((b"=", b"*")) else word == name
    if name.startswith(b"--"):
        head = word.partition(b"=")[0]
        return len(head) > 2 and head.startswith(b"--") and name.startswith(head)
    if style == "single" or len(name) > 2:
        return word.partition(b"=")[0] == name
    return word.startswith(b"-") and not word.startswith(b"--") and name[1:] in word[1:]


def _with_values(words: Sequence[Word], rule: ProgramRule) -> Iterator[tuple[Word, bool]]:
    """Each word, and whether it can still be an option: not the value of one, not behind ``--``."""
    over = value = False
    for word in words:
        yield word, not over and not value
        over = over or (not value and word.text == b"--" and word.literal and rule.style == "gnu")
        value = not over and not value and word.literal and word.text in rule.takes


def _letters(rule: ProgramRule) -> frozenset[int]:
    return frozenset(name[1] for name in rule.takes if len(name) == 2)


def _own(text: bytes, valued: frozenset[int]) -> bytes:
    """Of options run together (``-sXPOST``) those before the value that one of them takes (``-sX``)."""
    if valued and text[:1] == b"-" and text[1:2] != b"-":
        for at, letter in enumerate(text[1:], 1):
            if letter in valued:
                return text[: at + 1]
    return text


def added(words: Sequence[Word], rule: ProgramRule) -> tuple[set[CommandClass], str]:
    """What the options add, and why (of the first that was seen)."""
    classes: set[CommandClass] = set()
    reason = ""
    valued = _letters(rule)
    for word, free in _with_values(words, rule):
        text = _own(word.text, valued)
        if free and not word.literal and word.may_be_option:
            classes.add("unknown")
            reason = reason or "an option that cannot be told"
        for entry in rule.options:
            for name in entry.names:
                if (free or not name.startswith(b"-")) and could_be(text, name, rule.style):
                    classes.update(entry.classes)
                    reason = reason or entry.reason
    return classes, reason


def softened(words: Sequence[Word], rule: ProgramRule) -> bool:
    """Whether one of the options is surely there with which the program only reads."""
    valued = _letters(rule)
    for word, free in _with_values(words, rule):
        if not free or not word.literal:
            continue
        if word.text in rule.softened:
            return True
        together = word.text[:1] == b"-" and word.text[1:].isalpha() and not set(word.text[1:]) & valued
        if together and any(len(name) == 2 and name[1:] in word.text for name in rule.softened):
            return True
    return False


def operands(words: Sequence[Word]) -> list[Word]:
    """The words that are not options (the values of options are among them)."""
    for at, word in enumerate(words):
        if word.literal and word.text == b"--":
            return [*operands(words[:at]), *words[at + 1 :]]
    return [word for word in words if not (word.literal and word.text.startswith(b"-") and word.text != b"-")]


def _targets(words: Sequence[Word], rule: ProgramRule) -> Sequence[Word]:
    """The words that may name what is written."""
    if rule.targets == "last":
        into = [words[at + 1] for at, word in enumerate(words[:-1]) if could_be(word.text, b"-t")]
        into += [Word(word.text[2:], word.kind) for word in words if word.text[:2] == b"-t" and len(word.text) > 2]
        into += [word for word in words if could_be(word.text, b"--target-directory") and b"=" in word.text]
        return [*into, *operands(words)[-1:]]
    if rule.targets == "all":
        return [*operands(words), *(word for word in words if word.text.startswith(b"-") and b"=" in word.text)]
    return [word for word in words if b"/" in word.text and b"://" not in word.text]


def judged(words: Sequence[Word], rule: ProgramRule, scene: Scene) -> CommandFinding:
    """What a program does that is called with these words (the first is its name)."""
    if rule.judge is not None:
        return rule.judge(words, scene)
    if rule.subcommands is not None:
        return _by_subcommand(words, rule, scene)
    return with_paths(words, rule, scene)


def with_paths(words: Sequence[Word], rule: ProgramRule, scene: Scene) -> CommandFinding:
    """By the entry's options, and by where the paths of what is written lead."""
    rest = words[1:]
    classes: set[CommandClass] = set(rule.classes)
    why = rule.reason
    if rule.softened and softened(rest, rule):
        classes, why = set(READ), "only reads, so called"
    more, reason = added(rest, rule) if rule.options else (set[CommandClass](), "")
    classes |= more
    why = reason or why
    if classes & _CHANGES and (rule.targets != "none" or more & _CHANGES):
        outside, reason = written(_targets(rest, rule), scene)
        classes.update(outside)
        why = f"{why}, {reason}" if reason else why
    if any(names_credentials(word) for word in rest):
        classes.add("host_escape_risk")
        why += ", names a place of keys"
    return CommandFinding(tidy(classes), why)


_STRICT: Classes = ("mutating", "networked", "destructive", "unknown", "host_escape_risk")


def tidy(classes: Iterable[CommandClass]) -> Classes:
    """In order, and without ``read_only`` beside anything else."""
    found = set(classes)
    return tuple(name for name in _STRICT if name in found) or READ


def subcommand(words: Sequence[Word], rule: ProgramRule) -> tuple[int | None, bool]:
    """Where the subcommand stands (None: nowhere), and whether all options before it are known."""
    at, sure = 1, True
    while at < len(words):
        word = words[at]
        if not word.may_be_option or (not word.start and not word.literal):
            return at, sure
        if word.text in rule.takes:
            at += 2
            continue
        head, sign, _value = word.text.partition(b"=")
        sure = sure and word.literal and (word.text in rule.flags or (bool(sign) and head in rule.takes))
        at += 1
    return None, sure


def _by_subcommand(words: Sequence[Word], rule: ProgramRule, scene: Scene) -> CommandFinding:
    at, sure = subcommand(words, rule)
    assert rule.subcommands is not None
    if at is None:
        if len(words) > 1 and all(word.text in INFORMS for word in words[1:]):
            return CommandFinding(READ, "tells about itself")
        more = added(words[1:], rule)[0] | set(() if sure else UNSURE)
        return CommandFinding(tidy({*rule.classes, *more}), rule.reason)
    found = rule.subcommands.get(words[at].text) if words[at].literal else None
    more, reason = added(words[1:at], rule) if rule.options else (set[CommandClass](), "")
    if not sure:
        more, reason = {*more, "unknown"}, reason or "an option before the subcommand that is not in the tables"
    if found is None:
        return CommandFinding(tidy({*UNSURE, *more}), "a subcommand that is not in the tables")
    inner = judged(words[at:], found, scene)
    return CommandFinding(tidy({*inner.classes, *more}), reason or inner.reason, inner.parts)
