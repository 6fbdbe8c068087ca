"""JSON with comments, edited in place: everything that is not part of an edit keeps its bytes. Pure.

Rules of this file:
1. The text is scanned into nodes with their offsets. An edit cuts or inserts characters; then the text is scanned
   again.
2. Comments (``//``, ``/* */``), trailing commas and a byte order mark are read, as the settings files of editors and
   agents have them. Any other deviation from RFC 8259 raises JsoncError with the line: such a file is not edited.
3. A duplicate member has two values for its readers. It is refused where an edit would meet it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mudroom.core.text.regex import regex
from mudroom.typing import Any, NamedTuple

APPEND = "+"
"""A path's last step: a new element in an array."""
MOST_DEEP = 100
_SPACE = " \t\r\n"
_SCALAR = regex(
    r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9A-Fa-f]{4}))*"|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null'
)


class JsoncError(ValueError):
    """Not JSON, or not editable at this path. The message is one line."""


class JsonNode(NamedTuple):
    kind: str
    """object, array or scalar."""
    start: int
    end: int
    value: Any
    children: tuple[JsonChild, ...] = ()


class JsonChild(NamedTuple):
    key: str
    """A member's key; empty for an element."""
    start: int
    """Offset of the key, or of the element."""
    node: JsonNode
    comma: int
    """Offset of the comma behind it, or -1."""


def parse(text: str) -> JsonNode:
    """Return the document. Raise JsoncError if it is not JSON with comments."""
    return _Scanner(text).document()


def values_at(node: JsonNode, path: Sequence[str]) -> list[Any]:
    """Return the values at a path; ``APPEND`` stands for all elements."""
    values = [node.value]
    for key in path:
        if key == APPEND:
            values = [item for value in values if isinstance(value, list) for item in value]
        else:
            values = [value[key] for value in values if isinstance(value, dict) and key in value]
    return values


def add(text: str, path: Sequence[str], value: Any) -> str:
    """Return the text with a value at ``path``: a new member, or with ``APPEND`` a new element. Missing containers are
    made. Raise JsoncError if something else stands there."""
    if not text.strip(_SPACE + "\ufeff"):
        text += "{}\n"
    node = parse(text)
    for depth, key in enumerate(path):
        rest = path[depth + 1 :]
        if key == APPEND:
            if node.kind != "array":
                raise JsoncError(f"{'.'.join(path[:depth])} is not a list")
            return _insert(text, node, _nested(rest, value), depth)
        if node.kind != "object":
            raise JsoncError(f"{'.'.join(path[:depth]) or 'the file'} is not an object")
        named = [child for child in node.children if child.key == key]
        if len(named) > 1:
            raise JsoncError(f"{'.'.join(path[: depth + 1])} is there {len(named)} times")
        if not named:
            return _insert(text, node, _nested(rest, value), depth, key)
        node = named[0].node
    if node.value == value:
        return text
    raise JsoncError(f"{'.'.join(path)} is set already")


def remove(text: str, path: Sequence[str], is_ours: Callable[[Any], bool], *, keep_empty: int = 0) -> str:
    """Return the text without the values at ``path`` that are ours. Containers on the path that become empty are
    removed, too, except the first ``keep_empty``."""
    if not text.strip(_SPACE + "\ufeff"):
        return text
    while True:
        chain = _find(parse(text), tuple(path), is_ours)
        if chain is None:
            return text
        at = len(chain) - 1
        while at > keep_empty and len(chain[at][0].children) == 1 and at >= 1:
            at -= 1
        text = _cut(text, *chain[at])


def _find(node: JsonNode, path: tuple[str, ...], is_ours: Callable[[Any], bool]) -> list[tuple[JsonNode, int]] | None:
    """Return the containers on the way to the value, each with the index of the child that leads on."""
    if not path:
        return [] if is_ours(node.value) else None
    for index, child in enumerate(node.children):
        is_step = node.kind == "array" if path[0] == APPEND else node.kind == "object" and child.key == path[0]
        rest = _find(child.node, path[1:], is_ours) if is_step else None
        if rest is not None:
            return [(node, index), *rest]
    return None


def _nested(path: Sequence[str], value: Any) -> Any:
    for key in reversed(path):
        value = [value] if key == APPEND else {key: value}
    return value


def _insert(text: str, node: JsonNode, value: Any, depth: int, key: str | None = None) -> str:
    unit, newline = _style(text)
    written = _written(value, depth + 1, unit, newline)
    if key is not None:
        written = f"{_written(key, 0, unit, newline)}: {written}"
    if not node.children:
        inner = text[node.start + 1 : node.end - 1]
        tail = "" if "\n" in inner else newline + unit * depth
        at = node.start + 1 + len(inner.rstrip(_SPACE))
        return text[:at] + newline + unit * (depth + 1) + written + tail + text[at:]
    last = node.children[-1]
    is_wide = "\n" in text[node.start : last.start]
    lead = newline + _indentation(text, last.start) if is_wide else " "
    end = last.node.end if last.comma < 0 else last.comma + 1
    place = _after_remark(text, end) if is_wide else end
    comma, trailing = (",", "") if last.comma < 0 else ("", ",")
    return text[:end] + comma + text[end:place] + lead + written + trailing + text[place:]


