"""The published JSON Schema says of a policy file what the reader says, as far as a schema can."""

from __future__ import annotations

import re
from typing import Any

import yaml

from mudroom.core.command.policy import CommandRule
from mudroom.policy.command_rules import KEYS as RULE_KEYS
from mudroom.policy.config import parse_settings
from mudroom.policy.first_policy import first_policy
from mudroom.policy.parse import FREE_SECTIONS
from mudroom.policy.schema import schema
from mudroom.policy.settings_table import SECTIONS
from policy_files import LOOSE, TIGHT, text_of
from policy_text import WRONG
from tiers import each

SCHEMA = schema()
TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "number": (int, float),
    "integer": (int,),
}


def is_a(value: Any, name: str) -> bool:
    return isinstance(value, TYPES[name]) and (name == "boolean" or not isinstance(value, bool))


def accepts(found: dict[str, Any], value: Any) -> bool:
    """As much of JSON Schema 2020-12 as ours uses; what else it should use one day fails here."""
    return all(RULES[key](found, value) for key in found if key not in ("$schema", "$defs", "title", "description"))


def inside(found: dict[str, Any], value: Any) -> bool:
    if not isinstance(value, dict):
        return True
    known = found.get("properties", {})
    if not all(accepts(known[key], one) for key, one in value.items() if key in known):
        return False
    rest = {key: one for key, one in value.items() if key not in known}
    more = found.get("additionalProperties", True)
    return not rest if more is False else more is True or all(accepts(more, one) for one in rest.values())


RULES: dict[str, Any] = {
    "type": lambda found, value: any(
        is_a(value, one) for one in ([found["type"]] if isinstance(found["type"], str) else found["type"])
    ),
    "required": lambda found, value: not isinstance(value, dict) or set(found["required"]) <= set(value),
    "properties": inside,
    "additionalProperties": inside,
    "propertyNames": lambda found, value: (
        not isinstance(value, dict) or all(accepts(found["propertyNames"], key) for key in value)
    ),
    "items": lambda found, value: not isinstance(value, list) or all(accepts(found["items"], one) for one in value),
    "minItems": lambda found, value: not isinstance(value, list) or len(value) >= found["minItems"],
    "maxItems": lambda found, value: not isinstance(value, list) or len(value) <= found["maxItems"],
    "minLength": lambda found, value: not isinstance(value, str) or len(value) >= found["minLength"],
    "pattern": lambda found, value: not isinstance(value, str) or re.search(found["pattern"], value) is not None,
    "minimum": lambda found, value: not is_a(value, "number") or value >= found["minimum"],
    "maximum": lambda found, value: not is_a(value, "number") or value <= found["maximum"],
    "exclusiveMinimum": lambda found, value: not is_a(value, "number") or value > found["exclusiveMinimum"],
    "enum": lambda found, value: not isinstance(value, bool) and value in found["enum"],
    "anyOf": lambda found, value: any(accepts(one, value) for one in found["anyOf"]),
    "$ref": lambda found, value: accepts(SCHEMA["$defs"][found["$ref"].removeprefix("#/$defs/")], value),
}  # fmt: skip


def test_it_has_every_key_and_no_other() -> None:
    for section, rows in SECTIONS.items():
        assert SCHEMA["properties"][section]["properties"].keys() == rows.keys()
    assert set(SCHEMA["properties"]) == {*SECTIONS, *FREE_SECTIONS}
    assert set(SCHEMA["$defs"]["rule"]["properties"]) == set(RULE_KEYS)
    assert set(RULE_KEYS) <= set(CommandRule._fields)


READ = [
    first_policy(),
    *(text_of(key, value) for table in (LOOSE, TIGHT) for key, value in table.items()),
    "commands:\n  rules:\n  - {pattern: [a, [b, c]], action: deny, reason: x, instead: y, exact: true}",
    "roles: {r: {classes: {unknown: deny}, rules: [{pattern: a, action: allow}]}}\nagents: {'team:x': r}",
    "verify: {command: [make, test]}",
    "run: {timeout: 90s, read: [/srv]}",
]


@each("text", READ)
def test_what_is_read_is_accepted(text: str) -> None:
    parse_settings(text.encode(), "policy.yaml")
    assert accepts(SCHEMA, yaml.safe_load(text))


def test_what_is_included_is_accepted() -> None:
    assert accepts(SCHEMA, {"include": ["a.yaml"]})
    assert accepts(SCHEMA, {"include": "a.yaml"})
    assert not accepts(SCHEMA, {"include": [1]})


ONLY_READING_TELLS = (
    "is not a",  # a time or a size of a form that a pattern would allow
    "at least",
    "no preset",
    "no role",
    "role or agent",
    "says it already",
    "a shell would",
    "separates commands",
    "neither a name nor",
    "this is a URL",
    "is no port",
    "is the metadata service",
    "is the whole file system",
    "names nothing",
    "holds an empty part, '.' or '..'",
    "is not a pattern of gitignore(5)",
    "is no name of an agent",
    "half a character",
    "NUL",
    "is empty",
    "is given twice",
    "host is missing",
    "not a file of the home",
    "no setting <<",  # a merge, to a reader of YAML that knows such
    "must hold keys",  # an empty section is a mapping without keys to the one, null to the other
)
REFUSED = [(text, said) for text, _line, said in WRONG if not any(word in said for word in ONLY_READING_TELLS)]


@each(("text", "said"), REFUSED)
def test_what_is_refused_is_not_accepted(text: str, said: str) -> None:
    try:
        value = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError):
        return  # no editor gets as far as the schema
    assert not accepts(SCHEMA, value), said


def test_most_mistakes_are_seen_by_the_schema() -> None:
    assert len(REFUSED) > 40
