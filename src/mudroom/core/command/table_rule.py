"""Rules of the program tables: the effect of a program, and the effects that its options and subcommands add.

Long options may be abbreviated (``--del`` for ``--delete``), and short options may be combined (``-ro``): an option
counts if a word could mean it. A word that is not known before the command runs may be an option: it makes the command
unknown if the program has an option that matters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from mudroom.core.command.locations import CommandContext, CommandFinding, names_credentials, write_classes
from mudroom.core.command.verdict import CommandClass
from mudroom.core.command.word import Word
from mudroom.typing import Literal, NamedTuple

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
"""Options that, alone after a program's name, print its version or help."""


class ProgramOption(NamedTuple):
    """An option that changes the classes. A name without dashes matches a word at any position; a name that ends in
    ``=`` or ``*`` matches as a prefix."""

    names: tuple[bytes, ...]
    classes: Classes
    reason: str


class ProgramRule(NamedTuple):
    classes: Classes
    reason: str
    options: tuple[ProgramOption, ...] = ()
    targets: Literal["none", "all", "last"] = "none"
    """The operands that are written to and therefore must be in the project."""
    subcommands: Mapping[bytes, ProgramRule] | None = None
    flags: frozenset[bytes] = frozenset()
    """Options before the subcommand that take no value and do not matter."""
    takes: frozenset[bytes] = frozenset()
    """Options that take the next word as their value."""
    softened: frozenset[bytes] = frozenset()
    """Options with which the program only reads."""
    style: Style = "gnu"
    """``single``: long options have one dash (``find -delete``), and short options are never combined."""
    judge: Callable[[Sequence[Word], CommandContext], CommandFinding] | None = None
    """Function that judges all words instead of the other fields of the rule."""


def option(names: str, classes: Classes, reason: str) -> ProgramOption:
    return ProgramOption(tuple(names.encode().split()), classes, reason)


def names(text: str) -> frozenset[bytes]:
    return frozenset(text.encode().split())


def entries(text: str, rule: ProgramRule) -> dict[bytes, ProgramRule]:
    """Return a table with the same rule for several names."""
    return dict.fromkeys(text.encode().split(), rule)


def could_be(word: bytes, name: bytes, style: Style = "gnu") -> bool:
    """Return whether a program might take this word for that option."""
    if not name.startswith(b"-"):
        return word.startswith(name.rstrip(b"*")) if name.endswith((b"=", b"*")) else word == name
    if name.startswith(b"--"):
        head = word.partition(b"=")[0]
        return len(head) > 2 and head.startswith(b"--") and name.startswith(head)
    if style == "single" or len(name) > 2:
        return word.partition(b"=")[0] == name
    return word.startswith(b"-") and not word.startswith(b"--") and name[1:] in word[1:]


def _with_values(words: Sequence[Word], rule: ProgramRule) -> Iterator[tuple[Word, bool]]:
    """Yield each word, and whether it can be an option: neither the value of an option nor after ``--``."""
    over = value = False
    for word in words:
        yield word, not over and not value
        over = over or (not value and word.text == b"--" and word.literal and rule.style == "gnu")
        value = not over and not value and word.literal and word.text in rule.takes


def _letters(rule: ProgramRule) -> frozenset[int]:
    return frozenset(name[1] for name in rule.takes if len(name) == 2)


def _own(text: bytes, valued: frozenset[int]) -> bytes:
    """Return combined options up to the one that takes a value: ``-sX`` of ``-sXPOST``."""
    if valued and text[:1] == b"-" and text[1:2] != b"-":
        for at, letter in enumerate(text[1:], 1):
            if letter in valued:
                return text[: at + 1]
    return text


def classes_of_options(words: Sequence[Word], rule: ProgramRule) -> tuple[set[CommandClass], str]:
    """Return the classes that the options add, and the reason of the first one found."""
    classes: set[CommandClass] = set()
    reason = ""
    valued = _letters(rule)
    for word, free in _with_values(words, rule):
        text = _own(word.text, valued)
        if free and not word.literal and word.may_be_option:
            classes.add("unknown")
            reason = reason or "an option that is not known before it runs"
        for option in rule.options:
            for name in option.names:
                if (free or not name.startswith(b"-")) and could_be(text, name, rule.style):
                    classes.update(option.classes)
                    reason = reason or option.reason
    return classes, reason


