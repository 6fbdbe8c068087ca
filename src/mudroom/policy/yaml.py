"""Read a YAML file that users write, strictly: every mistake is an error that names file, line and key.

The file has sections with keys, and below them single values or lists of texts; no other types. Aliases are refused,
because a small file with aliases can expand beyond any memory. PyYAML is imported when there is a file to read.
"""

from __future__ import annotations

from collections.abc import Iterable

from mudroom.core.network.host_entry import parse_entry
from mudroom.core.network.host_rules import parse_rule
from mudroom.core.network.inspection import parse_header
from mudroom.core.tree.path import show
from mudroom.errors import UsageError
from mudroom.typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from yaml.nodes import Node

    from mudroom.core.network.host_rules import HostRule, RuleWord

_DEPTH = 8
"""Maximum depth of collections; the settings need at most four."""


_DIGITS = 100
"""Maximum characters in a number: longer ones take long to parse, and cannot be printed in a message."""
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_SCALARS = 100_000
"""Maximum keys and values in a file."""


class YamlText(NamedTuple):
    text: str
    line: int


def compose(data: bytes, name: str) -> Node | None:
    """Return the file's root node, or None if the file is empty. ``name`` is shown in error messages."""
    import yaml

    loader = _loader()
    try:
        data.decode()
        _check_events(yaml.parse(data, loader), name)
        node: Node | None = yaml.compose(data, loader)
        return node
    except UnicodeDecodeError as error:
        raise UsageError(f"{name}:{line_at(data, error.start)}: this is not UTF-8") from error
    except yaml.reader.ReaderError as error:
        raise UsageError(f"{name}:{line_at(data, error.position)}: this is not YAML: {error.reason}") from error
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark is not None else 1
        if _TOO_DEEP in str(error.problem):
            raise UsageError(f"{name}:{line}: nested too deeply") from error
        problem = f"{error.context} {error.problem}"
        hint = _QUOTES if "alias" in problem else _QUOTED_WORD if _CANNOT_START in problem else ""
        raise UsageError(f"{name}:{line}: this is not YAML: {error.problem}", hint) from error


_TOO_DEEP = "nesting depth"
"""Part of the error that newer libyaml raises for a thousand levels, before it gives the events for the first."""
_CANNOT_START = "cannot start any token"
"""Part of libyaml's error for a text that begins with an @."""
_QUOTED_WORD = 'to YAML an @ begins no text; put a preset in quotes: "@npm"'
_QUOTES = 'to YAML a * is a reference; put the text in quotes: "*.example.com"'


def items(node: Node | None, name: str, prefix: str) -> list[tuple[str, Node, str]]:
    """Return (key, value, "file:line") for each pair in a mapping node."""
    from yaml.nodes import MappingNode, ScalarNode

    if node is None:
        return []
    where = f"{name}:{node.start_mark.line + 1}"
    if not isinstance(node, MappingNode):
        raise UsageError(f"{where}: {prefix.rstrip('.') or 'the file'} must hold keys with values")
    pairs, seen = [], set()
    for key, value in node.value:
        at = f"{name}:{key.start_mark.line + 1}"
        if not isinstance(key, ScalarNode):
            raise UsageError(f"{at}: a key must be a plain text")
        if key.value in seen:
            raise UsageError(f"{at}: {shown_text(prefix + key.value)} is given twice")
        seen.add(key.value)
        pairs.append((str(key.value), value, at))
    return pairs


def plain(node: Node, where: str) -> Any:
    """Return the value of a scalar or a list of scalars. Raise UsageError for deeper values."""
    from yaml import YAMLError
    from yaml.nodes import ScalarNode, SequenceNode

    nodes = node.value if isinstance(node, SequenceNode) else [node]
    if not all(isinstance(scalar, ScalarNode) for scalar in nodes):
        raise UsageError(f"{where} must be one value, or a list of texts")
    if any(scalar.tag in _NUMBERS and len(scalar.value) > _DIGITS for scalar in nodes):
        raise UsageError(f"{where}: a number of more than {_DIGITS} characters", "put it in quotes if it is a text")
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
    ) as error:  # errors for a tagged value such as !!int x
        raise UsageError(f"{where} cannot be read as what it is tagged or looks like") from error
    finally:
        constructor.dispose()


