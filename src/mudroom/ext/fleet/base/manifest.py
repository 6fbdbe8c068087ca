"""A project's Merkle manifest: a node for each directory, named by its digest. Pure: no files are read here.

    node    MessagePack [[name, kind, mode, mtime_ns, size, digest or target], …], rows sorted by name
    base    root node, project path, home path, masked and excluded paths, umask (``wire/message.py``)

A node's digest is BLAKE2b-256 with ``person=b"mudroom-dir"``, a base's has ``person=b"mudroom-base"``. A file's is
plain BLAKE2b-256 over its content, as in an archive's ``digests`` (``ext/transfer``). So no file has a node's digest,
and no file is read twice.

Rules of this file:
1. A directory has one node and a node has one encoding: ``decode_node`` refuses everything that ``encode_node`` does
   not write. A directory's time is not in its node, as it changes with every temporary file.
2. The bytes come from another machine. A node is bounded before it is decoded, and a tree is measured before it is
   walked: nodes that name one node many times are few bytes and many files. Cycles cannot be built, because a node
   would have to hold its own digest.
3. A name is one path component. No name leads out of its directory.
"""

from __future__ import annotations

from _blake2 import blake2b
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Literal, NamedTuple

import msgspec

from mudroom.api import MudroomError, show
from mudroom.ext.fleet.wire.message import DIGEST, Base

FILE: Final = "f"
DIRECTORY: Final = "d"
SYMLINK: Final = "l"
NODE_LIMIT = 64 << 20
"""Bytes in a node: about 700,000 files in one directory."""
NAME_LIMIT = 255
"""Linux's NAME_MAX (limits.h)."""
TARGET_LIMIT = 4095
"""Linux's PATH_MAX without its NUL byte."""
DEEPEST = 256
"""Directories above a directory."""
PATH_LIMIT = 1 << 16
"""Bytes in a path."""
_TIMES = 1 << 62
"""Nanoseconds before and after 1970: 146 years."""

ReadNode = Callable[[bytes], bytes]
"""Return the bytes of the node with this digest."""


class RefusedBase(MudroomError):
    """A base's manifest is damaged, hostile or beyond the limits."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the base cannot be used: {reason}", "no part of it was used")


class Row(NamedTuple):
    name: bytes
    kind: Literal["f", "d", "l"]
    """A file, a directory or a symbolic link. There is no other kind in a base."""
    mode: int
    """Permission bits without set-id and sticky bits; 0 for a link."""
    mtime_ns: int
    """Nanoseconds since 1970; 0 for directories and links."""
    size: int
    """Bytes; 0 for directories and links."""
    content: bytes
    """A file's or directory node's digest; a link's target."""


class TreeLimits(NamedTuple):
    """Bounds for a tree that another machine sends."""

    entries: int = 2_000_000
    size: int = 64 << 30
    """Bytes in all files."""
    depth: int = DEEPEST


LIMITS = TreeLimits()


class TreeSize(NamedTuple):
    """A subtree, counted as often as its names occur."""

    entries: int
    size: int
    """Bytes in the files."""
    depth: int
    """Directories in a row, the topmost included."""
    path: int
    """Bytes in the longest path."""


_decoder = msgspec.msgpack.Decoder(list[Row])
_encoder = msgspec.msgpack.Encoder()


def digest_of_content(data: bytes | memoryview) -> bytes:
    return blake2b(data, digest_size=DIGEST).digest()


EMPTY = digest_of_content(b"")
"""An empty file's digest. It is never sent."""


def digest_of_node(node: bytes | memoryview) -> bytes:
    return blake2b(node, digest_size=DIGEST, person=b"mudroom-dir").digest()


def base_id(base: Base) -> bytes:
    """Return a base's digest: over everything that makes a command's view."""
    return blake2b(_encoder.encode(base), digest_size=DIGEST, person=b"mudroom-base").digest()


def encode_node(rows: Sequence[Row]) -> bytes:
    """Return a directory's node. Raise ValueError if a row is not allowed in one."""
    node = _encoder.encode(sorted(rows))
    fault = _fault(sorted(rows)) if len(node) <= NODE_LIMIT else f"has {len(node):,} bytes"
    if fault:
        raise ValueError(f"a directory {fault}")
    return node


def decode_node(node: bytes) -> list[Row]:
    """Return a node's rows. Raise RefusedBase if it is not exactly what ``encode_node`` writes."""
    if len(node) > NODE_LIMIT:
        raise RefusedBase(f"a directory has {len(node):,} bytes")
    try:
        rows = _decoder.decode(node)
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError, UnicodeDecodeError) as error:
        raise RefusedBase(f"a directory cannot be read: {error}") from error
    fault = _fault(rows)
    if fault:
        raise RefusedBase(f"a directory {fault}")
    if _encoder.encode(rows) != node:
        raise RefusedBase("a directory is not in its shortest form")
    return rows


