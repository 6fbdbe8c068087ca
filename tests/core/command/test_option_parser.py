"""The parser of options, beside getopt_long(3) of this machine."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mudroom.core.command.option_grammar import Grammar, unpack
from mudroom.core.command.option_parser import ParsedCommand, parse
from mudroom.core.command.word import literal_words
from tiers import examples

LETTERS = ["a", "b=", "c?", "d", "-5"]
LONG = ["--all", "--allow=", "--alone?", "--brief", "--bring=", "--colour?", "--d", "--exclude=", "--ex", "--no-act"]
VALUES = {"": 0, "=": 1, "?": 2}


class LongOption(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("has_arg", ctypes.c_int), ("flag", ctypes.c_void_p), ("val", ctypes.c_int))


words_of_a_line = st.lists(
    st.one_of(
        st.sampled_from(
            b"-a|-b|-c|-d|-ab|-abx|-bx|-cx|-ca|-da|-ad|-n|-|--|x|y|-x|--all|--al|--allo|--allow|--allow=v|--alone|--alone=v"
            b"|--alo|--bri|--bring|--brin=v|--bring=|--b|--colour=-a|--col|--d|--ex|--exc|--excl|--exclude=x|--e|--no|--no-act"
            b"|--all=x|---|--=|-=|-a=|-b=x|-c=x".split(b"|")
        ),
        st.text("-abcdx=", max_size=5).map(str.encode),
    ),
    max_size=7,
)


def split(spec: str) -> tuple[str, int]:
    return (spec[:-1], VALUES[spec[-1]]) if spec[-1] in "=?" else (spec, 0)


def by_the_library(words: Sequence[bytes], permute: bool) -> tuple[list[tuple[str, bytes | None]], list[bytes]] | None:
    """Return options and operands of getopt_long(3); None for words that it refuses."""
    library = ctypes.CDLL(None)
    specs = [split(spec) for spec in LONG]
    table = (LongOption * (len(specs) + 1))()
    for at, (name, takes) in enumerate(specs):
        table[at] = LongOption(name[2:].encode(), takes, None, 1000 + at)
    letters = "".join(letter[0] + ":" * VALUES[letter[1:]] for letter in LETTERS if letter[0] != "-") + "5"
    arguments = (ctypes.c_char_p * (len(words) + 2))(b"program", *words, None)
    ctypes.c_int.in_dll(library, "opterr").value = 0
    index = ctypes.c_int.in_dll(library, "optind")
    index.value = 0
    options: list[tuple[str, bytes | None]] = []
    while True:
        found = library.getopt_long(
            len(words) + 1, arguments, (b"" if permute else b"+") + letters.encode(), table, None
        )
        value = ctypes.c_char_p.in_dll(library, "optarg").value
        if found == -1:
            return options, [arguments[at] or b"" for at in range(index.value, len(words) + 1)]
        if found == ord("?"):
            return None
        options.append((specs[found - 1000][0] if found >= 1000 else "-" + chr(found), value))


def shown(parsed: ParsedCommand) -> tuple[list[tuple[str, bytes | None]], list[bytes]]:
    options = [
        (given.option.names[0].decode(), None if given.value is None else given.value.text) for given in parsed.given
    ]
    return options, [word.text for word in parsed.operands]


def grammar(style: str) -> Grammar:
    return unpack(" ".join([style, *("-" + spec if spec[0] != "-" else spec for spec in LETTERS), *LONG]).encode())


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="compares with the C library of Linux")
@given(words_of_a_line, st.booleans())
@settings(max_examples=examples(2000), deadline=None)
def test_options_and_operands_are_those_of_getopt_long(words: list[bytes], permute: bool) -> None:
    parsed = parse(literal_words(words), grammar("gnu" if permute else "posix"))
    expected = by_the_library(words, permute)
    if expected is None:
        assert parsed.unlisted or not all(one.sure for one in parsed.given), words
    else:
        assert not parsed.unlisted, words
        assert shown(parsed) == expected
        assert all(one.sure for one in parsed.given)
