"""Detect image formats that a browser may show, by a file's first bytes only.

Sources: the WHATWG's MIME Sniffing, 6.1 (png, jpeg, gif, webp, bmp, ico); AV1 Image File Format 1.1, 10.2 (avif). SVG
is text and may hold scripts: it is detected by its name, and served so that no script runs.
"""

from __future__ import annotations

HEAD = 8_000
"""Leading bytes that are examined: as many as for the binary check."""
SVG = "image/svg+xml"
_MAGIC = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"BM", "image/bmp"),
    (b"\x00\x00\x01\x00", "image/x-icon"),
)


def picture_of(head: bytes, path: bytes = b"") -> str:
    """Return the media type, or an empty text if the file is not an image. ``head``: the first bytes, at least 32 if
    the file is that long."""
    for magic, media_type in _MAGIC:
        if head.startswith(magic) and (magic != b"BM" or b"\0" in head[:32]):
            return media_type
    if head[:4] == b"RIFF" and head[8:14] == b"WEBPVP":
        return "image/webp"
    if head[4:8] == b"ftyp" and b"avif" in head[8:32]:
        return "image/avif"
    is_svg = path.lower().endswith(b".svg") and b"\0" not in head and b"<svg" in head.lower()
    return SVG if is_svg else ""
