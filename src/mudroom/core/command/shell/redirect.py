"""Redirections: the files that a command reads or writes through the shell (bash(1), REDIRECTION)."""

from __future__ import annotations

from collections.abc import Iterable

from mudroom.core.command.locations import CommandContext, is_of_git, locate, names_credentials
from mudroom.core.command.path_aim import add_path_aims
from mudroom.core.command.table_rule import tidy
from mudroom.core.command.verdict import CommandClass, CommandPart
from mudroom.core.command.word import Word
from mudroom.core.text.regex import regex
from mudroom.typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node

_NOWHERE = frozenset({b"/dev/null", b"/dev/stdout", b"/dev/stderr", b"/dev/tty"})
_ENDS_A_WORD = (b"", b" ", b"\t", b"\n", b";", b"&", b"|", b"<", b">", b")")
_DELIMITER = regex(rb"(?P<quote>['\"]?)\\?(?P<name>\w+)(?P=quote)\Z")


def redirection(operator: str, target: Word, bare: bool, context: CommandContext) -> Iterable[CommandPart]:
    """Yield the part for a redirection; no part if it only duplicates descriptors or writes to a null device. ``bare``:
    there is no command, so ``>`` empties the file."""
    text = target.text
    if text == b"/dev/fd/":
        return  # a process substitution: its commands are parts by themselves
    if operator in (">&", "<&") and target.literal and (text.isdigit() or text == b"-" or text[:-1].isdigit()):
        return
    if text.startswith((b"/dev/tcp/", b"/dev/udp/")) or (not target.literal and text.startswith(b"/dev/")):
        yield CommandPart((), False, ("networked", "unknown"), "opens a connection")
        return
    classes: set[CommandClass] = set()
    verb = "writes" if ">" in operator else "reads"
    if ">" in operator and text not in _NOWHERE:
        place = locate(target, context)
        empties = bare and operator in (">", ">|", "&>", ">&")
        classes.add("destructive" if empties else "mutating")
        verb = "empties" if empties else verb
        if place != "inside":
            classes.add("host_escape_risk" if place == "outside" else "unknown")
        if is_of_git(target):
            classes.add("unknown")
    if names_credentials(target, context):
        classes.add("host_escape_risk")
    if classes:
        part = CommandPart((), False, tidy(classes), f"{verb} {text.decode(errors='replace')}")
        yield add_path_aims(part, (target,), context) if "host_escape_risk" in classes else part


def heredoc_is_plain(node: Node, source: bytes) -> bool:
    """Return whether the grammar certainly ended the here-document where bash does: at the first line equal to the
    delimiter."""
    start = next((child for child in node.children if child.type == "heredoc_start"), None)
    body = next((child for child in node.children if child.type == "heredoc_body"), None)
    end = next((child for child in node.children if child.type == "heredoc_end"), None)
    delimiter = _DELIMITER.match(start.text or b"") if start is not None else None
    if start is None or source[start.end_byte : start.end_byte + 1] not in _ENDS_A_WORD:
        return False
    if delimiter is None or end is None or end.is_missing or (end.text or b"").lstrip(b"\t") != delimiter["name"]:
        return False
    tabs = any(child.type == "<<-" for child in node.children)
    line_start = source.rfind(b"\n", 0, end.start_byte) + 1
    before = source[line_start : end.start_byte]
    if before.strip(b"\t") or (before and not tabs) or source[end.end_byte : end.end_byte + 1] not in (b"", b"\n"):
        return False
    lines = source[body.start_byte : line_start].split(b"\n") if body is not None else []
    return not any((line.lstrip(b"\t") if tabs else line) == delimiter["name"] for line in lines)
