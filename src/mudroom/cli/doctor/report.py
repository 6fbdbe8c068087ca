"""Findings as text. ``screen`` fits a terminal: one paragraph with the protections that hold, a line for each other
protection, and each fix once. ``everything`` has an uncut line for each protection. Pure: no files, no terminal.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence

from mudroom.cli.terminal.terminal import cut
from mudroom.typing import NamedTuple, Protocol

STYLES = {"strict": "green", "degraded": "yellow", "missing": "red", "not probed": "red"}
MORE = "mudroom doctor --all"
SANDBOX = "a sandbox"
"""Name of the protection without which no command is confined."""
_STATE = 10
"""Columns for a state."""
_LEAST = 20
"""Minimum columns for a finding. If the terminal leaves fewer, findings are left out."""

Style = Callable[[str, str], str]
"""(text, style) to coloured text."""


class FindingLike(Protocol):
    """A finding about this machine or its containers."""

    @property
    def protection(self) -> str: ...
    @property
    def state(self) -> str: ...
    @property
    def found(self) -> str: ...
    @property
    def fix(self) -> str: ...


class Fix(NamedTuple):
    text: str
    helps: tuple[str, ...]
    """Protections that the fix provides."""


def fixes(findings: Sequence[FindingLike]) -> list[Fix]:
    """Return each fix once, in the findings' order."""
    helps: dict[str, list[str]] = {}
    for finding in findings:
        if finding.fix:
            helps.setdefault(finding.fix, []).append(finding.protection)
    return [Fix(text, tuple(names)) for text, names in helps.items()]


def screen(findings: Sequence[FindingLike], style: Style, columns: int = 80, rows: int = 24) -> list[str]:
    """Return at most ``rows`` - 1 lines, because the prompt takes one, each at most ``columns`` wide. Fixes are cut
    first, then the names of protections that hold, then findings. The last line says how to see all."""
    strict = [finding.protection for finding in findings if finding.state == "strict"]
    others = [finding for finding in findings if finding.state != "strict"]
    head = f"{len(strict)} of {len(findings)} protections hold here"
    if any(finding.protection == SANDBOX and finding.state == "missing" for finding in findings):
        head = f"commands cannot be confined here: {head}"
    names = textwrap.wrap(", ".join(strict), columns - 2, initial_indent="  ", subsequent_indent="  ")
    table = _table(others, style, columns)
    every = [_wrapped(fix, columns) for fix in fixes(others)]
    room = rows - 1
    for most in (room, 3, 2, 1):
        is_cut = any(len(lines) > most for lines in every)
        if most < 3 and len(names) > 1:
            names, is_cut = [cut(" ".join(line.strip() for line in names), columns)], True
        lines = [head, *names, *table, *(line for fix in every for line in _first(fix, most))]
        if is_cut:
            lines.append(f"(cut; {MORE} shows all)")
        if len(lines) <= room:
            return lines
    left = min(room - len(names) - 2, len(table))
    more = f"({len(table) - left} more and the fixes: {MORE})" if left < len(table) else f"(the fixes: {MORE})"
    return [head, *names, *table[:left], more if len(more) <= columns else more.replace(" and the fixes", "")]


def everything(findings: Sequence[FindingLike], style: Style) -> list[str]:
    """Return a line for each protection, then each fix with the protections that it provides."""
    width = max(len(finding.protection) for finding in findings)
    lines = [
        f"{finding.protection:<{width}}  {style(f'{finding.state:<{_STATE}}', STYLES[finding.state])}  {finding.found}"
        for finding in findings
    ]
    return lines + [f"fix for {', '.join(fix.helps)}: {fix.text}" for fix in fixes(findings)]


def _table(findings: Sequence[FindingLike], style: Style, columns: int) -> list[str]:
    width = max((len(finding.protection) for finding in findings), default=0)
    left = columns - width - _STATE - 4
    if left < _LEAST:
        room = columns - _STATE - 2
        rows = [(finding, cut(finding.protection, room)) for finding in findings]
    else:
        rows = [(finding, f"{finding.protection:<{width}}  {cut(finding.found, left)}") for finding in findings]
    return [f"{style(f'{finding.state:<{_STATE}}', STYLES[finding.state])}  {text}" for finding, text in rows]


def _wrapped(fix: Fix, columns: int) -> list[str]:
    text = f"fix for {', '.join(fix.helps)}: {fix.text}"
    return textwrap.wrap(text, columns, subsequent_indent="  ", break_on_hyphens=False)


def _first(lines: Sequence[str], most: int) -> list[str]:
    if len(lines) <= most:
        return list(lines)
    return [*lines[: most - 1], lines[most - 1][:-1] + "…"]
