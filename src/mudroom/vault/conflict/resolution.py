"""Decisions about conflicts, kept with a fork until the next apply.

A decision is valid for the two versions it was made about: the project's and the fork's, each identified by a hash over
content, kind and mode. If either has changed before the apply, the path is a conflict again. A content that a program
made from other files is valid while these are the same, too, with the decisions about them.
"""

from __future__ import annotations

import os
from _blake2 import blake2b
from collections.abc import Callable, Mapping

from mudroom.core.merge.merge import Combined
from mudroom.core.merge.merge_tree import ConflictAnswer
from mudroom.core.merge.resolution_words import Take
from mudroom.core.system.closing import Descriptor
from mudroom.core.tree.change import Change
from mudroom.core.tree.entry import Entry
from mudroom.stage import safe_open
from mudroom.stage.source import Source
from mudroom.typing import NamedTuple
from mudroom.vault.conflict.reconciliation import Reconciler
from mudroom.vault.store.fork import Fork
from mudroom.vault.sync import sync_directory

RESOLUTIONS = b"/resolutions"
"""File with decisions, in the fork's directory."""
RESOLVED = b"/resolved"
"""Directory with decided contents, in the fork's directory."""


class Resolution(NamedTuple):
    take: Take
    ours: bytes
    """``fingerprint`` of the project's version."""
    theirs: bytes
    ours_at: bytes = b""
    """Path to the project's version, if it differs."""
    content: str = ""
    """File name for the decided content."""
    mode: int = 0
    """Permission bits for the decided content."""
    how: str = ""
    """The rule or program that made the content; empty: the user."""
    made_from: tuple[tuple[bytes, bytes], ...] = ()
    """The paths from which a program made the content, each with its ``version_of``."""


def fingerprint(source: Source, path: bytes, entry: Entry | None) -> bytes:
    """Return a hash of one version of a path. Raise OSError if it cannot be read."""
    if entry is None:
        return b"absent"
    hasher = blake2b(f"{entry.kind} {entry.mode:o}\n".encode() + entry.target, digest_size=20)
    if entry.kind == "file":
        with Descriptor(source.open(path)) as opened:
            while block := os.read(opened, 1 << 20):
                hasher.update(block)
    return hasher.digest()


def version_of(path: bytes, project: Source, staged: Source, resolutions: Mapping[bytes, Resolution]) -> bytes:
    """Return a hash of both versions of a path, and of the decision about it. Raise OSError if one cannot be read."""
    sides = [fingerprint(source, path, source.look(path)) for source in (project, staged)]
    return blake2b(repr((sides, resolutions.get(path))).encode(), digest_size=20).digest()


def is_valid(
    resolution: Resolution,
    resolutions: Mapping[bytes, Resolution],
    project: Source,
    staged: Source,
    ours: tuple[bytes, Entry | None],
    theirs: tuple[bytes, Entry | None],
) -> bool:
    """Return whether a decision is about these versions. A version that cannot be read is another one."""
    try:
        present = fingerprint(project, *ours), fingerprint(staged, *theirs)
        return present == (resolution.ours, resolution.theirs) and all(
            version_of(path, project, staged, resolutions) == version for path, version in resolution.made_from
        )
    except OSError:
        return False


def load_resolutions(fork: Fork) -> dict[bytes, Resolution]:
    """Return the decisions by path in the fork. Raise MudroomError if the file is damaged."""
    return safe_open.read_rows(fork.path + RESOLUTIONS, dict[bytes, Resolution], "remove it to decide anew")


def keep_resolutions(fork: Fork, decisions: Mapping[bytes, Resolution]) -> None:
    """Replace all decisions, and remove contents that no decision names."""
    import msgspec

    path = fork.path + RESOLUTIONS
    safe_open.replace(path, msgspec.msgpack.encode(dict(decisions)))
    sync_directory(fork.path)
    if os.path.isdir(fork.path + RESOLVED):
        needed = {os.fsencode(decision.content) for decision in decisions.values()}
        for name in os.listdir(fork.path + RESOLVED):
            if name not in needed:
                os.unlink(fork.path + RESOLVED + b"/" + name)


def keep_content(fork: Fork, content: bytes) -> str:
    """Store decided content, durably. Return its name for ``Resolution.content``."""
    os.makedirs(fork.path + RESOLVED, mode=0o700, exist_ok=True)
    name = os.urandom(6).hex()
    safe_open.replace(fork.path + RESOLVED + b"/" + name.encode(), content)
    for made in (fork.path + RESOLVED, fork.path):
        sync_directory(made)
    return name


def read_content(fork: Fork, resolution: Resolution) -> bytes:
    """Return the content of a decision that takes ``content``."""
    with open(fork.path + RESOLVED + b"/" + os.fsencode(resolution.content), "rb") as stream:
        return stream.read()


def answers(fork: Fork, staged: Source) -> Callable[[Reconciler, Change, Entry | None], ConflictAnswer | None] | None:
    """Return a callable for a ``Reconciler`` that gives the decisions valid for the present versions, or None.

    A decision covers a whole file. It is not used for a file that is applied only in part, because it would bring more
    than that part: the path is a conflict again, and the fork stays whole.
    """
    resolutions = load_resolutions(fork)
    if not resolutions:
        return None

    def answer(reconciler: Reconciler, change: Change, ours: Entry | None) -> ConflictAnswer | None:
        resolution = resolutions.get(change.path)
        if resolution is None or change.path in reconciler.partial:
            return None
        at = resolution.ours_at or change.path
        sides = (at, reconciler.look(at) if resolution.ours_at else ours), (change.path, change.staged)
        if not is_valid(resolution, resolutions, reconciler, staged, *sides):
            return None
        if resolution.take in ("ours", "theirs"):
            return ConflictAnswer("ours" if resolution.take == "ours" else "theirs")
        if resolution.take == "delete":
            return ConflictAnswer("content", Combined(None))
        if resolution.how:
            reconciler.ruled[change.path] = resolution.how
        content, like = read_content(fork, resolution), resolution.ours_at or change.path
        return ConflictAnswer(
            "content", reconciler.keep(change.path, content, resolution.mode, like=like if ours is not None else b"")
        )

    return answer
