"""The keys in an agent's card, and the credentials that a card names. Pure.

A card is a JSON object. docs/card.schema.json describes the same keys as ``_FIELDS`` here; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping

from mudroom.core.agent.card import AgentCard, AgentStore, Requirements
from mudroom.core.agent.endpoint import EndpointAddress
from mudroom.core.agent.sandbox_level import LEVELS
from mudroom.core.confinement.container import name_error
from mudroom.core.network.fork_rule import FORMS, SIDES, parse_forks
from mudroom.core.network.loopback import OWN_PORTS
from mudroom.core.text.regex import regex
from mudroom.core.tree.credential_stores import STORES
from mudroom.core.tree.path import show
from mudroom.ext.agents.core.artifact import PATTERN_LIMIT, pattern_error
from mudroom.ext.agents.core.field import (
    MOST_ENTRIES,
    FieldError,
    FieldTable,
    bool_or_texts,
    flag,
    home_path,
    hosts,
    nearest,
    read_fields,
    text,
    text_list,
    variables,
)
from mudroom.typing import Any, NamedTuple

_AGENT = regex(r"[A-Za-z0-9_.:@/-]{1,128}")
_BRANCH = regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*")
_LONGEST = {"name": 128, "description": 4096, "version": 64, "gitBranch": 128}
"""Characters."""
_URL = regex(r"http://(?:localhost|127\.0\.0\.1|\[::1\]):(?P<port>[1-9][0-9]{0,4})(?P<path>/[!-~]{0,256})?")


class CredentialRequest(NamedTuple):
    """The user's credentials that a card names."""

    stores: tuple[str, ...] = ()
    paths: tuple[bytes, ...] = ()
    """Relative to the home, without ``~/``."""
    gpu: bool = False
    agents: tuple[AgentStore, ...] = ()
    """Agents' stores: only their logins are opened."""
    notes: tuple[str, ...] = ()


_ALIASES: Mapping[str, str] = {"claude-code": "claude", "github-cli": "gh", "gemini-cli": "gemini"}


def store_of_agent(agent: str) -> str | None:
    """Return the store with the agent's own name, which ``needsOAuth: true`` means; None if there is none."""
    name = _ALIASES.get(agent, agent)
    return name if name in STORES else None


def requested_credentials(card: AgentCard) -> CredentialRequest:
    """Return exactly the credentials that the card names. OAuth adds the display, since a browser logs in."""
    names: list[str] = []
    notes: list[str] = []
    needs = card.needs
    if needs.oauth is True:
        own = store_of_agent(card.agent)
        if own is None:
            notes.append(
                f"needsOAuth of {card.agent} does not say which credentials: none are open; list the stores there"
            )
        names += [own] if own is not None else []
    names += needs.oauth if isinstance(needs.oauth, tuple) else ()
    names += needs.keychain if isinstance(needs.keychain, tuple) else ("keychain",) if needs.keychain else ()
    names += ("display",) if needs.oauth else ()
    names = list(dict.fromkeys(names))
    paths = tuple(name[2:].encode() for name in names if name.startswith("~/"))
    return CredentialRequest(tuple(name for name in names if name in STORES), paths, needs.gpu, notes=tuple(notes))


def parse_card(value: object) -> AgentCard:
    """Return the card in a parsed JSON value. Raise FieldError if it is invalid."""
    fields = read_fields(value, "the card", _FIELDS)
    if "agent" not in fields:
        raise FieldError("agentId is missing", 'add the name of the agent: "agentId": "claude-code"')
    return AgentCard(**fields)


def _agent(value: Any, where: str) -> str:
    if not isinstance(value, str) or _AGENT.fullmatch(value) is None:
        raise FieldError(f"{where} must be a name: letters, digits and - _ . : @ /, at most 128 of them")
    return value


