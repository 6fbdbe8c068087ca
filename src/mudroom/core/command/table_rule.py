"""Rules in the program tables: a program's effect, and the effects that its options and subcommands add.

The words are parsed with the program's grammar (``option_catalogue.py``), and the rule says what the options mean. A
program without a grammar has only the options that its rule names. An unlisted option makes the command unknown, and so
does an option that the grammar marks and the rule does not name. A word that is unknown before the command runs may be
an option: it makes the command unknown if the program has an option that matters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from mudroom.core.command.locations import (
    CommandContext,
    CommandFinding,
    all_scratch,
    names_credentials,
    write_classes,
)
from mudroom.core.command.option_catalogue import grammar_of
from mudroom.core.command.option_grammar import STYLES, Grammar, Option
from mudroom.core.command.option_parser import ParsedCommand, parse
from mudroom.core.command.verdict import CommandClass
from mudroom.core.command.word import Word
from mudroom.typing import Literal, NamedTuple

Classes = tuple[CommandClass, ...]
Style = Literal["gnu", "single", "any"]
READ: Classes = ("read_only",)
CHANGE: Classes = ("mutating",)
REACH: Classes = ("networked",)
FETCH: Classes = ("mutating", "networked")
LOSE: Classes = ("destructive",)
UNSURE: Classes = ("unknown",)
ESCAPE: Classes = ("host_escape_risk",)
_CHANGES = frozenset({"mutating", "destructive"})
_CHECKED = frozenset({"destructive", "unknown", "host_escape_risk"})
"""Classes to which doubt about an option adds nothing."""
INFORMS = frozenset({b"--version", b"--help", b"-V", b"-h", b"-v"})
"""Options that, alone after a program's name, print its version or help."""

_HELP = frozenset({b"--help", b"--version"})
_GRAMMAR_OF_STYLE: Mapping[Style, Grammar] = {
    "gnu": Grammar(STYLES[b"gnu"], {}),
    "single": Grammar(STYLES[b"words"], {}, response=True),
    "any": Grammar(STYLES[b"words"], {}),
}


class ProgramOption(NamedTuple):
    """An option that changes the classes. A name without dashes matches a word at any position; a name that ends in
    ``=`` or ``*`` matches as a prefix."""

    names: tuple[bytes, ...]
    classes: Classes
    reason: str
    when: tuple[bytes, ...] = ()
    """The option counts only if its value contains one of these texts, or is unknown before the command runs."""


class ProgramRule(NamedTuple):
    classes: Classes
    reason: str
    options: tuple[ProgramOption, ...] = ()
    targets: Literal["none", "all", "last"] = "none"
    """The operands that are written to and therefore must lie in the project."""
    subcommands: Mapping[bytes, ProgramRule] | None = None
    flags: frozenset[bytes] = frozenset()
    """Options that take no value and do not matter, in addition to the grammar's."""
    takes: frozenset[bytes] = frozenset()
    """Options that take a value, in addition to the grammar's."""
    safe: frozenset[bytes] = frozenset()
    """Options that the grammar marks but that do not matter."""
    softened: frozenset[bytes] = frozenset()
    """Options with which the program only reads."""
    style: Style = "gnu"
    """For a program without a grammar. ``single``: options have a single dash, and are never combined. ``any``: the
    program takes every option, and none matters."""
    evaluates: bool = False
    """Whether the program loads code of the project before it answers, even to ``--help``."""
    unlinks: bool = False
    """Whether the program removes the name of a file, and not what a link leads to."""
    operand: Classes = ()
    """The classes that any operand adds."""
    judge: Callable[[Sequence[Word], CommandContext], CommandFinding] | None = None
    """Function that judges all words instead of the rule's other fields."""


def option(names: str, classes: Classes, reason: str, when: str = "") -> ProgramOption:
    return ProgramOption(tuple(names.encode().split()), classes, reason, tuple(when.encode().split()))


def names(text: str) -> frozenset[bytes]:
    return frozenset(text.encode().split())


def entries(text: str, rule: ProgramRule) -> dict[bytes, ProgramRule]:
    """Return a table with the same rule for several names."""
    return dict.fromkeys(text.encode().split(), rule)


