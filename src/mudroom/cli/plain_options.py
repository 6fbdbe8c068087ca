"""Usual command lines, read without argparse: to import it and build a parser costs half an interpreter's start, and a
command that a keeper runs a tenth of its time.

``PlainOptions`` records the options that a verb's ``configure`` adds. It knows full names, values as the next word or
after ``=``, and a command behind ``--``. Any other line, and any wrong one, is read by argparse, which has the errors
and the help. tests/cli/test_plain_options.py compares the two for every verb.
"""

from __future__ import annotations

import functools
from types import SimpleNamespace

from mudroom.typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

REMAINDER = "..."
"""``argparse.REMAINDER``."""
_NOT_PLAIN = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


class Rare(str):
    """The help of an option that ``VERB --help`` leaves out; ``VERB --help --all`` and the reference have it."""

    __slots__ = ()


class PlainOptions:
    """Stands in for a parser in ``configure``. Another method or argument of one raises AttributeError or TypeError.
    Owner: the verb's thread."""

    def __init__(self) -> None:
        self._options: dict[str, dict[str, Any]] = {}
        self._defaults: dict[str, Any] = {}
        self._rest = ""
        """Name of the argument that takes the command at the end."""

    def add_argument_group(self, _title: str) -> PlainOptions:
        return self

    def add_mutually_exclusive_group(self) -> SimpleNamespace:
        return SimpleNamespace(add_argument=functools.partial(self.add_argument, group=object()))

    def add_argument(
        self,
        *names: str,
        action: str = "store",
        nargs: str | None = None,
        type: Callable[[str], Any] = str,  # noqa: A002 - as argparse has it
        choices: Sequence[Any] = (),
        default: Any = None,
        group: object = None,
        **_help: str,
    ) -> None:
        named = names[0].startswith("-")
        if action not in ("store", "store_true", "append") or nargs not in (
            (None,) if named else ("?", "*", REMAINDER)
        ):
            raise TypeError(action, nargs)
        if not _help.keys() <= {"help", "metavar"} or (
            isinstance(default, str) and (default[:2] == "==" or type is not str)
        ):
            raise TypeError(default)
        name = next((name for name in names if name.startswith("--")), names[0]).lstrip("-").replace("-", "_")
        option = {"name": name, "action": action, "type": type, "choices": choices, "group": group or object()}
        self._options |= {name: option for name in names if named}
        self._rest = name if nargs == REMAINDER else self._rest
        empty: Any = False if action == "store_true" else [] if nargs == "*" else None
        self._defaults[name] = empty if default is None else default

    def read(self, words: Sequence[str]) -> SimpleNamespace:
        """Return what argparse would. Raise one of ``_NOT_PLAIN`` if it has to read the words itself."""
        values = {name: [*value] if isinstance(value, list) else value for name, value in self._defaults.items()}
        groups: dict[int, str] = {}
        at = 0
        while at < len(words) and words[at] != "--":
            name, equals, value = words[at].partition("=")
            option = self._options[name]
            at += 1
            if groups.setdefault(id(option["group"]), option["name"]) != option["name"]:
                raise ValueError(name)
            given: Any = value
            if option["action"] == "store_true":
                given = True
            else:
                if not equals:
                    value, at = words[at], at + 1
                given = option["type"](value)
            if equals and (option["action"] == "store_true" or not name.startswith("--")):
                raise ValueError(name)
            if value.startswith("-") or (option["choices"] and given not in option["choices"]):
                raise ValueError(value)
            dest = option["name"]
            values[dest] = [*(values[dest] or ()), given] if option["action"] == "append" else given
        if self._rest:
            values[self._rest] = list(words[at:])
        elif at < len(words):
            raise ValueError(words[at])
        return SimpleNamespace(**values)


_CONFIGURED: dict[str, PlainOptions] = {}
"""Options by verb. They never change; a keeper's commands find them here since its rehearsal."""


def read_plain(verb: str, configure: Callable[[Any], None], words: Sequence[str]) -> SimpleNamespace | None:
    """Return the same values as argparse, or None if argparse has to read the line."""
    try:
        if verb not in _CONFIGURED:
            options = PlainOptions()
            configure(options)
            _CONFIGURED[verb] = options
        return _CONFIGURED[verb].read(words)
    except _NOT_PLAIN:
        return None
