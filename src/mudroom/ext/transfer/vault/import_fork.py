"""Unpack a fork from an archive (``ext/transfer/vault/bundle.py``), made by this vault or another. The archive may be
hostile.

All layers get new ids. The trees are written beneath new directories (``ext/transfer/vault/unpack.py``); the changes
against *this* project are computed again (``ext/transfer/vault/recheck_layers.py``). The result is not a fork yet: the
fork appears by one rename (``ext/transfer/vault/arrival.py``). If mudroom is killed before, only unneeded layers are
left, and ``gc`` removes them.
"""

from __future__ import annotations

import os
import tarfile
from collections.abc import Callable, Iterable
from typing import IO, NamedTuple, TypeVar

import msgspec

from mudroom.core.tree.entry import Entry
from mudroom.core.tree.path import show
from mudroom.core.tree.stack import LIVE, Checkpoint, ForkState, from_text
from mudroom.ext.transfer.vault.archive import ArchiveReader, RefusedArchive, name_of, refusing
from mudroom.ext.transfer.vault.bundle import BASE_ID, FORMAT, Label
from mudroom.ext.transfer.vault.recheck_layers import THEIRS, LayerRecheck, RecheckedFork
from mudroom.ext.transfer.vault.unpack import TreeWriter
from mudroom.stage import disk
from mudroom.stage.layers.landed import LandedPaths
from mudroom.stage.source import OpenSource
from mudroom.vault.record import FORK_FORMAT, ForkRecord
from mudroom.vault.store.fork import is_plain
from mudroom.vault.store.store import Vault

LIMIT = 10 * 10**9
"""Default limit for an archive's bytes, both as it arrives and unpacked."""
_TEXT_LIMIT = 4 << 20
_RECORDS_LIMIT = 512 << 20
"""Bytes in all records together: they are held in memory."""
_LAYER_LIMIT = 1000
_OTHER_RECORDS = (b"record", b"landed", b"digests")
_DIGESTS = list[tuple[bytes, Entry, bytes]]
_T = TypeVar("_T")

KnownBase = Callable[[bytes], str | None]
"""Returns the base that an id stands for: ``live``, a snapshot's id, or None if it is not known."""


class UnpackedFork(NamedTuple):
    """An archive's content, with layers in this vault, checked against this project."""

    label: Label
    state: ForkState
    record: ForkRecord | None
    """The fork's record, with the changes against this project; None if there were no changes and no command."""
    landed: dict[bytes, LandedPaths]
    strangers: set[bytes]
    """Changed paths whose original is not in this project: they are conflicts unless resolved."""
    made: tuple[bytes, ...]
    """New directories in the vault."""
    size: int
    """Bytes of the archive as it arrived."""
    digest: bytes
    """The archive's BLAKE2b-256 digest."""


def unpack_fork(
    vault: Vault, stream: IO[bytes], time: int, limit: int, known: KnownBase | None, check: Callable[[Label], None]
) -> UnpackedFork:
    """Unpack an archive. ``stream`` is open for reading at its beginning; it need not seek, and is read to its end.
    ``check`` may raise as soon as the label is read.

    Hold ``unpacking``. Raise RefusedArchive if the archive is damaged, newer or hostile, or its base is not known here,
    OSError as the disk does. In these cases no part of it is left.
    """
    unpacking = _Unpacking(vault, ArchiveReader(stream, limit), time, known)
    try:
        return unpacking.run(check)
    except BaseException:
        unpacking.abandon()
        take_back(vault, unpacking.made)
        raise


def take_back(vault: Vault, made: Iterable[bytes]) -> None:
    """Throw away the directories that an archive was unpacked to."""
    for place in made:
        vault.throw_away(place)
    vault.empty_trash()


