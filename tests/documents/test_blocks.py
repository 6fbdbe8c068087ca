"""Every block of the documents does what the page shows."""

from __future__ import annotations

import tomllib
from collections import Counter
from pathlib import Path

import pytest

from documents.block import Block, Typed, commands_of, parts_of
from documents.cast import PICTURE, as_svg, record
from documents.machine import ROOT
from documents.match import as_shown, matches
from documents.play import LANGUAGES, NOT_RUN, documents, play
from tiers import each, pairs


def blocks_of(path: Path) -> list[Block]:
    return [part for part in parts_of(path) if isinstance(part, Block)]


def runs(block: Block) -> bool:
    return block.language != "text" and block.note("not run") is None


PLAYED = [path for path in documents() if any(runs(block) for block in blocks_of(path))]


ALWAYS = [path for path in PLAYED if path.name in ("README.md", "tutorial.md")]
TODAY = [path for path in PLAYED if path in ALWAYS or (path, True) in pairs(PLAYED, [True])]
"""In the quick tier every other page, and the others the next day."""


@pytest.mark.slow
@pytest.mark.parametrize("path", TODAY, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_blocks_do_what_the_page_shows(path: Path, tmp_path: Path, nothing_left: None) -> None:
    played = play(path, tmp_path / "d")
    told = "\n".join(map(str, played.differences))
    assert not played.differences, f"{told}\ndev/docs --update {path.relative_to(ROOT)} writes what was printed"


@pytest.mark.deep
@pytest.mark.network
@pytest.mark.limit(300)
def test_the_blocks_that_install_packages(tmp_path: Path, nothing_left: None) -> None:
    for number, path in enumerate(PLAYED):
        if any(block.note("network") is not None for block in blocks_of(path)):
            assert not play(path, tmp_path / str(number), network=True).differences


def test_blocks_that_are_not_run_are_listed_with_their_reason() -> None:
    listed = tomllib.loads(NOT_RUN.read_text())
    found: dict[str, Counter[str]] = {}
    for path in documents():
        for block in blocks_of(path):
            reason = block.note("not run")
            if reason is not None:
                found.setdefault(str(path.relative_to(ROOT)), Counter())[reason] += 1
    assert {name: dict(counts) for name, counts in found.items()} == listed


def test_every_block_has_a_language_and_text_holds_no_command() -> None:
    for path in documents():
        for block in blocks_of(path):
            where = f"{path.relative_to(ROOT)}:{block.line}"
            assert block.language in LANGUAGES, f"{where}: {block.language or 'no language'}"
            if block.language == "text":
                lines = [line for line in block.text.splitlines() if line.startswith(("$ ", "mudroom "))]
                assert not lines or block.note("not run") is not None, f"{where}: {lines}"


def test_commands_of_a_block() -> None:
    text = "$ ls  # exit 2\nno\n\n$ cat <<END\na\nEND\na\n$ make \\\n  all\n"
    assert commands_of(text) == [
        Typed("ls  # exit 2", "no", 2),
        Typed("cat <<END\na\nEND", "a", None),
        Typed("make \\\n  all", "", None),
    ]
    with pytest.raises(ValueError, match="begins with a command"):
        commands_of("no\n")


@each(
    ("expected", "printed", "same"),
    [
        ("a\nb", "a\nb\n", True),
        ("took … ms", "took 12 ms", True),
        ("took … ms", "took 12\n ms", False),
        ("a\n…\nd", "a\nb\nc\nd", True),
        ("a\n…", "a", False),
        ("a\n…", "a\nb", True),
        ("a", "a b", False),
        ("", "a", False),
    ],
)
def test_what_matches(expected: str, printed: str, same: bool) -> None:
    assert matches(expected, printed) == same


def test_an_output_is_shown_without_what_varies_and_a_line_that_still_matches_stays() -> None:
    assert as_shown("in 12 ms\nfork run-0123abcd\n", "") == "in … ms\nfork run-…"
    assert as_shown("a 1\nb 2\n", "a …\nb 3") == "a …\nb 2"


def test_a_comment_without_its_block_is_an_error(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- block: not run: no -->\n\ntext\n")
    with pytest.raises(ValueError, match="not before its block"):
        parts_of(page)


@pytest.mark.slow
def test_the_recording_is_of_this_program(tmp_path: Path, nothing_left: None) -> None:
    assert PICTURE.read_text() == as_svg(record(tmp_path / "d")), "dev/docs --cast records it again"
