"""Reader for an untrusted repository's objects, from a fork's files.

Only loose objects and packs are read; the fork's settings, hooks, filters, alternates and replacements are ignored. An
object is accepted only if its hash is right. Loose object format: gitformat-loose(5).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Container

from dulwich.errors import ApplyDeltaError

from mudroom.core.system.closing import Closing, Descriptor
from mudroom.core.text.regex import regex
from mudroom.ext.commits.git.pack import Bases, Pack
from mudroom.ext.commits.git.read import Allowance, UnpackedObject, check_size, open_regular, refusal
from mudroom.stage.source import Source

_PACK_LIMIT = 200  # each has two open files; git collects packs when there are 50 (gc.autoPackLimit)
_LOOSE_HEADER = regex(rb"(commit|tree|blob|tag) (0|[1-9][0-9]{0,15})\0")


class ForkObjects(Closing):
    """A fork's objects. Must be closed.

    ``path``: the ``objects`` directory in ``view``. ``algorithm``: sha1 or sha256. ``known``: names of packs to skip,
    because the project's repository has them.
    """

    def __init__(
        self,
        view: Source,
        path: bytes,
        algorithm: str,
        known: Container[bytes] = (),
        allowance: Allowance | None = None,
    ) -> None:
        self._view, self._path, self._algorithm = view, path, algorithm
        self._known = known
        self._allowance = allowance or Allowance()
        self._packs: list[Pack] | None = None
        self.made: dict[bytes, tuple[bytes, bytes]] = {}
        """Objects of mudroom's own, read as if the fork had them: kind and content by id."""

    def close(self) -> None:
        for pack in self._packs or ():
            pack.close()
        self._packs = None

    def get(self, name: bytes) -> tuple[bytes, bytes] | None:
        """Return an object's kind and content, or None. Raise UsageError if its hash is wrong or it is too large."""
        try:
            content = self.made.get(name) or self._loose(name) or self._packed(name)
        except (ValueError, ApplyDeltaError) as error:
            reason = "is damaged" if isinstance(error, ApplyDeltaError) else str(error)
            raise refusal(f"the object {name.decode()} {reason}") from None
        if content is not None:
            kind, data = content
            hashed = hashlib.new(self._algorithm, b"%s %d\0" % (kind, len(data)), usedforsecurity=False)
            hashed.update(data)
            if hashed.hexdigest().encode() != name:
                raise refusal(f"the object {name.decode()} does not have the hash that it is named by")
        return content

    def _loose(self, name: bytes) -> tuple[bytes, bytes] | None:
        descriptor = open_regular(self._view, b"%s/%s/%s" % (self._path, name[:2], name[2:]))
        if descriptor is None:
            return None
        with Descriptor(descriptor):
            stream = UnpackedObject(descriptor, 0, self._allowance)
            start = stream.read(32)
            header = _LOOSE_HEADER.match(start)
            if header is None:
                raise ValueError("is damaged")
            size, rest = int(header.group(2)), start[header.end() :]
            check_size(size)
            if len(rest) > size:
                raise ValueError("is not as long as it says")
            data = stream.last(size, rest)
            if not stream.is_all:
                raise ValueError("is followed by something else")
            return header.group(1), data

    def _packed(self, name: bytes) -> tuple[bytes, bytes] | None:
        if self._packs is None:
            self._open_packs()
        raw = bytes.fromhex(name.decode())
        for pack in self._packs or ():
            offset = pack.find(raw)
            if offset is not None:
                return pack.read(offset)
        return None

    def _open_packs(self) -> None:
        self._packs = []
        directory = self._path + b"/pack"
        present = self._view.names(directory)
        names = [name[:-4] for name in present if name.endswith(b".idx") and name[:-4] + b".pack" in present]
        names = sorted(name for name in names if name not in self._known)
        if len(names) > _PACK_LIMIT:
            raise refusal(f"it has more than {_PACK_LIMIT} packs", "git gc in the fork combines them")
        id_length = hashlib.new(self._algorithm, usedforsecurity=False).digest_size
        bases = Bases()
        for name in names:
            index = open_regular(self._view, directory + b"/" + name + b".idx")
            if index is None:
                continue
            content = open_regular(self._view, directory + b"/" + name + b".pack")
            if content is None:
                os.close(index)
                continue
            self._packs.append(Pack(index, content, id_length, self._allowance, bases))
