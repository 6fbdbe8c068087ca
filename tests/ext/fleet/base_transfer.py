"""Helpers for tests about bases: projects, and a base sent from one directory to another. No test is here."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from mudroom.core.settings import Settings
from mudroom.ext.fleet.base.objects import Missing, ObjectStore
from mudroom.ext.fleet.base.pack import packs, unpack
from mudroom.ext.fleet.base.scan import Scanned, ScannedObjects, scan
from mudroom.ext.fleet.base.snapshot import Incomplete, SnapshotStore

NOTHING = Missing((), ())


def make(top: Path, files: Mapping[str, bytes]) -> Path:
    for name, content in files.items():
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return top


def scanned(project: Path, settings: Settings | None = None, *, git: bool = False) -> Scanned:
    cache = os.fsencode(project.parent / "digests")
    return scan(os.fsencode(project), settings or Settings(), home=b"/home/ann", umask=0o022, cache=cache, git=git)


class Sent(NamedTuple):
    tree: Path
    size: int
    """Bytes in packs."""
    rounds: int


class Worker:
    """A store and snapshots, as a worker has them."""

    def __init__(self, top: Path, quota: int = 1 << 30) -> None:
        top.mkdir(exist_ok=True)
        self.store = ObjectStore(os.fsencode(top / "objects"), quota)
        self.snapshots = SnapshotStore(os.fsencode(top / "grounds"), self.store)

    def close(self) -> None:
        self.snapshots.close()
        self.store.close()

    def receive(self, base: Scanned) -> tuple[int, int]:
        """Send the missing objects. Return the bytes in packs, and the rounds."""
        size = rounds = 0
        with ScannedObjects(base) as objects:
            while (missing := self.snapshots.missing(base.base)) != NOTHING:
                rounds += 1
                wanted = {*missing.nodes, *missing.files}
                for frame in packs((*missing.nodes, *missing.files), objects):
                    size += len(frame)
                    unpack(frame, self.store, wanted)
        return size, rounds

    def fetch(self, base: Scanned) -> Sent:
        """Send the missing objects, and make the snapshot."""
        size = rounds = 0
        for _attempt in range(3):
            more, again = self.receive(base)
            size, rounds = size + more, rounds + again
            try:
                return Sent(Path(os.fsdecode(self.snapshots.acquire(base.base))), size, rounds)
            except Incomplete:  # a snapshot's file was changed: it is asked for again
                continue
        raise AssertionError("the snapshot is never complete")


def listing(top: Path) -> dict[str, tuple[object, ...]]:
    """Return kind, mode, mtime and content for everything below a directory; no time for directories and links."""
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted(top.rglob("*")):
        info = path.lstat()
        name = str(path.relative_to(top))
        if path.is_symlink():
            found[name] = ("link", path.readlink())
        elif path.is_dir():
            found[name] = ("directory", info.st_mode & 0o7777)
        else:
            found[name] = ("file", info.st_mode & 0o7777, info.st_mtime_ns, path.read_bytes())
    return found
