"""Read usual command lines without argparse: importing it and building a parser costs half an interpreter's start.

Rules of this file:
1. ``PlainOptions`` records the options that a verb's ``configure`` adds, and reads the words accordingly.
2. It knows the usual forms: full option names, values as the next word or after ``=``, and a command at the end. For
   any other form (a wrong name or value, ``--help``) ``read_plain`` returns None, and argparse reads the line: it has
   the errors, the help and the rest. tests/cli/test_plain_options.py compares the two for every verb.
"""

from __future__ import annotations

from types import SimpleNamespace

from mudroom.typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

REMAINDER = "..."
"""``argparse.REMAINDER``: the argument takes all words from the first non-option, or from ``--``."""
_SUPPRESS = "==SUPPRESS=="
_KNOWN = frozenset(("action", "choices", "default", "help", "metavar", "nargs", "type"))


class Rare(str):
    """The help of an option that ``VERB --help`` leaves out; ``VERB --help --all`` and the reference have it."""

    __slots__ = ()


class _NotPlainError(Exception):
    """The verb or the line has a form that argparse has to read."""


class _Option:
    def __init__(self, group: object, names: Sequence[str], given: dict[str, Any]) -> None:
        self.action = given.get("action", "store")
        self.nargs = given.get("nargs")
        self.convert: Callable[[str], Any] | None = given.get("type")
        self.choices = given.get("choices")
        self.default = given.get("default", False if self.action == "store_true" else None)
        self.group = group
        """Options with the same group exclude each other. None: no group."""
        self.dest = next((name for name in names if name.startswith("--")), names[0]).lstrip("-").replace("-", "_")
        if not _KNOWN.issuperset(given) or self.action not in ("store", "store_true", "append"):
            raise _NotPlainError
        if self.nargs not in ((None,) if names[0].startswith("-") else (REMAINDER, "?", "*")):
            raise _NotPlainError
        if self.default == _SUPPRESS or (isinstance(self.default, str) and self.convert is not None):
            raise _NotPlainError

    def value(self, word: str) -> Any:
        try:
            value = word if self.convert is None else self.convert(word)
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise _NotPlainError from error
        if self.choices is not None and value not in self.choices:
            raise _NotPlainError
        return value


class _Group:
    """A group of options. Only argparse uses its title."""

    def __init__(self, options: PlainOptions, *, exclusive: bool) -> None:
        self._options, self._exclusive = options, exclusive

    def add_argument(self, *names: str, **given: Any) -> None:
        self._options.add(self if self._exclusive else None, names, given)


class PlainOptions:
    """Stands in for a parser in ``configure``. Owner: the verb's thread."""

    def __init__(self) -> None:
        self._named: dict[str, _Option] = {}
        self._rest: _Option | None = None
        """The argument that takes the command at the end."""
        self._defaults: dict[str, Any] = {}

    def add_argument(self, *names: str, **given: Any) -> None:
        self.add(None, names, given)

    def add_argument_group(self, _title: str) -> _Group:
        return _Group(self, exclusive=False)

    def add_mutually_exclusive_group(self) -> _Group:
        return _Group(self, exclusive=True)

    def __getattr__(self, _name: str) -> Any:
        raise _NotPlainError  # another parser method

    def add(self, group: object, names: Sequence[str], given: dict[str, Any]) -> None:
        option = _Option(group, names, given)
        if names[0].startswith("-"):
            self._named.update(dict.fromkeys(names, option))
        elif option.nargs == REMAINDER:
            self._rest = option
        self._defaults[option.dest] = [] if option.nargs == "*" and option.default is None else option.default

    def read(self, words: Sequence[str]) -> SimpleNamespace:
        values = {name: [*value] if isinstance(value, list) else value for name, value in self._defaults.items()}
        groups: dict[object, _Option] = {}
        at = 0
        while at < len(words):
            word = words[at]
            if word == "--" or not word.startswith("-") or word == "-":
                break
            name, equals, value = word.partition("=")
            option = self._named.get(name)
            if option is None or groups.setdefault(option.group or option, option) is not option:
                raise _NotPlainError
            at += 1
            if option.action == "store_true":
                if equals:
                    raise _NotPlainError
                values[option.dest] = True
                continue
            if not equals:
                if at == len(words) or words[at].startswith("-"):
                    raise _NotPlainError
                value, at = words[at], at + 1
            elif not name.startswith("--") or value == "--":  # argparse drops such a "--"
                raise _NotPlainError
            new = option.value(value)
            values[option.dest] = [*(values[option.dest] or ()), new] if option.action == "append" else new
        if self._rest is not None:
            if any(map(self._is_ambiguous, _before_dashes(words[at:]))):
                raise _NotPlainError
            values[self._rest.dest] = list(words[at:])
        elif at < len(words):
            raise _NotPlainError
        return SimpleNamespace(**values)

    def _is_ambiguous(self, word: str) -> bool:
        """Return whether argparse refuses a word in the command as an ambiguous abbreviation."""
        name = word.partition("=")[0]
        if not name.startswith("--") or name in self._named:
            return False
        return sum(option.startswith(name) for option in (*self._named, "--help")) > 1


def _before_dashes(words: Sequence[str]) -> Sequence[str]:
    return words[: words.index("--")] if "--" in words else words


_CONFIGURED: dict[str, PlainOptions] = {}
"""Options by verb. They never change; a keeper's commands find them here since its rehearsal."""


def read_plain(verb: str, configure: Callable[[Any], None], words: Sequence[str]) -> SimpleNamespace | None:
    """Return the same values as argparse, or None if argparse has to read the line."""
    try:
        options = _CONFIGURED.get(verb)
        if options is None:
            options = PlainOptions()
            configure(options)
            _CONFIGURED[verb] = options
        return options.read(words)
    except _NotPlainError:
        return None
