"""Bases on a worker: the objects that an offered base lacks, the packs that bring them, and its snapshot.

    bases/ID     a base that was complete once (``Base`` as MessagePack), for errands that are found after a crash
    objects/     ``ext/fleet/base/objects.py``
    grounds/     ``ext/fleet/base/snapshot.py``

Rules of this file: one base is received at a time, the last that was offered. An object that was not asked for, or has
another digest, ends the link: nothing behind it can be trusted.
"""

from __future__ import annotations

import os
import threading

import msgspec

from mudroom.errors import UsageError
from mudroom.ext.fleet.base.manifest import base_id
from mudroom.ext.fleet.base.objects import ObjectStore
from mudroom.ext.fleet.base.pack import RefusedPack, unpack
from mudroom.ext.fleet.base.snapshot import SnapshotStore
from mudroom.ext.fleet.wire.frame import Frame, LinkError
from mudroom.ext.fleet.wire.message import READY, WANT, Base, Ready, Want, frame_of
from mudroom.stage import safe_open

MOST_WANTED = 60_000
"""Digests that one WANT asks for."""


class BaseCache:
    """``_lock`` guards the users of snapshots. The incoming base belongs to the thread that reads the link."""

    def __init__(self, path: bytes) -> None:
        """``path``: one origin's directory. Raise UsageError if it is not this user's alone."""
        self._store = ObjectStore(path + b"/objects")
        self._snapshots = SnapshotStore(path + b"/grounds", self._store)
        self._bases = path + b"/bases"
        os.makedirs(self._bases, 0o700, exist_ok=True)
        self._lock = threading.Lock()
        self._users: dict[bytes, int] = {}
        self._incoming: Base | None = None
        self._wanted: set[bytes] = set()

    def close(self) -> None:
        self._snapshots.close()
        self._store.close()

    # --- while a base is sent ---

    def offer(self, base: Base) -> Frame:
        """Return WANT or READY. Raise MudroomError if the base cannot be had here."""
        self._incoming = base
        return self._next_request(base)

    def receive(self, body: bytes) -> Frame | None:
        """Take a pack. Return the next WANT or READY once all that was asked for is here; None: more is to come. Raise
        LinkError for objects that were not asked for or are damaged, MudroomError if they cannot be kept."""
        if self._incoming is None:
            raise LinkError("sent objects before it offered a base")
        try:
            self._wanted.difference_update(unpack(body, self._store, self._wanted))
        except RefusedPack as error:
            raise LinkError(f"sent objects that cannot be used: {error.message}") from error
        return None if self._wanted else self._next_request(self._incoming)

    def _next_request(self, base: Base) -> Frame:
        missing = self._snapshots.missing(base)
        nodes = tuple(missing.nodes[:MOST_WANTED])
        files = tuple(missing.files[: MOST_WANTED - len(nodes)])
        self._wanted = {*nodes, *files}
        name = base_id(base)
        if self._wanted:
            return frame_of(WANT, Want(name, nodes, files))
        self._incoming = None
        self._record(name, base)
        return frame_of(READY, Ready(name))

    def _record(self, name: bytes, base: Base) -> None:
        path = self._bases + b"/" + name.hex().encode()
        if not os.path.exists(path):
            beside = b"%s.%s.new" % (path, os.urandom(4).hex().encode())  # other workers keep the same base meanwhile
            safe_open.replace(path, msgspec.msgpack.encode(base), beside)

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
