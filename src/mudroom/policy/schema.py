"""The JSON Schema of a policy file, for editors: made from the table of settings.

It is published as ``docs/policy.schema.json``. Mistakes that a schema cannot express (an invalid host, an example that
fails) are reported by ``mudroom policy check``.
"""

from __future__ import annotations

from typing import Any

from mudroom.core.command.verdict import ACTIONS, CLASSES
from mudroom.core.network.preset import PRESETS
from mudroom.policy.settings_table import MOST_WARM, SECTIONS

_TEXT = {"type": "string"}
_LINE = {"type": "string", "minLength": 1, "pattern": "^[^\\n\\r]*$"}
_FLAG = {"type": "boolean"}
_COUNT = {"type": "integer", "minimum": 1, "maximum": (1 << 31) - 1}
_TEXTS = {"type": "array", "items": _TEXT}
_TIME = {
    "anyOf": [
        {"type": "number", "exclusiveMinimum": 0},
        {"type": "string", "pattern": "^\\s*[0-9.eE+]+\\s*[smhd]?\\s*$"},
    ],
    "description": "seconds, or 90s, 5m, 1h, 30d",
}
_SIZE = {
    "anyOf": [
        {"type": "integer", "minimum": 0},
        {"type": "string", "pattern": "^\\s*[0-9.]+\\s*([kKmMgGtT]?([iI]?[bB])?)\\s*$"},
    ],
    "description": "bytes, or 500MB, 2 GiB",
}
_LEVEL = {"enum": [0, 1, 2], "description": "0: staged view only; 1: OS sandbox; 2: container"}
_HOSTS = {"type": "array", "items": {"type": "string"}, "description": 'NAME[:PORT,…]; "*.example.com" in quotes'}
_ACTION = {"enum": list(ACTIONS)}
_CLASSES = {
    "type": "object",
    "additionalProperties": False,
    "properties": {name: {"$ref": "#/$defs/action"} for name in CLASSES},
}
_MODE = {"enum": ["none", "gate", "open"]}
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
            },
        },
    ]
}

KEYS: dict[str, dict[str, Any]] = {
    "run.network": _MODE | {"description": "as network.mode, which is the one to use"},
    "run.level": _LEVEL,
    "run.view": {"enum": ["auto", "overlay", "copy"]},
    "run.timeout": _TIME,
    "run.environment": {
        "type": "array",
        "items": {"type": "string", "pattern": "^[^=]"},
        "description": "NAME or NAME=VALUE",
    },
    "run.read": {
        "type": "array",
        "items": {"type": "string", "pattern": "^/."},
        "description": "paths shown read-only",
    },
    "run.output_limit": _SIZE,
    "network.mode": _MODE | {"description": "gate: what the rules allow; none: nothing; open: the host's"},
    "network.allow": _HOSTS,
    "network.ask": _HOSTS,
    "network.deny": _HOSTS,
    "network.private": _HOSTS,
    "network.presets": {"type": "array", "items": {"enum": sorted(PRESETS)}},
    "network.inspect": {"type": "array", "items": _INSPECT},
    "network.never_inspect": _HOSTS,
    "network.cards": _TEXTS | {"description": "agents whose cards are taken at their word about hosts"},
    "limits.memory": _SIZE,
    "limits.processes": _COUNT,
    "limits.cpus": {"type": ["number", "string"], "description": "processors' worth of time: 0.5, 2"},
    "limits.io": _SIZE,
    "limits.open_files": _COUNT,
    "limits.file_size": _SIZE,
    "limits.total_memory": _SIZE,
    "limits.total_processes": _COUNT,
    "limits.total_cpus": {"type": ["number", "string"]},
    "limits.missing": {"enum": ["refuse", "degrade"]},
    "levels.default": _LEVEL,
    "levels.minimum": _LEVEL,
    "levels.allow": {"type": "array", "minItems": 1, "items": _LEVEL},
    "levels.agents": {"type": "object", "additionalProperties": {"enum": [0, 1, 2, "refuse"]}},
    "container.engine": {"enum": ["auto", "docker", "podman", "container"]},
    "container.image": _LINE
    | {"pattern": "^[A-Za-z0-9][A-Za-z0-9._:/@-]*$"}
    | {"description": "host: the host's own toolchain; or the name of an image, never pulled"},
    "container.cards": _TEXTS | {"description": "agents whose cards may say which image they run in"},
    "container.warm": {"type": "integer", "minimum": 0, "maximum": MOST_WARM, "description": "kept ready by a session"},
    "secrets.mask": _TEXTS,
    "secrets.show": _TEXTS,
    "credentials.show": {"type": "array", "items": {"type": "string", "pattern": "^~/."}},
    "copy.limit": _SIZE,
    "copy.exclude": _TEXTS | {"description": "as in gitignore(5)"},
    "copy.gitignore": _FLAG,
    "verify.command": {"anyOf": [_TEXT, {"type": "array", "minItems": 1, "items": _TEXT}]},
    "verify.when": {"enum": ["merged", "always", "never"]},
    "verify.timeout": _TIME,
    "keep.age": _TIME,
    "keep.applies": _COUNT,
    "keep.bytes": _SIZE,
    "keep.journal": _SIZE,
    "keep.journal_age": _TIME,
    "commands.classes": {"$ref": "#/$defs/classes"},
    "commands.rules": {"type": "array", "items": {"$ref": "#/$defs/rule"}},
    "commands.background": {"enum": ["allow", "require_approval", "deny"]},
    "commands.approval_timeout": _TIME,
    "user_commands.sandbox": _LEVEL,
    "user_commands.auto_apply": {"enum": ["never", "trusted", "always"]},
    "user_commands.auto_apply_trusted": _FLAG,
    "user_commands.auto_apply_flagged": _FLAG,
    "user_commands.trusted": {"type": "array", "items": _LINE, "description": "first words of commands"},
    "user_commands.show_diff_threshold": {"type": "integer", "minimum": 0, "description": "lines"},
}
"""Key → what may stand there. A test holds it to the table of settings."""


def _rule(*, agents: bool) -> dict[str, Any]:
    properties: dict[str, Any] = {
        "pattern": {
            "anyOf": [_LINE, {"type": "array", "minItems": 1, "maxItems": 64, "items": _WORD}],
            "description": "the first words of a command; in a list a word may be a list of those that may stand there",
        },
        "action": {"$ref": "#/$defs/action"},
        "reason": _LINE,
        "instead": _LINE,
        "match": _TEXTS | {"description": "command lines in which it has to match something"},
        "not_match": _TEXTS | {"description": "command lines in which it must not"},
        "exact": _FLAG | {"description": "the pattern is all words, not the first of them"},
    }
    if agents:
        properties["agents"] = _TEXTS | {"description": "roles or agents; without it everybody"}
    return {
        "type": "object",
        "required": ["pattern", "action"],
        "additionalProperties": False,
        "properties": properties,
    }


def schema() -> dict[str, Any]:
    sections: dict[str, Any] = {
        section: {
            "type": "object",
            "additionalProperties": False,
            "properties": {key: KEYS[f"{section}.{key}"] for key in keys},
        }
        for section, keys in SECTIONS.items()
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
            "include": {"anyOf": [_LINE, {"type": "array", "items": _LINE}], "description": "files beside this one"},
        },
        "$defs": {
            "action": _ACTION,
            "classes": _CLASSES,
            "rule": _rule(agents=True),
            "role_rule": _rule(agents=False),
        },
    }
