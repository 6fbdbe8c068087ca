"""Recheck an imported fork's layers, from the bottom to the top, against its new project."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from mudroom.core.system.closing import Descriptor
from mudroom.core.tree.change import Change, Changeset
from mudroom.core.tree.entry import Entry
from mudroom.core.tree.flag import git_directory
from mudroom.core.tree.path import relpath, show
from mudroom.core.tree.stack import LIVE, ForkState
from mudroom.errors import MudroomError
from mudroom.ext.transfer.vault.archive import RefusedArchive, refusing
from mudroom.ext.transfer.vault.bundle import kept_digests, rows_of
from mudroom.ext.transfer.vault.rebase import Claim, Rebase, align_modes, collect_layer, same_file
from mudroom.stage.beneath import directory
from mudroom.stage.copy import listed
from mudroom.stage.layers.landed import LandedPaths, elsewhere
from mudroom.stage.layers.layer import remove_tree
from mudroom.stage.layers.union import Union
from mudroom.stage.originals.original import Originals
from mudroom.stage.originals.snapshot import SnapshotSource
from mudroom.stage.source import OpenSource, Source, walk
from mudroom.vault.apply.tree import set_mode
from mudroom.vault.record import FORK_FORMAT, ForkRecord, save
from mudroom.vault.store.spare_base import BROUGHT
from mudroom.vault.store.store import Vault

THEIRS = b"/theirs"
"""Below a layer while it is rechecked: the archive's originals."""


class RecheckedFork(NamedTuple):
    changes: Changeset
    landed: dict[bytes, LandedPaths]
    strangers: set[bytes]


class LayerRecheck:
    """``records``: the sealed layers' records, by the record's path here. ``record``: the fork's own. Both are only
    claims."""

    def __init__(
        self,
        vault: Vault,
        state: ForkState,
        live: OpenSource,
        records: Mapping[bytes, ForkRecord],
        record: ForkRecord | None,
        *,
        brings_base: bool,
    ) -> None:
        """``brings_base``: the fork stands on a snapshot that was unpacked with it, not on a snapshot that this vault
        had."""
        self._brings_base = brings_base
        self._vault, self._state, self._live = vault, state, live
        self._records, self._record = records, record
        self._done: dict[str, Changeset] = {}

    def run(
        self, digests: Mapping[Claim, bytes], landed: Mapping[bytes, LandedPaths], *, at_home: bool
    ) -> RecheckedFork:
        state, known = self._state, dict(digests)
        for name in state.references:
            self._check_layer(name)
            # computed from the content; the archive's own digests are overridden
            known.update(kept_digests(self._vault.layer(name) + THEIRS))
        self._rebase = Rebase(self._live, known, at_home=at_home)
        snapshot = None
        try:
            base: Source = self._live
            if state.base != LIVE:
                if self._brings_base:
                    freeze(self._vault.base(state.base), self._live)
                base = snapshot = SnapshotSource(self._vault.base(state.base))
            return self._recheck(base, landed)
        finally:
            if snapshot is not None:
                snapshot.close()

    def _check_layer(self, name: str) -> None:
        place = self._vault.layer(name)
        if name != self._state.upper and not os.path.isdir(place + b"/tree"):
            raise RefusedArchive("one of its layers is missing")
        if self._state.repository is not None and name == self._state.repository.layer:
            _check_repository(place + b"/tree")
        with refusing():
            try:
                rows = list(rows_of(place + THEIRS))
            except MudroomError as error:
                raise RefusedArchive("an index of its originals is damaged") from error
            for path, original in rows:
                _check_row(place + THEIRS + b"/originals/", path, original.place, original.offset, original.length)

    def _recheck(self, base: Source, landed: Mapping[bytes, LandedPaths]) -> RecheckedFork:
        state, vault = self._state, self._vault
        for name in sorted(state.references):
            self._keep_originals(vault.layer(name))
            if os.path.isdir(vault.layer(name) + b"/tree"):
                align_modes(vault.layer(name) + b"/tree", self._changes_of(name), base)
        top = (state.upper,) if os.path.isdir(vault.layer(state.upper) + b"/tree") else ()
        chain = (*state.layers, *top)
        with Union([vault.layer(name) + b"/tree" for name in reversed(chain)], None) as staged:
            landed_here = self._rebase.landed(landed, staged)
        for stack in (chain, *(point.layers for point in state.checkpoints)):
            self._collect(stack, base, landed_here)
        changes = self._done[chain[-1]] if chain else Changeset()
        return RecheckedFork(changes, landed_here, self._rebase.strangers)

    def _changes_of(self, name: str) -> dict[bytes, Change]:
        record = self._records.get(self._vault.layer(name) + b"/record") or self._record
        return {change.path: change for change in record.changeset.changes} if record is not None else {}

    def _collect(self, stack: tuple[str, ...], base: Source, landed: Mapping[bytes, LandedPaths]) -> None:
        vault, frozen = self._vault, self._state.base != LIVE
        sealed = Changeset()
        for number, name in enumerate(stack):
            if name not in self._done:
                claims: Iterable[Change] = () if frozen else self._changes_of(name).values()
                self._done[name] = collect_layer(
                    [vault.layer(layer) for layer in stack[: number + 1]],
                    base,
                    frozen=frozen,
                    sealed=sealed,
                    claims=Changeset(self._rebase.changes(claims)),
                    landed=landed,
                    project=vault.project,
                    settings_at=b"" if vault.is_elsewhere else vault.project,
                    repository=vault.private_layer(self._state),
                )
                self._save(name)
            sealed = self._done[name]

    def _save(self, name: str) -> None:
        if name == self._state.upper:
            return
        path = self._vault.layer(name) + b"/record"
        theirs = self._records.get(path)
        command, started, code = (theirs.command, theirs.started, theirs.exit_code) if theirs else ((), 0, 0)
        record = ForkRecord(FORK_FORMAT, "imported", "overlay", command, started, code, self._done[name])
        save(path, record, durable=False)

    def _keep_originals(self, layer: bytes) -> None:
        """Convert the archive's originals: the same contents, with this project's entries."""
        if not os.path.isdir(layer + THEIRS):
            return
        if self._state.base != LIVE and not self._brings_base:
            remove_tree(layer + THEIRS)  # this vault's snapshot has them all
            return
        theirs, ours = Originals([layer + THEIRS]), Originals([layer])
        for path in theirs.paths():
            original = theirs.get(path)
            assert original is not None
            entry, content = self._rebase.entry(path, original.entry), theirs.content(path)
            if content is None or entry is None:
                ours.keep(path, entry)
                continue
            with Descriptor(content):
                ours.keep_file(path, entry._replace(size=os.fstat(content).st_size), content)
        ours.save()
        remove_tree(layer + THEIRS)


