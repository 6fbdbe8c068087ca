"""An agent card: the requirements that an agent states. The decisions are made elsewhere
(``core/agent/level_decision.py``).

A card is a JSON object. docs/card.schema.json describes the same keys as ``_FIELDS`` here; a test compares the two. The
agent's author writes the card: no key of it grants anything by itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from mudroom.core.agent.artifact import PATTERN_LIMIT, pattern_error
from mudroom.core.agent.credential_stores import STORES, store_of_agent
from mudroom.core.agent.sandbox_level import LEVELS
from mudroom.core.confinement.image import name_error
from mudroom.core.confinement.spec import Bind
from mudroom.core.network.host_rules import parse_rule
from mudroom.core.tree.path import show

_AGENT = re.compile(r"[A-Za-z0-9_.:@/-]{1,128}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_BRANCH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*")
_LONGEST = {"name": 128, "description": 4096, "version": 64, "gitBranch": 128}
"""Characters."""
_MOST = 64
"""Patterns and variables in one card, at most."""


class CardError(ValueError):
    """An invalid card: a one-line message with the problem, and a hint with the correct form."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message, self.hint = message, hint


class Requirements(NamedTuple):
    oauth: bool | tuple[str, ...] = False
    """Credential stores by name (``core/agent/credential_stores.py``) or as ``~/PATH``; True: the store with the
    agent's name."""
    keychain: bool | tuple[str, ...] = False
    """As ``oauth``; True: the desktop's keyring."""
    network: bool | tuple[str, ...] | None = None
    """Host rules (``core/network/host_rules.py``, ``parse_rule``); True: any host; False: the agent needs no network,
    and gets none; None: the card does not say."""
    gpu: bool = False


class AgentCard(NamedTuple):
    agent: str
    level: int | None = None
    """None: the card does not say."""
    needs: Requirements = Requirements()
    name: str = ""
    """Shown to people, like the next two."""
    description: str = ""
    version: str = ""
    artifacts: tuple[str, ...] = ()
    """Patterns (``core/agent/artifact.py``) of files that are collected after the agent has ended."""
    branch: bool | str = False
    """Whether its commits are wanted as a branch of the real repository, or the branch's name."""
    environment: tuple[str, ...] = ()
    """Names of variables that the agent uses."""
    image: str = ""
    """Container image at level 2; empty: the card does not say."""
    digest: str = ""
    """SHA-256 of the card file, hexadecimal."""


class CredentialRequest(NamedTuple):
    """The user's credentials that a card names."""

    stores: tuple[str, ...] = ()
    paths: tuple[bytes, ...] = ()
    """Relative to the home, without ``~/``."""
    gpu: bool = False
    notes: tuple[str, ...] = ()


class OpenedCredentials(NamedTuple):
    """The named stores as found on a host."""

    stores: tuple[str, ...] = ()
    """Open stores, as a card names them."""
    live: tuple[Bind, ...] = ()
    named: tuple[bytes, ...] = ()
    """Their paths, and the targets of symlinks in the home."""
    variables: tuple[bytes, ...] = ()
    abstract: bool = False
    notes: tuple[str, ...] = ()


def requested_credentials(card: AgentCard) -> CredentialRequest:
    """Return exactly the credentials that the card names, and the display with OAuth, since a browser logs in."""
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
    return CredentialRequest(tuple(name for name in names if name in STORES), paths, needs.gpu, tuple(notes))


def parse_card(value: object) -> AgentCard:
    """Return the card of a parsed JSON value. Raise CardError if it is invalid."""
    fields = _object(value, "the card", _FIELDS)
    if "agentId" not in fields:
        raise CardError("agentId is missing", 'add the name of the agent: "agentId": "claude-code"')
    return AgentCard(**{name: fields[key] for key, (name, _convert) in _FIELDS.items() if key in fields})


def _object(
    value: object, where: str, convertors: Mapping[str, tuple[str, Callable[[Any, str], Any]]]
) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise CardError(f"{where} is {_kind(value)}, not an object")
    fields = {}
    for key, content in value.items():
        if key not in convertors:
            raise CardError(
                f"{where} has an unknown key {key!r}", _nearest(key, convertors) or "known: " + ", ".join(convertors)
            )
        fields[key] = convertors[key][1](content, key)
    return fields


