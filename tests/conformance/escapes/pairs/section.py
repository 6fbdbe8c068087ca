"""The section of docs/evidence/ESCAPES.md about pairs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ...document import Section, head, made, rows  # noqa: TID252 - the package has another name inside
from .known import LANDS, NOT_HELD
from .landing import LANDINGS
from .outside import Meeting
from .pair import PAIRS

SECTION = Section("pairs")
NONE = "none"
_CELL = {True: "**met**", False: "·"}


class Column(NamedTuple):
    """What came of everything in one way to confine."""

    meetings: Mapping[str, Meeting]
    landed: Mapping[str, int]
    """By way: how many attempts have changed what landed."""


def lines(columns: Mapping[str, Column], before: str = "") -> Iterator[str]:
    """Yield the section. ``before``: a paragraph about an earlier state."""
    yield from (
        "## Attempts of two",
        "",
        "What `python -m tests.conformance.escapes.pairs` found: two programs in two forks of one project, one in",
        "the background. The first has a secret and descriptors of its files; a pair is *met* if the second prints the",
        "secret, or makes a call about the first that has to be refused. Both know all names, paths and process ids.",
        "Then the second changes what lands, through every descriptor that it was given: between the review and the",
        "apply, again and again while it is applied, and after it. Pairs that only pass a few bits (*signals*) are",
        "counted apart: both read the same files of the system. `run --yes` is a command at level 1 in each column.",
        "",
        f"{made()} *Open store*: the user has opened one directory of",
        "credentials to both commands.",
        "",
    )
    if before:
        yield from (before, "")
    signals = sum(pair.group == "signals" for pair in PAIRS.values())
    ways = list(next(iter(columns.values())).landed)
    yield from head(("level, view", "met", "of", "signals", "of", "changed what landed", "of"))
    for name, column in columns.items():
        met = [pair for pair in PAIRS if column.meetings[pair].evidence]
        bits = sum(PAIRS[pair].group == "signals" for pair in met)
        landed = sum(column.landed.values())
        of = len(LANDINGS) * (len(column.landed) if name != NONE else 1)
        yield f"| {name} | {len(met) - bits} | {len(PAIRS) - signals} | {bits} | {signals} | {landed} | {of} |"
    ours = {name: column for name, column in columns.items() if name != NONE}
    ways = list(dict.fromkeys(way for column in ours.values() for way in column.landed))
    yield from ("", f"Of {len(LANDINGS)} attempts, how many changed what landed:", "")
    yield from head(("way", *ours))
    for way in ways:
        yield f"| {way} | " + " | ".join(str(column.landed[way]) for column in ours.values()) + " |"
    yield ""
    yield from head(("what landed is changed by", "level, view", "why"))
    for reason in dict.fromkeys(LANDS.values()):
        cases = [f"{name}: {way}" for (name, way), why in LANDS.items() if why == reason and name in columns]
        if cases:
            yield f"| {len(cases)} of the above | {'; '.join(cases)} | {reason} |"
    yield ""
    yield from head(("not held", "level, view", "why"))
    for reason in dict.fromkeys(why for known in NOT_HELD.values() for why in known.values()):
        names = [pair for pair in PAIRS if any(NOT_HELD[name].get(pair) == reason for name in ours)]
        where = [name for name in ours if reason in NOT_HELD[name].values()]
        yield f"| {', '.join(names)} | {'; '.join(where)} | {reason} |"
    yield ""
    yield from head(("pair", "by what", "known from", *columns))
    for group in dict.fromkeys(pair.group for pair in PAIRS.values()):
        yield f"| **{group}** | | |" + " |" * len(columns)
        members = [pair for pair in PAIRS.values() if pair.group == group]
        cells = [[_CELL[bool(each.meetings[pair.name].evidence)] for each in columns.values()] for pair in members]
        yield from rows(members, list(columns), cells, NONE)
    yield ""
    yield from head(("change of what lands", "by what"))
    for name in dict.fromkeys(name.rpartition("_")[0] for name in LANDINGS):
        yield f"| {name} | {LANDINGS[name + '_after'].tries} |"
