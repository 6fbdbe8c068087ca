"""Words of a command for a person: as a shell would take them, in one line, nothing hidden.

A word is shown so that it can be told from any other: quoted where a shell needs it, and what cannot be printed
(control characters, bytes that are no text, characters that turn the direction of writing) as ``$'\\x1b'``.
What is too long is cut in the middle, and says how much is missing: the end of a command may be what matters.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from mudroom.core.tree.path import is_seen, show

_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./^-]+\Z")
LONGEST = 1500
"""Characters that are shown of a command."""


def show_words(words: Sequence[bytes], limit: int = LONGEST) -> str:
    """What is cut is cut before it is quoted: a command of a megabyte costs no more than what is shown of it."""
    head, cut = _fitting(words, limit * 2 // 3)
    tail, cut_too = _fitting(words[len(head) :][::-1], limit // 3)
    left = len(words) - len(head) - len(tail)
    shown = [*head, f"… {left:,} words …", *reversed(tail)] if left else [*head, *reversed(tail)]
    size = sum(map(len, words)) + max(0, len(words) - 1)
    return " ".join(shown) + (f"  ({size:,} bytes in all)" if left or cut or cut_too else "")


def _fitting(words: Sequence[bytes], limit: int) -> tuple[list[str], bool]:
    """The first words, as they are shown, in about so many characters; and whether one of them had to be cut."""
    shown: list[str] = []
    cut = False
    for word in words:
        if limit <= 0:
            break
        short = _middle(word, limit)
        shown.append(show_word(short))
        cut |= short != word
        limit -= len(shown[-1]) + 1
    return shown, cut


def show_word(word: bytes) -> str:
    text = word.decode("utf-8", "surrogateescape")
    if _PLAIN.match(text):
        return text
    if is_seen(text):
        return "'" + text.replace("'", "'\\''") + "'"
    return "$'" + show(word).replace("'", "\\'") + "'"


def _middle(word: bytes, limit: int) -> bytes:
    if len(word) <= max(limit, 60):
        return word
    head, tail = word[: limit * 2 // 3], word[len(word) - limit // 3 :]
    return head + f" …{len(word) - len(head) - len(tail):,} bytes… ".encode() + tail