def _fault(rows: Sequence[Row]) -> str:
    """Return why these rows are no node; empty if they are one."""
    last = b""
    for row in rows:
        name, kind, mode, mtime, size, content = row
        if name <= last:
            return "names nothing" if not name else f"names {show(name)} twice, or not in order"
        last = name
        if len(name) > NAME_LIMIT or name in (b".", b"..") or b"/" in name or b"\0" in name:
            return f"has the name {show(name[:NAME_LIMIT])}"
        if kind == FILE:
            is_allowed = (
                0 <= mode <= 0o777
                and -_TIMES < mtime < _TIMES
                and 0 <= size < 1 << 63
                and len(content) == DIGEST
                and (size == 0) == (content == EMPTY)
            )
        elif kind == DIRECTORY:
            is_allowed = 0 <= mode <= 0o777 and mtime == size == 0 and len(content) == DIGEST
        else:
            is_allowed = mode == mtime == size == 0 and 0 < len(content) <= TARGET_LIMIT and b"\0" not in content
        if not is_allowed:
            return f"has an entry of {show(name)} that no file system has"
    return ""


def require_base(base: Base) -> None:
    """Raise RefusedBase if a base, which another machine sent, has impossible fields."""
    if len(base.root) != DIGEST:
        raise RefusedBase("its root is not a digest")
    for path in (base.project, base.home):
        if not path.startswith(b"/") or not is_beneath(path[1:] or b"."):
            raise RefusedBase(f"{show(path[:NAME_LIMIT])} is not an absolute path")
    for path in (*base.masked, *base.excluded):
        if not is_beneath(path):
            raise RefusedBase(f"{show(path[:NAME_LIMIT])} is not a path in the project")
    if not 0 <= base.umask <= 0o777:
        raise RefusedBase(f"its umask is {base.umask}")


def is_beneath(path: bytes) -> bool:
    """Return whether a relative path is normal and cannot lead out of its directory. ``.`` is the directory."""
    parts = path.split(b"/")
    return path == b"." or (
        len(path) <= PATH_LIMIT
        and b"\0" not in path
        and all(part not in (b"", b".", b"..") and len(part) <= NAME_LIMIT for part in parts)
    )


def measure(
    root: bytes, read: ReadNode, limits: TreeLimits = LIMITS, sizes: dict[bytes, TreeSize] | None = None
) -> TreeSize:
    """Return a tree's size, in time that depends on its distinct nodes. Raise RefusedBase if it is beyond the limits,
    and what ``read`` raises if a node is missing. ``sizes``: those that are known, by digest; the others are added."""
    sizes = sizes if sizes is not None else {}
    pending: list[tuple[bytes, list[Row] | None]] = [(root, None)]
    while pending:
        digest, rows = pending.pop()
        if digest in sizes:
            continue
        if rows is None:
            rows = decode_node(read(digest))
            below = [row.content for row in rows if row.kind == DIRECTORY and row.content not in sizes]
            if below:
                if len(pending) > limits.entries:
                    raise RefusedBase(f"it has more than {limits.entries:,} entries")
                pending.append((digest, rows))
                pending += [(each, None) for each in below]
                continue
        sizes[digest] = _sum(rows, sizes, limits)
    return sizes[root]


def _sum(rows: Sequence[Row], sizes: dict[bytes, TreeSize], limits: TreeLimits) -> TreeSize:
    entries, size, depth, path = len(rows), 0, 0, 0
    for row in rows:
        size += row.size
        longest = len(row.name)
        if row.kind == DIRECTORY:
            below = sizes[row.content]
            entries += below.entries
            size += below.size
            depth = max(depth, below.depth)
            longest += 1 + below.path
        path = max(path, longest)
    if entries > limits.entries:
        raise RefusedBase(f"it has more than {limits.entries:,} entries")
    if size > limits.size:
        raise RefusedBase(f"its files have more than {limits.size:,} bytes")
    if depth + 1 > limits.depth or path > PATH_LIMIT:
        raise RefusedBase(f"it has more than {limits.depth} directories in a row")
    return TreeSize(entries, size, depth + 1, path)


def walk(root: bytes, read: ReadNode) -> Iterator[tuple[bytes, list[Row]]]:
    """Yield each directory's path with its rows, a directory before those in it. Measure a hostile tree first."""
    pending = [(b"", root)]
    while pending:
        path, digest = pending.pop()
        rows = decode_node(read(digest))
        yield path, rows
        prefix = path + b"/" if path else b""
        pending += [(prefix + row.name, row.content) for row in reversed(rows) if row.kind == DIRECTORY]


def changes(before: bytes, after: bytes, read: ReadNode) -> Iterator[tuple[bytes, Row | None, Row | None]]:
    """Yield each path at which two trees differ with its rows, a directory before those in it. Paths in a directory
    that is no longer one are left out."""
    pending: list[tuple[bytes, bytes, bytes]] = [(b"", before, after)]
    while pending:
        prefix, old, new = pending.pop()
        was_there = {row.name: row for row in decode_node(read(old))} if old else {}
        is_there = {row.name: row for row in decode_node(read(new))}
        for name in sorted(was_there.keys() | is_there.keys()):
            was, row = was_there.get(name), is_there.get(name)
            if was == row:
                continue
            yield prefix + name, was, row
            if row is not None and row.kind == DIRECTORY:
                is_kept = was is not None and was.kind == DIRECTORY
                pending.append((prefix + name + b"/", was.content if was is not None and is_kept else b"", row.content))
