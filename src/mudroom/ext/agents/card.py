"""Read an agent's card, and compare it with this machine and its policy."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence

from mudroom.core.agent.card import AgentCard, AgentStore, OpenedCredentials
from mudroom.core.agent.level_decision import LevelDecision
from mudroom.core.network.host_rules import HostRule
from mudroom.core.settings import Settings
from mudroom.core.tree.credential_stores import AGENTS
from mudroom.core.tree.path import show
from mudroom.errors import UsageError
from mudroom.ext.agents.catalog import Catalog, read_file
from mudroom.ext.agents.core.card_fields import CredentialRequest, parse_card, requested_credentials
from mudroom.ext.agents.core.card_hosts import sort_hosts, with_holds
from mudroom.ext.agents.core.field import FieldError
from mudroom.ext.agents.session.credential_opening import open_stores
from mudroom.policy.config import load_policy
from mudroom.session.confinement.command_gate import can_inspect
from mudroom.session.confinement.grant import decide, in_the_way
from mudroom.session.project_session import host_answers
from mudroom.typing import Any

CARD_LIMIT = 1 << 20
"""Bytes."""


def load_card(path: bytes) -> AgentCard:
    """Return an agent's card. Raise UsageError with one line that names the file."""
    from hashlib import sha256

    name = show(path)

    def parse(data: bytes) -> AgentCard:
        try:
            card = parse_card(json.loads(data.decode(), object_pairs_hook=_once))
            return card._replace(digest=sha256(data).hexdigest())
        except UnicodeDecodeError as error:
            from mudroom.policy.yaml import line_at

            raise UsageError(f"{name}:{line_at(data, error.start)}: this is not UTF-8") from error
        except json.JSONDecodeError as error:
            raise UsageError(f"{name}:{error.lineno}: this is not JSON: {error.msg}") from error

    return read_file(path, "card", CARD_LIMIT, parse)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Reject duplicate keys: JSON parsers use the last, a human reader may see the first."""
    values = dict(pairs)
    if len(values) < len(pairs):
        keys = [key for key, _value in pairs]
        duplicate = next(key for key in keys if keys.count(key) > 1)
        raise FieldError(f"{duplicate!r} is given twice")
    return values


# --- what the agent gets ---


def with_card_network(card: AgentCard, settings: Settings, mode: str | None) -> Settings:
    """Return the settings, without network if the card needs none and the user has given no ``mode``."""
    return settings._replace(network="none") if card.needs.network is False and mode is None else settings


def trusted_hosts(card: AgentCard, project: bytes, environ: Mapping[bytes, bytes]) -> tuple[HostRule, ...]:
    """Return a card's hosts that no rule covers, if the policy trusts its agent to name them without asking the
    user."""
    trusted = load_policy(project, environ).settings.network_cards
    if not isinstance(card.needs.network, tuple) or card.agent not in trusted:
        return ()
    return held_if_possible(sort_hosts(card.agent, card.needs.network, host_answers(project, environ).rules()).open)


def held_if_possible(rules: Sequence[HostRule]) -> tuple[HostRule, ...]:
    """Return a card's hosts ``with_holds``, or as they are where nothing can be held."""
    return with_holds(rules) if can_inspect() else tuple(rules)


def opened_by(card: AgentCard, home: bytes, environ: Mapping[bytes, bytes]) -> OpenedCredentials:
    """Return the credentials that a card names, as found on this machine."""
    request = requested_credentials(card)
    if sys.platform == "win32":
        return _unopened(card, request)
    named = [name for name in request.stores if name in AGENTS]
    if named or card.store is not None:
        others = tuple(name for name in request.stores if name not in AGENTS)
        request = request._replace(stores=others, agents=_agent_stores(named, card.store))
    return open_stores(request, home, environ)


def _unopened(card: AgentCard, request: CredentialRequest) -> OpenedCredentials:
    """Return no credentials, with a note that names those requested. To open them, the access lists of the user's own
    files would have to name the sandbox, and would keep that entry if mudroom was killed."""
    own = (card.store.name,) if card.store is not None else ()
    asked = dict.fromkeys((*request.stores, *(f"~/{show(path)}" for path in request.paths), *own))
    told = f"not opened on Windows: {', '.join(asked)} (--env NAME passes the variable of a key)"
    return OpenedCredentials(notes=(*request.notes, *((told,) if asked else ())))


def _agent_stores(names: Iterable[str], own: AgentStore | None) -> tuple[AgentStore, ...]:
    """Return the agents' stores by name, as in mudroom's own profiles, and the agent's own as given."""
    profiles = [Catalog().of_store(name) for name in names if own is None or name != own.name]
    stores = [profile.agent_store for profile in profiles if profile is not None]
    return tuple(stores) if own is None else (own, *stores)


def promised(
    settings: Settings, card: AgentCard, project: bytes, state: bytes, home: bytes, environ: Mapping[bytes, bytes]
) -> tuple[LevelDecision, OpenedCredentials]:
    """Return the level decision and the credentials that a card would get here, without running it."""
    decision, opened = decide(settings, card, None, environ), opened_by(card, home, environ)
    reason = in_the_way(opened.live, (project,), state)
    if reason and decision.level is not None:
        decision = LevelDecision(None, decision.asked, "sandboxRequirements", reason)
    return decision, opened
