"""Names that may not land on Windows."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mudroom.core.tree.windows_name import fold, why_no_name
from tiers import each


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
