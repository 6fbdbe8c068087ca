"""The ports that a card asks for between forks (``needsForks``): a wish, which grants nothing."""

from __future__ import annotations

from mudroom.core.agent.card import AgentCard
from mudroom.core.network.fork_rule import ForkRule, matches_label, parse_forks
from mudroom.core.settings import Settings
from mudroom.ext.agents.core.fork_consent import ConsentSide, shown_by
from mudroom.ext.agents.links.fork_grants import side_of
from mudroom.vault.store.fork import Fork


def missing_consents(fork: Fork, settings: Settings, card: AgentCard) -> list[str]:
    """Return a note, with the command that helps, for each port that is not granted. A port of another fork needs that
    fork's consent as well, which is not looked at here: it may not exist yet."""
    side = side_of(fork)
    notes = []
    for kind, text in card.needs.forks:
        (rule,) = parse_forks([text], kind)
        if not _is_granted(rule, side, settings):
            command = f"mudroom net {kind} {rule if kind == 'reach' else rule.port} --fork {fork.name}"
            help_ = f"network.forks: {kind}: {rule}" if rule.fork.endswith("*") and kind == "reach" else command
            notes.append(f"{card.agent} asks to {kind} {rule}, which is not granted ({help_})")
    return notes


def _is_granted(rule: ForkRule, side: ConsentSide, settings: Settings) -> bool:
    if rule.side == "show":
        return shown_by(settings.fork_rules, side, rule.port) is not None
    granted = any((reached.fork.label, reached.port) == (rule.fork, rule.port) for reached in side.grants.reaches)
    linked = any(
        link.source in ("*", side.fork.label) and link.target == rule.fork and (link.port or 80) == rule.port
        for link in settings.agent_links
    )
    given = any(
        other.side == "reach" and other.port == rule.port and matches_label(other.fork, rule.fork)
        for other in settings.fork_rules
    )
    return granted or linked or given
