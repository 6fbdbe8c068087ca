"""Cards for other agents: their form, and that they say what was decided.

The form is checked by a part of JSON Schema written after ``specification/a2a.proto`` of github.com/a2aproject/A2A
(commit ce7650b, version 1.0; field_behavior REQUIRED) and, for 0.3, after ``specification/json/a2a.json`` of then.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from mudroom.core.agent.card import AgentCard, Requirements
from mudroom.core.agent.level_decision import decide_level
from mudroom.core.agent.sandbox_level import REFUSE, LevelPolicy
from mudroom.ext.agents.core.a2a import (
    EXTENSION,
    AgentStatus,
    a2a_card,
    a2a_card_old,
    is_forwarded,
    paths_of,
    rpc_error,
    sandbox_params,
)
from tiers import each

TEXT, TRUTH, TEXTS = {"type": "string"}, {"type": "boolean"}, {"type": "array", "items": {"type": "string"}}
EXTENSIONS = {
    "type": "array",
    "items": {"required": ["uri"], "keys": {"uri": TEXT, "description": TEXT, "required": TRUTH, "params": {}}},
}
COMMON: dict[str, Any] = {
    "name": TEXT,
    "description": TEXT,
    "version": TEXT,
    "defaultInputModes": TEXTS,
    "defaultOutputModes": TEXTS,
    "capabilities": {
        "required": [],
        "keys": {"streaming": TRUTH, "pushNotifications": TRUTH, "extensions": EXTENSIONS},
    },
    "skills": {
        "type": "array",
        "items": {
            "required": ["id", "name", "description", "tags"],
            "keys": {"id": TEXT, "name": TEXT, "description": TEXT, "tags": TEXTS},
        },
    },
}
INTERFACE = {"url": TEXT, "protocolBinding": TEXT, "protocolVersion": TEXT}
BEARER = {"required": ["scheme"], "keys": {"scheme": TEXT, "description": TEXT}}
NEW: dict[str, Any] = {
    "required": [*COMMON, "supportedInterfaces"],
    "keys": COMMON
    | {
        "supportedInterfaces": {"type": "array", "items": {"required": list(INTERFACE), "keys": INTERFACE}},
        "securitySchemes": {"each": {"required": [], "keys": {"httpAuthSecurityScheme": BEARER}}},
        "securityRequirements": {
            "type": "array",
            "items": {"required": [], "keys": {"schemes": {"each": {"required": [], "keys": {"list": TEXTS}}}}},
        },
    },
}
OLD: dict[str, Any] = {
    "required": [*COMMON, "url", "protocolVersion"],
    "keys": COMMON
    | {
        "url": TEXT,
        "protocolVersion": TEXT,
        "preferredTransport": TEXT,
        "securitySchemes": {
            "each": {"required": ["type", "scheme"], "keys": {"type": TEXT, "scheme": TEXT, "description": TEXT}}
        },
        "security": {"type": "array", "items": {"each": TEXTS}},
    },
}
_TYPES: dict[str, type] = {"string": str, "boolean": bool, "array": list}
CARDS = [
    AgentCard("team:x/y"),
    AgentCard("a", 0, Requirements(oauth=True, network=("a.example",), gpu=True), "Name", "What\nit does", "1.2"),
]


def check(schema: dict[str, Any], value: Any, where: str = "card") -> None:
    if "type" in schema:
        assert type(value) is _TYPES[schema["type"]], where
    for number, one in enumerate(value if "items" in schema else ()):
        check(schema["items"], one, f"{where}[{number}]")
    for key, one in value.items() if "each" in schema else ():
        check(schema["each"], one, f"{where}.{key}")
    if "keys" in schema:
        assert set(schema["required"]) <= set(value) <= set(schema["keys"]), where
        for key, one in value.items():
            check(schema["keys"][key], one, f"{where}.{key}")


def standing(card: AgentCard, **policy: Any) -> AgentStatus:
    return AgentStatus(decide_level(card, LevelPolicy(**policy)), "gate", ("a.example",), ("gh",))


@pytest.mark.parametrize("card", CARDS, ids=lambda card: card.agent)
def test_the_form_of_both_versions(card: AgentCard) -> None:
    url = "http://127.0.0.1:1/agents/a/a2a"
    new, old = a2a_card(card, standing(card), url), a2a_card_old(card, standing(card), url)
    check(NEW, new)
    check(OLD, old)
    assert new["supportedInterfaces"][0]["url"] == old["url"] == url
    assert new["skills"][0]["id"] == card.agent
    assert json.loads(json.dumps(new)) == new
    for key in COMMON:
        assert new[key] == old[key]
        assert new[key]


def test_the_level_is_what_was_decided_and_not_what_the_card_asks() -> None:
    card = CARDS[1]
    assert sandbox_params(card, standing(card, minimum=1)) == {
        "sandboxLevel": 1,
        "isolation": "an OS sandbox",
        "askedLevel": 0,
        "decidedBy": "levels.minimum",
        "reason": "raised from 0 to 1: the least that the policy permits",
        "network": {"mode": "gate", "hosts": ["a.example"]},
        "credentials": ["gh"],
        "gpu": True,
    }
    (extension,) = a2a_card(card, standing(card), "")["capabilities"]["extensions"]
    assert (extension["uri"], extension["required"]) == (EXTENSION, False)
    assert extension["params"]["sandboxLevel"] == 0
    refused = sandbox_params(card, standing(card, agents=(("a", REFUSE),)))
    assert (refused["sandboxLevel"], refused["isolation"]) == (None, "refused")


@each(
    ("request_", "identity"),
    [({"id": 7}, 7), ({"id": "x"}, "x"), ({"id": None}, None), ({"id": {}}, None), ({"id": True}, None), ([], None)],
)
def test_an_error_is_an_answer_to_any_request(request_: Any, identity: Any) -> None:
    answer = rpc_error(request_, -32004, "no")
    assert (answer["jsonrpc"], answer["id"], answer["error"]["code"]) == ("2.0", identity, -32004)


def test_messages_and_tasks_are_forwarded() -> None:
    for method in ("SendMessage", "SendStreamingMessage", "GetTask", "message/send", "message/stream", "tasks/get"):
        assert is_forwarded({"method": method}), method
    wrong: list[Any] = ["CreateTaskPushNotificationConfig", "tasks/pushNotificationConfig/set", "tasks/", "x", 1, None]
    for method_ in wrong:
        assert not is_forwarded({"method": method_}), method_
    assert not is_forwarded([]) and not is_forwarded({})


@pytest.mark.parametrize("identity", ["\ud800", "a\udfffb"])
def test_an_id_that_cannot_be_said_back_is_none(identity: str) -> None:
    assert rpc_error({"id": identity}, 1, "")["id"] is None
    assert rpc_error({"id": "\u00fc\U0001f600"}, 1, "")["id"] == "\u00fc\U0001f600"


def test_every_agent_has_a_path_of_its_own() -> None:
    agents = ["a", "a/b", "a%2Fb", "a:b", "a@b", "A"]
    paths = paths_of([agent for agent in agents if "%" not in agent])
    assert paths["a/b"] == "/agents/a%2Fb"
    assert len(set(paths.values())) == len(paths)
