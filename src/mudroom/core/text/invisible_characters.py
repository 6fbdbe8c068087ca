"""The characters that are invisible or that move other characters, and their escapes. File names
(``core/tree/path.py``), lines (``escaping.py``) and all text for a terminal are escaped here, and the page's own table
(``segments.js``) is compared with this one (``tests/ext/web/test_unseen_alike.py``).

1. The table contains all Default_Ignorable_Code_Point characters (Unicode, DerivedCoreProperties.txt), and the spaces
   that look like another space or are invisible.
2. ``PASSED`` holds the characters that ``str.isprintable`` accepts; ``ACTING`` holds none of those.
3. An emoji presentation selector (``CHOICE``) is visible in the emoji before it.
"""

from __future__ import annotations

CHOICE = "\ufe0e\ufe0f"
PASSED = "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0" + "".join(
    map(chr, (*range(0xFE00, 0xFE0E), *range(0xE0100, 0xE01F0)))
)
"""Fillers, joiners, variation selectors, and the braille pattern without dots."""
ACTING = (
    "\x00-\x08\x0a-\x1f\x7f-\x9f\xa0\xad"  # C0 without the tab, C1, the spaces and hyphens that look like others
    "\u061c\u1680\u180e\u2000-\u200f\u2028-\u202f\u205f-\u206f"  # spaces, joiners, separators, directions
    "\ud800-\udfff\ue000-\uf8ff\ufeff\ufff0-\ufffb\ufffe\uffff"  # bytes that are not UTF-8, private use, specials
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"  # format controls for shorthand and music
    "\U000e0000-\U000e00ff\U000e01f0-\U000e0fff\U000f0000-\U0010ffff"  # tags, private use
)
"""For use inside a character class in a regular expression."""
_UNSEEN = frozenset(PASSED + CHOICE)


def escaped(text: str, keep: str = "") -> str:
    """Return the text with every invisible or acting character as its escape, except those in ``keep``."""
    if is_seen(text):
        return text
    pairs = zip(text, " " + text, strict=False)
    return "".join(one if one in keep or _is_seen(one, before) else escape_character(one) for one, before in pairs)


def is_seen(text: str) -> bool:
    """Return whether ``text`` is entirely visible; spaces count as visible."""
    if not text.isprintable():
        return False
    return text.isascii() or _UNSEEN.isdisjoint(text) or all(map(_is_seen, text, " " + text))


def _is_seen(character: str, before: str) -> bool:
    if character in CHOICE:  # a variation selector is visible only in how it draws an emoji
        from mudroom.core.text.emoji import EMOJI

        return before in EMOJI
    return character not in _UNSEEN and character.isprintable()


def escape_character(character: str) -> str:
    """Return a character's escape: ``\\n``; ``\\x1b`` for a control character of ASCII or a byte that is not UTF-8;
    otherwise ``\\u{202e}``, whose end is certain."""
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    named = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(character)
    return named or (f"\\x{code:02x}" if code < 0x80 else f"\\u{{{code:x}}}")
