"""Export a fork as a tar archive (docs/FORMAT.md), which another vault can import, for this project or another.

    mudroom-fork                label: format, name, the project it comes from, its base's id if the archive names it
    state                       the stack and the checkpoints (core/tree/stack.py)
    digests                     content digests for every original that is known
    record, landed              the fork's
    layers/<id>/record          a sealed layer's
    layers/<id>/originals/…     index, pack, large files
    layers/<id>/tree/…          the layer itself
    base/source/…               the snapshot it stands on, if any
    mudroom-end                 end mark, to detect a truncated archive

A fork that works in a copy is sealed first, as before another fork is made from it: its copy is not in the archive. The
archive of a fork on a snapshot includes the snapshot, because the changes are relative to it, unless the archive names
its base by id: then it holds the changed paths' originals instead, as for a fork of the live project, and only a vault
that knows the base takes it.
"""

from __future__ import annotations

import functools
import gzip
import os
from _blake2 import blake2b
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import IO, Any, NamedTuple, cast

import msgspec

from mudroom.core.system.closing import Descriptor
from mudroom.core.text.redaction import redact_argv
from mudroom.core.tree.entry import Entry, is_untouched
from mudroom.core.tree.landing_form import STAYS
from mudroom.core.tree.path import show
from mudroom.core.tree.pattern import matches
from mudroom.core.tree.secret import ELSEWHERE, secret_test
from mudroom.core.tree.stack import LIVE, ForkState, to_text
from mudroom.errors import MudroomError, UsageError
from mudroom.ext.transfer.vault.pack import Packer
from mudroom.ext.transfer.vault.rebase import Claim, digest, digest_of
from mudroom.stage import disk, safe_open
from mudroom.stage.layers.landed import LANDED, load_landed
from mudroom.stage.layers.layer import remove_tree
from mudroom.stage.layers.shown import PATHS, read_paths
from mudroom.stage.originals.original import Original, Originals, read_rows
from mudroom.stage.originals.snapshot import SnapshotSource
from mudroom.stage.source import OpenSource, Source, is_secret
from mudroom.vault.forks.flatten import merge_originals
from mudroom.vault.forks.stacking import require_idle, seal_upper
from mudroom.vault.forks.ties import require_single
from mudroom.vault.record import FORK_FORMAT
from mudroom.vault.store.fork import Fork, load_record
from mudroom.vault.store.store import Vault
from mudroom.vault.sync import sync_directory

FORMAT = 2
BASE_ID = 32
"""Bytes in a base's id."""


class Label(NamedTuple):
    """``mudroom-fork``: MessagePack."""

    format: int
    name: str
    project: bytes
    vault_format: int
    exported: int
    """Nanoseconds since 1970."""
    base: bytes = b""
    """The id (32 bytes) of the fork's base; empty: the base is in the archive, or is the project."""


class ExportedFork(NamedTuple):
    size: int
    """Bytes in the archive, as written."""
    remarks: tuple[str, ...]
    """Files that are not in it, with the reason."""
    digest: bytes
    """The archive's BLAKE2b-256 digest."""


class _Output:
    """The stream that an archive is written to: it need not seek, and may accept part of a write. Counted and
    hashed."""

    def __init__(self, stream: Any) -> None:
        self._stream, self._hasher, self._size = stream, blake2b(digest_size=32), 0

    def write(self, data: bytes) -> int:
        view = memoryview(data)
        while view:
            taken = self._stream.write(view)
            if taken is None:  # io.RawIOBase.write
                hint = "os.set_blocking(FD, True)"
                raise MudroomError("the archive cannot be written: its stream does not wait", hint)
            view = view[taken:]
        self._hasher.update(data)
        self._size += len(data)
        return len(data)

    def tell(self) -> int:
        """Return the bytes written so far. tarfile and gzip ask, and never go back."""
        return self._size

    def flush(self) -> None:
        self._stream.flush()

    def digest(self) -> bytes:
        return self._hasher.digest()


