"""Core tables that the page needs, as a JavaScript module.

``python -m mudroom.ext.web.server.page_tables > src/mudroom/ext/web/page/tables.js`` writes it;
``tests/ext/web/test_page_tables.py`` compares the file with the tables.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from mudroom.core.merge.resolution_words import SIDES, TAKES, take_words
from mudroom.core.text.answer_place import ANSWERED
from mudroom.core.text.invisible_characters import ACTING, CHOICE, PASSED
from mudroom.ext.order.core.risk import RISKS

_HEAD = """\
// Tables of the core. Generated: do not edit.
//
// python -m mudroom.ext.web.server.page_tables > src/mudroom/ext/web/page/tables.js
"""


def main() -> str:
    """Return the text for ``page/tables.js``."""
    takes = {take: take_words(take) for take in TAKES}
    return _HEAD + "".join(
        (
            _table("Names of the sides of a conflict (core/merge/resolution_words.py).", "SIDE_WORDS", SIDES),
            _table("What was decided about a file, by `take` (core/merge/resolution_words.py).", "TAKE_WORDS", takes),
            _table("Where a question was answered (core/text/answer_place.py).", "ANSWERED", ANSWERED),
            _table("Headings of the list by risk, the costliest first (ext/order/core/risk.py).", "RISK_WORDS", RISKS),
            _constant(
                "Code points, for a character class (core/text/invisible_characters.py).", "INVISIBLE", _ranges()
            ),
        )
    )


def _table(comment: str, name: str, table: Mapping[Any, str]) -> str:
    rows = "".join(f"  {key}: {json.dumps(value)},\n" for key, value in table.items())
    return f"\n/** {comment} @type {{Record<string, string>}} */\nexport const {name} = {{\n{rows}}};\n"


def _constant(comment: str, name: str, lines: list[str]) -> str:
    text = " +\n".join("  " + json.dumps(line) for line in lines)
    return f"\n/** {comment} */\nexport const {name} =\n{text};\n"


def _ranges() -> list[str]:
    """Return the invisible characters as ranges in JavaScript's escapes, eight ranges a line."""
    found = re.compile(f"[{ACTING}{PASSED}{CHOICE}]+").finditer("".join(map(chr, range(0x110000))))
    ranges = [f"\\u{{{match.start():x}}}-\\u{{{match.end() - 1:x}}}" for match in found]
    return ["".join(ranges[at : at + 8]) for at in range(0, len(ranges), 8)]


if __name__ == "__main__":
    import sys

    sys.stdout.write(main())
