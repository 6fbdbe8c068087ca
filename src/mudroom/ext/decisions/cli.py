"""The queue of decisions as lines of a terminal: ``mudroom`` and ``mudroom ls``."""

from __future__ import annotations

import time

from mudroom.cli.terminal.terminal import cut
from mudroom.core.text.plural import age_words
from mudroom.core.tree.path import show
from mudroom.ext.decisions.queue import Decision, Kind, decisions, whole_forks
from mudroom.typing import NamedTuple
from mudroom.vault.forks.fork_summary import ForkSummaries
from mudroom.vault.store.store import Vault

BESIDE: tuple[Kind, ...] = ("finished", "running", "cut off", "damaged")
"""Kinds that a list of forks tells by itself."""


class QueueLines(NamedTuple):
    lines: list[str]
    forks: frozenset[str]
    """The forks that have a line."""


def queue_lines(vault: Vault, width: int, without: tuple[Kind, ...] = ()) -> QueueLines:
    """Return a line for each decision, the most urgent first, cut at the terminal's width."""
    rows = [row for row in decisions(vault, whole_forks(vault, ForkSummaries())) if row.kind not in without]
    lines = [cut("".join(cells_of(row)), width) for row in rows]
    return QueueLines(lines, frozenset(row.fork for row in rows if not row.question))


def cells_of(row: Decision) -> tuple[str, str]:
    """Return a decision's kind and age, and the rest. A question's name comes first: ``mudroom approve`` takes it."""
    age = age_words((time.time_ns() // 10**6 - row.since) // 1000) if row.since else ""
    name = show(row.fork.encode("utf-8", "surrogateescape"))
    who = f"  of {row.agent}" if row.agent and row.agent != row.fork else ""
    place = f"{row.question}{f'  {name}' if row.fork else ''}" if row.question else name
    words = f"{row.words}{f': {row.problem}' if row.problem else ''}{f'  {row.command}' if row.command else ''}"
    return f"{row.kind:<10}  {age:>6}  ", f"{place}{who}  {words}".rstrip()