def _check_row(originals: bytes, path: bytes, place: str, offset: int, length: int) -> None:
    if path and relpath(path) != path:
        raise RefusedArchive(f"it has an original of {show(path)}")
    if not place:
        return
    if place != "pack" and not (place.isascii() and place.isdecimal() and len(place) < 10):
        raise RefusedArchive(f"it has an original in {show(os.fsencode(place))}")
    try:
        size = os.stat(originals + place.encode()).st_size
    except FileNotFoundError:
        size = -1
    if offset < 0 or length < 0 or offset + length > size:
        raise RefusedArchive(f"its original of {show(path)} is missing")


def _check_repository(tree: bytes) -> None:
    """Raise RefusedArchive if a private repository's layer holds anything else."""
    with OpenSource(tree, is_layer=True) as layer:
        for path, entry in walk(layer):
            if entry.kind != "directory" and (entry.kind != "file" or git_directory(path) in (None, path)):
                raise RefusedArchive(f"it has {show(path)} in place of a repository")


def freeze(place: bytes, live: OpenSource) -> None:
    """Write an imported snapshot's manifest. A file that this project has, too, gets the project's entry."""
    if not os.path.isdir(place + b"/source"):
        raise RefusedArchive("its snapshot is missing")
    with open(place + BROUGHT, "xb"):
        pass
    manifest: dict[bytes, Entry] = {}
    with OpenSource(place + b"/source") as copy:
        for path, entry in (*listed(copy).items(), (b"", copy.look(b""))):
            assert entry is not None
            project_entry = live.look(path)
            same = project_entry is not None and (project_entry.kind, project_entry.target) == (
                entry.kind,
                entry.target,
            )
            if same and project_entry is not None and project_entry.kind == "file":
                same = same_file(live, copy, path, project_entry, entry)
            manifest[path] = project_entry if same and project_entry is not None else elsewhere(entry)
            if (
                same
                and project_entry is not None
                and project_entry.mode != entry.mode
                and project_entry.kind in ("file", "directory")
            ):
                above, _slash, name = path.rpartition(b"/")
                with directory(copy.root, above) as opened:
                    set_mode((opened, name or b"."), project_entry.mode)
    with open(place + b"/manifest", "wb") as stream:
        stream.write(msgspec.msgpack.encode(manifest))
