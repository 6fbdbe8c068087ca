"""An agent's card for other agents (A2A), by a project's policy: for ``agent card`` and ``serve``."""

from __future__ import annotations

from collections.abc import Callable

from mudroom.cli.project_session import project_of
from mudroom.cli.terminal.context import Context
from mudroom.core.agent.card import AgentCard
from mudroom.core.network.host_rules import show_rule
from mudroom.ext.agents.card import promised, with_card_network
from mudroom.ext.agents.core.a2a import AgentStatus, a2a_card, a2a_card_old
from mudroom.ext.agents.core.card_hosts import sort_hosts
from mudroom.policy.config import load_policy, places
from mudroom.session.project_session import host_answers
from mudroom.stage import disk
from mudroom.typing import Any


def card_of(card: AgentCard, context: Context, *, old: bool = False) -> Callable[[str], dict[str, Any]]:
    """Return the function that makes an agent's A2A card, by the policy at the time of its call."""
    make = a2a_card_old if old else a2a_card
    return lambda url: make(card, agent_status(card, context), url)


def agent_status(card: AgentCard, context: Context) -> AgentStatus:
    """Return the decision about an agent here. Raise MudroomError if the policy cannot be read."""
    project = project_of(context)
    settings = load_policy(project, context.environ).settings
    place = places(context.environ)
    decision, opened = promised(settings, card, project, disk.real_path(place.state), place.home, context.environ)
    if decision.level is None:
        return AgentStatus(decision, "none")
    mode = with_card_network(card, settings, None).network_at(decision.level)
    hosts: tuple[str, ...] = ()
    if isinstance(card.needs.network, tuple):
        card_hosts = sort_hosts(card.agent, card.needs.network, host_answers(project, context.environ).rules())
        trusted = card_hosts.open if card.agent in settings.network_cards else ()
        hosts = tuple(show_rule(rule) for rule in (*card_hosts.allowed, *trusted))
    return AgentStatus(decision, mode, hosts, opened.stores)
