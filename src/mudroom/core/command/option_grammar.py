"""A program's options as a value: their names, whether they take a value, and how the program reads its words.

A packed grammar is a text: tokens separated by blanks. The first token is the style (``STYLES``), followed by ``@`` if
the program replaces a word ``@FILE`` by the words in that file. Every other token is an option: its names, separated by
commas, and a mark for its value:

* no mark: takes no value; ``=``: takes one, attached or as the next word; ``?``: takes one only if it is attached;
  ``:``: takes the next two words; ``+``: takes the following words up to one that begins with ``-``; ``*``: takes all
  following words.
* ``!`` at the end: judging by its name or description, the option may write, run or load something. It counts as
  unknown unless the program's rule says otherwise.

``-NUM`` stands for a number with a dash in front: ``head -5``. ``&PROGRAM`` stands for the options in another packed
grammar. If two options share a name, the first counts. A comma in a name is written ``;``.
"""

from __future__ import annotations

from collections.abc import Mapping

from mudroom.typing import Literal, NamedTuple

Value = Literal["none", "required", "optional", "pair", "list", "rest"]
_MARKS: dict[bytes, Value] = {b"=": "required", b"?": "optional", b":": "pair", b"+": "list", b"*": "rest"}


class Style(NamedTuple):
    abbreviates: bool = False
    """Whether a long option may be abbreviated, if the abbreviation is unambiguous (getopt_long(3))."""
    clusters: bool = True
    """Whether ``-ab`` is ``-a -b``."""
    permutes: bool = True
    """Whether options may follow operands."""
    negates: bool = False
    """Whether ``--no-NAME`` cancels an option, and ``--NAME`` an option named ``--no-NAME``."""
    one_dash: bool = False
    """Whether ``-name`` and ``--name`` are the same option (Go's package flag, LLVM)."""
    joined_equals: bool = False
    """Whether ``-o=VALUE`` is ``-o VALUE``."""
    joins: bool = True
    """Whether ``-oVALUE`` is ``-o VALUE``."""
    is_word: bool = False
    """Whether every option is a single word, whatever its dashes, and ``--`` does not end the options: for
    compilers."""
    mixes: bool = False
    """Whether a word with a dash is a value for some options only (nopt)."""


STYLES: Mapping[bytes, Style] = {
    b"gnu": Style(abbreviates=True),
    b"posix": Style(abbreviates=True, permutes=False),
    b"git": Style(abbreviates=True, negates=True),
    b"argparse": Style(abbreviates=True),
    b"click": Style(),
    b"clap": Style(joined_equals=True),
    b"first": Style(permutes=False, joined_equals=True),
    b"pflag": Style(joined_equals=True),
    b"go": Style(clusters=False, permutes=False, one_dash=True, joined_equals=True, joins=False),
    b"llvm": Style(clusters=False, one_dash=True, joined_equals=True, joins=False),
    b"nopt": Style(abbreviates=True, clusters=False, negates=True, joined_equals=True, joins=False, mixes=True),
    b"words": Style(clusters=False, joined_equals=True, is_word=True),
    b"words-first": Style(clusters=False, permutes=False, joined_equals=True, is_word=True),
    b"java": Style(clusters=False, joins=False, is_word=True),
}


class Option(NamedTuple):
    names: tuple[bytes, ...]
    value: Value = "none"
    marked: bool = False


class Grammar(NamedTuple):
    style: Style
    options: Mapping[bytes, Option]
    """By each of its names."""
    response: bool = False


def unpack(text: bytes, others: Mapping[bytes, bytes] | None = None) -> Grammar:
    """Return the grammar that a packed text describes. ``others``: packed grammars that it may refer to."""
    first, *tokens = text.split()
    options: dict[bytes, Option] = {}
    for token in tokens:
        if token.startswith(b"&"):
            included = unpack((others or {})[token[1:]], others).options
            options = {**included, **options}
            continue
        marked = token.endswith(b"!")
        token = token[: len(token) - marked]
        value = _MARKS.get(token[-1:], "none") if len(token) > 2 else "none"
        names = (token if value == "none" else token[:-1]).split(b",")
        spelled = tuple(name.replace(b";", b",") for name in names)
        option = Option(spelled, value, marked)
        for name in spelled:
            options.setdefault(name, option)
    return Grammar(STYLES[first.rstrip(b"@")], options, first.endswith(b"@"))
