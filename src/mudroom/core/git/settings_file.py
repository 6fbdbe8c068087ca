"""git's settings files: parse and encode. Pure; syntax: git-config(1), "Syntax".

Read where mudroom makes a repository of a fork from the user's own, so an error is a ValueError and never a guess.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

_NAME = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-")
_ESCAPES = {b"n": b"\n", b"t": b"\t", b"b": b"\b", b'"': b'"', b"\\": b"\\"}


class GitSetting(NamedTuple):
    section: bytes
    """In lower case."""
    subsection: bytes | None
    key: bytes
    """In lower case."""
    value: bytes | None
    """None: the key stands alone, which means true."""


def parse_settings(data: bytes) -> tuple[GitSetting, ...]:
    """Return the settings in the order of the file. Raise ValueError if it cannot be parsed."""
    return tuple(_parse(data.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n")))


def _parse(data: bytes) -> Iterator[GitSetting]:
    section: tuple[bytes, bytes | None] | None = None
    position = 0
    while position < len(data):
        character = data[position : position + 1]
        if character in b" \t\n":
            position += 1
        elif character in b"#;":
            position = _end_of_line(data, position)
        elif character == b"[":
            section, position = _header(data, position + 1)
        elif section is None:
            raise ValueError("a setting stands before the first section")
        else:
            key, value, position = _variable(data, position)
            yield GitSetting(*section, key, value)


def _end_of_line(data: bytes, position: int) -> int:
    end = data.find(b"\n", position)
    return len(data) if end < 0 else end


def _header(data: bytes, position: int) -> tuple[tuple[bytes, bytes | None], int]:
    start = position
    while data[position : position + 1] and (data[position] in _NAME or data[position] == 0x2E):
        position += 1
    name = data[start:position].lower()
    if not name:
        raise ValueError("a section has no name")
    if data[position : position + 1] == b"]":
        section, dot, subsection = name.partition(b".")  # the old form [section.subsection], in lower case
        return (section, subsection if dot else None), position + 1
    position += len(data[position:]) - len(data[position:].lstrip(b" \t"))
    if data[position : position + 1] != b'"':
        raise ValueError("the name of a section does not end")
    position += 1
    parts: list[bytes] = []
    while (character := data[position : position + 1]) not in (b'"', b"", b"\n"):
        if character == b"\\":
            position += 1
            character = data[position : position + 1]
        parts.append(character)
        position += 1
    if data[position : position + 2] != b'"]':
        raise ValueError("the name of a subsection does not end")
    return (name, b"".join(parts)), position + 2


def _variable(data: bytes, position: int) -> tuple[bytes, bytes | None, int]:
    start = position
    while position < len(data) and data[position] in _NAME:
        position += 1
    key = data[start:position].lower()
    if not key or not key[:1].isalpha():
        raise ValueError(f"a line begins with {data[start : start + 1]!r}")
    while data[position : position + 1] in (b" ", b"\t"):
        position += 1
    if data[position : position + 1] in (b"", b"\n", b"#", b";"):
        return key, None, _end_of_line(data, position)
    if data[position : position + 1] != b"=":
        raise ValueError(f"the setting {key!r} has no '='")
    value, position = _value(data, position + 1)
    return key, value, position


def _value(data: bytes, position: int) -> tuple[bytes, int]:
    parts: list[bytes] = []
    spaces, is_quoted = b"", False
    while (character := data[position : position + 1]) not in (b"", b"\n"):
        position += 1
        if character in (b"#", b";") and not is_quoted:
            position = _end_of_line(data, position)
            break
        if character in (b" ", b"\t") and not is_quoted:
            spaces += character if parts else b""
            continue
        if character == b"\\":
            following = data[position : position + 1]
            position += 1
            if following == b"\n":
                continue
            if following not in _ESCAPES:
                raise ValueError("a value has an unknown escape")
            character = _ESCAPES[following]
        elif character == b'"':
            is_quoted = not is_quoted
            character = b""
        parts += [spaces, character]
        spaces = b""
    if is_quoted:
        raise ValueError("a quoted value does not end")
    return b"".join(parts), position


def encode_settings(
    settings: Iterable[GitSetting], keep: Callable[[GitSetting], bool] = lambda _setting: True
) -> bytes:
    """Return a settings file with the settings that ``keep`` accepts, in their order."""
    lines: list[bytes] = []
    current: tuple[bytes, bytes | None] | None = None
    for setting in filter(keep, settings):
        if setting[:2] != current:
            current = setting[:2]
            lines.append(_encode_header(*current))
        lines.append(b"\t" + setting.key + (b"" if setting.value is None else b" = " + _quote(setting.value)))
    return b"".join(line + b"\n" for line in lines)


def _encode_header(section: bytes, subsection: bytes | None) -> bytes:
    if subsection is None:
        return b"[" + section + b"]"
    return b"[" + section + b' "' + subsection.replace(b"\\", b"\\\\").replace(b'"', b'\\"') + b'"]'


def _quote(value: bytes) -> bytes:
    for character, escaped in ((b"\\", b"\\\\"), (b'"', b'\\"'), (b"\n", b"\\n"), (b"\t", b"\\t"), (b"\b", b"\\b")):
        value = value.replace(character, escaped)
    return b'"' + value + b'"'
