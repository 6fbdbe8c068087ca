"""The same attempts on stock systems, each told as one line of JSON by who was there, and a section of the document.

dev/docker --sh 'python -m tests.conformance.escapes --report "Docker, default profile"' > docker
python -m tests.conformance.escapes --tiers docker --into docs/evidence/ESCAPES.md
"""

from __future__ import annotations

import datetime
import json
import os
import platform
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from .attempt import TABLE
from .known import NOT_HELD
from .outside import Outcome

BEGIN, END = "<!-- tiers: generated -->", "<!-- end of tiers -->"


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


def report(tier: str, outcomes: Mapping[str, Outcome], *, namespaces: bool) -> Report:
    out = {name: outcome.evidence[:60] for name, outcome in outcomes.items() if outcome.evidence}
    system = f"Linux {platform.release()} {platform.machine()}"
    user = "root" if os.geteuid() == 0 else "an ordinary user"
    answered = sum(outcome.error != "no answer" for outcome in outcomes.values())
    return Report(tier, system, user, namespaces, datetime.date.today().isoformat(), len(outcomes), answered, out)


def read(lines: Iterable[str]) -> list[Report]:
    """Of what a run has printed: other lines do not count."""
    found = [json.loads(line) for line in lines if line.startswith('{"tier"')]
    return [Report(**one) for one in found]


def section(reports: Iterable[Report]) -> Iterator[str]:
    reports = list(reports)
    yield from (BEGIN, "", "## mudroom run on stock systems", "")
    yield "Without namespaces: Landlock, a filter and a staged copy, and `mudroom run` says so. `dev/docker`, `dev/vm`."
    yield from (
        "",
        "| where | kernel | as | namespaces | date | got out | of | said so themselves |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    )
    for one in reports:
        namespaces = "yes" if one.namespaces else "no"
        yield (
            f"| {one.tier} | {one.system} | {one.user} | {namespaces} | {one.date} | {len(one.out)} | {one.tried} "
            f"| {one.answered} |"
        )
    names = [name for name in TABLE if any(name in one.out for one in reports)]
    if names:
        yield from ("", "| got out | what it tries | where | why |", "| --- | --- | --- | --- |")
    for name in names:
        where = ", ".join(f"{one.tier} ({one.user})" for one in reports if name in one.out)
        yield f"| {name} | {TABLE[name].tries} | {where} | {NOT_HELD['bare'].get(name, '**nobody knows**')} |"
    yield from ("", END)


def put(document: str, lines: Iterable[str]) -> str:
    """The document with these lines as its section: in the place of the old one, else at the end."""
    text = "\n".join(lines)
    if BEGIN in document and END in document:
        before, _begin, rest = document.partition(BEGIN)
        return before + text + rest.partition(END)[2]
    return document.rstrip("\n") + "\n\n" + text + "\n"


def of(document: str) -> str:
    """The section as a document has it; empty if it has none."""
    before, begin, rest = document.partition(BEGIN)
    del before
    return begin + rest.partition(END)[0] + END if begin else ""
