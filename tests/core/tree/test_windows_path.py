"""Paths of Windows: what is kept, what calls get, and names that may not land."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudroom.core.tree.windows_name import fold, why_no_name
from mudroom.core.tree.windows_path import inner_path, outer_path
from tiers import each

KEPT = [
    ("C:\\Users\\ann\\project", b"C:/Users/ann/project"),
    ("c:/Users/ann", b"C:/Users/ann"),
    ("C:\\", b"C:/"),
    ("C:\\a\\\\b\\.\\c\\", b"C:/a/b/c"),
    ("\\\\?\\C:\\long", b"C:/long"),
    ("D:\\\u00e4\u0436\U0001f600", "D:/\u00e4\u0436\U0001f600".encode()),
    ("C:\\Users\\RUNNER~1\\p", b"C:/Users/RUNNER~1/p"),
    ("C:\\" + "\\".join(["n" * 100] * 3), b"C:/" + b"/".join([b"n" * 100] * 3)),
]
REFUSED = [
    ("C:", "relative to the current directory of drive C: write C:\\"),
    ("C:project", "write C:\\project"),
    ("C:..\\x", "relative to the current directory of drive C"),
    ("\\\\server\\share\\p", "a server"),
    ("//server/share/p", "a server"),
    ("\\\\?\\UNC\\server\\share", "a server"),
    ("\\\\.\\PhysicalDrive0", "a server or device"),
    ("\\\\?\\Volume{0}\\p", "not an absolute path"),
    ("\\Users", "without a drive"),
    ("project\\x", "not an absolute path"),
    ("", "not an absolute path"),
    ("1:\\x", "not an absolute path"),
    ("\u00c4:\\x", "not an absolute path"),
    ("C:\\a\\..\\b", "contains '..'"),
    ("C:\\nul.txt", "device"),
    ("C:\\a.", "a space or dot at the end"),
    ("C:\\a:stream", "stream"),
    ("C:\\a\x00b", "cannot be in a name"),
    ("C:\\a\ud800b", "not Unicode"),
    ("C:\\" + "n" * 300, "longer"),
]


def test_what_is_kept_goes_back_to_what_calls_get() -> None:
    for path, kept in KEPT:
        assert inner_path(path) == kept, path
        outside = outer_path(kept)
        assert outside.startswith("\\\\?\\")
        assert "/" not in outside
        assert inner_path(outside) == kept, outside


def test_what_is_refused_says_why_in_one_line() -> None:
    for path, reason in REFUSED:
        with pytest.raises(ValueError, match=r".") as raised:
            inner_path(path)
        assert reason in str(raised.value), (path, str(raised.value))
        assert "\n" not in str(raised.value)


def test_calls_get_nothing_that_is_not_of_a_drive() -> None:
    for path in (b"/etc", b"C:x", b"relative", b"C:/a\\b", b""):
        with pytest.raises(ValueError, match=r"."):
            outer_path(path)


@each("path", [
        b"a", b"src/main.py", b".git/config", b"console", b"nul_", b"com", b"com10", b"lpt", b"auxiliary.c", b"a~b",
        "ä/ö.txt".encode(), b"~1a", b"a.b.c", b"x" * 255, "\U0001f600.txt".encode(), b"\xed\xa0\x80",
        b"longname12~1.txt", b"a~1.text", b"a b", b".a", b"a.~1.b.c",
    ])  # fmt: skip
def test_ordinary_names_land(path: bytes) -> None:
    assert all(why_no_name(part) is None for part in path.split(b"/"))


@each(
    ("path", "why"),
    [
        (b"a:b", "drive or a stream"),
        (b".git::$INDEX_ALLOCATION/config", "drive or a stream"),
        (b"c:", "drive or a stream"),
        (b"a\\..\\b", "separates directories"),
        (b"a/b.", "dropped"),
        (b"a /b", "dropped"),
        (b".git /config", "dropped"),
        (b"...", "dropped"),
        (b"CON", "device"),
        (b"dir/nul", "device"),
        (b"Nul.txt", "device"),
        (b"nul .txt", "device"),
        (b"com1.tar.gz", "device"),
        (b"LPT9", "device"),
        (b"com0", "device"),
        ("COM¹".encode(), "device"),
        ("lpt³.x".encode(), "device"),
        (b"conin$", "device"),
        (b"CONOUT$", "device"),
        (b"GIT~1/config", "short name"),
        (b"git~1", "short name"),
        (b"GI7EBA~1", "short name"),
        (b"PROGRA~1.EXE", "short name"),
        (b"MUDROO~2", "short name"),
        (b"a\x01", "cannot be in a name"),
        (b"a\nb", "cannot be in a name"),
        (b'a"b', "cannot be in a name"),
        (b"a?", "cannot be in a name"),
        (b"a*", "cannot be in a name"),
        (b"a|b", "cannot be in a name"),
        (b"<", "cannot be in a name"),
        (b"\xff", "not UTF-8"),
        (b"x" * 256, "longer than 255"),
        ("\U0001f600".encode() * 128, "longer than 255"),
    ],
)
def test_others_do_not(path: bytes, why: str) -> None:
    assert any(why in (why_no_name(part) or "") for part in path.split(b"/"))


@given(st.binary(min_size=1, max_size=12).filter(lambda one: b"/" not in one))
def test_what_is_let_through_means_itself(name: bytes) -> None:
    if why_no_name(name) is None:
        text = name.decode("utf-8", "surrogatepass")
        assert text == text.rstrip(" .") and not set(text) & set('<>:"|?*\\\0\n')
        assert fold(name) == fold(fold(name).encode("utf-8", "surrogatepass"))
