"""Parsers and checks for git objects. They refuse every object that ``git fsck --strict`` would report.

Pure. Every function raises ValueError, with a text that continues a sentence beginning with the object. The rules
follow git's fsck.c.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from mudroom.core.text.regex import regex
from mudroom.core.tree.git_name import reads_as
from mudroom.core.tree.path import show
from mudroom.typing import NamedTuple

TREE, LINK, FILE, PROGRAM, MODULE = b"40000", b"120000", b"100644", b"100755", b"160000"
_MODES = frozenset((TREE, LINK, FILE, PROGRAM, MODULE))
_NAME_LIMIT = 4096
_LINE_LIMIT = 2048  # fsck.c, gitattributesLineLength
_IDENTITY = regex(rb"(?!<)[^<>\n\0]* <[^<>\n\0]*> (0|[1-9][0-9]{0,18}) [+-][0-9]{4}")
_TAG_LINE = regex(rb"tag (?![./-])[^\x00-\x20~^:?*\[\\\x7f]+(?<![./])")
_TIME = regex(rb"> (-?[0-9]{1,19}) ")


class TreeEntry(NamedTuple):
    mode: bytes
    id: bytes


class CommitText(NamedTuple):
    tree: bytes
    parents: tuple[bytes, ...]
    author: bytes
    """Name and mail address, without the time."""
    time: int
    """Commit time in seconds since 1970; 0 if missing."""
    message: bytes


def parse_tree(data: bytes, id_length: int) -> dict[bytes, TreeEntry]:
    """Return a tree's entries by name, in tree order. ``id_length``: bytes in a binary id.

    Checks that entries are sorted and unique; ``check_entry`` checks names and modes.
    """
    pattern = re.compile(rb"([0-7]{5,6}) ([^\0]+)\0(.{%d})" % id_length, re.DOTALL)
    entries, length, last = {}, 0, b""
    for mode, name, raw in pattern.findall(data):
        length += len(mode) + len(name) + id_length + 2
        key = name + b"/" if mode.lstrip(b"0") == TREE else name
        if key <= last or name in entries:
            raise ValueError(f"has the entry {show(name)} twice, or not in its order")
        last = key
        entries[name] = TreeEntry(mode, raw.hex().encode())
    if length != len(data):
        raise ValueError("is not a tree that git has written")
    return entries


def check_entry(name: bytes, entry: TreeEntry) -> None:
    """Refuse an entry that no honest tree has: an unknown mode, or a name that leads elsewhere."""
    if entry.mode not in _MODES:
        raise ValueError(f"has the entry {show(name)} with the mode {entry.mode.decode()}")
    if name in (b".", b"..") or b"/" in name or len(name) > _NAME_LIMIT or reads_as(name, b".git"):
        raise ValueError(f"has an entry that is named {show(name[:80])}")
    if not int(entry.id, 16):
        raise ValueError(f"has the entry {show(name)} without an object")
    if entry.mode == LINK and reads_as(name, b".gitmodules"):
        raise ValueError(f"has {show(name)} as a symbolic link")


def parse_commit(data: bytes) -> CommitText:
    """Return a commit's fields. As lenient as git when it reads history, so that old commits can be read."""
    header, _blank, message = data.partition(b"\n\n")
    lines = header.split(b"\n")
    tree = _after(lines, 0, b"tree ")
    parents: list[bytes] = []
    while len(parents) + 1 < len(lines) and lines[len(parents) + 1].startswith(b"parent "):
        parents.append(_after(lines, len(parents) + 1, b"parent "))
    rest = lines[len(parents) + 1 :]
    author = next((line[7:] for line in rest if line.startswith(b"author ")), b"")
    committer = next((line for line in rest if line.startswith(b"committer ")), b"")
    time = _TIME.search(committer)
    return CommitText(
        tree, tuple(parents), author.rpartition(b"> ")[0] + b">", int(time.group(1)) if time else 0, message
    )


def check_commit(data: bytes) -> None:
    """Refuse what git's fsck refuses: missing or reordered lines, or lines without name, mail address and time."""
    if b"\0" in data:
        raise ValueError("holds a NUL")
    header, blank, _message = data.partition(b"\n\n")
    if not blank and not data.endswith(b"\n"):
        raise ValueError("has a header that does not end")
    lines = header.split(b"\n")
    at = 1 + len(parse_commit(data).parents)
    for field in (b"author ", b"committer "):
        line = lines[at] if at < len(lines) else b""
        identity = _IDENTITY.fullmatch(line[len(field) :]) if line.startswith(field) else None
        if identity is None or int(identity.group(1)) >= 1 << 63:
            raise ValueError(f"has no valid {field.decode().strip()} line")
        at += 1
    if at < len(lines) and lines[at].startswith((b"author ", b"committer ", b"parent ", b"tree ")):
        raise ValueError("has a header line twice")


def check_tag(data: bytes) -> None:
    """Refuse an annotated tag without object, kind, name and tagger in this order, as git's fsck with --strict does."""
    if b"\0" in data:
        raise ValueError("holds a NUL")
    tag_target(data)
    lines = data.partition(b"\n\n")[0].split(b"\n")
    kind = lines[1].removeprefix(b"type ") if len(lines) > 1 else b""
    if kind not in (b"commit", b"tree", b"blob", b"tag") or lines[1] != b"type " + kind:
        raise ValueError("does not name the kind of its object")
    if len(lines) < 3 or not _TAG_LINE.fullmatch(lines[2]):
        raise ValueError("has no valid name")
    tagger = lines[3] if len(lines) > 3 else b""
    identity = _IDENTITY.fullmatch(tagger[7:]) if tagger.startswith(b"tagger ") else None
    if identity is None or int(identity.group(1)) >= 1 << 63:
        raise ValueError("has no valid tagger line")


def tag_target(data: bytes) -> tuple[bytes, bytes]:
    """Return the id and kind of an annotated tag's target."""
    lines = data.split(b"\n", 2)
    return _after(lines, 0, b"object "), lines[1].removeprefix(b"type ") if len(lines) > 1 else b""


def _after(lines: list[bytes], index: int, word: bytes) -> bytes:
    value = lines[index][len(word) :] if lines[index].startswith(word) else b""
    if not is_id(value):
        raise ValueError(f"does not name its {word.decode().strip()}")
    return value


def is_id(text: bytes) -> bool:
    """Return whether the text is an object id as git writes it."""
    return len(text) in (40, 64) and not text.strip(b"0123456789abcdef")


def check_attributes(data: bytes) -> None:
    """Refuse lines that crash old git versions (CVE-2022-23521)."""
    if any(len(line) >= _LINE_LIMIT for line in data.split(b"\n")):
        raise ValueError("is a .gitattributes with a line of more than 2,047 bytes")


def check_submodules(settings: Mapping[bytes, Mapping[bytes, bytes]]) -> None:
    """Refuse settings that make git run a command or write elsewhere (CVE-2018-11235, CVE-2018-17456, CVE-2019-19604,
    CVE-2020-5260). ``settings``: from a .gitmodules, by submodule."""
    for name, values in settings.items():
        if b".." in re.split(rb"[/\\]", name):
            raise ValueError(f"is a .gitmodules with a submodule {show(name)}")
        for key, value in values.items():
            bad = key in (b"url", b"path") and (value.startswith(b"-") or re.search(rb"[\0-\x1f]|%0[aAdD]", value))
            if bad or (key == b"update" and value.startswith(b"!")):
                raise ValueError(f"is a .gitmodules with {show(key)} = {show(value[:80])}")
