"""A pattern's words as text with shell quoting, and the parser for it. Nothing is expanded. Pure."""

from __future__ import annotations

from mudroom.core.text.regex import regex

_SAFE = regex(r"[A-Za-z0-9_@%+=:,./-]+")
"""Characters that need no quotes, as in ``shlex.quote``."""
_SPECIAL = frozenset("|&<>()$`*?[]{}!")
"""Characters that a shell acts on outside quotes."""
_FIRST = frozenset("~#")
"""Characters that a shell acts on at the beginning of a word."""
_BLANK = " \t"
_BOUND = regex(r"(.*) \(as of ([0-9a-f]{32})\)")
"""No word can be read as this end: an unquoted parenthesis is an error."""
SEPARATOR = ";"


def quote_words(words: tuple[bytes, ...]) -> str | None:
    """Return the text that ``split_words`` parses to these words; None if a word is not UTF-8 or holds a control
    character, which a rule file's line cannot hold."""
    try:
        texts = [word.decode() for word in words]
    except UnicodeDecodeError:
        return None
    if not all(text.isprintable() for text in texts):
        return None
    return " ".join(text if _SAFE.fullmatch(text) else "'" + text.replace("'", "'\\''") + "'" for text in texts)


def bind(pattern: str, digest: str) -> str:
    """Return the pattern as a rule that holds only for the question with this digest
    (``core/approval/fingerprint.py``)."""
    return f"{pattern} (as of {digest})"


def split_bound(text: str) -> tuple[str, str]:
    """Return a pattern and the digest that it is bound to; empty: it is about the words alone."""
    match = _BOUND.fullmatch(text)
    return (match.group(1), match.group(2)) if match is not None else (text, "")


def as_words(line: str) -> tuple[bytes, ...]:
    """Return the words of a command given as a single word: its own words, or ``sh -c`` with it if it needs a shell."""
    try:
        words = split_words(line)
    except ValueError:
        words = ()
    is_plain = bool(words) and b"=" not in words[0]
    return words if is_plain else (b"sh", b"-c", line.encode(errors="surrogateescape"))


def split_words(text: str) -> tuple[bytes, ...]:
    """Return the text's words. Raise ValueError if a shell would expand or act on the text: a pattern cannot mean
    that."""
    commands = split_all(text)
    if len(commands) != 1:
        raise ValueError(
            "';' separates commands; a pattern names one command" if commands else "the pattern has no word"
        )
    return commands[0]


def split_all(text: str) -> list[tuple[bytes, ...]]:
    """Return the words of several commands separated by ``;``. Raise ValueError as ``split_words`` does."""
    commands: list[list[str]] = [[]]
    word: str | None = None
    index = 0
    while index < len(text):
        character = text[index]
        if character in _BLANK or character == SEPARATOR:
            if word is not None:
                commands[-1].append(word)
                word = None
            if character == SEPARATOR:
                commands.append([])
            index += 1
            continue
        if word is None and character in _FIRST:
            raise ValueError(f"a shell would do something about {character!r}: put it in quotes if it is meant")
        piece, index = _piece(text, index)
        word = (word or "") + piece
    if word is not None:
        commands[-1].append(word)
    return [tuple(word.encode() for word in words) for words in commands if words]


def _piece(text: str, index: int) -> tuple[str, int]:
    """Return a single character or quoted text, and the index after it."""
    character = text[index]
    if character == "'":
        end = text.find("'", index + 1)
        if end < 0:
            raise ValueError("a quote never closes")
        return text[index + 1 : end], end + 1
    if character == '"':
        return _double(text, index + 1)
    if character == "\\":
        if index + 1 == len(text):
            raise ValueError("it ends in a backslash")
        return text[index + 1], index + 2
    if character in _SPECIAL:
        hint = "; a pattern is a prefix, so leave it out" if character == "*" else ""
        raise ValueError(f"a shell would do something about {character!r}: put it in quotes if it is meant{hint}")
    if not character.isprintable():
        raise ValueError("it holds a control character")
    return character, index + 1


def _double(text: str, index: int) -> tuple[str, int]:
    content = ""
    while index < len(text):
        character = text[index]
        if character == '"':
            return content, index + 1
        if character in "$`":
            raise ValueError(f"a shell would expand {character!r} in double quotes: use single ones")
        if character == "\\" and text[index + 1 : index + 2] in ('"', "\\", "$", "`"):
            index += 1
            character = text[index]
        content += character
        index += 1
    raise ValueError("a quote never closes")
