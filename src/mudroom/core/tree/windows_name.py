"""Names that a changeset must not create on Windows: there they would name another file or a device, or cannot exist.
Pure.

A fork can be written on Linux, or on Windows through ``\\\\?\\`` paths that bypass Win32. Its names are therefore
checked before they are applied. Sources: Microsoft, "Naming Files, Paths, and Namespaces" and "File Streams";
CVE-2019-1353 for short names of protected directories. Merely opening a UNC target authenticates to its server.

1. A name must denote only itself: no drive, stream, device, short name or trailing dot may make it another file's name.
2. An ambiguous name is refused: ``ABCDEF~1`` can be an existing file's short name.
3. A symbolic link may only lead to a place inside the project, and never to a server.
"""

from __future__ import annotations

from mudroom.core.text.regex import regex
from mudroom.core.tree.path import show

LONGEST_NAME, LONGEST_PATH = 255, 32_000
"""Limits in UTF-16 units. NT allows 32,767 for a whole path; the rest is left for the project's own directory."""

_FORBIDDEN = regex(r'[\x00-\x1f<>:"|?*\\]')
_WHY = {
    ":": "':' names a drive or a stream of another file",
    "\\": "'\\' separates directories",
}
_DEVICE = regex(r"(?i)(CON|PRN|AUX|NUL|CLOCK\$|CONIN\$|CONOUT\$|(COM|LPT)[0-9\u00b9\u00b2\u00b3])[ ]*(\.|$)")
_SHORT = regex(r"(?s)[^.]{1,8}\Z")
_TILDE = regex(r"~[0-9]+\Z")


def why_no_name(name: bytes) -> str | None:
    """Return why this path component is not allowed, or None if it is."""
    text = _text(name)
    if text is None:
        return "not UTF-8, so it cannot be a UTF-16 name on Windows"
    if text in ("", ".", ".."):
        return "not a file name"
    forbidden = _FORBIDDEN.search(text)
    if forbidden:
        character = forbidden.group()
        return _WHY.get(character) or f"{show(character.encode())} cannot be in a name"
    if text[-1] in " .":
        return "a space or dot at the end is dropped: it would be another file"
    if _DEVICE.match(text):
        return "names a device, in every directory and with every extension"
    if _units(text) > LONGEST_NAME:
        return f"longer than {LONGEST_NAME} characters"
    if _is_short(text):
        return "may be the short name of another file"
    return None


def _is_short(text: str) -> bool:
    """Return whether this is an 8.3 short name: up to eight characters that end in ~ and digits, and an extension with
    up to three."""
    stem, _dot, extension = text.partition(".")
    return len(extension) <= 3 and "." not in extension and bool(_SHORT.match(stem) and _TILDE.search(stem))


def fold(path: bytes) -> str:
    """Return a key that is equal for two names that NTFS may treat as the same. NTFS compares single upper-case
    characters by a table ($UpCase), stored in each volume when it was formatted; this folds at least as many
    characters."""
    text = _text(path)
    if text is None:
        return path.decode("latin-1")
    return "".join(_upper(character) for character in text)


def _upper(character: str) -> str:
    upper = character.upper()
    return upper if len(upper) == 1 else character


def _text(name: bytes) -> str | None:
    """Decode as os.fsdecode does on Windows: NTFS allows unpaired surrogates. Return None if that fails."""
    try:
        return name.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return None


def _units(text: str) -> int:
    return len(text) + sum(character > "\uffff" for character in text)