def only_reads(words: Sequence[Word], rule: ProgramRule) -> bool:
    """Return whether an option with which the program only reads is certainly present."""
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
    """Return the words that are not options, values of options included."""
    for at, word in enumerate(words):
        if word.literal and word.text == b"--":
            return [*operands(words[:at]), *words[at + 1 :]]
    return [word for word in words if not (word.literal and word.text.startswith(b"-") and word.text != b"-")]


def _targets(words: Sequence[Word], rule: ProgramRule) -> Sequence[Word]:
    """Return the words that may name a file to write."""
    if rule.targets == "last":
        into = [words[at + 1] for at, word in enumerate(words[:-1]) if could_be(word.text, b"-t")]
        into += [Word(word.text[2:], word.kind) for word in words if word.text[:2] == b"-t" and len(word.text) > 2]
        into += [word for word in words if could_be(word.text, b"--target-directory") and b"=" in word.text]
        return [*into, *operands(words)[-1:]]
    if rule.targets == "all":
        return [*operands(words), *(word for word in words if word.text.startswith(b"-") and b"=" in word.text)]
    return [word for word in words if b"/" in word.text and b"://" not in word.text]


def judge_words(words: Sequence[Word], rule: ProgramRule, context: CommandContext) -> CommandFinding:
    """Return the effect of a program that is called with these words; the first is its name."""
    if rule.judge is not None:
        return rule.judge(words, context)
    if rule.subcommands is not None:
        return _by_subcommand(words, rule, context)
    return judge_paths(words, rule, context)


def judge_paths(words: Sequence[Word], rule: ProgramRule, context: CommandContext) -> CommandFinding:
    """Judge by the rule's options, and by where the written paths lead."""
    rest = words[1:]
    classes: set[CommandClass] = set(rule.classes)
    reason = rule.reason
    if rule.softened and only_reads(rest, rule):
        classes, reason = set(READ), "only reads with this option"
    option_classes, detail = classes_of_options(rest, rule) if rule.options else (set[CommandClass](), "")
    classes |= option_classes
    reason = detail or reason
    if classes & _CHANGES and (rule.targets != "none" or option_classes & _CHANGES):
        outside, detail = write_classes(_targets(rest, rule), context)
        classes.update(outside)
        reason = f"{reason}, {detail}" if detail else reason
    if any(names_credentials(word) for word in rest):
        classes.add("host_escape_risk")
        reason += ", names a credential file"
    return CommandFinding(tidy(classes), reason)


_STRICT: Classes = ("mutating", "networked", "destructive", "unknown", "host_escape_risk")


def tidy(classes: Iterable[CommandClass]) -> Classes:
    """Return the classes in order, without ``read_only`` beside any other class."""
    remaining = set(classes)
    return tuple(name for name in _STRICT if name in remaining) or READ


def subcommand(words: Sequence[Word], rule: ProgramRule) -> tuple[int | None, bool]:
    """Return the index of the subcommand, or None if there is none, and whether all options before it are known."""
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


def _by_subcommand(words: Sequence[Word], rule: ProgramRule, context: CommandContext) -> CommandFinding:
    at, sure = subcommand(words, rule)
    assert rule.subcommands is not None
    if at is None:
        if len(words) > 1 and all(word.text in INFORMS for word in words[1:]):
            return CommandFinding(READ, "prints its version or help")
        option_classes = classes_of_options(words[1:], rule)[0] | set(() if sure else UNSURE)
        return CommandFinding(tidy({*rule.classes, *option_classes}), rule.reason)
    inner_rule = rule.subcommands.get(words[at].text) if words[at].literal else None
    option_classes, reason = classes_of_options(words[1:at], rule) if rule.options else (set[CommandClass](), "")
    if not sure:
        option_classes, reason = (
            {*option_classes, "unknown"},
            reason or "an option before the subcommand that is not in the tables",
        )
    if inner_rule is None:
        return CommandFinding(tidy({*UNSURE, *option_classes}), "a subcommand that is not in the tables")
    inner = judge_words(words[at:], inner_rule, context)
    return CommandFinding(tidy({*inner.classes, *option_classes}), reason or inner.reason, inner.parts)
