"""Find tokens from ``issued_token_table.py``: which may be in a text, and by which pattern. Pure, and loaded when a
text may hold a token."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

from mudroom.core.text.issued_token_table import PLACES, TOKENS

_ALPHABETS = {
    "d": "0-9",
    "h": "0-9A-Fa-f",
    "l": "0-9a-z",
    "u": "0-9A-Z",
    "a": "0-9A-Za-z",
    "w": "0-9A-Za-z_-",
    "b": "0-9A-Za-z_+/=-",
    "s": "0-9A-Za-z_+/=.~-",
}
_ENOUGH = 20
"""Characters that are sufficient in the last part, however long it is."""
_LONGEST_PART = 1024
"""Most characters in a part with another part behind it, so that search time stays proportional to the text."""
_KEY = 4
"""Characters that are looked up if a prefix has no separator."""


def _parts(shape: str) -> Iterator[tuple[str, str, int, bool]]:
    """Yield a shape's parts: literal, alphabet, length, exact. The literal stands before the others."""
    for piece in shape.split("}"):
        literal, brace, field = piece.partition("{")
        if brace:
            yield literal, field[0], int(field[1:].removesuffix("!")), field.endswith("!")
        elif literal:
            yield literal, "", 0, False


def pattern_of(shape: str) -> str:
    """Return a shape's regular expression; its group ``secret`` is the token."""
    import re

    parts = list(_parts(shape))
    text, exact_end = "", False
    for number, (literal, alphabet, length, exact) in enumerate(parts, 1):
        text += re.escape(literal)
        exact_end = exact
        if alphabet:
            least = length * 3 // 4 or 1
            repeat = f"{{{least},{_LONGEST_PART}}}" if number < len(parts) else f"{{{min(least, _ENOUGH)},}}"
            repeat = f"{{{length}}}" if exact else repeat
            text += f"[{_ALPHABETS[alphabet]}]{repeat}"
    end = "(?![0-9A-Za-z])" if exact_end else ""
    return rf"(?:(?<![0-9A-Za-z])|(?<=%[0-9A-Fa-f]{{2}}))(?P<secret>{text}){end}"


@functools.cache
def _index() -> tuple[dict[bytes, list[str]], dict[bytes, list[str]]]:
    """Return the shapes by their first word, and by their first characters: if a prefix runs into the token, only these
    are known."""
    whole: dict[bytes, list[str]] = {}
    begun: dict[bytes, list[str]] = {}
    for line in TOKENS.splitlines():
        shape = line.partition(" ")[0]
        literal = shape.partition("{")[0].lstrip("_").encode()
        word = literal.translate(_WORDS).split(b" ")[0]
        if word and len(word) < len(literal):
            whole.setdefault(word, []).append(shape)
        elif word:
            begun.setdefault(word[:_KEY], []).append(shape)
    return whole, begun


_WORDS = bytes(byte if byte < 128 and chr(byte).isalnum() else 32 for byte in range(256))
_DISCORD = r"(?<![\w.-])(?P<secret>[MNO][A-Za-z0-9_-]{23,27}\.[A-Za-z0-9_-]{6}\.[A-Za-z0-9_-]{27,40})(?![A-Za-z0-9_-])"
"""A Discord bot's token: its id in base64, a time, and a digest."""


def patterns_in(text: str, runs: Sequence[bytes]) -> list[tuple[str, str]]:
    """Return the patterns for tokens that may be in a text, and how a match is checked. Each word is looked up once,
    whatever the number of shapes. ``runs``: the text's long runs of letters, digits, dots and dashes."""
    whole, begun = _index()
    words = set(text.encode("ascii", "replace").translate(_WORDS).split())
    if "%" in text:  # %3D in a URL is an equals sign, and does not begin a word
        words |= {word[2:] for word in words}
    shapes = [shape for word in words & whole.keys() for shape in whole[word]]
    for length in {len(key) for key in begun}:
        for key in {word[:length] for word in words if len(word) >= length} & begun.keys():
            shapes += begun[key]
    literals = sorted({(-len(literal), shape) for shape in shapes if (literal := next(_parts(shape))[0]) in text})
    patterns = [_pattern(shape) for _length, shape in literals]  # the longest prefix first: it hides the others
    if any(run.count(b".") == 2 and len(run) > 56 for run in runs):
        patterns.append((_DISCORD, "issued"))
    return patterns + [(pattern, "") for hint, pattern in PLACES if hint in text]


@functools.cache
def _pattern(shape: str) -> tuple[str, str]:
    literal, alphabet, _length, exact = next(_parts(shape))
    is_sure = len(literal) > _SURE and alphabet in "dhlua" and not exact
    return pattern_of(shape), "" if is_sure else "issued"


_SURE = 6
"""Prefix length in characters. After a longer prefix, letters and digits alone are a token; after a shorter one they
could be a program's name."""
_MIXED = 6
"""A token without a digit has at least so many letters in each case."""


def is_issued(token: str) -> bool:
    """Return whether a text with a token's shape is a token: program names have no digits."""
    upper = sum(map(str.isupper, token))
    return any(map(str.isdecimal, token)) or min(upper, sum(map(str.islower, token))) >= _MIXED
