"""Grammars for known programs, on shelves. A shelf is loaded when one of its programs is looked up."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache

from mudroom.core.command.option_grammar import Grammar, unpack


def grammar_of(program: bytes) -> Grammar | None:
    """Return the grammar for a program, or for a subcommand such as ``git log``. Return None if there is none.

    A program whose subcommands all take the same options has a single grammar: ``npm *``.
    """
    name, blank, verbs = program.partition(b" ")
    name = _aliases().get(name, name)
    for shelf in _shelves_of().get(name, ()):
        grammars = _grammars(shelf)
        for key in (name + blank + verbs, name + b" *"):
            if key in grammars:
                return _unpacked(shelf, key)
    return None


@lru_cache(256)
def _unpacked(shelf: str, key: bytes) -> Grammar:
    grammars = _grammars(shelf)
    return unpack(grammars[key], grammars)


@cache
def _shelves_of() -> Mapping[bytes, tuple[str, ...]]:
    from mudroom.core.command.option.index import SHELVES

    shelves: dict[bytes, tuple[str, ...]] = {}
    for shelf, programs in SHELVES.items():
        for program in programs.split():
            shelves[program] = (*shelves.get(program, ()), shelf)
    return shelves


def _aliases() -> Mapping[bytes, bytes]:
    from mudroom.core.command.option.index import ALIASES

    return ALIASES


@cache
def _grammars(shelf: str) -> Mapping[bytes, bytes]:
    module = __import__(f"mudroom.core.command.option.{shelf}_options", fromlist=["GRAMMARS"])
    grammars: Mapping[bytes, bytes] = module.GRAMMARS
    return grammars
