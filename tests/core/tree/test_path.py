"""Paths: what is let in, how it is shown, how it is ordered."""

from __future__ import annotations

import posixpath
import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mudroom.core.tree.path import ROOT, ancestors, is_below, name, parent, relpath, show, show_path, sort_key
from sample import paths
from tiers import each


@each(
    ("raw", "expected"),
    [
        (b"a", b"a"),
        (b"a/b", b"a/b"),
        (b"./a", b"a"),
        (b"a/", b"a"),
        (b"a//b/./c//", b"a/b/c"),
        (b"...", b"..."),
        (b"..a/b..", b"..a/b.."),
        (b" ", b" "),
        (b"\xff\n", b"\xff\n"),
        (b"n" * 255, b"n" * 255),
    ],
)
def test_relpath_tidies(raw: bytes, expected: bytes) -> None:
    assert relpath(raw) == expected


@each(
    ("raw", "why"),
    [
        (b"", "an empty path was given"),
        (b".", "an empty path was given"),
        (b"./", "an empty path was given"),
        (b"/", "/: is absolute; a path inside the project was expected"),
        (b"/etc/passwd", "/etc/passwd: is absolute; a path inside the project was expected"),
        (b"..", "..: leads out of the project with '..'"),
        (b"a/../b", "a/../b: leads out of the project with '..'"),
        (b"a/..", "a/..: leads out of the project with '..'"),
        (b"a\0b", r"a\x00b: a path cannot hold a NUL"),
        (b"n" * 256, "n" * 256 + ": a name is longer than 255 bytes"),
        (b"\x1b[2J/..", r"\x1b[2J/..: leads out of the project with '..'"),
    ],
)
def test_relpath_refuses(raw: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(why)}$"):
        relpath(raw)


@given(st.binary(max_size=20) | st.lists(st.sampled_from([b"/", b".", b"..", b"a", b"\0", b"./"])).map(b"".join))
def test_relpath_never_accepts_an_escaping_path(raw: bytes) -> None:
    try:
        path = relpath(raw)
    except ValueError:
        return
    assert path.split(b"/") == [part for part in raw.split(b"/") if part not in (b"", b".")]
    assert not {b"", b".", b".."} & set(path.split(b"/"))
    assert 0 not in path
    assert posixpath.normpath(b"/project/" + raw) == b"/project/" + path, "it names what it was given"
    assert relpath(path) == path


@given(paths())
def test_every_name_of_a_tree_is_accepted_as_it_is(path: bytes) -> None:
    assert relpath(path) == path


@given(paths())
def test_parts(path: bytes) -> None:
    above = ancestors(path)
    assert [*above, path] == [b"/".join(path.split(b"/")[: i + 1]) for i in range(path.count(b"/") + 1)]
    assert parent(path) == (above[-1] if above else ROOT)
    assert path == (parent(path) + b"/" + name(path) if above else name(path))
    assert all(is_below(path, directory) for directory in (ROOT, *above, path))


@given(paths(), paths())
def test_is_below_goes_by_whole_names(path: bytes, directory: bytes) -> None:
    parts, prefix = path.split(b"/"), directory.split(b"/")
    assert is_below(path, directory) == (parts[: len(prefix)] == prefix)


@each(
    ("path", "directory", "below"),
    [
        (b"ab", b"a", False),
        (b"a", b"a/b", False),
        (b"/a/b", b"/a", True),
        (b"/ab", b"/a", False),
        (b"/a", b"/", True),
        (b"/", b"/", True),
    ],
)
def test_is_below(path: bytes, directory: bytes, below: bool) -> None:
    assert is_below(path, directory) == below


