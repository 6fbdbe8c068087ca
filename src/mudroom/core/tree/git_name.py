"""Names that a file system takes for a name that git or mudroom reads.

Source: git's utf8.c (is_hfs_dot_generic) and path.c (is_ntfs_dot_generic).
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache

from mudroom.core.text.regex import regex

HFS_IGNORES = dict.fromkeys((0x200C, 0x200D, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x206A, 0x2070), 0xFEFF))
_SHORT_NAMES = {
    b".git": regex(rb"git~1"),
    b".gitmodules": regex(rb"gitmod~[1-4]|(?=.{8}$)g(i(7(e(b(a)?)?)?)?)?~[1-9][0-9]*"),
    b".mudroom": regex(rb"mudroo~[1-9]"),
    b".gitattributes": regex(rb"gitatt~[1-4]|(?=.{8}$)g(i(7(d(2(9)?)?)?)?)?~[1-9][0-9]*"),
}


@lru_cache(1 << 12)
def spell(name: bytes) -> bytes:
    """Return one spelling for all names that some file system treats as the same: without case, in one Unicode form,
    without the characters that HFS+ ignores, and without NTFS streams, trailing dots and blanks."""
    if not name.isascii():
        text = name.decode("utf-8", "surrogateescape").translate(HFS_IGNORES)
        name = unicodedata.normalize("NFC", unicodedata.normalize("NFD", text).casefold()).encode(
            "utf-8", "surrogateescape"
        )
    if b":" in name:
        name = name.partition(b":")[0] or name
    return name.lower().rstrip(b" .")


def spell_path(path: bytes) -> list[bytes]:
    """Return the spelling of each path component."""
    if path.isascii() and b":" not in path and b"./" not in path and b" /" not in path and path[-1:] not in b". ":
        return path.lower().split(b"/")  # most paths: all parts at once
    return [spell(part) for part in path.split(b"/")]


def reads_as(name: bytes, target: bytes) -> bool:
    """Return whether some file system takes ``name`` for ``target``: one that ignores case, HFS+ (ignored invisible
    characters), or NTFS (streams, trailing dots and blanks, short names, backslashes).
    """
    if name.isascii() and target[1:3] not in name.lower() and b"~" not in name:
        return False
    if name.decode("utf-8", "replace").translate(HFS_IGNORES).lower().encode() == target:
        return True
    for part in name.split(b"\\"):
        plain = part.partition(b":")[0].rstrip(b" .").lower()
        if plain == target or _SHORT_NAMES[target].fullmatch(plain):
            return True
    return False
