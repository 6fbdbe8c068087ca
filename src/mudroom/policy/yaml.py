"""A YAML file that people write, read strictly: whatever is wrong in it is an error that names file, line and key.

Sections with keys, and below them single values or lists of texts; nothing else, and no references: a small file with
them can hold more than any memory. PyYAML is imported when there is something to read.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from mudroom.core.tree.path import show
from mudroom.errors import UsageError

if TYPE_CHECKING:
    from yaml.nodes import Node

    from mudroom.core.network.host_rules import Action, HostRule

_DEPTH = 8
"""Of collections in a file; nothing that is read needs more than four."""


_DIGITS = 100
"""Characters of a number: longer ones take long to read, and cannot be written into a message."""
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_SCALARS = 100_000
"""Keys and values of a file."""


class YamlText(NamedTuple):
    text: str
    line: int


def compose(data: bytes, name: str) -> Node | None:
    """The nodes of a file; None if there is nothing in it. ``name`` is what error messages call the file."""
    import yaml

    loader = _loader()
    try:
        data.decode()
        _check_events(yaml.parse(data, loader), name)
        found: Node | None = yaml.compose(data, loader)
        return found
    except UnicodeDecodeError as error:
        raise UsageError(f"{name}:{line_at(data, error.start)}: this is not UTF-8") from error
    except yaml.reader.ReaderError as error:
        raise UsageError(f"{name}:{line_at(data, error.position)}: this is not YAML: {error.reason}") from error
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark is not None else 1
        hint = _QUOTES if "alias" in f"{error.context} {error.problem}" else ""
        raise UsageError(f"{name}:{line}: this is not YAML: {error.problem}", hint) from error


_QUOTES = 'to YAML a * is a reference; put the text in quotes: "*.example.com"'


def items(node: Node | None, name: str, prefix: str) -> list[tuple[str, Node, str]]:
    """(key, value, "file:line") of a mapping node."""
    from yaml.nodes import MappingNode, ScalarNode

    if node is None:
        return []
    where = f"{name}:{node.start_mark.line + 1}"
    if not isinstance(node, MappingNode):
        raise UsageError(f"{where}: {prefix.rstrip('.') or 'the file'} must hold keys with values")
    found, seen = [], set()
    for key, value in node.value:
        at = f"{name}:{key.start_mark.line + 1}"
        if not isinstance(key, ScalarNode):
            raise UsageError(f"{at}: a key must be a plain text")
        if key.value in seen:
            raise UsageError(f"{at}: {_shown(prefix + key.value)} is given twice")
        seen.add(key.value)
        found.append((str(key.value), value, at))
    return found


def plain(node: Node, where: str) -> Any:
    """The value of a scalar or a list of scalars. Nothing deeper."""
    from yaml import YAMLError
    from yaml.nodes import ScalarNode, SequenceNode

    nodes = node.value if isinstance(node, SequenceNode) else [node]
    if not all(isinstance(one, ScalarNode) for one in nodes):
        raise UsageError(f"{where} must be one value, or a list of texts")
    if any(one.tag in _NUMBERS and len(one.value) > _DIGITS for one in nodes):
        raise UsageError(f"{where}: a number of more than {_DIGITS} characters")
    constructor = _loader()("")
    try:
        return constructor.construct_object(node, deep=True)
    except (
        YAMLError,
        ValueError,
        LookupError,
        AttributeError,
        TypeError,
        ArithmeticError,
    ) as error:  # what it does with !!int x
        raise UsageError(f"{where} cannot be read as what it is tagged or looks like") from error
    finally:
        constructor.dispose()


def texts(node: Node, where: str) -> list[YamlText]:
    """A list of texts, each with its line."""
    values = plain(node, where)
    if not isinstance(values, list) or not all(isinstance(one, str) for one in values):
        raise UsageError(f"{where} must be a list of texts", "one a line, behind '- '")
    return [YamlText(text, one.start_mark.line + 1) for text, one in zip(values, node.value, strict=True)]


def host_rules(node: Node, where: str, name: str, action: Action, *, private: bool = False) -> list[HostRule]:
    """A list of host rules. ``where``: the key, with file and line. Each says where it stands: ``policy.yaml:12``."""
    from mudroom.core.network.host_rules import parse_rule

    key = where.rpartition(": ")[2]
    short = name.rpartition("/")[2]
    found = []
    for text, line in texts(node, where):
        try:
            found.append(parse_rule(text, action, f"{short}:{line}", private=private))
        except ValueError as error:
            raise UsageError(f"{name}:{line}: {key}: {error}") from error
    return found


_INSPECT = ("host", "action", "methods", "paths", "private", "set", "remove")


def inspect_rules(node: Node, where: str, name: str) -> list[HostRule]:
    """A list of hosts whose TLS is looked into: a text, or what is to be told apart in it (``_INSPECT``)."""
    from yaml.nodes import MappingNode, ScalarNode, SequenceNode

    if not isinstance(node, SequenceNode):
        raise UsageError(f"{where} must be a list", "one host a line, behind '- '")
    found: list[HostRule] = []
    for one in node.value:
        alone = SequenceNode(node.tag, [one], one.start_mark, one.end_mark)
        if isinstance(one, ScalarNode):
            found += [rule._replace(inspect=True) for rule in host_rules(alone, where, name, "allow")]
        elif isinstance(one, MappingNode):
            found.append(_inspect_rule(one, where, name))
        else:
            raise UsageError(
                f"{name}:{one.start_mark.line + 1}: {where.rpartition(': ')[2]}: a host, or keys with values"
            )
    return found


def _inspect_rule(node: Node, where: str, name: str) -> HostRule:
    from mudroom.core.network.host_rules import parse_rule
    from mudroom.core.network.inspection import parse_header

    key = where.rpartition(": ")[2]
    values: dict[str, Any] = {}
    at = f"{name}:{node.start_mark.line + 1}"
    for field, value, line in items(node, name, key + "."):
        if field not in _INSPECT:
            raise unknown(line, key + ".", field, _INSPECT, "key")
        values[field] = (
            {header: plain(text, line) for header, text, line in items(value, name, key + ".set.")}
            if field == "set"
            else plain(value, f"{line}: {key}.{field}")
        )
    try:
        if not isinstance(values.get("host"), str):
            raise ValueError("host is missing: which is it about?")
        action = values.get("action", "allow")
        if action not in ("allow", "ask", "deny"):
            raise ValueError(f"action is {action!r}: allow, ask or deny")
        short = at.rpartition("/")[2]
        return parse_rule(values["host"], action, short, private=values.get("private") is True)._replace(
            inspect=True,
            methods=tuple(word.upper() for word in _words(values, "methods")),
            paths=_paths(values),
            set_headers=tuple(parse_header(header, str(value)) for header, value in values.get("set", {}).items()),
            remove_headers=tuple(parse_header(header)[0] for header in _words(values, "remove")),
        )
    except ValueError as error:
        raise UsageError(f"{at}: {key}: {error}") from error


def _words(values: dict[str, Any], field: str) -> list[str]:
    words = values.get(field, [])
    if not isinstance(words, list) or not all(isinstance(word, str) and word for word in words):
        raise ValueError(f"{field} must be a list of texts")
    return words


def _paths(values: dict[str, Any]) -> tuple[str, ...]:
    """Prefixes."""
    paths = _words(values, "paths")
    wrong = next((path for path in paths if not path.startswith("/") or "?" in path or "#" in path), None)
    if wrong is not None:
        raise ValueError(f"{_shown(wrong)} is no path: it begins with / and has no query")
    return tuple(paths)


def unknown(where: str, prefix: str, key: str, known: Iterable[str], what: str = "setting") -> UsageError:
    """What to raise for a key that nobody knows; the nearest right one is named."""
    import difflib

    near = difflib.get_close_matches(key, known, 1, 0.5)
    hint = f"did you mean {prefix}{near[0]}?" if near else "known: " + ", ".join(prefix + one for one in sorted(known))
    return UsageError(f"{where}: there is no {what} {_shown(prefix + key)}", hint)


def line_at(data: bytes, position: int) -> int:
    return data.count(b"\n", 0, position) + 1


def _loader() -> Any:
    import yaml

    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _check_events(events: Iterable[Any], name: str) -> None:
    """Refuse what is nested deeper than any setting (the loader goes down recursively, without a limit of its own),
    what refers to something else, and what holds more than any file needs."""
    from yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent, ScalarEvent

    depth = scalars = 0
    for event in events:
        depth += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)
        scalars += isinstance(event, ScalarEvent)
        refers = isinstance(event, AliasEvent)
        if not refers and depth <= _DEPTH and scalars <= _SCALARS:
            continue
        at = f"{name}:{event.start_mark.line + 1}"
        if refers:
            raise UsageError(f"{at}: references are not read: *{event.anchor[:64]}", _QUOTES)
        if depth > _DEPTH:
            raise UsageError(f"{at}: nested too deeply")
        raise UsageError(f"{at}: more than {_SCALARS:,} keys and values")


def _shown(key: str) -> str:
    return show(key.encode("utf-8", "backslashreplace"))
