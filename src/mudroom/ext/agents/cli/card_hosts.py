"""The hosts that an agent card names, and the decision about them.

The agent's author writes the card. Its hosts are asked about once, before the agent starts. Where no user can be asked
they are refused, except for agents whose cards the policy trusts (``network.cards``), and for runs with
``--allow-card-network``. A host that the policy denies always stays denied.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mudroom.cli.project_session import project_of
from mudroom.cli.terminal.asking import settle
from mudroom.cli.terminal.context import Context
from mudroom.core.agent.card import AgentCard
from mudroom.core.network.host_rules import HostRule, show_rule
from mudroom.core.settings import Settings
from mudroom.ext.agents.card import held_if_possible, with_card_network
from mudroom.ext.agents.core.card_hosts import sort_hosts
from mudroom.session.project_session import host_answers
from mudroom.typing import NamedTuple

_CHOICES = "[a]llow for this run  [A]lways for this project  [n]o: "
_ASKED = 3
"""Times that a question is asked before an invalid answer counts as no."""


class CardHosts(NamedTuple):
    """The host rules and notes for one run."""

    rules: tuple[HostRule, ...] = ()
    notes: tuple[str, ...] = ()


def decide_card_hosts(
    card: AgentCard, settings: Settings, level: int, context: Context, *, allow: bool = False
) -> CardHosts:
    """Decide about the card's hosts, asking if necessary. ``allow``: --allow-card-network was given. Raise
    KeyboardInterrupt if the user interrupts a question."""
    if not isinstance(card.needs.network, tuple) or not card.needs.network or settings.network_at(level) != "gate":
        return CardHosts()
    rules, remember, *_more = host_answers(project_of(context), context.environ)
    wish_result = sort_hosts(card.agent, card.needs.network, rules())
    notes = (
        [f"{card.agent} asks for {_names(wish_result.denied)}, which the policy denies"] if wish_result.denied else []
    )
    if not wish_result.open:
        return CardHosts((), tuple(notes))
    trusted = card.agent in settings.network_cards
    opened = held_if_possible(wish_result.open) if level else wish_result.open
    if allow or trusted:
        why = "--allow-card-network" if allow else "network.cards in the policy"
        return CardHosts(opened, (*notes, f"allowed for this run, by {why}: {_names(opened)}"))
    if context.as_json or not context.terminal.interactive:
        hint = f"--allow-card-network allows it, or: mudroom net allow {_words(wish_result.open)}"
        return CardHosts((), (*notes, f"{card.agent} asks for {_names(opened)}: refused, nobody can be asked ({hint})"))
    return _ask_about_open(card, opened, remember, context, notes)


def _ask_about_open(
    card: AgentCard,
    opened: Sequence[HostRule],
    remember: Callable[[HostRule], None],
    context: Context,
    notes: list[str],
) -> CardHosts:
    answer = _ask(f"{card.agent} asks for: {_names(opened)}", context)
    if answer == "A":
        for rule in opened:
            remember(rule)
    if answer in ("a", "A"):
        return CardHosts(tuple(opened), tuple(notes))
    denied = tuple(HostRule("deny", rule.pattern, rule.ports, source=rule.source) for rule in opened)
    return CardHosts(denied, (*notes, f"refused to {card.agent} for this run: {_names(opened)}"))


def _ask(question: str, context: Context) -> str:
    terminal = context.terminal
    for _time in range(_ASKED):
        terminal.say(terminal.style(question, "bold"))
        if not settle(0, ()):
            return "n"
        reply = terminal.ask(_CHOICES)
        if not reply:
            terminal.say()
            return "n"
        if reply.strip() in ("a", "A", "n", "N"):
            return reply.strip()
    return "n"


def _words(rules: Sequence[HostRule]) -> str:
    """Return the hosts as a shell reads them."""
    import shlex

    return shlex.join(map(show_rule, rules))


def _names(rules: Sequence[HostRule]) -> str:
    names = ["every host (*)" if rule.pattern == "*" else show_rule(rule) for rule in rules if not rule.hold]
    holds = ", ".join(show_rule(rule) for rule in rules if rule.hold)
    return ", ".join((*names, *([f"{holds} (pushes and publishes wait for the apply)"] if holds else [])))


def network_lines(card: AgentCard, settings: Settings, level: int, context: Context) -> list[str]:
    """Return the network lines for ``agent check``."""
    needs = card.needs.network
    mode = with_card_network(card, settings, None).network_at(level)
    if mode == "none":
        return ["network      none: " + ("the card needs none" if needs is False else "network.mode of the policy")]
    if mode == "open" or level == 0:
        return ["network      the host's, unfiltered"]
    if not isinstance(needs, tuple) or not needs:
        return (
            ["network      the gate: what the rules of the policy allow, and what you say when asked"] if needs else []
        )
    wish_result = sort_hosts(card.agent, needs, host_answers(project_of(context), context.environ).rules())
    trusted = card.agent in settings.network_cards
    rows = (
        (wish_result.allowed, "allowed by the rules there are"),
        (wish_result.denied, "denied by the policy"),
        (wish_result.asked, "asked about when it comes to that"),
        (
            held_if_possible(wish_result.open),
            "allowed by network.cards of the policy" if trusted else "you are asked before the agent starts",
        ),
    )
    lines = [f"{_names(rules)}: {text}" for rules, text in rows if rules]
    return [("network      " if index == 0 else "             ") + line for index, line in enumerate(lines)]
