"""Fields of a card or a profile: checked values from parsed JSON or TOML, with one-line errors. Pure.

A table has (name in the result, convertor) for each key. A convertor takes the value and its key's name, and returns
the checked value or raises FieldError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from mudroom.core.network.host_rules import parse_rule
from mudroom.core.text.regex import regex
from mudroom.typing import Any

MOST_ENTRIES = 64
"""Most entries in a list."""
_VARIABLE = regex(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_KINDS = {bool: "true or false", int: "a number", float: "a number", str: "a text", list: "a list", dict: "an object"}

Convertor = Callable[[Any, str], Any]
FieldTable = Mapping[str, tuple[str, Convertor]]


class FieldError(ValueError):
    """An invalid card or profile: a one-line message with the problem, and a hint with the correct form."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message, self.hint = message, hint


def read_fields(value: object, where: str, table: FieldTable) -> dict[str, Any]:
    """Return the converted values by their names in the result. Raise FieldError for an unknown key."""
    if not isinstance(value, dict):
        raise FieldError(f"{where} is {kind(value)}, not an object")
    fields = {}
    for key, content in value.items():
        if key not in table:
            raise FieldError(f"{where} has an unknown key {key!r}", nearest(key, table) or "known: " + ", ".join(table))
        name, convert = table[key]
        fields[name] = convert(content, key)
    return fields


def nearest(word: str, choices: Iterable[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(word, choices, 1, 0.5)
    return f"did you mean {near[0]}?" if near else ""


def kind(value: object) -> str:
    return "null" if value is None else _KINDS.get(type(value), "something else")


def flag(value: Any, where: str) -> bool:
    if not isinstance(value, bool):
        raise FieldError(f"{where} is {kind(value)}", "true or false")
    return value


def text(value: Any, where: str, most: int, *, lines: bool = False) -> str:
    """Return a checked text. ``most``: characters. ``lines``: line feeds are permitted."""
    if not isinstance(value, str):
        raise FieldError(f"{where} is {kind(value)}", "a text")
    if len(value) > most:
        raise FieldError(f"{where} is longer than {most:,} characters")
    if not value.replace("\n", " ").isprintable() or (not lines and "\n" in value):
        raise FieldError(f"{where} holds characters that cannot be shown")
    return value


def bool_or_texts(value: Any, where: str, items: str) -> bool | tuple[str, ...]:
    if isinstance(value, bool):
        return value
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise FieldError(f"{where} is {kind(value)}", f"true, false, or a list of {items}")
    return tuple(value)


def text_list(value: Any, where: str, items: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise FieldError(f"{where} is {kind(value)}", f"a list of {items}")
    if len(value) > MOST_ENTRIES:
        raise FieldError(f"{where} has more than {MOST_ENTRIES} entries")
    return tuple(dict.fromkeys(value))


def home_path(name: str, where: str) -> bytes:
    """Return a path ``~/…`` relative to the home."""
    parts = name.split("/")
    if parts[0] != "~" or len(parts) < 2 or not all(parts) or {".", ".."} & set(parts) or "\0" in name:
        raise FieldError(f"{where}: {name!r} is not a path in the home", "write it as ~/.config/tool")
    try:
        return name[2:].encode()
    except UnicodeEncodeError as error:
        raise FieldError(f"{where}: {name!r} holds an unpaired surrogate") from error


def hosts(value: Any, where: str) -> bool | tuple[str, ...]:
    names = bool_or_texts(value, where, "host names")
    for host in names if isinstance(names, tuple) else ():
        try:
            parse_rule(host, "allow")
        except ValueError as error:
            raise FieldError(f"{where}: {error}", "api.example.com, *.example.com, example.com:443") from error
    return names


def variables(value: Any, where: str) -> tuple[str, ...]:
    names = text_list(value, where, "names of variables")
    for name in names:
        variable(name, where)
    return names


def variable(name: str, where: str) -> str:
    if _VARIABLE.fullmatch(name) is None:
        raise FieldError(f"{where}: {name!r} is not the name of a variable", "a name alone: API_KEY")
    return name
