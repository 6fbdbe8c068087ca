"""What all shells' completions share: the files in ``template``, and tables from the lines in ``grammar.py``."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from mudroom.ext.completion.grammar import VerbLine, VerbOption


def filled(name: str, **parts: str) -> str:
    """Return a template with its ``@NAME@`` replaced. No part is looked at for a further one."""
    with open(os.path.join(os.path.dirname(__file__), "template", name), encoding="utf-8") as file:
        return re.sub(r"@([A-Z]+)@", lambda found: parts[found[1].lower()], file.read())


def options_by_value(lines: Sequence[VerbLine]) -> dict[tuple[str, tuple[str, ...]], list[str]]:
    """Return ``VERB OPTION`` for all options that take a value, by the value's kind and choices."""
    found: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for line in lines:
        for option in line.options:
            if option.takes:
                words = (f"{' '.join(line.words)} {name}" for name in option.names)
                found.setdefault((option.kind, option.choices), []).extend(words)
    return found


def without_repeats(line: VerbLine, lines: Sequence[VerbLine]) -> bool:
    """Return whether this is an action with its verb's own options: both use the same parser."""
    verb = next(other for other in lines if other.words == line.words[:1])
    return len(line.words) > 1 and line.options == verb.options


def first_sentence(option: VerbOption) -> str:
    """Return an option's help for a list: up to the first semicolon or full stop."""
    text = option.help.replace("\n", " ")
    for end in ("; ", ". "):
        text = text.partition(end)[0]
    return text.rstrip(".")
