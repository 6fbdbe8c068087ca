"""Conflict markers, beside those that git writes."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from mudroom.core.merge.diff3 import Chunk, MergedText, merge3
from mudroom.core.merge.marker import (
    LINES,
    Labels,
    Style,
    has_markers,
    marker_size,
    resolve,
    why_not_mergeable,
    with_markers,
)
from tiers import each

LABELS = Labels(b"o", b"b", b"t")
CASES = {
    "one line": (b"1\n2\n3\n", b"1\nx\n3\n", b"1\ny\n3\n"),
    "shared ends": (b"1\n2\n3\n", b"1\na\nx\nz\n3\n", b"1\na\ny\nz\n3\n"),
    "no newline at the end": (b"1\n2", b"1\nx", b"1\ny"),
    "line ends": (b"1\r\n2\r\n3\r\n", b"1\r\nx\r\n3\r\n", b"1\r\ny\r\n3\r\n"),
    "deleted": (b"1\n2\n3\n", b"1\n3\n", b"1\ny\n3\n"),
    "added": (b"", b"x\n", b"y\n"),
    "two": (b"1\n2\n3\n4\n5\n6\n7\n8\n9\n", b"x\n2\n3\n4\n5\n6\n7\n8\nx\n", b"y\n2\n3\n4\n5\n6\n7\n8\ny\n"),
}


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
@pytest.mark.parametrize("style", ["merge", "diff3", "zdiff3"])
@pytest.mark.parametrize("case", CASES)
def test_they_are_those_of_git(case: str, style: Style, tmp_path: Path) -> None:
    for name, content in zip(("base", "ours", "theirs"), CASES[case], strict=True):
        (tmp_path / name).write_bytes(content)
    words = ["git", "merge-file", "-p", "-L", "o", "-L", "b", "-L", "t", "ours", "base", "theirs"]
    words[2:2] = [f"--{style}"] if style != "merge" else []
    told = subprocess.run(words, cwd=tmp_path, capture_output=True, check=False)
    assert told.returncode == merge3(*CASES[case]).conflicts > 0, told.stderr
    assert with_markers(merge3(*CASES[case]), LABELS, style) == told.stdout


def test_they_grow_where_the_text_has_such_lines() -> None:
    merged = merge3(b"1\n<<<<<<< a\n========\n", b"x\n<<<<<<< a\n========\n", b"y\n<<<<<<< a\n========\n")
    shown = with_markers(merged, LABELS, "merge")
    assert shown == b"<<<<<<<< o\nx\n========\ny\n>>>>>>>> t\n<<<<<<< a\n========\n"
    assert marker_size(merged) == 8
    assert has_markers(shown, 8) and not has_markers(shown.replace(b"<<<<<<<< o", b"").replace(b">>>>>>>> t", b""), 8)


def test_two_sides_that_are_the_same_are_shown() -> None:
    chunk = Chunk("conflict", (b"1\n",), (b"x\n",), (b"x\n",))
    assert with_markers(MergedText((chunk,)), LABELS) == b"<<<<<<< o\nx\n||||||| b\n1\n=======\nx\n>>>>>>> t\n"


@each(
    ("text", "expected"),
    [
        (b"a\n<<<<<<< ours\n", True),
        (b">>>>>>> theirs\r\n", True),
        (b"<<<<<<<<<<\n", False),
        (b"<<<<<<<\n", True),
        (b"=======\n", False),
        (b"a <<<<<<< b\n", False),
        (b"<<<<<<<x\n", False),
        (b"", False),
    ],
)
def test_a_text_with_markers_is_told(text: bytes, expected: bool) -> None:
    assert has_markers(text) == expected


def test_what_is_decided_is_no_conflict_any_more() -> None:
    merged = merge3(*CASES["two"])
    assert merged.conflicts == 2
    one = resolve(merged, {1: "both"})
    assert one.conflicts == 1
    assert resolve(one, {0: b"by hand\n"}).content() == b"by hand\n2\n3\n4\n5\n6\n7\n8\nx\ny\n"
    assert resolve(merged, {0: "base", 1: "theirs"}).content() == b"1\n2\n3\n4\n5\n6\n7\n8\ny\n"
    assert resolve(merged, {0: "ours", 1: b""}).content() == b"x\n2\n3\n4\n5\n6\n7\n8\n"


def test_what_is_decided_does_not_run_into_the_next_line() -> None:
    merged = merge3(b"1\n2\n3\n", b"1\nx\n3\n", b"1\ny\n3\n")
    assert resolve(merged, {0: b"z"}).content() == b"1\nz\n3\n"
    crlf = merge3(b"1\r\n2", b"1\r\nx\r\nx", b"1\r\ny")
    assert resolve(crlf, {0: "both"}).content() == b"1\r\nx\r\nx\r\ny"


def test_both_of_what_has_no_newline() -> None:
    assert resolve(merge3(*CASES["no newline at the end"]), {0: "both"}).content() == b"1\nx\ny"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\xc3\xa9\r\n", ""),
        (b"", ""),
        (b"a\0", "it is binary"),
        (b"\xe9", "it is not UTF-8"),
        (b"12345", "it is too large"),
    ],
)
def test_what_can_be_merged(data: bytes, reason: str) -> None:
    assert why_not_mergeable(data, 4) == reason


def test_a_text_of_very_many_lines_is_not_merged() -> None:
    assert why_not_mergeable(b"\n" * LINES) == ""
    assert why_not_mergeable(b"\n" * (LINES + 1)) == "it has too many lines"
