"""Programs that print or change the machine's network, mounts or kernel settings.

Only the forms in ``_FORMS`` print. Everything else changes settings, unknown words included: these programs take
abbreviations (``ip a a`` adds an address), and a second operand often sets a value.
"""

from __future__ import annotations

from collections.abc import Sequence

from mudroom.core.command.locations import CommandContext, CommandFinding
from mudroom.core.command.table_rule import ESCAPE, READ
from mudroom.core.command.word import Word, program_name
from mudroom.core.text.regex import regex

_IP = regex(
    rb"(?:-(?:br|brief|4|6|s|j|p|o|c|d) )*(?:a|addr|address|r|route|l|link|n|neigh|rule)"
    rb"(?: (?:show|list|ls)(?: (?:dev )?[a-z][a-z0-9.@]*)?)?"
)
_IFCONFIG = regex(rb"(?:-[as])?|(?:-a )?[a-z][a-z0-9]*")
_LISTS = regex(rb"(?:-[46aenv]+(?: |\Z))*")
_IPTABLES = regex(
    rb"(?:-t (?:nat|filter|mangle|raw) )?(?:-[nv]+ )*-[nv]*[LS][nv]*(?: -[nv]+)*"
    rb"(?: (?:INPUT|OUTPUT|FORWARD)(?: -[nv]+)*)?"
)
_SYSCTL = regex(rb"(?:-[nNe] )*(?:-a|[a-z][a-z0-9_./]*(?: [a-z][a-z0-9_./]*)*)")
_MOUNT = regex(rb"(?:-[lv])?")
_FORMS = {
    b"ip": _IP,
    b"ifconfig": _IFCONFIG,
    b"route": _LISTS,
    b"arp": _LISTS,
    b"iptables": _IPTABLES,
    b"sysctl": _SYSCTL,
    b"mount": _MOUNT,
}
"""By program: the words that only print, joined by blanks."""


def judge(words: Sequence[Word], _context: CommandContext) -> CommandFinding:
    name = program_name(words[0].text)
    is_known = all(word.literal for word in words[1:])
    if is_known and _FORMS[name].fullmatch(b" ".join(word.text for word in words[1:])):
        return CommandFinding(READ, "prints settings of the machine")
    what = "disks" if name == b"mount" else "network or kernel"
    return CommandFinding(ESCAPE, f"changes the machine's {what}")