def export_fork(
    vault: Vault, fork: Fork, path: bytes, time: int, *, base: bytes = b"", packed: bool | None = None
) -> ExportedFork:
    """Write a fork to a new file, completely or not at all. ``packed`` None: with gzip if the name ends with ``gz``.

    Hold the fork's lock; no command may be running in it. Raise UsageError if the file exists, OSError as the disk
    does.
    """
    _require_whole(fork)
    if os.path.lexists(path):
        raise UsageError(f"{os.fsdecode(path)} exists already", "choose another name, or remove it")
    with _new_file(path) as stream:
        is_packed = path.endswith((b".gz", b".tgz")) if packed is None else packed
        return write_fork(vault, fork, stream, time, base=base, packed=is_packed)


def write_fork(
    vault: Vault,
    fork: Fork,
    stream: IO[bytes],
    time: int,
    *,
    base: bytes = b"",
    packed: bool = True,
    limit: int | None = None,
) -> ExportedFork:
    """Write a fork to a stream, which need not seek and stays open. ``packed``: with gzip. ``base``: the id of the
    fork's base, which is named instead of being written. ``limit``: bytes that the archive may unpack to; holes in
    sparse files count, since they are read and written.

    Hold the fork's lock; no command may be running in it. If an error is raised, the stream holds a partial archive,
    which no import accepts.
    """
    _require_whole(fork)
    if base and len(base) != BASE_ID:
        raise UsageError(f"the id of a base has {BASE_ID} bytes, this has {len(base)}")
    if fork.is_copy:
        seal_upper(vault, fork)
    output = _Output(stream)
    label = Label(FORMAT, fork.name, vault.project, FORK_FORMAT, time, base)
    if packed:
        with gzip.GzipFile(
            filename="", mode="wb", compresslevel=6, fileobj=cast("IO[bytes]", output), mtime=0
        ) as within:
            remarks = _write(vault, fork, cast("IO[bytes]", within), label, limit)
    else:
        remarks = _write(vault, fork, cast("IO[bytes]", output), label, limit)
    output.flush()
    return ExportedFork(output.tell(), remarks, output.digest())


def _write(vault: Vault, fork: Fork, stream: IO[bytes], label: Label, limit: int | None) -> tuple[str, ...]:
    secrets = Secrecy(vault, fork)
    packer = Packer(stream, _staying(vault, fork), limit)
    _pack(packer, vault, fork, label, secrets)
    packer.close()
    left_out = (f"{show(path)}: a secret of the project is left out" for path in sorted(secrets.changed))
    pushes = ("the effects that it holds are left out: they stay in this fork",) if fork.has_pushes else ()
    return (*packer.remarks, *left_out, *pushes)


class Secrecy:
    """Secrets that an archive leaves out, with the changes that commands made to them: those that the vault's mask
    hides from all commands, and those that a command was shown and has touched. A file that the fork itself has made
    under such a name is not a secret."""

    def __init__(self, vault: Vault, fork: Fork) -> None:
        self._mask = vault.mask
        shown = read_paths(fork.shown + PATHS) if fork.shown else frozenset[bytes]()
        records = [fork.record, *(load_record(vault.layer(name) + b"/record") for name in fork.state.references)]
        changes = [change for record in records if record is not None for change in record.changeset.changes]
        self._paths = self._mask.paths | shown
        self._paths |= {change.path for change in changes if change.base is not None and self._is_named(change.path)}
        self.changed = frozenset(change.path for change in changes) & self._paths
        """Secrets that have a change."""

    def _is_named(self, path: bytes) -> bool:
        is_named = secret_test(path) != "" and ELSEWHERE.isdisjoint(path.split(b"/")[:-1])
        is_named = is_named or matches(path, self._mask.patterns)
        return is_named and path not in self._mask.known and path not in self._mask.harmless

    def is_path(self, path: bytes) -> bool:
        """Return whether a layer's path is left out."""
        return path in self._paths

    def is_original(self, path: bytes) -> bool:
        """Return whether a project file is left out. It may be gone from the project by now."""
        return path in self._paths or self._is_named(path)

    def is_in(self, snapshot: Source, path: bytes) -> bool:
        """Return whether a snapshot's file is left out. It may hold an earlier content than the project."""
        if path in self._mask.harmless and path not in self._paths:
            return is_secret(snapshot, path, secret_test(path))
        return self.is_original(path)


