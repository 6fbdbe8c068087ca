"""Grammars for known programs: ``data/options.txt``, read when a program is looked up."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache

from mudroom.core.command.option_grammar import Grammar, unpack
from mudroom.core.text.table import read_table


def grammar_of(program: bytes) -> Grammar | None:
    """Return the grammar for a program, or for a subcommand such as ``git log``. Return None if there is none.

    A program whose subcommands all take the same options has a single grammar: ``npm *``.
    """
    name, blank, verbs = program.partition(b" ")
    name = same_options().get(name, name)
    for key in (name + blank + verbs, name + b" *"):
        if key in packed_grammars():
            return _unpacked(key)
    return None


@lru_cache(256)
def _unpacked(key: bytes) -> Grammar:
    return unpack(packed_grammars()[key], packed_grammars())


@cache
def packed_grammars() -> Mapping[bytes, bytes]:
    """Return the packed grammars by program and subcommand; one with a ``~`` stands for options that others include."""
    rows = (row.encode().partition(b": ") for row in read_table("options"))
    return {program: packed for program, _colon, packed in rows}


@cache
def same_options() -> Mapping[bytes, bytes]:
    """Return the name under which the table has a program's options, by the program's other names."""
    rows = (row.encode().partition(b": ") for row in read_table("same_options"))
    return {other: program for program, _colon, others in rows for other in others.split()}
