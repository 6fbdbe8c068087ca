"""The agent's own sandbox, which cannot run inside mudroom's: nested namespaces are refused. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from mudroom.typing import NamedTuple


class InnerSandbox(NamedTuple):
    about: str = ""
    """One sentence: what it is, and the switch that turns it off here."""
    arguments: tuple[str, ...] = ()
    """Words that switch it off, placed after the program's name."""
    options: tuple[tuple[str, str], ...] = ()
    """Options that switch it on, with the values that replace theirs. An empty value: the option takes none, and is
    left out."""
    values: tuple[tuple[str, str], ...] = ()
    """Variables that switch it off."""


def switched_off(words: Sequence[str], sandbox: InnerSandbox) -> tuple[list[str], list[str]]:
    """Return the words after a program's name with which its own sandbox is off, and the switches made, to be printed.
    Words after ``--`` are no options."""
    options = dict(sandbox.options)
    end = words.index("--") if "--" in words else len(words)
    now: list[str] = []
    switches = [" ".join(sandbox.arguments)] if sandbox.arguments else []
    value = None
    """The replacement for this word, if the previous word is an option that takes a value."""
    name = ""
    for word in words[:end]:
        if value is not None:
            _replaced(now, switches, name, word, value)
            value = None
            continue
        name, separator, given = _option(word, options)
        if name not in options:
            now.append(word)
        elif not options[name]:
            switches.append(f"without {word}")
        elif given:
            before = len(switches)
            _replaced(now, switches, name, given, options[name])
            now[-1] = name + separator + options[name] if len(switches) > before else word
        else:
            now.append(word)
            value = options[name]
    return [*sandbox.arguments, *now, *words[end:]], switches


def _replaced(now: list[str], switches: list[str], name: str, given: str, value: str) -> None:
    now.append(value)
    if given != value:
        switches.append(f"{name} {value} instead of {given}")


def _option(word: str, options: dict[str, str]) -> tuple[str, str, str]:
    """Return a word's option, separator and value: ``--name=value``, ``-n=value`` or ``-nvalue``."""
    name, separator, given = word.partition("=")
    short = word[:2]
    if name not in options and not word.startswith("--") and options.get(short):
        return short, "", word[2:]
    return name, separator, given