def _require_whole(fork: Fork) -> None:
    require_idle(fork)
    require_single(fork, "vault export")
    if fork.interrupted is not None:
        hint = f"mudroom diff {fork.name} collects what it did"
        raise MudroomError(f"the last command of {fork.name} was cut off", hint)


@contextmanager
def _new_file(path: bytes) -> Iterator[IO[bytes]]:
    """Write under another name, and rename the file when it is complete and on disk."""
    beside = path + b".part"
    with open(
        disk.open_path(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | disk.O_NOFOLLOW | disk.O_CLOEXEC, 0o600), "wb"
    ) as raw:
        try:
            yield raw
            raw.flush()
            os.fsync(raw.fileno())
            disk.rename_path(beside, path)
        except BaseException:
            os.unlink(beside)
            raise
    sync_directory(os.path.dirname(path) or b".")  # the fork may be discarded next


def _staying(vault: Vault, fork: Fork) -> frozenset[bytes]:
    records = [fork.record, *(load_record(vault.layer(name) + b"/record") for name in fork.state.references)]
    remarks = (remark for record in records if record is not None for remark in record.changeset.remarks)
    return frozenset(remark.path for remark in remarks if remark.text.endswith(STAYS))


def _pack(packer: Packer, vault: Vault, fork: Fork, label: Label, secrets: Secrecy) -> None:
    state = fork.state
    is_named = bool(label.base)
    packer.data(b"mudroom-fork", msgspec.msgpack.encode(label))
    packer.data(b"state", to_text(state._replace(base=LIVE) if is_named else state).encode("ascii"))
    packer.data(b"digests", msgspec.msgpack.encode(_digests(vault, fork, secrets)))
    _pack_record(packer, vault, b"record", fork.record_path, secrets)
    packer.file(b"landed", fork.path + LANDED)
    for name in sorted(state.references):
        with _originals(vault, fork, name, secrets, is_named=is_named) as originals:
            _pack_layer(packer, vault, b"layers/" + name.encode(), name, originals, secrets, sealed=name != state.upper)
    if state.base != LIVE and not is_named:
        place = vault.base(state.base) + b"/source"
        with OpenSource(place) as source:
            is_left_out = functools.partial(secrets.is_in, source)
            packer.tree(b"base/source", place, is_layer=False, is_secret=is_left_out)
    packer.data(b"mudroom-end", b"")


def _pack_record(packer: Packer, vault: Vault, name: bytes, path: bytes, secrets: Secrecy) -> None:
    """Add a record, if it exists, with secrets redacted."""
    record = load_record(path)
    if record is not None:
        shown = redact_argv(record.command, vault.secrets())
        changes = tuple(change for change in record.changeset.changes if not secrets.is_path(change.path))
        changeset = record.changeset._replace(changes=changes)
        packer.data(name, msgspec.msgpack.encode(record._replace(command=shown, changeset=changeset)))


@contextmanager
def _originals(vault: Vault, fork: Fork, name: str, secrets: Secrecy, *, is_named: bool) -> Iterator[bytes]:
    """Yield the directory with a layer's originals, except those of secrets. A layer over a snapshot has no originals:
    if the snapshot is not included, the originals of the paths that the layer changes are made from it."""
    state = fork.state
    place = vault.layer(name)
    record = fork.record if name == state.upper else load_record(place + b"/record")
    if not is_named or state.base == LIVE or record is None:
        if not any(secrets.is_original(path) for path, _original in rows_of(place)):
            yield place + b"/originals"
            return
        beside = vault.layer(vault.new_layer())
        try:
            merge_originals([place], beside, leave_out=secrets.is_original)
            yield beside + b"/originals"
        finally:
            remove_tree(beside)
        return
    beside = vault.layer(vault.new_layer())
    snapshot = SnapshotSource(vault.base(state.base))
    try:
        kept = Originals([beside])
        for change in record.changeset.changes:
            if secrets.is_original(change.path):
                continue
            if change.base is None or change.base.kind != "file" or change.staged is None:
                kept.keep(change.path, change.base)
                continue
            with Descriptor(snapshot.open(change.path)) as opened:
                kept.keep_file(change.path, change.base._replace(size=os.fstat(opened).st_size), opened)
        kept.save()
        yield beside + b"/originals"
    finally:
        snapshot.close()
        remove_tree(beside)


