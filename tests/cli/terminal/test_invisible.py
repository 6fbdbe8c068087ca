"""No character that is invisible, or that moves others, reaches a terminal: in names, lines, commands and prompts."""

from __future__ import annotations

import re
import sys
import unicodedata

import pytest

from conftest import Place
from mudroom.core.settings import Settings
from mudroom.core.text.invisible_characters import CHOICE, PASSED, escaped, is_seen
from screen import Screen

pytestmark = pytest.mark.both_users

UNSEEN = [
    one
    for one in map(chr, range(1, 0x110000))
    if one in PASSED + CHOICE or unicodedata.category(one) in ("Cc", "Cf", "Zl", "Zp")
]
UNSEEN_SET = frozenset(UNSEEN) - {"\t"}
NAMES = ["x" + "".join(set(UNSEEN[at : at + 50]) - {"/"}) for at in range(0, len(UNSEEN), 50)]
WRITE = "import sys\nfor name in sys.argv[1:]:\n    open(name, 'w').write(name + '\\n')\n"


def test_all_are_escaped_and_an_escape_has_a_certain_end() -> None:
    assert len(UNSEEN) > 400
    for one in UNSEEN:
        assert not is_seen(one) and not UNSEEN_SET.intersection(escaped(f"a{one}b"))
    assert escaped("a\u202eb\u3164\U000e0101\x9b\x1b\n") == r"a\u{202e}b\u{3164}\u{e0101}\u{9b}\x1b\n"
    assert escaped("\t\u2764\ufe0f", keep="\t") == "\t\u2764\ufe0f"


def shown(place: Place, *words: str, typed: str = "") -> str:
    screen = Screen(place, sys.executable, "-m", "mudroom", *words, rows=1000, columns=1000, PAGER="cat")
    if typed:
        screen.expect("then Enter")
        screen.type(typed)
    screen.exit_code()
    return re.sub(r"\x1b\[[0-9;]*[mK]|[\r\n]", "", screen.seen.decode())


def test_no_verb_prints_one(place: Place) -> None:
    session = place.session(Settings())
    result = session.run([b"/usr/bin/python3", b"-c", WRITE.encode(), *(name.encode() for name in NAMES)], fork="f")
    assert result.exit_code == 0, result.stderr
    session.close()
    for words in (["diff", "f"], ["diff", "f", "--stat"], ["status"], ["ls"], ["log"], ["apply", "f", "--yes"]):
        found = UNSEEN_SET.intersection(shown(place, *words))
        assert found == set(), words


def test_no_prompt_prints_one(place: Place) -> None:
    place.write(".mudroom/policy.yaml", "commands:\n  classes: {unknown: require_approval}\n")
    found = shown(place, "exec", "--", "/usr/bin/python3", "-c", WRITE, *NAMES[:8], typed="n\n")
    assert "python3" in found
    assert UNSEEN_SET.intersection(found) == set()
