"""Agent cards: what they may say, and that the published schema says the same."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from mudroom.core.agent.card import AgentCard, Requirements
from mudroom.core.agent.sandbox_level import LEVELS
from mudroom.core.tree.credential_stores import STORES, store_places
from mudroom.ext.agents.core import card_fields as module
from mudroom.ext.agents.core.card_fields import parse_card, requested_credentials, store_of_agent
from mudroom.ext.agents.core.field import FieldError
from tiers import each

SCHEMA = json.loads((Path(__file__).parents[4] / "docs/card.schema.json").read_text())


def needs(**what: Any) -> dict[str, Any]:
    return {"agentId": "a", "sandboxRequirements": what}


RIGHT: list[tuple[dict[str, Any], AgentCard]] = [
    ({"agentId": "a"}, AgentCard("a")),
    ({"agentId": "team:x/y@1.0", "sandboxLevel": 2}, AgentCard("team:x/y@1.0", 2)),
    ({"agentId": "a", "sandboxLevel": 0, "sandboxRequirements": {}}, AgentCard("a", 0)),
    (needs(needsOAuth=True), AgentCard("a", None, Requirements(oauth=True))),
    (needs(needsOAuth=["gh", "~/.config/tool"]), AgentCard("a", None, Requirements(("gh", "~/.config/tool")))),
    (needs(needsKeychain=False), AgentCard("a")),
    (needs(needsKeychain=[]), AgentCard("a", None, Requirements(keychain=()))),
    (needs(needsNetwork=["api.x", "*.x:443"]), AgentCard("a", None, Requirements(network=("api.x", "*.x:443")))),
    (needs(needsGpuAccess=True), AgentCard("a", None, Requirements(gpu=True))),
    (
        needs(needsForks={"show": [8000, "9/http"], "reach": ["reviewer:8000"]}),
        AgentCard(
            "a", None, Requirements(forks=(("show", "8000"), ("show", "9/http"), ("reach", "reviewer:8000")))
        ),
    ),
    (needs(needsNetwork=False), AgentCard("a", None, Requirements(network=False))),
    (
        {"agentId": "a", "name": "A", "description": "does\nit", "version": "1.0", "artifacts": ["r/**", "*.log"]},
        AgentCard("a", name="A", description="does\nit", version="1.0", artifacts=("r/**", "*.log")),
    ),
    ({"agentId": "a", "sandboxImage": "r.io:5000/x/y:1"}, AgentCard("a", image="r.io:5000/x/y:1")),
    ({"agentId": "a", "sandboxImage": "host"}, AgentCard("a", image="host")),
    ({"agentId": "a", "gitBranch": True}, AgentCard("a", branch=True)),
    (
        {"agentId": "a", "gitBranch": "agent/x", "environment": ["K"]},
        AgentCard("a", branch="agent/x", environment=("K",)),
    ),
]  # fmt: skip

IMAGE_HINT = "as debian:bookworm; host: the host's own toolchain"
LEVEL_HINT = "0: staged view only; 1: OS sandbox; 2: container"
PATH_HINT = "write it as ~/.config/tool"
PORT_MESSAGE = "needsNetwork: a.x:99999: 99999 is no port (1 to 65535); write HOST:22 or HOST:80,443"
NOT_A_PATH = "is not a pattern of paths in the project"
PATTERN_HINT = "reports/**, *.log"
PATTERNS_HINT = f"a list of patterns of at most 256 characters: {PATTERN_HINT}"
BRANCH_HINT = "true, or a name: agent/fixes"
VARIABLE_HINT = "a name alone: API_KEY"
FORKS_HINT = '{"show": [8000], "reach": ["reviewer:8000"]}'
NO_FORK = "names no fork: reviewer, or db-* for several"
REACH_HINT = "reviewer:8000, db-*:5432, reviewer@AGENT:8000"
HOST_HINT = "api.example.com, *.example.com, example.com:443"
WRONG: list[tuple[Any, str, str]] = [
    ({"agentId": "a", "sandboxImage": "-v"}, "sandboxImage is not the name of an image", IMAGE_HINT),
    ({"agentId": "a", "sandboxImage": ""}, "sandboxImage is empty", IMAGE_HINT),
    ({"agentId": "a", "sandboxImage": 1}, "sandboxImage is not the name of an image", IMAGE_HINT),
    ({"agentId": "a", "sandboxImage": "a" * 256}, "sandboxImage is longer than 255 characters", IMAGE_HINT),
    ([], "the card is a list, not an object", ""),
    (None, "the card is null, not an object", ""),
    ({}, "agentId is missing", 'add the name of the agent: "agentId": "claude-code"'),
    ({"agentId": ""}, "agentId must be a name: letters, digits and - _ . : @ /, at most 128 of them", ""),
    ({"agentId": 7}, "agentId must be a name: letters, digits and - _ . : @ /, at most 128 of them", ""),
    ({"agentId": "a\n"}, "agentId must be a name: letters, digits and - _ . : @ /, at most 128 of them", ""),
    ({"agentID": "a"}, "the card has an unknown key 'agentID'", "did you mean agentId?"),
    ({"agentId": "a", "sandbox": 1}, "the card has an unknown key 'sandbox'", "did you mean sandboxLevel?"),
    (
        {"agentId": "a", "x": 1},
        "the card has an unknown key 'x'",
        "known: agentId, sandboxLevel, sandboxRequirements, sandboxImage, name, description, version, artifacts, "
        "gitBranch, environment, endpoint",
    ),
    ({"agentId": "a", "sandboxLevel": 3}, "sandboxLevel is 3", LEVEL_HINT),
    ({"agentId": "a", "sandboxLevel": True}, "sandboxLevel is True", LEVEL_HINT),
    ({"agentId": "a", "sandboxLevel": "0"}, "sandboxLevel is '0'", LEVEL_HINT),
    ({"agentId": "a", "sandboxLevel": 1.0}, "sandboxLevel is 1.0", LEVEL_HINT),
    ({"agentId": "a", "sandboxLevel": [0]}, "sandboxLevel is [0]", LEVEL_HINT),
    (
        {"agentId": "a", "sandboxRequirements": True},
        "sandboxRequirements is true or false, not an object",
        "",
    ),
    (needs(needsOauth=True), "sandboxRequirements has an unknown key 'needsOauth'", "did you mean needsOAuth?"),
    (needs(needsOAuth="gh"), "needsOAuth is a text", "true, false, or a list of credential stores and ~/ paths"),
    (needs(needsOAuth=[1]), "needsOAuth is a list", "true, false, or a list of credential stores and ~/ paths"),
    (needs(needsOAuth=["ghh"]), "needsOAuth: there is no credential store 'ghh'", "did you mean gh?"),
    (needs(needsKeychain=["~"]), "needsKeychain: '~' is not a path in the home", PATH_HINT),
    (needs(needsKeychain=["~/"]), "needsKeychain: '~/' is not a path in the home", PATH_HINT),
    (needs(needsKeychain=["~/../x"]), "needsKeychain: '~/../x' is not a path in the home", PATH_HINT),
    (needs(needsKeychain=["~/a/./b"]), "needsKeychain: '~/a/./b' is not a path in the home", PATH_HINT),
    (needs(needsKeychain=["~other/x"]), "needsKeychain: '~other/x' is not a path in the home", PATH_HINT),
    (needs(needsKeychain=["~/\ud800"]), "needsKeychain: '~/\\ud800' holds an unpaired surrogate", ""),
    (needs(needsNetwork=["a b"]), "needsNetwork: a b: ' ' is not for names", HOST_HINT),
    (needs(needsNetwork=[""]), "needsNetwork: there is no host", HOST_HINT),
    (needs(needsNetwork=["https://a.x/"]), "needsNetwork: this is a URL; write the host alone: a.x", HOST_HINT),
    (
        needs(needsNetwork=["169.254.169.254"]),
        "needsNetwork: 169.254.169.254 is the metadata service of a cloud: no rule opens that",
        HOST_HINT,
    ),
    (needs(needsNetwork=["a.x:99999"]), PORT_MESSAGE, HOST_HINT),
    (needs(needsForks=[8000]), "needsForks must have show and reach", FORKS_HINT),
    (needs(needsForks={"see": [8000]}), "needsForks must have show and reach", FORKS_HINT),
    (needs(needsForks={"reach": ["*:1"]}), f"needsForks.reach: '*:1' {NO_FORK}", REACH_HINT),
    (needs(needsNetwork={}), "needsNetwork is an object", "true, false, or a list of host names"),
    ({"agentId": "a", "name": 7}, "name is a number", "a text"),
    ({"agentId": "a", "name": "x" * 129}, "name is longer than 128 characters", ""),
    ({"agentId": "a", "name": "x\ny"}, "name holds characters that cannot be shown", ""),
    ({"agentId": "a", "version": "\x1b[31m"}, "version holds characters that cannot be shown", ""),
    ({"agentId": "a", "artifacts": "x"}, "artifacts is a text", PATTERNS_HINT),
    ({"agentId": "a", "artifacts": ["x"] * 65}, "artifacts has more than 64 entries", ""),
    ({"agentId": "a", "artifacts": ["../x"]}, f"artifacts: '../x' {NOT_A_PATH}", PATTERN_HINT),
    ({"agentId": "a", "artifacts": ["/x"]}, f"artifacts: '/x' {NOT_A_PATH}", PATTERN_HINT),
    ({"agentId": "a", "artifacts": [""]}, "artifacts: '' must have 1 to 256 characters", PATTERN_HINT),
    ({"agentId": "a", "gitBranch": 1}, "gitBranch is a number", "a text"),
    ({"agentId": "a", "gitBranch": "a..b"}, "gitBranch: 'a..b' is not the name of a branch", BRANCH_HINT),
    ({"agentId": "a", "gitBranch": "-x"}, "gitBranch: '-x' is not the name of a branch", BRANCH_HINT),
    ({"agentId": "a", "environment": ["A=b"]}, "environment: 'A=b' is not the name of a variable", VARIABLE_HINT),
    (
        {"agentId": "a", "endpoint": "http://example.com:80/"},
        "endpoint: 'http://example.com:80/' is not a URL of the agent's own loopback",
        "http://localhost:8080/a2a",
    ),
    ({"agentId": "a", "endpoint": 80}, "endpoint is a number", "a text"),
    ({"agentId": "a", "environment": {"A": "b"}}, "environment is an object", "a list of names of variables"),
    (needs(needsGpuAccess="yes"), "needsGpuAccess is a text", "true or false"),
    (needs(needsGpuAccess=1), "needsGpuAccess is a number", "true or false"),
]  # fmt: skip


@each(("value", "card"), RIGHT)
def test_a_card(value: dict[str, Any], card: AgentCard) -> None:
    assert parse_card(value) == card
    assert accepts(SCHEMA, value)


@each(("value", "message", "hint"), WRONG)
def test_what_is_no_card(value: Any, message: str, hint: str) -> None:
    with pytest.raises(FieldError) as caught:
        parse_card(value)
    assert (caught.value.message, caught.value.hint) == (message, hint)
    assert message.isprintable()
    # what a pattern cannot say, or JSON does not tell apart
    loose = (
        "/./",
        "/../",
        "../x",
        "surrogate",
        "1.0",
        "shown",
        "a..b",
        "metadata",
        "no port",
        "alone",
        "for names",
        "no host'",
    )
    assert not accepts(SCHEMA, value) or any(mark in f"{value}{message}" for mark in loose)


def test_a_store_that_nobody_knows_is_answered_with_those_that_are() -> None:
    with pytest.raises(FieldError) as caught:
        parse_card(needs(needsOAuth=["qqqq"]))
    assert all(name in caught.value.hint for name in STORES)


# --- the schema -------------------------------------------------------------------------------------------------------


def accepts(schema: dict[str, Any], value: Any) -> bool:
    """As much of JSON Schema as ours uses; what else it should use one day fails here."""
    known = {"$schema", "$defs", "title", "description"}
    return all(_RULES[key](schema, value) for key in schema if key not in known)


def _ref(schema: dict[str, Any], value: Any) -> bool:
    found: Any = SCHEMA
    for part in schema["$ref"].removeprefix("#/").split("/"):
        found = found[part]
    return accepts(found, value)


def _properties(schema: dict[str, Any], value: Any) -> bool:
    inside = value.items() if isinstance(value, dict) else ()
    return all(accepts(schema["properties"][key], one) for key, one in inside if key in schema["properties"])


_TYPES: dict[str, type] = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int}
_RULES: dict[str, Any] = {
    "type": lambda schema, value: isinstance(value, _TYPES[schema["type"]]),
    "required": lambda schema, value: isinstance(value, dict) and set(schema["required"]) <= set(value),
    "additionalProperties": lambda schema, value: (
        not isinstance(value, dict) or set(value) <= set(schema["properties"])
    ),
    "properties": _properties,
    "pattern": lambda schema, value: (
        isinstance(value, str) and re.search(schema["pattern"][:-1] + r"\Z", value) is not None
    ),
    "minimum": lambda schema, value: not isinstance(value, int) or value >= schema["minimum"],
    "maximum": lambda schema, value: not isinstance(value, int) or value <= schema["maximum"],
    "maxLength": lambda schema, value: not isinstance(value, str) or len(value) <= schema["maxLength"],
    "maxItems": lambda schema, value: not isinstance(value, list) or len(value) <= schema["maxItems"],
    "enum": lambda schema, value: not isinstance(value, bool) and value in schema["enum"],
    "anyOf": lambda schema, value: any(accepts(one, value) for one in schema["anyOf"]),
    "items": lambda schema, value: not isinstance(value, list) or all(accepts(schema["items"], one) for one in value),
    "$ref": _ref,
}  # fmt: skip


def test_the_schema_has_the_same_keys() -> None:
    assert list(SCHEMA["properties"]) == list(module._FIELDS)
    assert list(SCHEMA["properties"]["sandboxRequirements"]["properties"]) == list(module._REQUIREMENTS)
    assert SCHEMA["$defs"]["store"]["enum"] == sorted(STORES)
    assert SCHEMA["properties"]["sandboxLevel"]["enum"] == list(LEVELS)


# --- what a card names ------------------------------------------------------------------------------------------------


@each(
    ("agent", "requirements", "stores", "paths"),
    [
        ("a", {}, (), ()),
        ("claude-code", {"needsOAuth": True}, ("claude", "display"), ()),
        ("nobody-knows", {"needsOAuth": True}, ("display",), ()),
        ("a", {"needsOAuth": ["gh"]}, ("gh", "display"), ()),
        ("a", {"needsKeychain": ["gh", "gh", "~/x/y"]}, ("gh",), (b"x/y",)),
        ("a", {"needsKeychain": True}, ("keychain",), ()),
        ("gh", {"needsOAuth": False, "needsKeychain": False}, (), ()),
        ("gh", {"needsOAuth": []}, (), ()),
    ],
)
def test_exactly_what_is_named_is_wanted(
    agent: str, requirements: dict[str, Any], stores: tuple[str, ...], paths: tuple[bytes, ...]
) -> None:
    found = requested_credentials(parse_card({"agentId": agent, "sandboxRequirements": requirements}))
    assert (found.stores, found.paths) == (stores, paths)
    assert bool(found.notes) == (agent == "nobody-knows")


def test_the_table_of_stores() -> None:
    for name, store in STORES.items():
        assert re.fullmatch(r"[a-z][a-z-]*", name)
        assert store.about
        assert store.directories or store.files or store.sockets
        for place in (*store.directories, *store.files):
            assert not place.startswith((b"/", b"~"))
            assert b".." not in place.split(b"/")
    assert len(store_places()) == len(set(store_places()))
    assert store_of_agent("claude-code") == "claude"
    assert store_of_agent("somebody") is None


def test_a_port_of_an_endpoint() -> None:
    assert parse_card({"agentId": "a", "endpoint": "http://[::1]:65535"}).endpoint == (65535, "/")
    with pytest.raises(FieldError, match="is not a URL of the agent's own loopback"):
        parse_card({"agentId": "a", "endpoint": "http://localhost:65536/"})
