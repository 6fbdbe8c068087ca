"""A pattern's words as one text, quoted as a shell would read them, and back. Nothing is expanded. Pure."""

from __future__ import annotations

import re

_SAFE = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")
"""As ``shlex.quote`` has it."""
_SPECIAL = frozenset("|&<>()$`*?[]{}!")
"""What a shell would do something about, if it stands there without quotes."""
_FIRST = frozenset("~#")
"""The same at the beginning of a word."""
_BLANK = " \t"
SEPARATOR = ";"


def quote_words(words: tuple[bytes, ...]) -> str | None:
    """The text that ``split_words`` reads as these; None if a word is not UTF-8 or holds a control character: no line
    of a file of rules can hold that."""
    try:
        texts = [word.decode() for word in words]
    except UnicodeDecodeError:
        return None
    if not all(text.isprintable() for text in texts):
        return None
    return " ".join(text if _SAFE.fullmatch(text) else "'" + text.replace("'", "'\\''") + "'" for text in texts)


def split_words(text: str) -> tuple[bytes, ...]:
    """The words of a text. Raises ValueError for what a shell would expand or act on: no pattern can mean that."""
    found = split_all(text)
    if len(found) != 1:
        raise ValueError("';' separates commands; a pattern is about one" if found else "there is no word in it")
    return found[0]


def split_all(text: str) -> list[tuple[bytes, ...]]:
    """Words of several commands with a ``;`` between them. Raises ValueError as ``split_words``."""
    commands: list[list[str]] = [[]]
    word: str | None = None
    place = 0
    while place < len(text):
        letter = text[place]
        if letter in _BLANK or letter == SEPARATOR:
            if word is not None:
                commands[-1].append(word)
                word = None
            if letter == SEPARATOR:
                commands.append([])
            place += 1
            continue
        if word is None and letter in _FIRST:
            raise ValueError(f"a shell would do something about {letter!r}: put it in quotes if it is meant")
        piece, place = _piece(text, place)
        word = (word or "") + piece
    if word is not None:
        commands[-1].append(word)
    return [tuple(one.encode() for one in words) for words in commands if words]


def _piece(text: str, place: int) -> tuple[str, int]:
    """A letter, or what is in quotes, and where it ends."""
    letter = text[place]
    if letter == "'":
        end = text.find("'", place + 1)
        if end < 0:
            raise ValueError("a quote never closes")
        return text[place + 1 : end], end + 1
    if letter == '"':
        return _double(text, place + 1)
    if letter == "\\":
        if place + 1 == len(text):
            raise ValueError("it ends in a backslash")
        return text[place + 1], place + 2
    if letter in _SPECIAL:
        hint = "; a pattern is a prefix, so leave it out" if letter == "*" else ""
        raise ValueError(f"a shell would do something about {letter!r}: put it in quotes if it is meant{hint}")
    if not letter.isprintable():
        raise ValueError("it holds a control character")
    return letter, place + 1


def _double(text: str, place: int) -> tuple[str, int]:
    found = ""
    while place < len(text):
        letter = text[place]
        if letter == '"':
            return found, place + 1
        if letter in "$`":
            raise ValueError(f"a shell would expand {letter!r} in double quotes: use single ones")
        if letter == "\\" and text[place + 1 : place + 2] in ('"', "\\", "$", "`"):
            place += 1
            letter = text[place]
        found += letter
        place += 1
    raise ValueError("a quote never closes")