def _cut(text: str, node: JsonNode, index: int) -> str:
    """Return the text without a child, its comma and the white space before it."""
    child = node.children[index]
    start = child.start
    while start > node.start + 1 and text[start - 1] in _SPACE:
        start -= 1
    if child.comma >= 0:
        return text[:start] + text[child.node.end : child.comma] + text[child.comma + 1 :]
    before = text[:start]
    if index:
        comma = node.children[index - 1].comma
        before = text[:comma] + text[comma + 1 : start]
    elif len(node.children) == 1 and not text[child.node.end : node.end - 1].strip(_SPACE):
        return before + text[node.end - 1 :]
    return before + text[child.node.end :]


def _after_remark(text: str, at: int) -> int:
    """Return the end of the line if only a comment is left on it, otherwise ``at``."""
    end = text.find("\n", at)
    line = text[at : end if end >= 0 else len(text)].rstrip("\r")
    is_remark = line.strip().startswith("//") or (line.strip().startswith("/*") and line.strip().endswith("*/"))
    return at + len(line.rstrip()) if is_remark and "*/" not in line.strip()[:-2] else at


def _indentation(text: str, at: int) -> str:
    begin = text.rfind("\n", 0, at) + 1
    line = text[begin:at]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _style(text: str) -> tuple[str, str]:
    """Return the indentation for one level, and the newline."""
    newline = "\r\n" if "\r\n" in text else "\n"
    for line in text.split("\n"):
        body = line.lstrip(" \t")
        if body.startswith('"') and body != line:
            return line[: len(line) - len(body)], newline
    return "  ", newline


def _written(value: Any, depth: int, unit: str, newline: str) -> str:
    import json

    lines = json.dumps(value, indent=unit, ensure_ascii=False).split("\n")
    return (newline + unit * depth).join(lines)


class _Scanner:
    """Owner: one call to ``parse``."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 1 if text.startswith("\ufeff") else 0

    def document(self) -> JsonNode:
        node = self._value(0)
        self._skip()
        if self._at < len(self._text):
            raise self._error("there is more behind its end")
        return node

    def _value(self, depth: int) -> JsonNode:
        self._skip()
        if depth > MOST_DEEP:
            raise self._error("it is nested too deeply")
        mark = self._text[self._at : self._at + 1]
        if mark == "{":
            return self._container("object", "}", depth)
        if mark == "[":
            return self._container("array", "]", depth)
        return self._scalar()

    def _scalar(self) -> JsonNode:
        import json

        match = _SCALAR.match(self._text, self._at)
        if match is None:
            raise self._error("a value is missing" if self._at < len(self._text) else "it ends too early")
        self._at = match.end()
        return JsonNode("scalar", match.start(), match.end(), json.loads(match.group()))

    def _container(self, kind: str, close: str, depth: int) -> JsonNode:
        start = self._at
        self._at += 1
        children: list[JsonChild] = []
        while True:
            self._skip()
            if self._text.startswith(close, self._at):
                self._at += 1
                break
            if children and children[-1].comma < 0:
                raise self._error("a comma is missing" if self._at < len(self._text) else "it ends too early")
            children.append(self._child(kind, depth))
        if kind == "object":
            value: Any = {child.key: child.node.value for child in children}
        else:
            value = [child.node.value for child in children]
        return JsonNode(kind, start, self._at, value, tuple(children))

    def _child(self, kind: str, depth: int) -> JsonChild:
        key, start = "", self._at
        if kind == "object":
            name = self._scalar()
            if not isinstance(name.value, str):
                raise self._error("the name of a member is not a text")
            key = name.value
            self._skip()
            if not self._text.startswith(":", self._at):
                raise self._error("a colon is missing")
            self._at += 1
        node = self._value(depth + 1)
        self._skip()
        comma = -1
        if self._text.startswith(",", self._at):
            comma = self._at
            self._at += 1
        return JsonChild(key, start, node, comma)

    def _skip(self) -> None:
        """Skip white space and comments."""
        text = self._text
        while self._at < len(text):
            if text[self._at] in _SPACE:
                self._at += 1
            elif text.startswith("//", self._at):
                end = text.find("\n", self._at)
                self._at = len(text) if end < 0 else end
            elif text.startswith("/*", self._at):
                end = text.find("*/", self._at + 2)
                if end < 0:
                    raise self._error("a comment does not end")
                self._at = end + 2
            else:
                return

    def _error(self, message: str) -> JsoncError:
        return JsoncError(f"line {self._text.count(chr(10), 0, self._at) + 1}: {message}")
