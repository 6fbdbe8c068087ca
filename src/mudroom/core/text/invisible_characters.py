"""The characters that are invisible or that move other characters. File names (``core/tree/path.py``) and lines
(``escaping.py``) are escaped by this table, and the page's own table (``segments.js``) is compared with it
(``tests/ext/web/test_unseen_alike.py``).

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
