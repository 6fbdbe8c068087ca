"""The JSON Schema for a policy file, for editors: made from the settings table.

``mudroom policy schema`` prints it. Mistakes that a schema cannot express (an invalid host, an example that
fails) are reported by ``mudroom policy check``.
"""

from __future__ import annotations

from mudroom.core.command.verdict import ACTIONS, CLASSES
from mudroom.core.network.preset import PRESETS
from mudroom.policy.setting_row import SettingRow
from mudroom.policy.settings_table import SECTIONS
from mudroom.typing import Any

_TEXT = {"type": "string"}
_LINE = {"type": "string", "minLength": 1, "pattern": "^[^\\n\\r]*$"}
_FLAG = {"type": "boolean"}
_TEXTS = {"type": "array", "items": _TEXT}
_ACTION = {"enum": list(ACTIONS)}
_CLASSES = {
    "type": "object",
    "additionalProperties": False,
    "properties": {name: {"$ref": "#/$defs/action"} for name in CLASSES},
}
_WORD = {"anyOf": [_LINE, {"type": "array", "minItems": 1, "items": _LINE}]}
_INSPECT = {
    "anyOf": [
        _TEXT,
        {
            "type": "object",
            "required": ["host"],
            "additionalProperties": False,
            "properties": {
                "host": _TEXT,
                "action": {"enum": ["allow", "ask", "deny"]},
                "methods": _TEXTS,
                "paths": {"type": "array", "items": {"type": "string", "pattern": "^/[^?#]*$"}},
                "private": _FLAG,
                "set": {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}},
                "remove": _TEXTS,
                "only": _FLAG | {"description": "other requests to the host are denied, whatever other rules allow"},
                "foreign": {
                    "enum": ["refuse", "strip"],
                    "description": "requests with a credential that mudroom net credential has not put in",
                },
            },
        },
    ]
}


def _rule(*, agents: bool) -> dict[str, Any]:
    properties: dict[str, Any] = {
        "pattern": {
            "anyOf": [_LINE, {"type": "array", "minItems": 1, "maxItems": 64, "items": _WORD}],
            "description": "the first words of a command; in a list, a word may be a list of alternatives",
        },
        "action": {"$ref": "#/$defs/action"},
        "reason": _LINE,
        "instead": _LINE,
        "match": _TEXTS | {"description": "command lines that the rule must match"},
        "not_match": _TEXTS | {"description": "command lines that the rule must not match"},
        "exact": _FLAG | {"description": "the pattern is the whole command, not its first words"},
    }
    if agents:
        properties["agents"] = _TEXTS | {"description": "roles or agents; default: all"}
    return {
        "type": "object",
        "required": ["pattern", "action"],
        "additionalProperties": False,
        "properties": properties,
    }


def _setting(row: SettingRow) -> dict[str, Any]:
    """Return the schema for a row's value. The help and the value's form become the description."""
    return row.type.schema | {"description": f"{row.help}; {row.type.form}" if row.type.form else row.help}


def schema() -> dict[str, Any]:
    """Return the JSON Schema for a policy file."""
    sections: dict[str, Any] = {
        section: {
            "type": "object",
            "additionalProperties": False,
            "properties": {row.name: _setting(row) for row in rows.values()},
        }
        for section, rows in SECTIONS.items()
    }
    name = "^[A-Za-z0-9_-]{1,64}$"
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "mudroom policy",
        "description": "What commands and agents may do in a project: .mudroom/policy.yaml",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            **sections,
            "roles": {
                "type": "object",
                "propertyNames": {"pattern": name},
                "additionalProperties": {
                    "type": "object",
                    "additionalProperties": False,
                    "properties": {
                        "classes": {"$ref": "#/$defs/classes"},
                        "rules": {"type": "array", "items": {"$ref": "#/$defs/role_rule"}},
                    },
                },
            },
            "agents": {
                "type": "object",
                "additionalProperties": {"type": "string", "pattern": name},
                "description": "agentId: role",
            },
            "include": {
                "anyOf": [_LINE, {"type": "array", "items": _LINE}],
                "description": "files in the same directory",
            },
        },
        "$defs": {
            "action": _ACTION,
            "classes": _CLASSES,
            "inspect": _INSPECT,
            "preset": {"enum": sorted(PRESETS)},
            "rule": _rule(agents=True),
            "role_rule": _rule(agents=False),
        },
    }
