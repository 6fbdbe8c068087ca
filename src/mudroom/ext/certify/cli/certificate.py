"""Certified and closed parts, as ``mudroom doctor`` rows and lines of ``mudroom`` alone."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from mudroom.cli.doctor.report import SANDBOX, Style
from mudroom.cli.terminal.terminal import cut
from mudroom.core.confinement.protection import Finding, State
from mudroom.ext.certify.opening import HINT, PlatformOpening, reasons
from mudroom.ext.certify.row import CLOSED, Certificate, RowResult, TrialRow, closed, opens, results
from mudroom.ext.certify.table import KINDS, KNOWN, TABLES
from mudroom.sandbox.platform import BY_RECORD

MORE = "mudroom doctor --certify --all"
_SHIPPED = " on a hosted machine like this one"
STYLES = {"held": "green", "fell": "red", "not shown": "yellow"}
_HEAD = (
    "How mudroom's sandbox holds on this machine. Each act that it has to refuse was tried outside, where it works, "
    "and inside, and its effect was then looked for from outside."
)
_TOLD = ("limits", "tools", "leftovers", "addresses", "clones", "renames", "flush")
"""Parts whose failed rows are told but close nothing, on any platform."""


def findings(table: Sequence[TrialRow], opening: PlatformOpening) -> list[Finding]:
    """Return a row for the sandbox, one for each class in the certificate, and one for each closed part."""
    if opening.certificate is None:
        return [Finding(SANDBOX, "missing", opening.why, HINT)]
    made = dict(zip((row.name for row in table), results(table, opening.certificate), strict=True))
    found = []
    for kind in dict.fromkeys(row.kind for row in table):
        of_kind = [made[row.name] for row in table if row.kind == kind]
        failed = [result for result in of_kind if result.verdict != "held"]
        fell = any(result.verdict == "fell" for result in failed)
        state: State = "missing" if fell else "not probed" if failed else "strict"
        first = f"; {failed[0].name}: {failed[0].found}" if failed else ""
        where = _SHIPPED if opening.is_shipped else ""
        words = f"{len(of_kind) - len(failed)} of {len(of_kind)} rows held{where}{first}"
        found.append(Finding(f"certified: {kind}", state, words, HINT if failed else ""))
    parts = reasons(opening.closed)
    state = "missing" if "platform" in parts else "strict"
    sandbox = Finding(SANDBOX, state, parts.get("platform", "it refused what it has to refuse"))
    return [sandbox, *found, *(Finding(f"closed: {part}", "missing", why) for part, why in parts.items())]


def lines(opening: PlatformOpening) -> list[str]:
    """Return which parts are certified, which are closed, and why, in one line each."""
    if opening.certificate is None:
        return [f"none: {opening.why}"]
    state = "open" if opening.is_open else "closed"
    where = f"{_SHIPPED} ({MORE} tries it here)" if opening.is_shipped else ""
    closed = [f"closed: {why}" for why in reasons(opening.closed).values()]
    return [f"{opening.certificate.system}, {state}{where}", *closed]


def screen(certificate: Certificate, style: Style, columns: int = 80, rows: int = 24) -> list[str]:
    """Return at most ``rows`` - 1 lines, each at most ``columns`` columns: a line for each class, and the rows that did
    not hold as far as there is room."""
    table = TABLES[certificate.platform]
    made = dict(zip((row.name for row in table), results(table, certificate), strict=True))
    head = [*textwrap.wrap(_HEAD, columns), ""]
    kinds = dict.fromkeys(row.kind for row in table)
    lines = [_of_kind([made[row.name] for row in table if row.kind == kind], kind, style, columns) for kind in kinds]
    failed = [
        line for row in table if made[row.name].verdict != "held" for line in _failed(row, made[row.name], columns)
    ]
    last = list(_last(table, certificate, columns))
    room = rows - 1
    if len(head) + len(lines) + len(last) + 2 > room:  # a small terminal: what is open comes first
        return [*[*last, *lines, *failed][: room - 1], f"(cut; {MORE})"]
    room -= len(head) + len(lines) + len(last) + 1
    if len(failed) > room:
        failed = [*failed[: room - 1], f"(cut; {MORE} has each row)"]
    return [*head, *lines, *failed, "", *last]


def _of_kind(of_kind: Sequence[RowResult], kind: str, style: Style, columns: int) -> str:
    held = sum(result.verdict == "held" for result in of_kind)
    fell = any(result.verdict == "fell" for result in of_kind)
    count = f"{held:>3} of {len(of_kind):<3}"
    name = "held" if held == len(of_kind) else "fell" if fell else "not shown"
    return f"{style(count, STYLES[name])} {cut(KINDS[kind], columns - len(count) - 1)}"


def _failed(row: TrialRow, result: RowResult, columns: int) -> list[str]:
    so = f": {CLOSED[row.closes]}" if row.closes in _TOLD else ""
    why = f"{row.name} {result.verdict}, {result.found}{so}"
    return textwrap.wrap(why, columns, initial_indent=" " * 11, subsequent_indent=" " * 13)


def _last(table: Sequence[TrialRow], certificate: Certificate, columns: int) -> Iterator[str]:
    held = sum(result.verdict == "held" for result in results(table, certificate))
    if certificate.platform not in BY_RECORD:
        count = f"{certificate.system}: {held} of {len(table)} rows held ({MORE}: each of them)"
        yield from textwrap.wrap(count, columns)
        known = [row.name for row in certificate.rows if row.verdict != "held" and row.name in KNOWN]
        if known:
            yield from textwrap.wrap(f"known without namespaces (mudroom doctor): {', '.join(known)}", columns)
        return
    state = "certified" if opens(table, certificate) else "closed"
    yield from textwrap.wrap(f"{certificate.system}: {state}, {held} of {len(table)} rows held", columns)
    for why in reasons(closed(table, certificate)).values():
        yield from textwrap.wrap(f"closed: {why}", columns, subsequent_indent="  ")


def every_row(certificate: Certificate, style: Style) -> list[str]:
    """Return a line for each row, uncut."""
    table = TABLES[certificate.platform]
    width = max(len(row.name) for row in table)
    told = [
        f"{result.name:<{width}}  {style(f'{result.verdict:<9}', STYLES[result.verdict])}  {result.found}"
        for result in results(table, certificate)
    ]
    return [*told, *_last(table, certificate, 1000)]
