"""Insert a text into a list in a YAML file, or remove one, and keep the rest of the file byte for byte.

Rules of this file: positions come from the parser's nodes; they are not guessed from how lines look. A library that
loads and dumps again would change the indentation, put an appended item after the comment above the next key, and lose
the comment below a removed item (docs/decisions/0013). The caller must parse the result again and compare, so that a
file that is not written as lists of texts is left unchanged.
"""

from __future__ import annotations

from mudroom.core.text.regex import regex
from mudroom.policy.yaml import compose, items
from mudroom.typing import TYPE_CHECKING

if TYPE_CHECKING:
    from yaml.nodes import Node, SequenceNode

_PLAIN = regex(r"[a-z][a-z0-9_-]*(?:\.[a-z0-9_-]+)+(?::[0-9]+)?")
"""A text that YAML reads as a string without quotes: ``a.example:22``. A single word may be read as another type
(``no``)."""


class CannotEdit(ValueError):
    """The file's style does not allow an insertion or removal here."""


def insert_text(data: bytes, name: str, key: str, text: str, comment: str = "") -> bytes:
    """Return the file with ``text`` at the end of the list at ``key``; the key is added if missing."""
    source = data.decode()
    root = compose(data, name)
    ended = source if source.endswith("\n") or not source else source + "\n"
    line = f"- {_scalar(text)}{f'  # {comment}' if comment else ''}\n"
    if root is None:
        return f"{ended}{key}:\n  {line}".encode()
    value = _value(root, name, key)
    if value is None:
        if root.flow_style:  # type: ignore[attr-defined]
            raise CannotEdit("it is written in braces")
        return f"{ended}{key}:\n  {line}".encode()
    offsets = _Offsets(ended)
    sequence = _sequence(value)
    if sequence is None:  # "allow:" without a value
        return offsets.insert(offsets.after_line(value.start_mark.line), "  " + line)
    if sequence.flow_style:
        if sequence.value:
            return offsets.insert(offsets.at(sequence.value[-1].end_mark), ", " + _scalar(text, quoted=True))
        return offsets.insert(offsets.at(sequence.end_mark) - 1, _scalar(text, quoted=True))
    last = sequence.value[-1]
    return offsets.insert(offsets.after_line(last.end_mark.line), offsets.indent(last) + line)


def remove_text(data: bytes, name: str, key: str, number: int) -> bytes:
    """Return the file without the text at index ``number`` (from 0) in the list at ``key``."""
    root = compose(data, name)
    sequence = _sequence(_value(root, name, key)) if root is not None else None
    if sequence is None or number >= len(sequence.value):
        raise CannotEdit(f"there is no such text in {key}")
    offsets, nodes = _Offsets(data.decode()), sequence.value
    node = nodes[number]
    if not sequence.flow_style:
        offsets.indent(node)
        return offsets.cut(offsets.at_line(node.start_mark.line), offsets.after_line(node.end_mark.line))
    if number + 1 < len(nodes):
        return offsets.cut(offsets.at(node.start_mark), offsets.at(nodes[number + 1].start_mark))
    return offsets.cut(offsets.at(nodes[number - 1].end_mark if number else node.start_mark), offsets.at(node.end_mark))


def _value(root: Node, name: str, key: str) -> Node | None:
    return next((value for found_key, value, _where in items(root, name, "") if found_key == key), None)


def _sequence(value: Node | None) -> SequenceNode | None:
    """Return the list, or None if the key has no value."""
    from yaml.nodes import ScalarNode, SequenceNode

    if isinstance(value, SequenceNode):
        return value
    if isinstance(value, ScalarNode) and value.value == "" and value.start_mark.line == value.end_mark.line:
        return None
    raise CannotEdit("there is no list")


def _scalar(text: str, *, quoted: bool = False) -> str:
    if _PLAIN.fullmatch(text) and not quoted:
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


class _Offsets:
    """Converts the nodes' lines and columns to offsets in the text."""

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
        """Return the indentation of a list item that stands on its own lines."""
        before = self._lines[node.start_mark.line][: node.start_mark.column]
        if before.strip() != "-":
            raise CannotEdit(f"line {node.start_mark.line + 1} holds more than one text")
        return before[: before.index("-")]

    def insert(self, place: int, text: str) -> bytes:
        return (self._source[:place] + text + self._source[place:]).encode()

    def cut(self, start: int, end: int) -> bytes:
        return (self._source[:start] + self._source[end:]).encode()
