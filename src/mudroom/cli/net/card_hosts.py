"""The hosts that a card names: who lets the agent reach them.

A card is written by the agent's author. What it names is asked about once, before the agent starts; where nobody can be
asked it is refused, but for agents whose word the policy takes (``network.cards``) and runs for which the user has said
so (``--allow-card-network``). What the policy denies stays denied, whoever says what.
"""

from __future__ import annotations

import termios
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from mudroom.cli.project_session import project_of, standing
from mudroom.cli.terminal.context import Context
from mudroom.core.agent.card import AgentCard
from mudroom.core.agent.card_hosts import CardHostRule, wish
from mudroom.core.network.host_rules import HostRule, show_rule
from mudroom.core.settings import Settings
from mudroom.policy.config import load_policy

if TYPE_CHECKING:
    from collections.abc import Callable

_CHOICES = "[a]llow for this run  [A]lways for this project  [n]o: "
_ASKED = 3
"""Times that a question is asked whose answer is none."""


class CardHosts(NamedTuple):
    """What holds for one run."""

    rules: tuple[HostRule, ...] = ()
    notes: tuple[str, ...] = ()


def by_card(card: AgentCard, settings: Settings, given: str | None) -> Settings:
    """A card that needs no network gets none, unless the user has said otherwise (``given``)."""
    return settings._replace(network="none") if card.needs.network is False and given is None else settings


def settle(card: AgentCard, settings: Settings, level: int, context: Context, *, allow: bool = False) -> CardHosts:
    """Ask, if it has to be. ``allow``: the user has said yes on the command line. Raises KeyboardInterrupt."""
    if not isinstance(card.needs.network, tuple) or not card.needs.network or settings.network_at(level) != "gate":
        return CardHosts()
    rules, remember = standing(project_of(context), context)
    found = wish(card.agent, card.needs.network, rules())
    notes = [f"{card.agent} asks for {_names(found.denied)}, which the policy denies"] if found.denied else []
    if not found.open:
        return CardHosts((), tuple(notes))
    trusted = card.agent in settings.network_cards
    if allow or trusted:
        why = "--allow-card-network" if allow else "network.cards in the policy"
        return CardHosts(found.open, (*notes, f"allowed for this run, by {why}: {_names(found.open)}"))
    if context.as_json or not context.terminal.interactive:
        hint = "--allow-card-network allows it, or mudroom net allow"
        return CardHosts(
            (), (*notes, f"{card.agent} asks for {_names(found.open)}: refused, nobody can be asked ({hint})")
        )
    return _answered(card, found, remember, context, notes)


def at_its_word(card: AgentCard, context: Context) -> tuple[HostRule, ...]:
    """The hosts of a card whose agent the policy trusts to name them; nobody is asked."""
    project = project_of(context)
    trusted = load_policy(project, context.environ).settings.network_cards
    if not isinstance(card.needs.network, tuple) or card.agent not in trusted:
        return ()
    return wish(card.agent, card.needs.network, standing(project, context)[0]()).open


def _answered(
    card: AgentCard, found: CardHostRule, remember: Callable[[HostRule], None], context: Context, notes: list[str]
) -> CardHosts:
    answer = _ask(f"{card.agent} asks for: {_names(found.open)}", context)
    if answer == "A":
        for rule in found.open:
            remember(rule)
    if answer in ("a", "A"):
        return CardHosts(found.open, tuple(notes))
    denied = tuple(rule._replace(action="deny") for rule in found.open)
    return CardHosts(denied, (*notes, f"refused to {card.agent} for this run: {_names(found.open)}"))


def _ask(question: str, context: Context) -> str:
    terminal = context.terminal
    for _time in range(_ASKED):
        try:
            termios.tcflush(0, termios.TCIFLUSH)  # what was typed before the question is no answer to it
        except termios.error:
            return "n"
        reply = terminal.ask(terminal.style(question, "bold") + f"  {_CHOICES}")
        if not reply:
            terminal.say()
            return "n"
        if reply.strip() in ("a", "A", "n", "N"):
            return reply.strip()
    return "n"


def _names(rules: Sequence[HostRule]) -> str:
    return ", ".join("every host (*)" if rule.pattern == "*" else show_rule(rule) for rule in rules)


def network_lines(card: AgentCard, settings: Settings, level: int, context: Context) -> list[str]:
    """For ``agent check``."""
    needs = card.needs.network
    mode = by_card(card, settings, None).network_at(level)
    if mode == "none":
        return ["network      none: " + ("the card needs none" if needs is False else "network.mode of the policy")]
    if mode == "open" or level == 0:
        return ["network      the host's, unfiltered"]
    if not isinstance(needs, tuple) or not needs:
        return (
            ["network      the gate: what the rules of the policy allow, and what you say when asked"] if needs else []
        )
    found = wish(card.agent, needs, standing(project_of(context), context)[0]())
    trusted = card.agent in settings.network_cards
    rows = (
        (found.allowed, "allowed by the rules there are"),
        (found.denied, "denied by the policy"),
        (found.asked, "asked about when it comes to that"),
        (found.open, "allowed by network.cards of the policy" if trusted else "you are asked before the agent starts"),
    )
    lines = [f"{_names(rules)}: {text}" for rules, text in rows if rules]
    return [("network      " if number == 0 else "             ") + line for number, line in enumerate(lines)]