def _nearest(word: str, choices: Iterable[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(word, choices, 1, 0.5)
    return f"did you mean {near[0]}?" if near else ""


_KINDS = {bool: "true or false", int: "a number", float: "a number", str: "a text", list: "a list", dict: "an object"}


def _kind(value: object) -> str:
    return "null" if value is None else _KINDS.get(type(value), "something else")


def _agent(value: Any, where: str) -> str:
    if not isinstance(value, str) or _AGENT.fullmatch(value) is None:
        raise CardError(f"{where} must be a name: letters, digits and - _ . : @ /, at most 128 of them")
    return value


def _level(value: Any, where: str) -> int:
    if isinstance(value, bool) or value not in LEVELS or not isinstance(value, int):
        raise CardError(f"{where} is {value!r}", "0: staged view only; 1: OS sandbox; 2: container")
    return value


def _flag(value: Any, where: str) -> bool:
    if not isinstance(value, bool):
        raise CardError(f"{where} is {_kind(value)}", "true or false")
    return value


def _bool_or_texts(value: Any, where: str, items: str) -> bool | tuple[str, ...]:
    if isinstance(value, bool):
        return value
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise CardError(f"{where} is {_kind(value)}", f"true, false, or a list of {items}")
    return tuple(value)


def _stores(value: Any, where: str) -> bool | tuple[str, ...]:
    names = _bool_or_texts(value, where, "credential stores and ~/ paths")
    for name in names if isinstance(names, tuple) else ():
        if name.startswith("~"):
            _path(name, where)
        elif name not in STORES:
            hint = "known: " + ", ".join(STORES) + "; or a path: ~/.config/tool"
            raise CardError(f"{where}: there is no credential store {name!r}", _nearest(name, STORES) or hint)
    return names


def _path(name: str, where: str) -> None:
    parts = name.split("/")
    if parts[0] != "~" or len(parts) < 2 or not all(parts) or {".", ".."} & set(parts) or "\0" in name:
        raise CardError(f"{where}: {name!r} is not a path in the home", "write it as ~/.config/tool")
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise CardError(f"{where}: {name!r} holds an unpaired surrogate") from error


def _hosts(value: Any, where: str) -> bool | tuple[str, ...]:
    hosts = _bool_or_texts(value, where, "host names")
    for host in hosts if isinstance(hosts, tuple) else ():
        try:
            parse_rule(host, "allow")
        except ValueError as error:
            raise CardError(f"{where}: {error}", "api.example.com, *.example.com, example.com:443") from error
    return hosts


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise CardError(f"{where} is {_kind(value)}", "a text")
    if len(value) > _LONGEST[where]:
        raise CardError(f"{where} is longer than {_LONGEST[where]:,} characters")
    if not value.replace("\n", " ").isprintable() or (where != "description" and "\n" in value):
        raise CardError(f"{where} holds characters that cannot be shown")
    return value


def _text_list(value: Any, where: str, items: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise CardError(f"{where} is {_kind(value)}", f"a list of {items}")
    if len(value) > _MOST:
        raise CardError(f"{where} has more than {_MOST} entries")
    return tuple(dict.fromkeys(value))


def _patterns(value: Any, where: str) -> tuple[str, ...]:
    patterns = _text_list(value, where, f"patterns of at most {PATTERN_LIMIT} characters: reports/**, *.log")
    for pattern in patterns:
        error = pattern_error(pattern)
        if error:
            raise CardError(f"{where}: {show(pattern.encode('utf-8', 'surrogatepass'))!r} {error}", "reports/**, *.log")
    return patterns


def _variables(value: Any, where: str) -> tuple[str, ...]:
    names = _text_list(value, where, "names of variables")
    for name in names:
        if _VARIABLE.fullmatch(name) is None:
            raise CardError(f"{where}: {name!r} is not the name of a variable", "a name alone: API_KEY")
    return names


def _branch(value: Any, where: str) -> bool | str:
    if isinstance(value, bool):
        return value
    name = _text(value, where)
    if _BRANCH.fullmatch(name) is None or ".." in name or name.endswith((".", ".lock")):
        raise CardError(f"{where}: {name!r} is not the name of a branch", "true, or a name: agent/fixes")
    return name


def _image(value: Any, where: str) -> str:
    error = name_error(value) if isinstance(value, str) else "is not the name of an image"
    if error:
        raise CardError(f"{where} {error}", "as debian:bookworm; host: the host's own toolchain")
    return str(value)


def _requirements(value: Any, where: str) -> Requirements:
    fields = _object(value, where, _REQUIREMENTS)
    return Requirements(**{name: fields[key] for key, (name, _c) in _REQUIREMENTS.items() if key in fields})


_REQUIREMENTS: dict[str, tuple[str, Callable[[Any, str], Any]]] = {
    "needsOAuth": ("oauth", _stores),
    "needsKeychain": ("keychain", _stores),
    "needsNetwork": ("network", _hosts),
    "needsGpuAccess": ("gpu", _flag),
}
_FIELDS: dict[str, tuple[str, Callable[[Any, str], Any]]] = {
    "agentId": ("agent", _agent),
    "sandboxLevel": ("level", _level),
    "sandboxRequirements": ("needs", _requirements),
    "sandboxImage": ("image", _image),
    "name": ("name", _text),
    "description": ("description", _text),
    "version": ("version", _text),
    "artifacts": ("artifacts", _patterns),
    "gitBranch": ("branch", _branch),
    "environment": ("environment", _variables),
}
