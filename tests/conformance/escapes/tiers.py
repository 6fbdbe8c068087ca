"""The same attempts on stock systems, each told as one line of JSON by who was there, and a section of the document.

dev/docker --sh 'python -m tests.conformance.escapes --report "Docker, default profile"' > docker
python -m tests.conformance.escapes --tiers docker --into docs/evidence/ESCAPES.md
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ..document import SYSTEM, USER, Section, head  # noqa: TID252 - the package has another name inside
from ..outside import Outcomes, got_out  # noqa: TID252
from .attempt import TABLE
from .known import NOT_HELD

SECTION = Section("tiers")


class Report(NamedTuple):
    tier: str
    system: str
    user: str
    namespaces: bool
    date: str
    tried: int
    answered: int
    """Of those, how many said what became of them: an attempt of which nothing is heard may not have been made."""
    out: dict[str, str]
    """Attempts that got out, with how."""


def report(tier: str, outcomes: Outcomes, *, namespaces: bool) -> Report:
    out = {name: evidence[:60] for name, evidence in got_out(outcomes).items()}
    answered = sum(outcome.error != "no answer" for outcome in outcomes.values())
    return Report(tier, SYSTEM, USER, namespaces, datetime.date.today().isoformat(), len(outcomes), answered, out)


def read(lines: Iterable[str]) -> list[Report]:
    """Of what a run has printed: other lines do not count."""
    found = [json.loads(line) for line in lines if line.startswith('{"tier"')]
    return [Report(**one) for one in found]


def section(reports: Iterable[Report]) -> Iterator[str]:
    reports = list(reports)
    yield from ("## mudroom run on stock systems", "")
    yield "Without namespaces: Landlock, a filter and a staged copy, and `mudroom run` says so. `dev/docker`, `dev/vm`."
    yield ""
    yield from head(("where", "kernel", "as", "namespaces", "date", "got out", "of", "said so themselves"))
    for one in reports:
        namespaces = "yes" if one.namespaces else "no"
        yield (
            f"| {one.tier} | {one.system} | {one.user} | {namespaces} | {one.date} | {len(one.out)} | {one.tried} "
            f"| {one.answered} |"
        )
    names = [name for name in TABLE if any(name in one.out for one in reports)]
    if names:
        yield ""
        yield from head(("got out", "what it tries", "where", "why"))
    for name in names:
        where = ", ".join(f"{one.tier} ({one.user})" for one in reports if name in one.out)
        yield f"| {name} | {TABLE[name].tries} | {where} | {NOT_HELD['bare'].get(name, '**nobody knows**')} |"
