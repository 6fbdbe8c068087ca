"""Comparison of what a document shows with what a command printed. ``…`` in a line stands for any characters of it; a
line that is ``…`` stands for any lines."""

from __future__ import annotations

import re
from collections.abc import Callable

ANY = "…"


def matches(expected: str, printed: str) -> bool:
    return _pattern(expected).fullmatch(_trimmed(printed)) is not None


def _trimmed(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines())


def _pattern(expected: str) -> re.Pattern[str]:
    parts = []
    lines = _trimmed(expected).split("\n")
    for number, line in enumerate(lines):
        last = number == len(lines) - 1
        if line.strip() == ANY:
            parts.append(r"(?:[^\n]*(?:\n|$))*?" if not last else r"(?:[^\n]*(?:\n|$))*")
        else:
            parts.append(r"[^\n]*?".join(re.escape(part) for part in line.split(ANY)) + ("" if last else r"\n"))
    return re.compile("".join(parts))


_VARIES: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (r"\b\d+(?:\.\d+)?(?= ?(?:ms|s|min)\b)", ANY),
    (r"\b\d{4}-\d\d-\d\d[ T]\d\d:\d\d(?::\d\d)?(?:\.\d+)?Z?", ANY),
    (r"\b\d\d:\d\d:\d\d\b", ANY),
    (r"\b[0-9a-f]{12,64}\b", ANY),
    (r"(?<=\bpid )\d+", ANY),
    (r"(?<=\bapproval )[0-9a-f]{6}\b|(?<=\bapprove )[0-9a-f]{6}\b|(?<=\blocal-)[0-9a-f]{4}\b", ANY),
    (r"(?<=\brun-)[0-9a-f]{8}\b", ANY),
    (r"\b\d{8}-\d{6}\b", ANY),
    (r"(?<=\bprocess )\d+", ANY),
)


def as_shown(printed: str, before: str = "") -> str:
    """Return the lines to show for an output: those of ``before`` where they still match, and else the printed ones
    with ``…`` for times, dates and digests."""
    kept = [line for line in before.splitlines() if ANY in line and line.strip() != ANY]
    shown = []
    for line in _trimmed(printed).splitlines():
        same = next((old for old in kept if matches(old, line)), None)
        shown.append(same if same is not None else _without_what_varies(line))
    return "\n".join(shown)


def _without_what_varies(line: str) -> str:
    for pattern, to in _VARIES:
        line = re.sub(pattern, to, line)
    return line
