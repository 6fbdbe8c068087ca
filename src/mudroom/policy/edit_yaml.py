"""One text into a list of a YAML file, or out of it, and all the rest of the file as it was, byte for byte.

Rules of this file: the places come from the nodes that the reader made, so nothing is guessed from the look of lines. A
library that loads and dumps again would indent anew, put what is appended behind the comment above the next key, and
lose the comment below what is removed (docs/decisions/0013). Who calls has to read the result again and compare: a file
that is written in some other way than lists of texts is then left alone, not spoilt.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mudroom.policy.yaml import compose, items

if TYPE_CHECKING:
    from yaml.nodes import Node, SequenceNode

_PLAIN = re.compile(r"[a-z][a-z0-9_-]*(?:\.[a-z0-9_-]+)+(?::[0-9]+)?")
"""What is a text to YAML without quotes: ``a.example:22``. A single word may be something else (``no``)."""


class CannotAmend(ValueError):
    """The file is written in a way in which nothing can be added or removed here."""


def put_in(data: bytes, name: str, key: str, text: str, comment: str = "") -> bytes:
    """``text`` at the end of the list at ``key`` of the file; the key is added if it is not there."""
    source = data.decode()
    root = compose(data, name)
    ended = source if source.endswith("\n") or not source else source + "\n"
    line = f"- {_scalar(text)}{f'  # {comment}' if comment else ''}\n"
    if root is None:
        return f"{ended}{key}:\n  {line}".encode()
    value = _value(root, name, key)
    if value is None:
        if root.flow_style:  # type: ignore[attr-defined]
            raise CannotAmend("it is written in braces")
        return f"{ended}{key}:\n  {line}".encode()
    places = _Places(ended)
    sequence = _sequence(value)
    if sequence is None:  # "allow:" with nothing behind it
        return places.insert(places.after_line(value.start_mark.line), "  " + line)
    if sequence.flow_style:
        if sequence.value:
            return places.insert(places.at(sequence.value[-1].end_mark), ", " + _scalar(text, quoted=True))
        return places.insert(places.at(sequence.end_mark) - 1, _scalar(text, quoted=True))
    last = sequence.value[-1]
    return places.insert(places.after_line(last.end_mark.line), places.indent(last) + line)


def take_out(data: bytes, name: str, key: str, number: int) -> bytes:
    """Without the text that is ``number`` (from 0) in the list at ``key``."""
    root = compose(data, name)
    sequence = _sequence(_value(root, name, key)) if root is not None else None
    if sequence is None or number >= len(sequence.value):
        raise CannotAmend(f"there is no such text in {key}")
    places, found = _Places(data.decode()), sequence.value
    node = found[number]
    if not sequence.flow_style:
        places.indent(node)
        return places.cut(places.at_line(node.start_mark.line), places.after_line(node.end_mark.line))
    if number + 1 < len(found):
        return places.cut(places.at(node.start_mark), places.at(found[number + 1].start_mark))
    return places.cut(places.at(found[number - 1].end_mark if number else node.start_mark), places.at(node.end_mark))


def _value(root: Node, name: str, key: str) -> Node | None:
    return next((value for found, value, _where in items(root, name, "") if found == key), None)


def _sequence(value: Node | None) -> SequenceNode | None:
    """None for nothing at all behind the key."""
    from yaml.nodes import ScalarNode, SequenceNode

    if isinstance(value, SequenceNode):
        return value
    if isinstance(value, ScalarNode) and value.value == "" and value.start_mark.line == value.end_mark.line:
        return None
    raise CannotAmend("there is no list")


def _scalar(text: str, *, quoted: bool = False) -> str:
    if _PLAIN.fullmatch(text) and not quoted:
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


class _Places:
    """Lines and columns of nodes as places in the text."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._lines = source.splitlines(keepends=True)
        self._starts = [0]
        for line in self._lines:
            self._starts.append(self._starts[-1] + len(line))

    def at_line(self, line: int) -> int:
        return self._starts[min(line, len(self._lines))]

    def after_line(self, line: int) -> int:
        return self.at_line(line + 1)

    def at(self, mark: object) -> int:
        return self.at_line(mark.line) + mark.column  # type: ignore[attr-defined, no-any-return]

    def indent(self, node: Node) -> str:
        """What is in front of the dash of an item that has its lines for itself."""
        before = self._lines[node.start_mark.line][: node.start_mark.column]
        if before.strip() != "-":
            raise CannotAmend(f"line {node.start_mark.line + 1} holds more than one text")
        return before[: before.index("-")]

    def insert(self, place: int, text: str) -> bytes:
        return (self._source[:place] + text + self._source[place:]).encode()

    def cut(self, start: int, end: int) -> bytes:
        return (self._source[:start] + self._source[end:]).encode()
