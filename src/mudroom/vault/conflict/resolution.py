"""What was decided about conflicts, kept with a fork until the next apply.

A decision holds for the versions it was made about: the project's and the fork's are known by a hash of content, kind
and mode. If either is another one by the time of the apply, it is a conflict again, and somebody has to look again.
"""

from __future__ import annotations

import os
from _blake2 import blake2b
from collections.abc import Callable, Mapping
from typing import NamedTuple

from mudroom.core.merge.merge import Combined
from mudroom.core.merge.merge_tree import ConflictAnswer
from mudroom.core.merge.resolution_words import Take
from mudroom.core.tree.change import Change
from mudroom.core.tree.entry import Entry
from mudroom.errors import MudroomError
from mudroom.stage.source import Source
from mudroom.vault.conflict.reconciliation import Reconciler
from mudroom.vault.store.fork import Fork

RESOLUTIONS = b"/resolutions"
"""The file, below the directory of the fork."""
RESOLVED = b"/resolved"
"""The directory of contents, beside it."""


class Resolution(NamedTuple):
    take: Take
    ours: bytes
    """Of the project's version that was decided about: ``fingerprint``."""
    theirs: bytes
    ours_at: bytes = b""
    """Where the project has its version, if at another path."""
    content: str = ""
    """The name of the file with the content."""
    mode: int = 0
    """Permission bits of that."""


def fingerprint(source: Source, path: bytes, entry: Entry | None) -> bytes:
    """Of one version of a path. Raises OSError if it cannot be read."""
    if entry is None:
        return b"absent"
    hasher = blake2b(f"{entry.kind} {entry.mode:o}\n".encode() + entry.target, digest_size=20)
    if entry.kind == "file":
        opened = source.open(path)
        try:
            while block := os.read(opened, 1 << 20):
                hasher.update(block)
        finally:
            os.close(opened)
    return hasher.digest()


def load_resolutions(fork: Fork) -> dict[bytes, Resolution]:
    """By path in the fork. Raises MudroomError if the file is damaged."""
    path = fork.path + RESOLUTIONS
    try:
        with open(path, "rb") as stream:
            data = stream.read()
    except FileNotFoundError:
        return {}
    import msgspec

    try:
        return msgspec.msgpack.decode(data, type=dict[bytes, Resolution])
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise MudroomError(f"{os.fsdecode(path)} is damaged: {error}", "remove it to decide anew") from error


def keep_resolutions(fork: Fork, known: Mapping[bytes, Resolution]) -> None:
    """Replace all of them; contents that none of them names are removed."""
    import msgspec

    path = fork.path + RESOLUTIONS
    with open(path + b".new", "wb") as stream:
        stream.write(msgspec.msgpack.encode(dict(known)))
        stream.flush()
        os.fsync(stream.fileno())
    os.rename(path + b".new", path)
    if os.path.isdir(fork.path + RESOLVED):
        needed = {os.fsencode(one.content) for one in known.values()}
        for name in os.listdir(fork.path + RESOLVED):
            if name not in needed:
                os.unlink(fork.path + RESOLVED + b"/" + name)


def keep_content(fork: Fork, content: bytes) -> str:
    """The name under which ``Resolution.content`` finds it."""
    os.makedirs(fork.path + RESOLVED, mode=0o700, exist_ok=True)
    name = os.urandom(6).hex()
    path = fork.path + RESOLVED + b"/" + name.encode()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    return name


def read_content(fork: Fork, resolution: Resolution) -> bytes:
    """What was decided for, of one with a content."""
    with open(fork.path + RESOLVED + b"/" + os.fsencode(resolution.content), "rb") as stream:
        return stream.read()


def answers(fork: Fork, staged: Source) -> Callable[[Reconciler, Change, Entry | None], ConflictAnswer | None] | None:
    """For a ``Reconciler``: the decisions that hold for the versions there are now.

    A decision is about all of a file. Of one of which only a part is wanted it would bring more than that, so it is
    none there: the conflict is one again, and the fork stays whole.
    """
    known = load_resolutions(fork)
    if not known:
        return None

    def answer(reconciler: Reconciler, change: Change, ours: Entry | None) -> ConflictAnswer | None:
        found = known.get(change.path)
        if found is None or change.path in reconciler.partial or not _holds(found, reconciler, staged, change, ours):
            return None
        if found.take in ("ours", "theirs"):
            return ConflictAnswer("ours" if found.take == "ours" else "theirs")
        if found.take == "delete":
            return ConflictAnswer("content", Combined(None))
        content, like = read_content(fork, found), found.ours_at or change.path
        return ConflictAnswer(
            "content", reconciler.keep(change.path, content, found.mode, like=like if ours is not None else b"")
        )

    return answer


def _holds(found: Resolution, reconciler: Reconciler, staged: Source, change: Change, ours: Entry | None) -> bool:
    try:
        at = found.ours_at or change.path
        here = reconciler.look(at) if found.ours_at else ours
        mine = fingerprint(reconciler, at, here)
        return (mine, fingerprint(staged, change.path, change.staged)) == (found.ours, found.theirs)
    except OSError:
        return False
