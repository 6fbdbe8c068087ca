"""The options of a program as a value: names, whether they take a value, and how the program reads its words.

A packed grammar is a text of tokens that blanks separate. The first token is the style (``STYLES``), with ``@`` behind
it if the program replaces a word ``@FILE`` by the words in that file. Every other token is an option: its names with
commas between them, and a mark for its value:

* nothing: takes no value; ``=``: takes one, attached or as the next word; ``?``: takes one only if it is attached;
  ``:``: takes the next two words; ``+``: takes the words that follow, up to one that begins with ``-``; ``*``: takes
  all words that follow.
* ``!`` at the end: by its name or its description the option may write, run or load something, so that it counts as
  unknown unless a rule of the program says otherwise.

``-NUM`` stands for a number with a dash in front: ``head -5``. ``&PROGRAM`` stands for the options of another packed
grammar. Of two options with one name, the first counts. A comma in a name is written ``;``.
"""

from __future__ import annotations

from collections.abc import Mapping

from mudroom.typing import Literal, NamedTuple

Value = Literal["none", "required", "optional", "pair", "list", "rest"]
_MARKS: dict[bytes, Value] = {b"=": "required", b"?": "optional", b":": "pair", b"+": "list", b"*": "rest"}


class Style(NamedTuple):
    abbreviates: bool = False
    """Whether a long option may be given by its beginning, if no other option begins likewise (getopt_long(3))."""
    clusters: bool = True
    """Whether ``-ab`` is ``-a -b``."""
    permutes: bool = True
    """Whether options may follow operands."""
    negates: bool = False
    """Whether ``--no-NAME`` takes an option back, and ``--NAME`` an option that is called ``--no-NAME``."""
    one_dash: bool = False
    """Whether ``-name`` and ``--name`` are the same option (the package flag of Go, LLVM)."""
    joined_equals: bool = False
    """Whether ``-o=VALUE`` is ``-o VALUE``."""
    joins: bool = True
    """Whether ``-oVALUE`` is ``-o VALUE``."""
    is_word: bool = False
    """Whether every option is one word, whatever its dashes, and ``--`` ends nothing: a compiler."""
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
    """By every name."""
    response: bool = False


def unpack(text: bytes, others: Mapping[bytes, bytes] | None = None) -> Grammar:
    """Return the grammar of a packed text. ``others``: packed grammars that it may name."""
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
