"""What a browser is let show as a picture."""

from __future__ import annotations

from mudroom.ext.review.rows import picture_of
from tiers import each


@each(
    ("head", "media_type"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "image/png"),
        (b"\xff\xd8\xff\xe0\0\x10JFIF", "image/jpeg"),
        (b"GIF89a\1\0\1\0", "image/gif"),
        (b"RIFF\x24\0\0\0WEBPVP8L", "image/webp"),
        (b"\0\0\0\x1cftypavif\0\0\0\0", "image/avif"),
        (b"BM\x46\0\0\0\0\0\0\0", "image/bmp"),
        (b"\0\0\1\0\1\0", "image/x-icon"),
        (b"BM is a word", ""),
        (b"RIFF\x24\0\0\0WAVEfmt ", ""),
        (b"<html><script>", ""),
        (b"", ""),
    ],
)
def test_by_its_first_bytes(head: bytes, media_type: str) -> None:
    assert picture_of(head, b"a.html") == media_type


def test_svg_by_its_name_and_what_it_is() -> None:
    assert picture_of(b'<?xml version="1.0"?><svg/>', b"docs/A.SVG") == "image/svg+xml"
    assert picture_of(b"<html>", b"a.svg") == ""
    assert picture_of(b"<svg/>", b"a.html") == ""
