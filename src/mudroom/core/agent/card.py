"""An agent card: the requirements that an agent states. The decisions are made elsewhere
(``core/agent/level_decision.py``).

A card is a JSON object. docs/card.schema.json describes the same keys as ``_FIELDS`` here; a test compares the two. The
agent's author writes the card: no key of it grants anything by itself.
"""

from __future__ import annotations

from mudroom.core.agent.agent_store import AgentStore, StagedStore
from mudroom.core.agent.artifact import PATTERN_LIMIT, pattern_error
from mudroom.core.agent.credential_stores import STORES, store_of_agent
from mudroom.core.agent.endpoint import EndpointAddress, endpoint_field
from mudroom.core.agent.field import (
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
from mudroom.core.agent.sandbox_level import LEVELS
from mudroom.core.confinement.container import name_error
from mudroom.core.confinement.spec import Bind
from mudroom.core.text.regex import regex
from mudroom.core.tree.path import show
from mudroom.typing import Any, NamedTuple

_AGENT = regex(r"[A-Za-z0-9_.:@/-]{1,128}")
_BRANCH = regex(r"[A-Za-z0-9_][A-Za-z0-9_.-]*(/[A-Za-z0-9_][A-Za-z0-9_.-]*)*")
_LONGEST = {"name": 128, "description": 4096, "version": 64, "gitBranch": 128}
"""Characters."""


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
    forks: tuple[tuple[str, str], ...] = ()
    """Ports that it would show to other forks, or reach in them, as pairs of the side and the rule
    (``core/network/fork_consent.py``)."""


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
    """SHA-256 of the card file, hexadecimal; ``profile:NAME`` for a card that was made of a profile."""
    endpoint: EndpointAddress | None = None
    """Where its server for other agents listens, inside."""
    store: AgentStore | None = None
    """The agent's own store, if its profile names one; no key of a card."""


class CredentialRequest(NamedTuple):
    """The user's credentials that a card names."""

    stores: tuple[str, ...] = ()
    paths: tuple[bytes, ...] = ()
    """Relative to the home, without ``~/``."""
    gpu: bool = False
    agents: tuple[AgentStore, ...] = ()
    """Stores of agents: only their logins are opened."""
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
    staged: tuple[StagedStore, ...] = ()
    """Stores of agents: what is copied into the fork."""
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
    return CredentialRequest(tuple(name for name in names if name in STORES), paths, needs.gpu, notes=tuple(notes))


def parse_card(value: object) -> AgentCard:
    """Return the card of a parsed JSON value. Raise FieldError if it is invalid."""
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
    from mudroom.core.network.fork_consent import FORMS, SIDES, parse_forks

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
    "endpoint": ("endpoint", endpoint_field),
}