def could_be(word: bytes, name: bytes) -> bool:
    """Return whether a program might take this word for that option."""
    if not name.startswith(b"-"):
        return word.startswith(name.rstrip(b"*")) if name.endswith((b"=", b"*")) else word == name
    if name.startswith(b"--"):
        head = word.partition(b"=")[0]
        return len(head) > 2 and head.startswith(b"--") and name.startswith(head)
    if len(name) > 2:
        return word.partition(b"=")[0] == name
    return word.startswith(b"-") and not word.startswith(b"--") and name[1:] in word[1:]


def grammar_of_rule(rule: ProgramRule, context: CommandContext) -> Grammar:
    """Return the grammar of the judged program; without one, the options that its rule names."""
    grammar = grammar_of(context.program) or _GRAMMAR_OF_STYLE[rule.style]
    own: dict[bytes, Option] = {}
    for option in rule.options:
        for name in option.names:
            if name.startswith(b"-") and name not in grammar.options:
                own[name] = Option((name,), "required" if name in rule.takes else "optional")
    own |= {name: Option((name,)) for name in rule.flags & own.keys()}
    own |= {name: Option((name,), "required") for name in rule.takes if name not in grammar.options}
    plain = (rule.flags | rule.softened | _HELP) - own.keys() - grammar.options.keys()
    own |= {name: Option((name,)) for name in plain}
    return grammar._replace(options={**grammar.options, **own})


def parsed_words(words: Sequence[Word], rule: ProgramRule, context: CommandContext) -> ParsedCommand:
    """Return the options and operands in these words. The first word is the program or the subcommand."""
    return parse(words[1:], grammar_of_rule(rule, context))


class OptionEffect(NamedTuple):
    classes: frozenset[CommandClass]
    reason: str
    written: tuple[Word, ...]
    """Option values that name a file to write."""
    in_place: bool
    """Whether an option without a value makes the program change something."""


def effect_of_options(parsed: ParsedCommand, rule: ProgramRule, context: CommandContext) -> OptionEffect:
    """Return the classes that the options add, the first reason that matters, and the files they write."""
    classes: set[CommandClass] = set()
    reason, in_place = "", False
    written: list[Word] = []
    checked = not _CHECKED.isdisjoint(rule.classes) and not rule.softened
    for given in parsed.given:
        if given.negated:
            continue
        matching = [option for option in rule.options if not set(option.names).isdisjoint(given.option.names)]
        for option in matching:
            value = given.value
            if (
                option.when
                and value is not None
                and value.literal
                and not any(map(value.text.__contains__, option.when))
            ):
                continue
            classes.update(option.classes)
            reason = reason or option.reason
            if _CHANGES & set(option.classes):
                written += [given.value] if given.value is not None else []
                in_place = in_place or given.value is None
        if given.option.marked and not matching and not checked and rule.safe.isdisjoint(given.option.names):
            classes.add("unknown")
            reason = reason or "an option that may write or run something"
    for option in rule.options:
        for name in option.names:
            named = [word for word in parsed.operands if not name.startswith(b"-") and could_be(word.text, name)]
            if named:
                classes.update(option.classes)
                reason = reason or option.reason
                written += named if _CHANGES & set(option.classes) else []
    if parsed.unlisted and not checked:
        classes.add("unknown")
        reason = reason or "mudroom does not know this option"
    if parsed.is_open and not checked and (rule.options or rule.softened or _has_marks(context.program)):
        classes.add("unknown")
        reason = reason or "an option that is not known before it runs"
    return OptionEffect(frozenset(classes), reason, tuple(written), in_place)


def _has_marks(program: bytes) -> bool:
    grammar = grammar_of(program)
    return grammar is not None and any(option.marked for option in grammar.options.values())


def operands(words: Sequence[Word]) -> list[Word]:
    """Return the words that are not options, including option values."""
    for at, word in enumerate(words):
        if word.literal and word.text == b"--":
            return [*operands(words[:at]), *words[at + 1 :]]
    return [word for word in words if not (word.literal and word.text.startswith(b"-") and word.text != b"-")]