def _pack_layer(
    packer: Packer, vault: Vault, name: bytes, layer: str, originals: bytes, secrets: Secrecy, *, sealed: bool
) -> None:
    place = vault.layer(layer)
    _pack_record(packer, vault, name + b"/record", place + b"/record", secrets)
    if os.path.lexists(originals):
        os.close(safe_open.open_directory(originals))
    for part in sorted(os.listdir(originals)) if os.path.isdir(originals) else ():
        if part in (b"index", b"pack") or part.isdigit():
            packer.file(name + b"/originals/" + part, originals + b"/" + part)
    if os.path.isdir(place + b"/tree"):
        packer.tree(name + b"/tree", place + b"/tree", is_secret=secrets.is_path)
    elif sealed:
        raise MudroomError(f"the layer {os.fsdecode(place)} is missing", "mudroom vault check says what needs it")


def _digests(vault: Vault, fork: Fork, secrets: Secrecy) -> list[tuple[bytes, Entry, bytes]]:
    """Return the digest of every original: from its kept content, else from the project's file if that is unchanged."""
    state = fork.state
    claims = set(_claims(vault, fork, state))
    digests: dict[Claim, bytes] = {}
    for name in sorted(state.references):
        digests.update(kept_digests(vault.layer(name)))
    with _base_source(vault, state) as base:
        for path, entry in sorted(claims - digests.keys()):
            file_digest = digest_of(base, path, entry) if is_untouched(entry, base.look(path)) else None
            if file_digest is not None:
                digests[path, entry] = file_digest
    rows = sorted(digests.items())
    return [(path, entry, digest) for (path, entry), digest in rows if not secrets.is_original(path)]


@contextmanager
def _base_source(vault: Vault, state: ForkState) -> Iterator[Source]:
    if state.base == LIVE:
        with OpenSource(vault.source) as live:
            yield live
        return
    with closing(SnapshotSource(vault.base(state.base))) as snapshot:
        yield snapshot


def _claims(vault: Vault, fork: Fork, state: ForkState) -> Iterator[Claim]:
    records = [fork.record, *(load_record(vault.layer(name) + b"/record") for name in state.references)]
    entries = [
        (change.path, change.base) for record in records if record is not None for change in record.changeset.changes
    ]
    entries += [(path, row.project) for path, row in load_landed(fork.path + LANDED).items()]
    for name in state.references:
        entries += [(path, original.entry) for path, original in rows_of(vault.layer(name))]
    for path, entry in entries:
        if entry is not None and entry.kind == "file":
            yield path, entry


def rows_of(layer: bytes) -> Iterator[tuple[bytes, Original]]:
    """Yield a layer's recorded originals. Raise MudroomError if the index is damaged: a secret's original may be among
    the missing rows."""
    index = layer + b"/originals/index"
    try:
        os.close(safe_open.open_directory(layer + b"/originals"))
        rows, damage = read_rows(safe_open.read(index), index)
    except FileNotFoundError:
        return
    if damage:
        raise MudroomError(
            f"{show(index)} is damaged: {damage}", "its fork can be applied; mudroom vault check names it"
        )
    yield from rows


def kept_digests(layer: bytes) -> dict[Claim, bytes]:
    """Return digests for the originals whose content a layer keeps."""
    originals = Originals([layer])
    digests: dict[Claim, bytes] = {}
    for path in originals.paths():
        original = originals.get(path)
        opened = originals.content(path)
        if opened is None:
            continue
        with Descriptor(opened):
            if original is not None and original.entry is not None:
                digests[path, original.entry] = digest(opened)
    return digests