def _level(value: Any, where: str) -> int:
    if isinstance(value, bool) or value not in LEVELS or not isinstance(value, int):
        raise FieldError(f"{where} is {value!r}", "0: staged view only; 1: OS sandbox; 2: container")
    return value


def _stores(value: Any, where: str) -> bool | tuple[str, ...]:
    names = bool_or_texts(value, where, "credential stores and ~/ paths")
    for name in names if isinstance(names, tuple) else ():
        if name.startswith("~"):
            home_path(name, where)
        elif name not in STORES:
            hint = "known: " + ", ".join(STORES) + "; or a path: ~/.config/tool"
            raise FieldError(f"{where}: there is no credential store {name!r}", nearest(name, STORES) or hint)
    return names


def _text(value: Any, where: str) -> str:
    return text(value, where, _LONGEST[where], lines=where == "description")


def _patterns(value: Any, where: str) -> tuple[str, ...]:
    patterns = text_list(value, where, f"patterns of at most {PATTERN_LIMIT} characters: reports/**, *.log")
    for pattern in patterns:
        error = pattern_error(pattern)
        if error:
            raise FieldError(
                f"{where}: {show(pattern.encode('utf-8', 'surrogatepass'))!r} {error}", "reports/**, *.log"
            )
    return patterns


def _branch(value: Any, where: str) -> bool | str:
    if isinstance(value, bool):
        return value
    name = _text(value, where)
    if _BRANCH.fullmatch(name) is None or ".." in name or name.endswith((".", ".lock")):
        raise FieldError(f"{where}: {name!r} is not the name of a branch", "true, or a name: agent/fixes")
    return name


def _image(value: Any, where: str) -> str:
    error = name_error(value) if isinstance(value, str) else "is not the name of an image"
    if error:
        raise FieldError(f"{where} {error}", "as debian:bookworm; host: the host's own toolchain")
    return str(value)


def _forks(value: Any, where: str) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, dict) or not set(value) <= set(SIDES):
        raise FieldError(f"{where} must have show and reach", '{"show": [8000], "reach": ["reviewer:8000"]}')
    asked = []
    for side, rules in value.items():
        try:
            asked += [(side, str(rule)) for rule in parse_forks(rules, side)]
        except ValueError as error:
            raise FieldError(f"{where}.{side}: {error}", FORMS[side]) from error
    if len(asked) > MOST_ENTRIES:
        raise FieldError(f"{where} has more than {MOST_ENTRIES} entries")
    return tuple(asked)


def _endpoint(value: Any, where: str) -> EndpointAddress:
    """Return a loopback URL's port and path. Raise FieldError if it is not one."""
    found = _URL.fullmatch(text(value, where, 300))
    if found is None or int(found["port"]) > 65535:
        raise FieldError(f"{where}: {value!r} is not a URL of the agent's own loopback", "http://localhost:8080/a2a")
    if int(found["port"]) in OWN_PORTS:
        raise FieldError(f"{where}: port {found['port']} inside is the gate's own", "http://localhost:8080/a2a")
    return EndpointAddress(int(found["port"]), found["path"] or "/")


def _requirements(value: Any, where: str) -> Requirements:
    return Requirements(**read_fields(value, where, _REQUIREMENTS))


_REQUIREMENTS: FieldTable = {
    "needsOAuth": ("oauth", _stores),
    "needsKeychain": ("keychain", _stores),
    "needsNetwork": ("network", hosts),
    "needsGpuAccess": ("gpu", flag),
    "needsForks": ("forks", _forks),
}
_FIELDS: FieldTable = {
    "agentId": ("agent", _agent),
    "sandboxLevel": ("level", _level),
    "sandboxRequirements": ("needs", _requirements),
    "sandboxImage": ("image", _image),
    "name": ("name", _text),
    "description": ("description", _text),
    "version": ("version", _text),
    "artifacts": ("artifacts", _patterns),
    "gitBranch": ("branch", _branch),
    "environment": ("environment", variables),
    "endpoint": ("endpoint", _endpoint),
}
