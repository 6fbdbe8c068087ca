"""What is not seen is told for names, for lines and by the page alike, of every character that there is."""

from __future__ import annotations

import functools
import json
import re
import shutil
import subprocess
import unicodedata
from importlib.resources import files

import pytest

from mudroom.core.text.escaping import escape_line
from mudroom.core.text.invisible_characters import ACTING, CHOICE, PASSED, is_seen
from mudroom.ext.tui import line
from mudroom.ext.web.api.region import result_of
from tiers import each

NODE = shutil.which("node")
SEGMENTS = str(files("mudroom.ext.web") / "page/segments.js")
SIGNS = {
    *map(chr, (*range(0x600, 0x606), *range(0x13430, 0x13440))),
    *"\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd",
}
"""Format characters that have a shape (https://www.unicode.org/reports/tr44/#Default_Ignorable_Code_Point leaves them
out): text is written with them, names hardly."""
WIDE = {"\u3000"}
"""The space of Chinese and Japanese text, as wide as its letters."""


@functools.cache
def all_characters() -> list[str]:
    """Not at the import: every process of a run imports this file, and one runs its tests."""
    return [chr(code) for code in range(0x110000)]


@functools.cache
def unassigned() -> set[str]:
    """In a line they stay; the terminal and the page see to them, which know another Unicode."""
    return {one for one in all_characters() if unicodedata.category(one) == "Cn"}


def unseen() -> set[str]:
    """In a line, surrogates apart: of no file's text is one (they stand for bytes that are no text)."""
    pattern = re.compile(f"[{ACTING}{PASSED}{CHOICE}]")
    return {one for one in all_characters() if pattern.match(one)}


def test_each_part_of_the_table_is_what_it_says() -> None:
    assert all(map(str.isprintable, PASSED + CHOICE))
    assert [one for one in all_characters() if re.match(f"[{ACTING}]", one) and one.isprintable()] == []


def test_in_names_and_in_lines() -> None:
    names = {one for one in all_characters() if not is_seen(one)}
    assert unseen() - names == set()
    assert names - unseen() - unassigned() == {"\t"} | WIDE | (SIGNS - unassigned())
    for one in unseen():
        if not "\ud800" <= one <= "\udfff" and one != "\n":
            assert escape_line(one.encode()).odd, hex(ord(one))


@each("one", "\u200b\u3164\u2800\U0001d173\U0001bca3\U000e0100")
def test_what_is_edited_tells_of_it(one: str) -> None:
    found = result_of(None, f"a{one}b\n".encode())
    assert found is not None
    assert found.unseen


@pytest.mark.skipif(NODE is None, reason="node is not installed: it runs the modules of the page")
def test_by_the_page() -> None:
    """Characters of a newer Unicode than one of the two knows apart."""
    script = """import { chips } from MODULE;
      const all = Array.from({ length: 0x110000 }, (_, code) => String.fromCodePoint(code));
      console.log(JSON.stringify(all.flatMap((one, code) => (chips("a" + one + "b").length ? [code] : []))));"""
    words = [str(NODE), "--input-type=module", "--eval", script.replace("MODULE", json.dumps(f"file://{SEGMENTS}"))]
    run = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    page = set(map(chr, json.loads(run.stdout)))
    names = {one for one in all_characters() if not is_seen(one)}
    assert page - names == set()
    assert names - page - unassigned() == {"\t"} | WIDE


def test_the_terminal_and_the_page_know_the_same_escapes() -> None:
    with open(SEGMENTS, encoding="utf-8") as file:
        (written,) = re.findall(r"^const WRITTEN = /(.*)/g;$", file.read(), re.MULTILINE)
    assert f"({written})" == line._ESCAPE.pattern
