"""Paths of Windows: what is kept, what calls get, and what is refused in one line."""

from __future__ import annotations

import pytest

from mudroom.core.tree.windows_path import inner_path, outer_path

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
    for given, kept in KEPT:
        assert inner_path(given) == kept, given
        outside = outer_path(kept)
        assert outside.startswith("\\\\?\\")
        assert "/" not in outside
        assert inner_path(outside) == kept, outside


def test_what_is_refused_says_why_in_one_line() -> None:
    for given, reason in REFUSED:
        with pytest.raises(ValueError, match=r".") as raised:
            inner_path(given)
        assert reason in str(raised.value), (given, str(raised.value))
        assert "\n" not in str(raised.value)


def test_calls_get_nothing_that_is_not_of_a_drive() -> None:
    for path in (b"/etc", b"C:x", b"relative", b"C:/a\\b", b""):
        with pytest.raises(ValueError, match=r"."):
            outer_path(path)
