"""Options of a program, read from its help and its manual page. Pure: the texts are handed in."""

from __future__ import annotations

import re
from typing import NamedTuple

from .world import words

_ROFF = re.compile(r"\\f(?:\(..|\[[^]]*\]|.)|\\[&|^%cs0]|\\s[-+]?\d|\\\*\[[^]]*\]")
_OPTION = re.compile(
    r"(?<![\w/.+=\-$])(--?[A-Za-z0-9?@#][\w.+\-]*)(\[?=\[?|\s?[<\[]|[ ](?=[A-Z][A-Z_\-]*\b))?", re.ASCII
)
_VARIABLE = re.compile(r"(?<![\w$])([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*)(?![\w-])")
_NOT_VARIABLES = words("""
    FILE NAME SYNOPSIS DESCRIPTION OPTIONS AUTHOR COPYRIGHT GNU DIR URL NUM SIZE BUGS HOME USER LANG TERM PWD
    ASCII POSIX PATTERN COMMAND STRING TEXT END BEGIN NULL SIGINT SIGHUP SIGTERM SIGKILL EOF UTF
""")


class Option(NamedTuple):
    name: str
    """With its dashes."""
    valued: bool
    """Whether the text shows a value."""


def options_of(*texts: str) -> tuple[Option, ...]:
    """Return the options that the texts name, sorted."""
    found: dict[str, bool] = {}
    for text in texts:
        for name, value in _OPTION.findall(plain(text)):
            name = name.rstrip(".-+")
            if name.strip("-") and len(name) < 40:
                found[name] = found.get(name, False) or bool(value)
    return tuple(Option(name, found[name]) for name in sorted(found))


def variables_of(*texts: str) -> tuple[str, ...]:
    """Return words that may be variables of the environment which the program heeds."""
    found = {name for text in texts for name in _VARIABLE.findall(plain(text)) if len(name) > 3}
    return tuple(sorted(found.difference(_NOT_VARIABLES)))


def plain(text: str) -> str:
    """Return the text of a manual page without the marks of roff(7)."""
    if "\\" not in text:
        return text
    text = text.replace("\\-", "-").replace("\\(hy", "-").replace("\\(en", "-").replace("\\(aq", "'")
    return re.sub(r"(?m)^\.[A-Za-z]+ ?", "", _ROFF.sub("", text)).replace('"', " ")
