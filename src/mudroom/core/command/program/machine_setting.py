"""Programs that print or change the network, mounts or kernel settings of the machine.

Only a listed form prints: every word is known and listed, or has the form of a name. Everything else changes.
"""

from __future__ import annotations

from collections.abc import Sequence

from mudroom.core.command.locations import CommandContext, CommandFinding
from mudroom.core.command.table_rule import ESCAPE, READ, names
from mudroom.core.command.word import Word, program_name
from mudroom.core.text.regex import regex

_DEVICE = regex(rb"(?:lo|(?:eth|en|wl|br|veth|docker|tun|tap|wg|virbr|bond)[\w.@-]*)\Z")
_KEY = regex(rb"[a-z][a-z0-9_./]*\Z")
_FORMS = {
    b"ip": (
        names(
            "addr address a route r link l neigh neighbour n rule show list ls sh dev -br -brief -4 -6 -s -j -p -o -c"
        ),
        _DEVICE,
    ),
    b"ifconfig": (names("-a -s"), _DEVICE),
    b"route": (names("-n -e -ee -4 -6"), None),
    b"arp": (names("-a -n -e -v -an"), None),
    b"iptables": (names("-L -S -n -v -nL -nvL -vnL -Ln -t nat filter mangle raw INPUT OUTPUT FORWARD"), None),
    b"sysctl": (names("-a -n -e -N"), _KEY),
    b"mount": (names("-l -v"), None),
}
"""By program: the words of the forms that only print, and the form of a name."""


def judge(words: Sequence[Word], _context: CommandContext) -> CommandFinding:
    name = program_name(words[0].text)
    listed, form = _FORMS[name]
    if all(
        word.literal and (word.text in listed or (form is not None and form.match(word.text))) for word in words[1:]
    ):
        return CommandFinding(READ, "prints settings of the machine")
    return CommandFinding(
        ESCAPE, "changes the machine's disks" if name == b"mount" else "changes the machine's network or kernel"
    )
