"""JSON Schemas for tools, and the check of arguments against them. Pure.

All model APIs accept this subset: an object with ``properties``, ``required`` and ``additionalProperties: false``;
``string`` with ``maxLength`` and ``enum``, ``integer`` and ``number`` with ``minimum`` and ``maximum``, ``boolean``,
``array`` with ``items``, ``minItems`` and ``maxItems``; ``default``. Every error names the argument, its value, and the
allowed values.
"""

from __future__ import annotations

from collections.abc import Mapping

from mudroom.ext.agents.tools.error import ToolError
from mudroom.ext.agents.tools.tool import Schema
from mudroom.typing import Any

LONGEST = 10_000_000
"""Most characters in a string without a smaller limit."""
_SHOWN = 60


def of_object(properties: Mapping[str, Schema], required: tuple[str, ...] = (), *, is_open: bool = False) -> Schema:
    """Return an object's schema. ``is_open``: further properties are allowed, as in results."""
    schema: dict[str, Any] = {"type": "object", "properties": dict(properties), "required": list(required)}
    if not is_open:
        schema["additionalProperties"] = False
    return schema


def string(description: str, *, most: int = LONGEST, **more: Any) -> Schema:
    return {"type": "string", "description": description, "maxLength": most, **more}


def integer(description: str, least: int, most: int, **more: Any) -> Schema:
    return {"type": "integer", "description": description, "minimum": least, "maximum": most, **more}


def number(description: str, least: float, most: float, **more: Any) -> Schema:
    return {"type": "number", "description": description, "minimum": least, "maximum": most, **more}


def flag(description: str, *, default: bool = False) -> Schema:
    return {"type": "boolean", "description": description, "default": default}


def array(description: str, items: Schema, *, least: int = 0, most: int = 1000, **more: Any) -> Schema:
    return {"type": "array", "description": description, "items": items, "minItems": least, "maxItems": most, **more}


def checked(schema: Schema, arguments: object, tool: str) -> dict[str, Any]:
    """Return the arguments with defaults filled in. Raise ToolError for the first that does not fit."""
    value = _checked(schema, arguments, "")
    if isinstance(value, _Problem):
        about = f"{tool}: {value.where}: {value.text}" if value.where else f"{tool}: {value.text}"
        raise ToolError(about, f"{tool} takes {signature(schema)}")
    assert isinstance(value, dict)
    return value


def signature(schema: Schema) -> str:
    """Return a tool's arguments in one line: ``path (string), limit (integer, optional)``."""
    words = []
    for name, row in schema["properties"].items():
        kind = "one of " + ", ".join(row["enum"]) if "enum" in row else row["type"]
        words.append(f"{name} ({kind})" if name in schema["required"] else f"{name} ({kind}, optional)")
    return ", ".join(words) or "no arguments"


class _Problem:
    def __init__(self, where: str, text: str) -> None:
        self.where, self.text = where, text


def _checked(schema: Schema, value: object, where: str) -> object:
    kind = schema["type"]
    if not _is(kind, value):
        return _Problem(where, f"{_article(kind)} was expected, not {_shown(value)}")
    if isinstance(value, dict):
        return _object(schema, value, where)
    if isinstance(value, list):
        return _array(schema, value, where)
    if isinstance(value, str):
        return _string(schema, value, where)
    return _number(schema, value, where)


def _object(schema: Schema, value: dict[object, object], where: str) -> object:
    properties = schema["properties"]
    for name in value:
        if name not in properties:
            close = _closest(str(name), properties)
            return _Problem(where, f"there is no argument {_shown(name)}" + (f"; {close} is meant?" if close else ""))
    filled: dict[str, object] = {}
    for name, row in properties.items():
        at = f"{where}.{name}" if where else name
        given = value.get(name)
        if given is None and (name not in value or name not in schema["required"]):
            if name in schema["required"]:
                return _Problem(where, f"the argument {name} is missing")
            filled[name] = row.get("default")  # null, from a model that fills in everything, means an omitted argument
            continue
        checked_value = _checked(row, given, at)
        if isinstance(checked_value, _Problem):
            return checked_value
        filled[name] = checked_value
    return filled


def _array(schema: Schema, value: list[object], where: str) -> object:
    if not schema["minItems"] <= len(value) <= schema["maxItems"]:
        return _Problem(where, f"{schema['minItems']} to {schema['maxItems']} items are allowed, not {len(value):,}")
    items = []
    for index, item in enumerate(value):
        checked_item = _checked(schema["items"], item, f"{where}[{index}]")
        if isinstance(checked_item, _Problem):
            return checked_item
        items.append(checked_item)
    return items


def _string(schema: Schema, value: str, where: str) -> object:
    most = schema.get("maxLength", LONGEST)
    if len(value) > most:
        return _Problem(where, f"at most {most:,} characters are allowed, not {len(value):,}")
    if "enum" in schema and value not in schema["enum"]:
        return _Problem(where, f"one of {', '.join(schema['enum'])} was expected, not {_shown(value)}")
    return value


def _number(schema: Schema, value: Any, where: str) -> object:
    if schema["type"] == "boolean":
        return value
    low, high = schema["minimum"], schema["maximum"]
    if not low <= value <= high:  # false for NaN, too
        return _Problem(where, f"{low:,} to {high:,} is allowed, not {_shown(value)}")
    return int(value) if schema["type"] == "integer" else value


def _is(kind: str, value: object) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "integer":  # JSON Schema: a number with a zero fraction is an integer
        return isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    types: dict[str, tuple[type, ...]] = {"string": (str,), "number": (int, float), "object": (dict,), "array": (list,)}
    return isinstance(value, types.get(kind, ()))


def _article(kind: str) -> str:
    return f"{'an' if kind[0] in 'aio' else 'a'} {kind}"


def _shown(value: object) -> str:
    """Return a caller's value in a few characters, without its control characters."""
    if isinstance(value, (dict, list)):
        return f"{'an object' if isinstance(value, dict) else 'an array'} of {len(value):,}"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int) and abs(value) >= 10**18:
        return "a number of more than 18 digits"  # str() of a large one raises ValueError (int_max_str_digits)
    text = ascii(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def _closest(name: str, names: Mapping[str, object]) -> str:
    """Return the argument that is most likely meant, or an empty string."""
    bare = name.lower().replace("_", "").replace("-", "")
    for candidate in names:
        plain = candidate.replace("_", "")
        if bare and (bare in plain or plain in bare):
            return candidate
    return ""