class _Unpacking:
    def __init__(self, vault: Vault, archive: ArchiveReader, time: int, known: KnownBase | None) -> None:
        self._vault, self._archive, self._time, self._known = vault, archive, time, known
        self._ids: dict[str, str] = {}
        self._base = LIVE
        self._brings_base = False
        """Whether the archive contains the snapshot that the fork stands on."""
        self.made: list[bytes] = []
        self._trees: dict[bytes, TreeWriter] = {}
        self._records: dict[bytes, bytes] = {}
        self._read_size = 0

    def run(self, check: Callable[[Label], None]) -> UnpackedFork:
        members = iter(self._archive)
        label = self._label(next(members, None))
        check(label)
        state = self._state(next(members, None), label)
        ended = False
        for info in members:
            if ended:
                raise RefusedArchive("it has data after its end")
            ended = name_of(info) == b"mudroom-end"
            if not ended:
                self._member(info)
        if not ended:
            raise RefusedArchive("it is truncated")
        size, digest = self._archive.finish()
        for tree in self._trees.values():
            tree.close()
        record, rechecked = self._recheck(label, state)
        return UnpackedFork(label, state, record, rechecked.landed, rechecked.strangers, tuple(self.made), size, digest)

    def abandon(self) -> None:
        for tree in self._trees.values():
            tree.abandon()

    # --- reading ---

    def _label(self, info: tarfile.TarInfo | None) -> Label:
        if info is None or name_of(info) != b"mudroom-fork":
            raise RefusedArchive("it was not written by mudroom")
        data = self._archive.read(info, _TEXT_LIMIT)
        head: tuple[object, ...] = _decode(data, tuple[object, ...])
        if head and isinstance(head[0], int) and head[0] != FORMAT:
            raise RefusedArchive(f"it has format {head[0]}, this mudroom knows {FORMAT}: both sides need one version")
        label = _decode(data, Label)
        if label.vault_format != FORK_FORMAT:
            why = f"it is of a vault of format {label.vault_format}, this mudroom knows {FORK_FORMAT}"
            raise RefusedArchive(f"{why}: both sides need one version")
        if label.base and len(label.base) != BASE_ID:
            raise RefusedArchive("the id of its base is invalid")
        return label

    def _state(self, info: tarfile.TarInfo | None, label: Label) -> ForkState:
        """Read the state, and give its layers new ids."""
        if info is None or name_of(info) != b"state":
            raise RefusedArchive("it has no state")
        try:
            state = from_text(self._archive.read(info, _TEXT_LIMIT).decode("ascii"))
        except ValueError as error:
            raise RefusedArchive(f"its state {error}") from error
        sealed = [state.layers, *(point.layers for point in state.checkpoints)]
        own = state.repository is not None and state.repository.layer in state.own_layers
        if own or any(len(set(stack)) != len(stack) or state.upper in stack for stack in sealed):
            raise RefusedArchive("its state names a layer twice")
        names = {point.name for point in state.checkpoints}
        if not all(map(is_plain, names)) or len(names) != len(state.checkpoints):
            raise RefusedArchive("its state has checkpoints with invalid names")
        if len(state.references) > _LAYER_LIMIT or not all(point.time < 1 << 62 for point in state.checkpoints):
            raise RefusedArchive("its state has more layers, or later checkpoints, than there can be")
        for layer in sorted(state.references):
            self._ids[layer] = self._vault.new_layer()
            self.made.append(self._vault.layer(self._ids[layer]))
        self._place_base(state, label)
        return self._renamed(state)

    def _place_base(self, state: ForkState, label: Label) -> None:
        """Find the fork's base here: the project, a snapshot in this vault, or a snapshot that the archive brings."""
        if label.base:
            stands_for = self._known(label.base) if self._known is not None else None
            if stands_for is None or state.base != LIVE:
                raise RefusedArchive(f"it stands on the base {label.base.hex()[:16]}, which is not known here")
            self._base = stands_for
        elif state.base != LIVE:
            self._base, self._brings_base = self._vault.new_id(), True
            self.made.append(self._vault.base(self._base))
            os.mkdir(self._vault.base(self._base), 0o700)

    def _renamed(self, state: ForkState) -> ForkState:
        def ids(layers: tuple[str, ...]) -> tuple[str, ...]:
            return tuple(self._ids[layer] for layer in layers)

        points = tuple(Checkpoint(p.name, p.time, ids(p.layers), p.automatic) for p in state.checkpoints)
        upper = self._ids[state.upper]
        repository = state.repository
        if repository is not None:
            repository = repository._replace(layer=self._ids[repository.layer])
        return ForkState(upper, ids(state.layers), self._base, self._time, "", True, points, repository)

    def _member(self, info: tarfile.TarInfo) -> None:
        name = name_of(info)
        parts = name.split(b"/", 3)
        if parts[0] == b"layers" and len(parts) >= 3 and parts[1].decode("ascii", "replace") in self._ids:
            place = self._vault.layer(self._ids[parts[1].decode("ascii")])
            if parts[2] == b"tree":
                self._tree(info, b"/".join(parts[:3]), place + b"/tree", is_layer=True)
                return
            if parts[2] == b"originals" and len(parts) == 4 and (parts[3] in (b"index", b"pack") or parts[3].isdigit()):
                self._original(info, place, parts[3])
                return
            if parts[2:] == [b"record"]:
                self._records[place + b"/record"] = self._read_record(info)
                return
        if parts[:2] == [b"base", b"source"] and self._brings_base:
            self._tree(info, b"base/source", self._vault.base(self._base) + b"/source", is_layer=False)
        elif name in (b"digests", b"record", b"landed"):
            self._records[name] = self._read_record(info)
        else:
            raise RefusedArchive(f"it holds {show(name)}, which does not belong there")

    def _tree(self, info: tarfile.TarInfo, prefix: bytes, place: bytes, *, is_layer: bool) -> None:
        path = name_of(info)[len(prefix) + 1 :]
        if not path:
            if place in self._trees:
                raise RefusedArchive(f"it has {show(prefix)} twice")
            self._trees[place] = TreeWriter(place, prefix + b"/", is_layer=is_layer)
            self._trees[place].top(info)
        elif place not in self._trees:
            raise RefusedArchive(f"{show(name_of(info))} is in no directory of the archive")
        else:
            self._trees[place].add(path, info, self._archive)

    def _original(self, info: tarfile.TarInfo, layer: bytes, name: bytes) -> None:
        if len(name) > 9:
            raise RefusedArchive(f"it holds {show(name_of(info))}, which does not belong there")
        place = layer + THEIRS + b"/originals"
        os.makedirs(place, mode=0o700, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | disk.O_CLOEXEC
        try:
            descriptor = disk.open_path(place + b"/" + name, flags, 0o600)
        except FileExistsError:
            raise RefusedArchive(f"it has {show(name_of(info))} twice") from None
        with open(descriptor, "wb") as stream:
            stream.writelines(self._archive.blocks(info))

    def _read_record(self, info: tarfile.TarInfo) -> bytes:
        data = self._archive.read(info, _RECORDS_LIMIT - self._read_size)
        self._read_size += len(data)
        return data

    # --- recheck here ---

    def _recheck(self, label: Label, state: ForkState) -> tuple[ForkRecord | None, RecheckedFork]:
        contents = self._records
        records = {place: _decode(data, ForkRecord) for place, data in contents.items() if place not in _OTHER_RECORDS}
        theirs = _decode(contents[b"record"], ForkRecord) if b"record" in contents else None
        landed = _decode(contents.get(b"landed", b"\x80"), dict[bytes, LandedPaths])
        digests = {
            (path, entry): digest for path, entry, digest in _decode(contents.get(b"digests", b"\x90"), _DIGESTS)
        }
        with OpenSource(self._vault.source) as live:
            recheck = LayerRecheck(self._vault, state, live, records, theirs, brings_base=self._brings_base)
            rechecked = recheck.run(digests, landed, at_home=label.project == self._vault.project)
        changes = rechecked.changes
        if not (changes.changes or changes.remarks or state.layers):
            return None, rechecked
        command, code = (theirs.command, theirs.exit_code) if theirs is not None else ((), 0)
        started = min(theirs.started, self._time) if theirs is not None else self._time
        return ForkRecord(FORK_FORMAT, label.name, "overlay", command, started, code, changes), rechecked


def _decode(data: bytes, kind: type[_T]) -> _T:
    with refusing():
        try:
            return msgspec.msgpack.decode(data, type=kind)
        except msgspec.MsgspecError as error:
            raise RefusedArchive(f"it is damaged: {error}") from error
