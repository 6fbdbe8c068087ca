"""Words from syntax tree nodes, with quotes removed as bash does.

Source: bash(1), QUOTING and EXPANSION.
"""

from __future__ import annotations

import re

from mudroom.core.command.word import UNKNOWN, Word, concatenate
from mudroom.core.text.regex import regex
from mudroom.typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node

_WILD = regex(rb"[*?\[]|[@!+]\(")
_SPECIAL = regex(rb"(?<!\\)[{}$`]")
_NAMES_IN_BRACES = regex(rb"[\w./,@+:%={}-]*\{[\w./,@+:%={}-]*\Z")
_ODD_IN_BRACES = regex(rb"[{,][-/~]")
_NOT_EXPANDED = regex(rb"\{(?![^{}]*\.\.)[^{},$`]*\}")
"""Braces without a comma or two dots are literal: ``{}``, ``@{u}``."""
_HOME_ASSIGNED = regex(rb"[A-Za-z_]\w*\+?=(?:[^'\"\\]*:)?(?=~)")
"""A word that only looks like an assignment gets a home directory, too: ``dd of=~/x`` (bash(1), Tilde Expansion)."""
_ALL_OF = regex(rb"\$@|\$\{[^}]*@")
"""Parameters that become several words even in double quotes."""
_ANSI = regex(rb"(?s)\\(?:x([0-9a-fA-F]{1,2})|([0-7]{1,3})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|c(.)|(.))")
_LETTERS = dict(zip(b"abeEfnrtv\\'\"?", b"\a\b\x1b\x1b\f\n\r\t\v\\'\"?", strict=True))


def _bare(text: bytes) -> Word:
    """Return the word for a piece without quotes: backslashes are removed, wildcards and braces are found."""
    plain, wild, special, at = b"", False, -1, 0
    while at < len(text):
        byte = text[at : at + 1]
        if byte == b"\\":
            escaped = text[at + 1 : at + 2]
            plain += b"" if escaped == b"\n" else escaped
            at += 2
            continue
        if _WILD.match(text, at):
            wild = True
            special = len(plain) if special < 0 else special
        plain += byte
        at += 1
    return Word(plain, "pattern", special) if wild else Word(plain)


def _ansi(text: bytes) -> Word:
    def decode(match: re.Match[bytes]) -> bytes:
        hexadecimal, octal, short, long, control, letter = match.groups()
        if hexadecimal:
            return bytes([int(hexadecimal, 16)])
        if octal:
            return bytes([int(octal, 8) & 0xFF])
        if short or long:
            code = int(short or long, 16)
            return chr(code).encode("utf-8", "replace") if code < 0x110000 else b"?"
        if control:
            return bytes([control[0] & 0x1F])
        return bytes([_LETTERS[letter[0]]]) if letter[0] in _LETTERS else b"\\" + letter

    return Word(_ANSI.sub(decode, text[2:-1]).partition(b"\0")[0])


def _double(node: Node) -> Word:
    pieces: list[Word] = []
    source, at = node.text or b"", 1
    start = node.start_byte
    for child in node.named_children:
        if child.type == "string_content":
            continue
        pieces.append(_in_double(source[at : child.start_byte - start]))
        pieces.append(Word(child.text or b"", "computed", 0, bool(_ALL_OF.match(child.text or b""))))
        at = child.end_byte - start
    pieces.append(_in_double(source[at:-1]))
    return concatenate(pieces)


def _in_double(text: bytes) -> Word:
    plain = re.sub(rb"\\([$`\"\\\n])", lambda match: b"" if match[1] == b"\n" else match[1], text)
    return Word(plain)


def _braced(text: bytes) -> Word:
    """Return the word for ``src/{a,b}``: a pattern if it certainly expands to file names only, otherwise computed."""
    counted = re.sub(rb"\{\w+\.\.\w+\}", b"{1}", text)
    if _NAMES_IN_BRACES.match(counted) and b".." not in counted and not _ODD_IN_BRACES.search(counted):
        return Word(text, "pattern", text.index(b"{"))
    return Word(text, "computed", 0, True)


def word_of(node: Node) -> Word:
    kind, text = node.type, node.text or b""
    if kind in ("word", "number", "variable_name", "file_descriptor", "test_operator", "extglob_pattern", "regex"):
        if node.named_child_count:
            return UNKNOWN
        word = _bare(text)
        if text.startswith(b"~"):
            return Word(word.text, "computed", 0)
        if match := _HOME_ASSIGNED.match(text):
            return Word(word.text, "computed", match.end())
        if not _SPECIAL.search(_NOT_EXPANDED.sub(b"", text)) or text in (b"{", b"}"):
            return word
        return _braced(text)
    if kind == "raw_string":
        return Word(text[1:-1])
    if kind == "string":
        return _double(node)
    if kind == "ansi_c_string":
        return _ansi(text)
    if kind == "concatenation":
        pieces = [word_of(child) for child in node.children]
        word = concatenate(pieces)
        if text.startswith(b"~"):
            return Word(word.text, "computed", 0)
        bare = b"".join(child.text or b"" for child in node.children if child.type in ("word", "brace_expression"))
        if _SPECIAL.search(_NOT_EXPANDED.sub(b"", bare)):
            return (
                _braced(text) if word.kind != "computed" or b"$" not in text else Word(word.text, "computed", 0, True)
            )
        return word
    if kind == "brace_expression":
        return _braced(text)
    if kind == "arithmetic_expansion":
        return Word(text, "computed")
    if kind == "process_substitution":
        return Word(b"/dev/fd/", "computed", len(b"/dev/fd/"))
    return Word(text, "computed", 0, True)
