"""A second, crude look at a line that could not be read as a whole.

Every place at which a command might begin is taken for one, its words cut at blanks, quotes thrown away. What comes out
is only added, never taken away: it makes a line stricter, so that a mistake in the line does not hide what it starts.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mudroom.core.command.word import Word

if TYPE_CHECKING:
    from mudroom.core.command.locations import Scene
    from mudroom.core.command.verdict import CommandPart

_START = re.compile(
    rb"(?:\A|[;&|\n(`{!]|\b(?:do|then|else|if|while|until|time|in)\b)[ \t]*(?:\w+=\S*[ \t]+)*"
    rb"([A-Za-z0-9_./+'\"\\-]+(?:[ \t]+[^ \t\n;&|()`<>]{1,4096}){0,64})"
)
_FARTHEST = 1 << 20
_MOST = 500


def crudely(line: bytes, scene: Scene) -> tuple[CommandPart, ...]:
    """Parts that are destructive or aim past the sandbox, each reason once."""
    found: dict[str, CommandPart] = {}
    for count, match in enumerate(_START.finditer(line, 0, _FARTHEST)):
        if count >= _MOST:
            break
        words = [Word(word.translate(None, b"'\"\\")) for word in match[1].split()]
        if not words[0].text or b"\0" in match[1] or scene.depth > 1:
            continue
        for part in scene.words(words, scene._replace(depth=scene.depth + 2)):
            strict = [name for name in part.classes if name in ("destructive", "host_escape_risk")]
            if strict and part.reason not in found:
                found[part.reason] = part._replace(complete=False, reason=part.reason + " (at a guess)")
    return tuple(found.values())
