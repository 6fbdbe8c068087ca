"""Paths below a project.

A ``RelPath`` is bytes, relative, with ``/`` between components: never empty, absolute, ``.``, ``..``, or with a NUL.
File names are bytes on Linux and need not be text; they become text only to be shown, through ``show_path``;
``show`` is for any other line.
"""

from __future__ import annotations

from collections.abc import Container
from typing import NewType

from mudroom.core.text.emoji import EMOJI
from mudroom.core.text.invisible_characters import CHOICE, PASSED

RelPath = NewType("RelPath", bytes)

ROOT = b""
"""The project's own directory, where a function accepts it."""


def relpath(raw: bytes) -> RelPath:
    """Check ``raw`` and return it as a RelPath. Raises ValueError, saying what is wrong with it."""
    if b"\0" in raw:
        raise ValueError(f"{show(raw)}: a path cannot hold a NUL")
    if raw.startswith(b"/"):
        raise ValueError(f"{show(raw)}: is absolute; a path inside the project was expected")
    parts = [part for part in raw.split(b"/") if part not in (b"", b".")]
    if not parts:
        raise ValueError("an empty path was given")
    if b".." in parts:
        raise ValueError(f"{show(raw)}: leads out of the project with '..'")
    if any(len(part) > 255 for part in parts):
        raise ValueError(f"{show(raw)}: a name is longer than 255 bytes")
    return RelPath(b"/".join(parts))


def parent(path: bytes) -> bytes:
    """The directory that holds ``path``; ``ROOT`` for a name directly in the project."""
    return path.rpartition(b"/")[0]


def name(path: bytes) -> bytes:
    return path.rpartition(b"/")[2]


def is_below(path: bytes, directory: bytes) -> bool:
    """Whether ``path`` is ``directory`` or lies in it. Whole components: ``ab`` is not below ``a``.

    Both relative, or both absolute: everything absolute is below ``/``.
    """
    return not directory or path == directory or path.startswith(directory.rstrip(b"/") + b"/")


def ancestors(path: bytes) -> list[bytes]:
    """Every directory above ``path`` in the project, outermost first, ``ROOT`` left out."""
    found: list[bytes] = []
    at = path.find(b"/")
    while at >= 0:  # a hostile path has two thousand of them: nothing is joined together again
        found.append(path[:at])
        at = path.find(b"/", at + 1)
    return found


def climb(path: bytes, known: Container[bytes]) -> list[bytes]:
    """``path`` and the directories above it, outermost first, as far as they are not ``known``; ``ROOT`` counts."""
    found: list[bytes] = []
    while path not in known:
        found.append(path)
        if not path:
            break
        path = parent(path)
    return found[::-1]


_UNSEEN = frozenset(PASSED + CHOICE)
"""What ``str.isprintable`` lets pass though nothing is to be seen of it."""


def show(path: bytes) -> str:
    """Bytes for a person: one line, printable, no terminal control, no bidirectional override, unambiguous."""
    text = path.decode("utf-8", "surrogateescape")
    if is_seen(text) and "\\" not in text:
        return text
    return "".join(_shown(character, text[at - 1 : at]) for at, character in enumerate(text))


def show_path(path: bytes) -> str:
    """``show``, for the names of files: nothing of them is taken for the blank around them, or for nothing at all.

    A space is written as it is between two characters that can be seen; at the edge of a name, or beside another
    space, it is ``\\x20``.
    """
    text = show(path)
    if " " not in text or ("  " not in text and text == text.strip(" ") and "/ " not in text and " /" not in text):
        return text
    around = f"/{text}/"
    return "".join(
        "\\x20" if one == " " and (around[at] in " /" or around[at + 2] in " /") else one for at, one in enumerate(text)
    )


def is_seen(text: str) -> bool:
    """Whether each of its characters is to be seen on a line, if spaces are."""
    if not text.isprintable():
        return False
    return text.isascii() or _UNSEEN.isdisjoint(text) or all(map(_is_seen, text, " " + text))


def _is_seen(character: str, before: str) -> bool:
    if character in CHOICE:  # how an emoji is drawn, where there is one
        return before in EMOJI
    return character not in _UNSEEN


def _shown(character: str, before: str) -> str:
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    if character == "\\":
        return "\\\\"
    if character.isprintable() and _is_seen(character, before or " "):
        return character
    return {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(character) or (
        f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    )


def sort_key(path: bytes) -> bytes:
    """Orders paths as a walk meets them: a directory, all that is in it, its neighbour (``a``, ``a/b``, ``a-b``)."""
    return path.replace(b"/", b"\0")
