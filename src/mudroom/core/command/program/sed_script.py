"""A sed script's effect: it only edits its text, writes files, or runs commands (GNU sed manual, 3.2 and 3.8).

Conservative: a script that contains anything unrecognised counts as running commands.
"""

from __future__ import annotations

import re

from mudroom.core.text.regex import regex
from mudroom.typing import Literal

Does = Literal["edits", "writes", "runs"]
_BLANK = regex(rb"[\s;]*")
_ADDRESS = regex(rb"(?:[0-9]+(?:~[0-9]+)?|\$|[+~][0-9]+)")
_PLAIN = regex(rb"[=dDgGhHnNpPxzF}]")
_LABEL = regex(rb"[btT:][ \t]*[A-Za-z0-9_.-]*(?=[;\n}]|\Z)")
_QUIT = regex(rb"[qQlL]\s*[0-9]*(?=[\s;}]|\Z)")
_TEXT = regex(rb"(?s)[aic](?:[^\\\n]|\\.)*(?:\n|\Z)")
_READ = regex(rb"[rR][^\n]*")
_FLAGS = regex(rb"[gpiImM0-9 \t]*(?=[\n;}#]|\Z)")
_COMMENT = regex(rb"#[^\n]*")


def sed_does(script: bytes) -> Does:
    at, end = 0, len(script)
    while at < end:
        blank = _BLANK.match(script, at)
        at = blank.end() if blank else at
        if at >= end:
            return "edits"
        step = _after_addresses(script, at)
        if step is None or step >= end:
            return "runs"
        at = step
        letter = script[at : at + 1]
        if letter == b"{":
            at += 1
            continue
        if letter in (b"s", b"y"):
            after = _after_substitution(script, at)
            if after is None:
                return "writes" if b"w" in script[at:] and not re.search(rb"[eM]", script[at:]) else "runs"
            at = after
            continue
        if letter in (b"w", b"W"):
            return "writes"
        patterns = (_COMMENT, _PLAIN, _LABEL, _QUIT, _READ, _TEXT)
        match = next((match for match in (pattern.match(script, at) for pattern in patterns) if match), None)
        if match is None:
            return "runs"
        at = match.end()
    return "edits"


def _after_addresses(script: bytes, at: int) -> int | None:
    """Return the index after a command's addresses and its ``!``, or None if they cannot be parsed."""
    for _which in range(2):
        if script[at : at + 1] == b"/" or script[at : at + 1] == b"\\":
            start = at + (2 if script[at : at + 1] == b"\\" else 1)
            closed = _closing(script, start, script[start - 1 : start])
            if closed is None:
                return None
            at = closed
            while script[at : at + 1] in (b"I", b"M"):
                at += 1
        else:
            number = _ADDRESS.match(script, at)
            if number is None:
                break
            at = number.end()
        while script[at : at + 1] == b" ":
            at += 1
        if script[at : at + 1] != b",":
            break
        at += 1
        while script[at : at + 1] == b" ":
            at += 1
    while script[at : at + 1] in (b"!", b" "):
        at += 1
    return at


def _closing(script: bytes, at: int, mark: bytes) -> int | None:
    """Return the index after the next unescaped ``mark``; None if it stands inside brackets, where it would not
    close."""
    if not mark or mark in b"\\\n":
        return None
    while at < len(script):
        byte = script[at : at + 1]
        if byte == b"\\":
            at += 2
            continue
        if byte == mark:
            return at + 1
        if byte == b"[":
            inside = script.find(b"]", at + 2)
            if inside > 0 and mark in script[at:inside]:
                return None
        at += 1
    return None


def _after_substitution(script: bytes, at: int) -> int | None:
    mark = script[at + 1 : at + 2]
    middle = _closing(script, at + 2, mark)
    end = _closing(script, middle, mark) if middle is not None else None
    flags = _FLAGS.match(script, end) if end is not None else None
    return flags.end() if flags else None
