"""Fallback scan of a command line that the parser could not fully read.

Every place at which a command might begin is taken for a command; its words are split at blanks, and quotes are
dropped. The scan only adds parts and removes none: it makes a line stricter, so that a syntax error does not hide a
command.
"""

from __future__ import annotations

from mudroom.core.command.word import Word
from mudroom.core.text.regex import regex
from mudroom.typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mudroom.core.command.locations import CommandContext
    from mudroom.core.command.verdict import CommandPart

_START = regex(
    rb"(?:\A|[;&|\n(`{!]|\b(?:do|then|else|if|while|until|time|in)\b)[ \t]*(?:\w+=\S*[ \t]+)*"
    rb"([A-Za-z0-9_./+'\"\\-]+(?:[ \t]+[^ \t\n;&|()`<>]{1,4096}){0,64})"
)
_SCANNED_BYTES = 1 << 20
_MOST_STARTS = 500


def scan_line(line: bytes, context: CommandContext) -> tuple[CommandPart, ...]:
    """Return the parts that are destructive or reach past the sandbox, one for each reason."""
    parts_by_reason: dict[str, CommandPart] = {}
    for number, match in enumerate(_START.finditer(line, 0, _SCANNED_BYTES)):
        if number >= _MOST_STARTS:
            break
        words = [Word(word.translate(None, b"'\"\\")) for word in match[1].split()]
        if not words[0].text or b"\0" in match[1] or context.depth > 1:
            continue
        for part in context.words(words, context._replace(depth=context.depth + 2)):
            strict = [name for name in part.classes if name in ("destructive", "host_escape_risk")]
            if strict and part.reason not in parts_by_reason:
                # its paths are guessed, too: no aim is certain
                reason = part.reason + " (at a guess)"
                parts_by_reason[part.reason] = part._replace(complete=False, reason=reason, aims=(), otherwise=())
    return tuple(parts_by_reason.values())
