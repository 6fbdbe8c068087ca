"""Commands as they are shown: what a shell would take, nothing hidden, nothing that a terminal obeys."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudroom.core.tree.quote import show_word, show_words
from tiers import each

BASH = shutil.which("bash") or ""


@each(
    ("word", "shown"),
    [
        (b"plain-1.2/x", "plain-1.2/x"),
        (b"", "''"),
        (b"two words", "'two words'"),
        (b"it's", "'it'\\''s'"),
        (b"\x1b[2Jgone\r", "$'\\x1b[2Jgone\\r'"),
        (b"\xff\0", "$'\\xff\\x00'"),
        ("a\u202eb".encode(), "$'a\\xe2\\x80\\xaeb'"),
        (b"back\\slash\n'", "$'back\\\\slash\\n\\''"),
        (b"~", "'~'"),
        (b"*", "'*'"),
        ("für".encode(), "'für'"),
    ],
)
def test_words(word: bytes, shown: str) -> None:
    assert show_word(word) == shown


@pytest.mark.skipif(not BASH, reason="there is no bash")
@given(st.lists(st.binary(max_size=20).filter(lambda word: b"\0" not in word), min_size=1, max_size=30))
def test_bash_reads_what_is_shown_as_the_very_same_words(words: list[bytes]) -> None:
    line = "printf '%s\\0' " + " ".join(map(show_word, words))
    done = subprocess.run([BASH, "-c", line], capture_output=True, env={"LC_ALL": "C.UTF-8"}, check=True)
    assert done.stdout == b"\0".join(words) + b"\0"


@given(st.lists(st.binary(max_size=200), max_size=200), st.integers(50, 400))
def test_what_is_shown_is_one_printable_line_and_short(words: list[bytes], limit: int) -> None:
    text = show_words(words, limit)
    assert text.isprintable()
    assert len(text) < limit * 6 + 600


def test_of_what_is_cut_the_end_is_shown_and_the_length() -> None:
    words = (b"echo", b"x" * (1 << 20), b"; rm -rf /")
    text = show_words(words)
    assert text.startswith("echo ")
    assert text.endswith("'; rm -rf /'  (1,048,592 bytes in all)")
    many = show_words([b"file%d" % number for number in range(100_000)])
    assert "words … " in many
    assert "file99999  (" in many
