"""Options from the text of a help or of a manual page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple


class Row(NamedTuple):
    names: tuple[str, ...]
    value: str = ""
    """As in a packed grammar: nothing, ``=``, ``?``, ``+`` or ``*``."""
    text: str = ""
    """Words that the program shows for the value and beside the option."""
    marked: bool | None = None
    """None: by the text."""


_START = re.compile(r"^ {0,10}(-[-\w?#@,.:=<>\[\]|(){}/*+ '\"]*?)(?:(?: {2,}|\t)(.*))?$")
_ONE = re.compile(r"(--?(?:\[no-\])?[\w?#@:+.][\w.-]*)(\[?[ =]?[\[<]?=?[^,|]*)?")
_SENTENCE = re.compile(r"[A-Z][a-z]+ \S")
"""A description one blank behind a name that fills its column, as in curl's help; values there are bracketed."""
_OVERSTRUCK = re.compile(".\b")


def rows_of_help(text: str) -> Iterator[Row]:
    """Yield the options of a help text: a line that begins with dashes, its description beside or below it."""
    lines = _OVERSTRUCK.sub("", text).splitlines()
    for at, line in enumerate(lines):
        match = _START.match(line.replace("\t", "    "))
        if match is None:
            continue
        described = match[2] or ""
        indent = len(line) - len(line.lstrip())
        for below in lines[at + 1 : at + 8]:
            if not below.strip() or len(below) - len(below.lstrip()) <= indent + 3:
                break
            described += " " + below.strip()
        yield from _of_spec(match[1], described)


def _of_spec(spec: str, described: str) -> Iterator[Row]:
    """Yield a row of the names on one line. Names that take a value and long names that take none are no aliases."""
    spellings: list[tuple[str, str]] = []
    shown = ""
    for piece in re.split(
        r",\s*(?=-)|\s+\|\s+(?=-)|/(?=-)|\s+or\s+(?=-)|\s+(?=--?\w)", spec.replace("...", "").strip()
    ):
        match = _ONE.match(piece.strip())
        if match is None:
            continue
        name, rest = match[1].rstrip(".:"), (match[2] or "").strip()
        if name in ("-#", "-n#", "-NUM") or re.match(r"-<?(?:n|num|number)>\Z", piece.strip()):
            yield Row(("-NUM",), "", "", False)
            continue
        value = "" if not rest or _SENTENCE.match(rest) else "?" if rest.startswith("[") else "="
        shown += " " + rest
        plain = name.replace("[no-]", "")
        spellings.append((plain, value))
        if plain != name:
            spellings.append((plain.replace("--", "--no-", 1), ""))
    values = {value for _name, value in spellings if value}
    value = values.pop() if len(values) == 1 else ""
    together = [name for name, own in spellings if own == value or not name.startswith("--")]
    if together:
        yield Row(tuple(together), value, f"{shown} {described}")
    for name, own in spellings:
        if name not in together:
            yield Row((name,), own, f"{shown} {described}")
