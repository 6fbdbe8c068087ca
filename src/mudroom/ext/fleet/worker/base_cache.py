"""Bases on a worker: the objects that an offered base lacks, the packs that bring them, and its snapshot.

bases/ID     a base that was complete once (``Base`` as MessagePack), for errands that are found after a crash
objects/     ``ext/fleet/base/objects.py``
grounds/     ``ext/fleet/base/snapshot.py``
"""

from __future__ import annotations

import os
import threading

import msgspec

from mudroom.errors import UsageError
from mudroom.ext.fleet.base.objects import BaseReceiver, ObjectStore
from mudroom.ext.fleet.base.snapshot import SnapshotStore
from mudroom.ext.fleet.wire.message import Base
from mudroom.ext.fleet.worker.folder import KEPT, ErrandFolder
from mudroom.stage import safe_open


class BaseCache:
    """``_lock`` guards the users of snapshots. ``receiver`` belongs to the thread that reads the link."""

    def __init__(self, path: bytes) -> None:
        """``path``: one origin's directory. Raise UsageError if it is not this user's alone."""
        self._path = path
        self._store = ObjectStore(path + b"/objects")
        self._snapshots = SnapshotStore(path + b"/grounds", self._store, is_needed=self._is_needed)
        self._bases = path + b"/bases"
        os.makedirs(self._bases, 0o700, exist_ok=True)
        self._lock = threading.Lock()
        self._users: dict[bytes, int] = {}
        self.receiver = BaseReceiver(self._store, self._snapshots.missing, self._record, self._snapshots.similar)

    def close(self) -> None:
        self._snapshots.close()
        self._store.close()

    def _record(self, name: bytes, base: Base) -> None:
        path = self._bases + b"/" + name.hex().encode()
        if not os.path.exists(path):
            beside = b"%s.%s.new" % (path, os.urandom(4).hex().encode())  # other workers keep the same base meanwhile
            safe_open.replace(path, msgspec.msgpack.encode(base), beside)

    def _is_needed(self, base: bytes) -> bool:
        """Return whether an errand on this base is here, run or waiting: its fork lies on the base until the origin has
        kept it. One that cannot be read, as it is being accepted, may be one."""
        for node in os.listdir(self._path):
            errands = self._path + b"/" + node + b"/errands"
            for name in os.listdir(errands) if os.path.isdir(errands) else ():
                try:
                    if name != KEPT and ErrandFolder(errands + b"/" + name).errand.base == base:
                        return True
                except (OSError, msgspec.DecodeError, msgspec.ValidationError):
                    return True
        return False

    # --- for errands ---

    def get(self, base: bytes) -> Base:
        """Return a base that was complete once. Raise UsageError if this id is unknown."""
        try:
            with open(self._bases + b"/" + base.hex().encode(), "rb") as stream:
                return msgspec.msgpack.decode(stream.read(), type=Base)
        except FileNotFoundError:
            raise UsageError(f"there is no base {base.hex()[:12]} here", "offer it first") from None

    def acquire(self, base: bytes) -> bytes:
        """Return a base's directory, which stays until ``release``. Raise MudroomError if objects are missing or the
        disk is full."""
        snapshot = self._snapshots.acquire(self.get(base))
        with self._lock:
            self._users[base] = self._users.get(base, 0) + 1
        return snapshot

    def release(self, base: bytes) -> None:
        with self._lock:
            self._users[base] -= 1
            if not self._users[base]:
                self._snapshots.release(self.get(base))
