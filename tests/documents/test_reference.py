"""The pages of docs/reference are of this program, and every object that it prints has the schema that they say."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest

from documents.json_objects import BRIEF, COMMANDS, NOT_PRINTED, SCHEMAS, infer, printed
from documents.machine import ROOT
from documents.reference import (
    JSON,
    KEYS,
    LIBRARY,
    POLICY,
    commands_page,
    json_page,
    keys_page,
    library_page,
    policy_page,
)
from mudroom.cli.main import VERBS, offered_verbs
from satellites import needs, whole

NAMELESS = {"log", "net log", "policy why", "agent card", "ps"}
"""Verbs with objects that name no schema: events, flows, a card of A2A."""


@pytest.mark.skipif(offered_verbs() != VERBS, reason="a satellite with a verb is absent")
def test_the_page_of_commands_has_the_help_of_each_verb() -> None:
    page = commands_page()
    assert [verb for verb in VERBS if f"\n## {verb}\n\n```text\nusage: mudroom {verb} " not in page] == []


def test_the_page_of_the_library_is_made_of_its_docstrings() -> None:
    assert LIBRARY.read_text() == library_page(), "dev/docs --update writes it"


def test_the_page_of_settings_is_made_of_their_table() -> None:
    assert POLICY.read_text() == policy_page(), "dev/docs --update writes it"


@needs("tui")
def test_the_page_of_keys_is_made_of_their_table() -> None:
    pytest.importorskip("textual", reason="the extra tui is not installed")
    assert KEYS.read_text() == keys_page(), "dev/docs --update writes it"


@whole
def test_every_schema_of_the_source_has_a_definition() -> None:
    named = set()
    for path in (ROOT / "src/mudroom").rglob("*.py"):
        named |= set(re.findall(r'"(mudroom\.[a-z.-]+/\d+)"', path.read_text()))
    defined = set(json.loads(SCHEMAS.read_text())["$defs"])
    assert named - defined == set(NOT_PRINTED), "docs/json.schema.json: dev/docs --update writes it"
    explained = (ROOT / "docs/FORMAT.md").read_text()
    assert [name for name in sorted(named | defined) if name.removeprefix("mudroom.") not in explained] == []


def test_the_page_of_objects_is_made_of_the_schemas() -> None:
    assert JSON.read_text() == json_page(json.loads(SCHEMAS.read_text()))


@pytest.mark.slow
@pytest.mark.parametrize(
    "commands",
    [
        pytest.param(BRIEF, id="brief", marks=needs("commits")),
        pytest.param(COMMANDS, id="all", marks=[pytest.mark.deep, pytest.mark.limit(400)]),
    ],
)
def test_what_a_verb_prints_is_as_its_schema_says(commands: list[str], tmp_path: Path, nothing_left: None) -> None:
    schemas = json.loads(SCHEMAS.read_text())["$defs"]
    found = printed(tmp_path / "d", commands)
    assert {verb for verb, _value in found.pop("", [])} <= NAMELESS
    assert set(found) == set(schemas) if commands is COMMANDS else len(found) > len(schemas) / 2
    for name, objects in found.items():
        validator = jsonschema.Draft202012Validator(schemas[name])
        for verb, value in objects:
            problems = [f"{error.json_path}: {error.message}" for error in validator.iter_errors(value)]
            assert not problems, f"mudroom {verb}: {problems}"


def test_a_schema_is_as_strict_as_what_was_seen() -> None:
    shape = infer([{"a": 1, "b": [None]}, {"a": 1.5, "b": ["x"]}])
    assert shape["required"] == ["a", "b"]
    assert shape["properties"]["a"] == {"type": "number"}
    assert not jsonschema.Draft202012Validator(shape).is_valid({"a": 1, "b": [], "c": 0})
    assert jsonschema.Draft202012Validator(shape).is_valid({"a": 2, "b": ["y"]})
