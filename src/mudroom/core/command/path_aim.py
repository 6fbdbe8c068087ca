"""Paths outside the project as a command's aims.

Rules of this file:
1. A path that is relative, or not fully known, is no aim. Links are not followed, and need not be: a link's target can
   be read and written under its own name, too.
2. A write that the sandbox holds still gets a checkpoint: ``mv src ~/old`` loses the files when the sandbox's home
   disappears.
"""

from __future__ import annotations

from collections.abc import Sequence

from mudroom.core.command.locations import CommandContext, locate, names_credentials, normal
from mudroom.core.command.table_rule import Classes, tidy
from mudroom.core.command.verdict import Aim, CommandPart
from mudroom.core.command.word import Word
from mudroom.core.text.regex import regex

_HOME = regex(rb"(?:~|\$HOME|\$\{HOME\})((?:/[\w.@%+,=:-]+)*)/?\Z")
_WILDCARD = regex(rb"/[^/]*[*?\[].*\Z")


def add_path_aims(part: CommandPart, words: Sequence[Word], context: CommandContext) -> CommandPart:
    """Return the part with its aims, if these paths (in a redirection or assignment) alone make it a risk."""
    aims = [aim_of(word) for word in words if is_outside(word, context)]
    if None in aims:
        return part
    return with_aims(part, [aim for aim in aims if aim is not None], part.classes)


def is_outside(word: Word, context: CommandContext) -> bool:
    return locate(word, context) == "outside" or names_credentials(word, context)


def aim_of(word: Word) -> Aim | None:
    """Return the aim of a word that is a path, or None if the path is relative or not fully known."""
    text = word.text
    if word.kind != "literal":
        text = _WILDCARD.sub(b"", text)
        if text != word.text and b"/.." in word.text:
            return None  # /run/*/../../etc
    if word.at_home:
        match = _HOME.match(text)
        path = None if match is None else normal(match[1])
        return None if path is None or b"/.." in text else Aim("path", b"~" + path.rstrip(b"/"))
    is_known = word.literal or (word.kind == "pattern" and text != word.text)
    return Aim("path", normal(text)) if is_known and text.startswith(b"/") else None


def with_aims(part: CommandPart, aims: Sequence[Aim], classes: Classes) -> CommandPart:
    milder = {name for name in classes if name != "host_escape_risk"}
    if milder & {"mutating", "destructive"}:
        milder.add("unknown")
    return part._replace(aims=tuple(dict.fromkeys(aims)), otherwise=tidy(milder)) if aims else part