def _targets(parsed: ParsedCommand, rule: ProgramRule, effect: OptionEffect) -> Sequence[Word]:
    """Return the words that may name a file to write."""
    if rule.targets == "last":
        return [*effect.written, *(parsed.values(b"-t", b"--target-directory") or parsed.operands[-1:])]
    if rule.targets == "all":
        values = [given.value for given in parsed.given if given.value is not None and b"/" in given.value.text]
        return [*effect.written, *parsed.operands, *values]
    plain = [word for word in parsed.operands if b"://" not in word.text]
    return [*effect.written, *plain] if effect.in_place else effect.written


def judge_words(words: Sequence[Word], rule: ProgramRule, context: CommandContext) -> CommandFinding:
    """Judge a program that is called with these words; the first is its name."""
    if rule.judge is not None:
        return rule.judge(words, context)
    if rule.evaluates:
        finding = judge_words(words, rule._replace(evaluates=False), context)
        return finding._replace(classes=tidy({*finding.classes, "unknown"}), reason="loads files of the project")
    if rule.subcommands is not None:
        return _by_subcommand(words, rule, context)
    return judge_paths(words, rule, context)


def judge_paths(words: Sequence[Word], rule: ProgramRule, context: CommandContext) -> CommandFinding:
    """Judge by the rule's options, and by where the written paths lead."""
    if rule.style == "any":
        return judge_parsed(ParsedCommand(operands=tuple(words[1:])), words, rule, context)
    return judge_parsed(parsed_words(words, rule, context), words, rule, context)


def judge_parsed(
    parsed: ParsedCommand, words: Sequence[Word], rule: ProgramRule, context: CommandContext
) -> CommandFinding:
    classes: set[CommandClass] = set(rule.classes)
    reason = rule.reason
    if rule.softened and parsed.proves(*rule.softened):
        classes, reason = set(READ), "only reads with this option"
    effect = effect_of_options(parsed, rule, context)
    classes |= effect.classes | set(rule.operand if parsed.operands else ())
    reason = effect.reason or reason
    loses = rule.unlinks and "destructive" in classes and effect.classes <= {"destructive"} and not effect.in_place
    if loses and all_scratch(_targets(parsed, rule, effect), context):
        classes = (classes - {"destructive"}) | {"mutating"}
    if classes & _CHANGES and (rule.targets != "none" or effect.classes & _CHANGES):
        outside, detail = write_classes(_targets(parsed, rule, effect), context)
        classes.update(outside)
        reason = f"{reason}, {detail}" if detail else reason
    if any(names_credentials(word, context) for word in words[1:]):
        classes.add("host_escape_risk")
        reason += ", names a credential file"
    return CommandFinding(tidy(classes), reason)


_STRICT: Classes = ("mutating", "networked", "destructive", "unknown", "host_escape_risk")


def tidy(classes: Iterable[CommandClass]) -> Classes:
    """Return the classes in order. ``read_only`` is left out beside any other class."""
    remaining = set(classes)
    return tuple(name for name in _STRICT if name in remaining) or READ


def _by_subcommand(words: Sequence[Word], rule: ProgramRule, context: CommandContext) -> CommandFinding:
    grammar = grammar_of_rule(rule, context)
    parsed = parse(words[1:], grammar._replace(style=grammar.style._replace(permutes=False)))
    effect = effect_of_options(parsed, rule, context)
    assert rule.subcommands is not None
    if not parsed.operands:
        if len(words) > 1 and all(word.text in INFORMS for word in words[1:]):
            return CommandFinding(READ, "prints its version or help")
        return CommandFinding(tidy({*rule.classes, *effect.classes}), effect.reason or rule.reason)
    rest = words[1 + parsed.rest :]
    inner_rule = rule.subcommands.get(rest[0].text) if rest[0].literal else None
    if inner_rule is None:
        return CommandFinding(tidy({*UNSURE, *effect.classes}), "mudroom does not know this subcommand")
    inner = judge_words(rest, inner_rule, within(context, rest[0].text))
    return CommandFinding(tidy({*inner.classes, *effect.classes}), effect.reason or inner.reason, inner.parts)


def within(context: CommandContext, verb: bytes) -> CommandContext:
    return context._replace(program=context.program + b" " + verb)
