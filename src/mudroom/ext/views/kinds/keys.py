"""JSON, YAML and TOML by key: ``a.b[3]``. Keys that only moved are no change; nothing is computed, and no alias is
followed.

A tree is a mapping, a list, or the text of a value: strings in quotes, others as they are written. An anchor or a tag
of YAML is a key of its own around what it marks. A key that occurs again is another key, ``a#2``.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable

import yaml

from mudroom.core.text.linediff import diff_lines
from mudroom.core.text.plural import counted
from mudroom.core.text.regex import regex
from mudroom.ext.views.kinds.row import WIDEST, FileView, FileViewRow, NoView, RowKind, cut, summed
from mudroom.typing import Any

MOST_DEEP = 60
_PLAIN = regex(r"[\w@$/*+-]+(?:#\d+)?|<<|&\S+|!\S+")
_DUMP: Any = json.JSONEncoder(ensure_ascii=False, sort_keys=True).encode


class Literal(str):
    """A number, truth value or null of JSON or TOML, as it is written."""

    __slots__ = ()


def view(path: bytes, before: bytes | None, after: bytes | None) -> FileView:
    kind = "toml" if path.lower().endswith(b".toml") else "yaml" if path.lower().endswith((b"yml", b"yaml")) else "json"
    sides = [_read(kind, data, side) for data, side in ((before, "old"), (after, "new")) if data is not None]
    notes = list(dict.fromkeys(note for _tree, twice in sides for note in twice))
    rows: list[FileViewRow] = []
    if before is None or after is None:
        _whole("added" if before is None else "removed", sides[0][0], rows)
    else:
        _compare("", sides[0][0], sides[1][0], rows, 0)
    told = summed(rows, "no value differs: only comments, layout, order or notation")
    return FileView(kind, told, cut(rows, notes, "key"), notes)


def _whole(kind: RowKind, tree: Any, rows: list[FileViewRow]) -> None:
    if not isinstance(tree, dict):
        rows.append(_row(kind, "", tree))
    else:
        rows += [_row(kind, _below("", key), value) for key, value in tree.items()]


def _compare(path: str, old: Any, new: Any, rows: list[FileViewRow], depth: int) -> None:
    if depth > MOST_DEEP:
        raise NoView(f"nested more than {MOST_DEEP} deep")
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(key for key in new if key not in old)]:
            where = _below(path, key)
            if key not in new:
                rows.append(_row("removed", where, old[key]))
            elif key not in old:
                rows.append(_row("added", where, new[key]))
            else:
                _compare(where, old[key], new[key], rows, depth + 1)
    elif isinstance(old, list) and isinstance(new, list):
        _compare_lists(path, old, new, rows, depth)
    elif old != new:
        rows.append(FileViewRow("changed", path or "(all)", _brief(old), _brief(new)))


def _compare_lists(path: str, old: list[Any], new: list[Any], rows: list[FileViewRow], depth: int) -> None:
    for block in diff_lines(*([_DUMP(item) for item in side] for side in (old, new))):
        olds, news = range(block.old_start, block.old_end), range(block.new_start, block.new_end)
        for one, other in zip(olds, news, strict=False):
            _compare(f"{path}[{other}]", old[one], new[other], rows, depth + 1)
        rows += [_row("removed", f"{path}[{one}]", old[one]) for one in olds[len(news) :]]
        rows += [_row("added", f"{path}[{other}]", new[other]) for other in news[len(olds) :]]


def _row(kind: RowKind, path: str, value: Any) -> FileViewRow:
    before, after = (_brief(value), "") if kind == "removed" else ("", _brief(value))
    return FileViewRow(kind, path or "(all)", before, after)


def _below(path: str, key: str) -> str:
    if _PLAIN.fullmatch(key):
        return f"{path}.{key}" if path else key
    return f"{path}[{json.dumps(key, ensure_ascii=False)}]"


def _brief(tree: Any) -> str:
    """Return a value in a line."""
    if isinstance(tree, str):
        return tree
    if isinstance(tree, dict):
        text = "{" + ", ".join(f"{key}: {_outer(value)}" for key, value in tree.items()) + "}"
        return text if len(text) < WIDEST else counted(len(tree), "key")
    text = "[" + ", ".join(map(_outer, tree)) + "]"
    return text if len(text) < WIDEST else counted(len(tree), "item")


def _outer(tree: Any) -> str:
    return tree if isinstance(tree, str) else "{…}" if isinstance(tree, dict) else "[…]"


# --- formats ---

_Tree = tuple[Any, list[str]]


def _read(kind: str, data: bytes, side: str) -> _Tree:
    """Return the tree, and notes about keys that occur twice."""
    try:
        return _READERS[kind](data)
    except RecursionError:
        raise NoView(f"nested more than {MOST_DEEP} deep") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark is not None else ""
        raise NoView(
            f"the {side} text is not YAML{where}: {getattr(error, 'problem', None) or 'it cannot be read'}"
        ) from None
    except ValueError as error:
        raise NoView(f"the {side} text is not {kind.upper()}: {error}") from None


class _Mapping(dict[str, Any]):
    """A mapping in the making, which keeps each key that occurs again. Owner: the caller of ``_read``."""

    def __init__(self, notes: list[str]) -> None:
        self._notes = notes
        self._times: dict[str, int] = {}

    def put(self, key: str, value: Any) -> None:
        self._times[key] = times = self._times.get(key, 0) + 1
        name = key if times == 1 else f"{key}#{times}"
        if times == 2:
            self._notes.append(f"the key {key} occurs more than once in a mapping: programs differ in which counts")
        self[name] = value


def _json(data: bytes) -> _Tree:
    notes: list[str] = []

    def mapping(pairs: list[tuple[str, Any]]) -> _Mapping:
        made = _Mapping(notes)
        for key, value in pairs:
            made.put(key, _plain(value))
        return made

    tree = json.loads(data, object_pairs_hook=mapping, parse_int=Literal, parse_float=Literal, parse_constant=Literal)
    return _plain(tree), notes


def _toml(data: bytes) -> _Tree:
    return _plain(tomllib.loads(data.decode(), parse_float=Literal)), []


def _plain(value: Any) -> Any:
    """Return a value of the parser as a tree. Mappings of JSON are one already."""
    if isinstance(value, (Literal, _Mapping)):
        return value
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return "null" if value is None else str(value).lower() if isinstance(value, (bool, int)) else value.isoformat()


_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _yaml(data: bytes) -> _Tree:
    """Return the tree of a YAML stream, from its events: no object is made of a tag, and no alias is followed. Several
    documents are a list."""
    notes: list[str] = []
    documents: list[Any] = []
    outer: list[Callable[[Any], None]] = []
    put: Callable[[Any], None] = documents.append
    for event in yaml.parse(data.decode(), _LOADER):
        if isinstance(event, yaml.AliasEvent):
            put(f"*{event.anchor}")
        elif isinstance(event, yaml.ScalarEvent):
            put(_marked(event, event.value if event.implicit[0] else json.dumps(event.value, ensure_ascii=False)))
        elif isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            if len(outer) > MOST_DEEP:
                raise RecursionError
            made: Any = _Mapping(notes) if isinstance(event, yaml.MappingStartEvent) else []
            put(_marked(event, made))
            outer.append(put)
            put = _putter(made)
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            put = outer.pop()
    return (documents[0] if len(documents) == 1 else documents), notes


def _putter(made: Any) -> Callable[[Any], None]:
    """Return a function that takes the next item of a list; of a mapping keys and values in turn."""
    if isinstance(made, list):
        return made.append
    waiting: list[Any] = []

    def put(value: Any) -> None:
        if waiting:
            made.put(_key(waiting.pop()), value)
        else:
            waiting.append(value)

    return put


_OTHER_TYPE = regex(r"(?i)[\d.+~-].*|true|false|yes|no|on|off|null|")


def _key(value: Any) -> str:
    """Return a key without its quotes, unless it would be of another type without them."""
    if not isinstance(value, str):
        return f"? {_DUMP(value)}"
    text: str = json.loads(value) if value[:1] == '"' else value
    return value if _OTHER_TYPE.fullmatch(text) else text


def _marked(event: Any, value: Any) -> Any:
    if event.tag and not (isinstance(event, yaml.ScalarEvent) and any(event.implicit)):
        value = {f"!{event.tag}": value}
    return {f"&{event.anchor}": value} if event.anchor else value


_READERS: dict[str, Callable[[bytes], _Tree]] = {"json": _json, "yaml": _yaml, "toml": _toml}