def texts(node: Node, where: str) -> list[YamlText]:
    """Return the texts in a list, each with its line."""
    values = plain(node, where)
    if not isinstance(values, list) or not all(isinstance(scalar, str) for scalar in values):
        raise UsageError(f"{where} must be a list of texts", "one a line, behind '- '")
    return [YamlText(text, scalar.start_mark.line + 1) for text, scalar in zip(values, node.value, strict=True)]


def host_rules(node: Node, where: str, name: str, action: RuleWord, *, private: bool = False) -> list[HostRule]:
    """Return the host rules in a list, with presets as their words (``core/network/host_entry.py``). ``where``: the
    key, with file and line. Each rule has its position: ``policy.yaml:12``."""
    key = where.rpartition(": ")[2]
    short = name.rpartition("/")[2]
    rules = []
    for text, line in texts(node, where):
        try:
            rules.append(parse_entry(text, action, f"{short}:{line}", private=private))
        except ValueError as error:
            raise UsageError(f"{name}:{line}: {key}: {error}") from error
    return rules


_INSPECT = ("host", "action", "methods", "paths", "private", "set", "remove", "only", "foreign")


def inspect_rules(node: Node, where: str, name: str) -> list[HostRule]:
    """Return the host rules in ``network.inspect``: each a host, or a mapping with the keys in ``_INSPECT``."""
    from yaml.nodes import MappingNode, ScalarNode, SequenceNode

    if not isinstance(node, SequenceNode):
        raise UsageError(f"{where} must be a list", "one host a line, behind '- '")
    rules: list[HostRule] = []
    for element in node.value:
        alone = SequenceNode(node.tag, [element], element.start_mark, element.end_mark)
        if isinstance(element, ScalarNode):
            rules += [rule._replace(inspect=True) for rule in host_rules(alone, where, name, "allow")]
        elif isinstance(element, MappingNode):
            rules.append(_inspect_rule(element, where, name))
        else:
            raise UsageError(
                f"{name}:{element.start_mark.line + 1}: {where.rpartition(': ')[2]}: a host, or keys with values"
            )
    return rules


def _inspect_rule(node: Node, where: str, name: str) -> HostRule:
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
        if values.get("foreign", "refuse") not in ("refuse", "strip"):
            raise ValueError(f"foreign is {values['foreign']!r}: refuse or strip")
        if values.get("only") is True and action == "deny":
            raise ValueError("only is for a rule that allows or asks")
        short = at.rpartition("/")[2]
        return parse_rule(values["host"], action, short, private=values.get("private") is True)._replace(
            inspect=True,
            methods=tuple(word.upper() for word in _words(values, "methods")),
            paths=_paths(values),
            set_headers=tuple(parse_header(header, str(value)) for header, value in values.get("set", {}).items()),
            remove_headers=tuple(parse_header(header)[0] for header in _words(values, "remove")),
            only=values.get("only") is True,
            foreign=values.get("foreign", ""),
        )
    except ValueError as error:
        raise UsageError(f"{at}: {key}: {error}") from error


def _words(values: dict[str, Any], field: str) -> list[str]:
    words = values.get(field, [])
    if not isinstance(words, list) or not all(isinstance(word, str) and word for word in words):
        raise ValueError(f"{field} must be a list of texts")
    return words


def _paths(values: dict[str, Any]) -> tuple[str, ...]:
    paths = _words(values, "paths")
    wrong = next((path for path in paths if not path.startswith("/") or "?" in path or "#" in path), None)
    if wrong is not None:
        raise ValueError(f"{shown_text(wrong)} is no path: it begins with / and has no query")
    return tuple(paths)


def unknown(where: str, prefix: str, key: str, known: Iterable[str], what: str = "setting") -> UsageError:
    """Return the error for an unknown key, with the closest known key."""
    import difflib

    near = difflib.get_close_matches(key, known, 1, 0.5)
    hint = (
        f"did you mean {prefix}{near[0]}?"
        if near
        else "known: " + ", ".join(prefix + key_name for key_name in sorted(known))
    )
    return UsageError(f"{where}: there is no {what} {shown_text(prefix + key)}", hint)


def line_at(data: bytes, position: int) -> int:
    return data.count(b"\n", 0, position) + 1


def _loader() -> Any:
    import yaml

    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _check_events(events: Iterable[Any], name: str) -> None:
    """Raise UsageError for aliases, for more values than any file needs, and for nesting deeper than any setting needs
    (the loader recurses without a limit)."""
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


def shown_text(text: str) -> str:
    """Return a text of a file for a terminal."""
    return show(text.encode("utf-8", "backslashreplace"))
