"""Every message of an error that users see: its text is in a test, or in the list of those without; and it says what
happened in one line, without words of the source."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from house import ROOMS, is_of_kernel
from messages import HOLE, ROOT, UNTESTED, _messages, is_tested, messages, text_of_tests, untested
from satellites import whole

WHOLE = all((ROOT / "src/mudroom" / name.replace(".", "/")).is_dir() for name in ROOMS if not is_of_kernel(name))
"""Else a satellite is absent, and its tests of other satellites' messages are, too."""
MOST = 200
"""Characters of a text without its values: longer ones have their reason beyond the edge of a terminal."""
NOT_WORDS = re.compile(r"\b(None|errno|Traceback|self|argv|stderr of)\b|[a-z]_[a-z]+\(|^Error|^error")


@whole
def test_each_message_is_tested_or_listed() -> None:
    listed, found = set(UNTESTED.read_text().splitlines()), set(untested(of_kernel=not WHOLE))
    hint = ".venv/bin/python tests/messages.py --write, after a test for each new message"
    assert sorted(found - listed) == [], f"messages that no test has; {hint}"
    assert sorted(listed - found) == [], f"listed, but tested or gone; {hint}"


def test_each_message_is_a_line_for_a_reader() -> None:
    problems = [
        f"{found.module}:{found.line}: {text!r}"
        for found in messages()
        if not found.module.startswith("library/")  # its readers write Python
        for text in (found.text, found.hint)
        if "\n" in text or len(text) > MOST or text.rstrip().endswith(".") or NOT_WORDS.search(text)
    ]
    assert problems == []


def test_what_counts_as_a_test(tmp_path: Path) -> None:
    """Not a comment; literals that Python makes one of are one, and values may stand between parts."""
    source = tmp_path / "src/mudroom/x.py"
    source.parent.mkdir(parents=True)
    texts = ("only in a comment", "half of it and the rest", "is at its end: {value}, by a long part")
    source.write_text("".join(f"raise MudroomError(f{text!r})\n" for text in texts))
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/test_x.py").write_text(
        '# only in a comment\nassert told == (\n    "half of it "\n    f"and the rest"\n)\n'
        'assert ", by a long part" in told\n'
    )
    tests = text_of_tests(tmp_path)
    assert [is_tested(found, tests) for found in _messages(tmp_path)] == [False, True, True]


def test_the_table_has_all_kinds() -> None:
    """The reader of the source finds what it is for."""
    rows = list(messages())
    assert len(rows) > (700 if WHOLE else 400)
    assert len({row.kind for row in rows}) >= 5
    assert sum(bool(row.hint) for row in rows) > len(rows) // 2


ROW = re.compile(r"^\| `([^`]+)`", re.M)
"""A row of the page whose first cell begins with a message."""


@pytest.mark.skipif(not WHOLE, reason="a satellite is absent")
def test_the_page_of_messages_has_those_of_the_source() -> None:
    """Each in one file, with all its words but the values."""
    texts = [found.text for found in messages()]
    rows = ROW.findall((ROOT / "docs/troubleshooting.md").read_text())
    assert len(rows) > 25
    gone = [row for row in rows if not any(has(text, row) for text in texts)]
    for path in (ROOT / "src").rglob("*.py") if gone else ():  # classes of errors with a text of their own, notes
        source = path.read_text()
        gone = [row for row in gone if not has(source, row)]
    assert gone == []


def has(text: str, row: str) -> bool:
    """Return whether all words of a row but the values are in a text."""
    return all(part.strip() in text for part in row.split(HOLE) if len(part.strip()) > 2)
