"""A run's base, scanned once, and its objects as a worker asks for them."""

from __future__ import annotations

from collections.abc import Iterator

from mudroom.ext.fleet.base.manifest import base_id
from mudroom.ext.fleet.base.pack import packs
from mudroom.ext.fleet.base.scan import Scanned, ScannedObjects
from mudroom.ext.fleet.wire.frame import Frame, LinkError
from mudroom.ext.fleet.wire.message import OBJECTS, Want


class ScannedPayload:
    """The links' threads read it; it is not changed."""

    def __init__(self, scanned: Scanned) -> None:
        self._scanned = scanned
        self.base = scanned.base
        self.identity = base_id(scanned.base)

    def frames(self, want: Want) -> Iterator[Frame]:
        """Return frames with the objects that are asked for. Raise LinkError if the base has no such object: a worker
        must not learn which other files there are. The iterator raises BaseChanged if the project has changed."""
        scanned = self._scanned
        if not all(digest in scanned.nodes for digest in want.nodes):
            raise LinkError("asked for a directory that is not in the base")
        if not all(digest in scanned.files for digest in want.files):
            raise LinkError("asked for a file that is not in the base")
        return self._read(tuple(dict.fromkeys((*want.nodes, *want.files))))

    def _read(self, digests: tuple[bytes, ...]) -> Iterator[Frame]:
        with ScannedObjects(self._scanned) as objects:
            for pack in packs(digests, objects):
                yield Frame(OBJECTS, 0, pack)