@each(
    ("path", "text"),
    [
        (b"", ""),
        (b"src/main.py", "src/main.py"),
        ("caf\u00e9 \u65e5\u672c".encode(), "caf\u00e9 \u65e5\u672c"),
        (b"a\nb\tc\rd", r"a\nb\tc\rd"),
        (b"\x1b[31mred\x7f", r"\x1b[31mred\x7f"),
        (b"\xff\xfe", r"\xff\xfe"),
        (b"back\\slash", r"back\\slash"),
        ("\u202egnp.exe".encode(), r"\u{202e}gnp.exe"),
        ("\u00a0\u2028\U000e0001".encode(), r"\u{a0}\u{2028}\u{e0001}"),
        ("\u0085".encode(), r"\u{85}"),
        (b"\xed\xb2\x80", r"\xed\xb2\x80"),
        ("\u2800\u3164\ufe0f".encode(), r"\u{2800}\u{3164}\u{fe0f}"),
        ("é\ufe0f\u4e2d\ufe0e\u2500\ufe0f".encode(), "é\\u{fe0f}\u4e2d\\u{fe0e}\u2500\\u{fe0f}"),
        (
            "\u2194\ufe0f\u203c\ufe0e\U0001f441\ufe0f\U0001f600\ufe0f".encode(),
            "\u2194\ufe0f\u203c\ufe0e\U0001f441\ufe0f\U0001f600\ufe0f",
        ),
        ("\u2764\ufe0f.txt \U000e0100".encode(), "\u2764\ufe0f.txt \\u{e0100}"),
        (b" rm  -rf /tmp/ /srv ", " rm  -rf /tmp/ /srv "),
    ],
)
def test_show(path: bytes, text: str) -> None:
    assert show(path) == text


@each(
    ("path", "text"),
    [
        (b"", ""),
        (b"my file.txt", "my file.txt"),
        (b" ", r"\x20"),
        (b"   ", r"\x20\x20\x20"),
        (b" a", r"\x20a"),
        (b"a ", r"a\x20"),
        (b"a  b", r"a\x20\x20b"),
        (b"dir /file", r"dir\x20/file"),
        (b"dir/ /file", r"dir/\x20/file"),
        (b" \t", r"\x20\t"),
        (b"\\ ", r"\\\x20"),
        ("\u3000\u00a0\u2800\u200b".encode(), r"\u{3000}\u{a0}\u{2800}\u{200b}"),
    ],
)
def test_show_path(path: bytes, text: str) -> None:
    assert show_path(path) == text


def unshown(text: str) -> bytes:
    """The bytes that ``show`` was given. That this can be told for all of them is what unambiguous means."""
    letters = {"n": b"\n", "t": b"\t", "r": b"\r", "\\": b"\\"}

    def one(match: re.Match[str]) -> bytes:
        plain, byte, code, letter = match.groups()
        if plain is not None:
            return plain.encode()
        if byte is not None:
            return bytes([int(byte, 16)])
        return chr(int(code, 16)).encode() if code is not None else letters[letter]

    pattern = r"([^\\])|\\(?:x([0-9a-f]{2})|u\{([0-9a-f]+)\}|([ntr\\]))"
    assert re.fullmatch(f"(?:{pattern})*", text)
    return b"".join(one(match) for match in re.finditer(pattern, text))


@given(st.binary(max_size=12) | st.text(max_size=12).map(str.encode) | paths())
@example(b"\\xff")
@example(b"\\\\n\\n\n")
@example(b" a  /b ")
@example("\u2800\u2764\ufe0f\ufe0f".encode())
@example("\U0010ffff\ud7ff\ue000\u200f".encode())
def test_what_is_shown_is_printable_on_one_line_and_unambiguous(path: bytes) -> None:
    for text in (show(path), show_path(path)):
        assert text.isprintable()
        assert len(text.splitlines()) <= 1
        assert unshown(text) == path
    names = show_path(path).split("/")
    assert all(name == name.strip() and "  " not in name for name in names)


@given(st.sets(paths(), max_size=12))
def test_sort_key_orders_as_a_walk(chosen: set[bytes]) -> None:
    tree: dict[bytes, set[bytes]] = {}
    for path in chosen:
        for one in (*ancestors(path), path):
            tree.setdefault(parent(one), set()).add(one)

    def walk(directory: bytes) -> list[bytes]:
        found = []
        for one in sorted(tree.get(directory, ())):
            found += [one, *walk(one)]
        return found

    everything = walk(ROOT)
    assert sorted(everything, key=sort_key) == everything


def test_sort_key_puts_a_directory_before_its_neighbour() -> None:
    assert sorted([b"a-", b"a/b", b"a", b"a/b-c", b"a/b/c"], key=sort_key) == [b"a", b"a/b", b"a/b/c", b"a/b-c", b"a-"]
