"""Which characters are not seen, or move the others about. One table: names (``core/tree/path.py``) and lines
(``escaping.py``) are shown by it, and the page's own (``segments.js``) is compared with it
(``tests/web/test_unseen_alike.py``).

1. All of Default_Ignorable_Code_Point (Unicode, DerivedCoreProperties.txt) is in it, and the spaces that are taken for
   another one, or for nothing.
2. ``PASSED`` are those that ``str.isprintable`` lets pass; in ``ACTING`` are none of them.
3. A choice of how an emoji is drawn is seen by the emoji before it (``CHOICE``).
"""

from __future__ import annotations

CHOICE = "\ufe0e\ufe0f"
PASSED = "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0" + "".join(
    map(chr, (*range(0xFE00, 0xFE0E), *range(0xE0100, 0xE01F0)))
)
"""Fillers, joiners, variation selectors, and the braille pattern without a dot."""
ACTING = (
    "\x00-\x08\x0a-\x1f\x7f-\x9f\xa0\xad"  # C0 without the tab, C1, the spaces and hyphens that look like others
    "\u061c\u1680\u180e\u2000-\u200f\u2028-\u202f\u205f-\u206f"  # spaces, joiners, separators, directions
    "\ud800-\udfff\ue000-\uf8ff\ufeff\ufff0-\ufffb\ufffe\uffff"  # bytes that are no text, private use, specials
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"  # format controls of shorthand and of music
    "\U000e0000-\U000e00ff\U000e01f0-\U000e0fff\U000f0000-\U0010ffff"  # tags, private use
)
"""As in the brackets of a regular expression."""
