"""A command's words as one line for display, quoted as for a shell, with nothing hidden.

Words are unambiguous: a word is quoted where a shell needs it. Control characters, bytes that are not valid text and
bidirectional controls are written as ``$'\\x1b'``. Long words are cut in the middle, with the number of omitted bytes:
a command's end can be the important part.
"""

from __future__ import annotations

from collections.abc import Sequence

from mudroom.core.text.invisible_characters import escape_character, is_seen

_PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_@%+=:,./^-")
LONGEST = 1500
"""Most characters shown for a command."""


def show_words(words: Sequence[bytes], limit: int = LONGEST) -> str:
    """Return the words as one line with about ``limit`` characters. Words are cut before they are quoted, so that a
    megabyte-long command costs no more than its visible part."""
    head, cut = _show_leading(words, limit * 2 // 3)
    tail, cut_too = _show_leading(words[len(head) :][::-1], limit // 3)
    omitted = len(words) - len(head) - len(tail)
    shown = [*head, f"… {omitted:,} words …", *reversed(tail)] if omitted else [*head, *reversed(tail)]
    size = sum(map(len, words)) + max(0, len(words) - 1)
    return " ".join(shown) + (f"  ({size:,} bytes in all)" if omitted or cut or cut_too else "")


def show_text(words: Sequence[str], limit: int = LONGEST) -> str:
    """Return the same of words as JSON has them (``core/result.py:text``)."""
    return show_words([word.encode("utf-8", "surrogatepass") for word in words], limit)


def _show_leading(words: Sequence[bytes], limit: int) -> tuple[list[str], bool]:
    """Return the leading words for display in about ``limit`` characters, and whether any was cut."""
    shown: list[str] = []
    cut = False
    for word in words:
        if limit <= 0:
            break
        shortened = _cut_middle(word, limit)
        shown.append(show_word(shortened))
        cut |= shortened != word
        limit -= len(shown[-1]) + 1
    return shown, cut


def show_word(word: bytes) -> str:
    text = word.decode("utf-8", "surrogateescape")
    if text and _PLAIN.issuperset(text):
        return text
    if is_seen(text):
        return "'" + text.replace("'", "'\\''") + "'"
    return "$'" + "".join(map(_in_dollar_quotes, text.replace("\\", "\\\\").replace("'", "\\'"))) + "'"


def _in_dollar_quotes(character: str) -> str:
    """Return a character as every shell with $'…' reads it: a character that is not seen as its bytes."""
    escape = character if is_seen(character) else escape_character(character)
    if not escape.startswith("\\u"):
        return escape
    return "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", "surrogatepass"))


def _cut_middle(word: bytes, limit: int) -> bytes:
    if len(word) <= max(limit, 60):
        return word
    head, tail = word[: limit * 2 // 3], word[len(word) - limit // 3 :]
    return head + f" …{len(word) - len(head) - len(tail):,} bytes… ".encode() + tail
