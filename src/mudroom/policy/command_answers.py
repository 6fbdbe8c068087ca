"""Answers about commands on this machine: the files ``rules.yaml`` (``local_directory.py``).

Rules of this file: under each action stands a list of commands, one a line, split as a shell would; nothing is
expanded. A line is the whole command, to its last word: ``rm -rf build`` does not match ``rm -rf build /home``. A line
that ends in `` *`` matches any further words, too. A line that ends in `` (as of DIGEST)`` allows a command as it was
asked about: in its directory, on its terms, with its files (``core/approval/fingerprint.py``). A file that cannot be
read or parsed is an error; it is never treated as missing.
"""

from __future__ import annotations

from collections.abc import Iterator

from mudroom.core.command.pattern_text import bind, quote_words, split_all, split_bound, split_words
from mudroom.core.command.policy import STRICTNESS, CommandRule
from mudroom.core.command.verdict import ACTIONS, Action
from mudroom.core.tree.path import show
from mudroom.errors import UsageError
from mudroom.policy.answer_file import AnswerFile
from mudroom.policy.command_rules import LONGEST
from mudroom.policy.local_directory import read_answers
from mudroom.policy.parse import GivenSetting
from mudroom.policy.setting_row import LOOSENS_UP_TO
from mudroom.policy.settings_table import SECTIONS
from mudroom.policy.trust import mark, vouch
from mudroom.policy.yaml import compose, items, plain, texts, unknown
from mudroom.typing import NamedTuple

NAME = b"rules.yaml"
KEY = "commands.rules"
_REST = " *"
_HEAD = b"""\
# What is done about agents' commands in this project, as it was answered on this machine. Written by answers of
# "always"; yours to edit. A line is a whole command; with " *" at its end, whatever follows; with "(as of ...)" only
# while its directory, terms and files are as they were. What is for everybody stands in the project's policy,
# under commands:
"""


class CommandAnswerFile(NamedTuple):
    texts: tuple[str, ...]
    """The lines as they are now in the file."""
    replaced: tuple[tuple[Action, str], ...]
    """Removed rows: the same commands with another action."""


def parse(data: bytes, name: str) -> list[GivenSetting]:
    """Return the file's items. ``name`` is shown in error messages. Raise UsageError."""
    rules = SECTIONS["commands"]["rules"]
    given = []
    for action, text, line in _lines(data, name):
        rule = _read(action, text, f"{name}:{line}: {action}")
        rule = rule._replace(source=f"{name.rpartition('/')[2]}:{line}", rank=3)
        given.append(GivenSetting(KEY, rules, (rule,), f"{name}:{line}"))
    return given


def load(project: bytes, state: bytes | None = None) -> list[CommandRule]:
    return [item.value[0] for data, shown in read_answers(project, state, NAME) for item in parse(data, shown)]


def remember(
    project: bytes, pattern: str, note: str = "", action: Action = "allow", *, state: bytes | None = None
) -> CommandAnswerFile:
    """Write an answer. ``pattern``: in the form that ``CommandQuestion.rule`` returns. ``note`` becomes a comment. Rows
    with another action for the same commands are removed. With mudroom's ``state``, the answer is trusted on this
    machine, or, if it denies, its later removal is noticed. Durable when it returns. Raise UsageError for an invalid
    pattern or file, MudroomError for a file that cannot be changed."""
    texts = _texts(pattern)
    comment = show(note.encode("utf-8", "surrogateescape"))
    marks, loose = [_mark(action, text) for text in texts], STRICTNESS[action] <= LOOSENS_UP_TO
    if state is not None and loose:  # before the file is written, so that a concurrent reader finds the row trusted
        vouch(project, state, marks)

    def goes(key: str, text: str) -> bool:
        return key != action and split_bound(text)[0] in texts

    before = _FILE.change(project, state, goes, [(action, text, comment) for text in texts])
    rows = [row for data in before for row in _rows(data, "")]
    replaced = tuple((_action(key), text) for key, text in rows if goes(key, text))
    if state is not None and (replaced or not loose):
        missed = () if loose else [(item_mark, KEY) for item_mark in marks]
        vouch(project, state, going=[_mark(*row) for row in replaced], denied=missed)
    return CommandAnswerFile(tuple(texts), replaced)


def _mark(action: Action, text: str) -> str:
    return mark(GivenSetting(KEY, SECTIONS["commands"]["rules"], (_read(action, text, ""),), "", local=True))


def _texts(pattern: str) -> list[str]:
    """Return the pattern's commands in canonical form."""
    try:
        if pattern.endswith(_REST):
            return [_joined(split_words(pattern.removesuffix(_REST)), exact=False)]
        pattern, bound = split_bound(pattern)
        commands = list(dict.fromkeys(_joined(words, exact=True, bound=bound) for words in split_all(pattern)))
        if not commands:
            raise ValueError("the pattern has no word")
        return commands
    except (ValueError, UnicodeEncodeError) as error:
        raise UsageError(f"this is no command: {error}", "write it as a shell takes it: git push") from error


def _shown(rule: CommandRule) -> str:
    return _joined(tuple(word[0] for word in rule.pattern), exact=rule.exact, bound=rule.bound)


def _joined(words: tuple[bytes, ...], *, exact: bool, bound: str = "") -> str:
    text = quote_words(words)
    if text is None:
        raise ValueError("it holds what no line can")
    return bind(text, bound) if bound else text if exact else text + _REST


def _rows(data: bytes, name: str) -> list[tuple[str, str]]:
    return [(item.value[0].action, _shown(item.value[0])) for item in parse(data, name)]


def _lines(data: bytes, name: str) -> Iterator[tuple[Action, str, int]]:
    for key, node, where in items(compose(data, name), name, ""):
        if key not in ACTIONS:
            raise unknown(where, "", key, ACTIONS, "action")
        if plain(node, f"{where}: {key}") is not None:  # empty: the list's last text was removed
            for text, line in texts(node, f"{where}: {key}"):
                yield _action(key), text, line


def _read(action: Action, text: str, where: str) -> CommandRule:
    text, bound = split_bound(text)
    exact = not text.endswith(_REST)
    try:
        words = split_words(text if exact else text.removesuffix(_REST))
        if bound and (not exact or STRICTNESS[action] >= STRICTNESS["require_approval"]):
            raise ValueError("only a whole command that is allowed can be so as of a time")
        if quote_words(words) is None:
            raise ValueError("it holds a control character")
    except (ValueError, UnicodeEncodeError) as error:
        raise UsageError(f"{where}: {error}") from error
    if len(words) > LONGEST:
        raise UsageError(f"{where}: a command has 1 to {LONGEST} words")
    return CommandRule(tuple((word,) for word in words), action, exact=exact, bound=bound)


def _action(key: str) -> Action:
    return ACTIONS[ACTIONS.index(key)]


_FILE = AnswerFile(NAME, _HEAD, ACTIONS, _rows)
