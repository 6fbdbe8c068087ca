"""Export of one fork as a tar archive (docs/FORMAT.md), which another vault, of this project or another, can import.

    mudroom-fork                label: format, name, the project it comes from
    state                       the stack and the checkpoints (core/tree/stack.py)
    digests                     of the content of every original that is known
    record, landed              of the fork
    layers/<id>/record          of a sealed layer
    layers/<id>/originals/…     index, pack, large files
    layers/<id>/tree/…          the layer itself
    base/source/…               the snapshot it stands on, if any
    mudroom-end                 end mark, to detect a truncated archive

A fork that works in a copy is sealed first, as before a fork is made of it: its copy is not in the archive. The archive
of a fork on a snapshot includes the snapshot, because the changes are relative to it.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, NamedTuple, cast

import msgspec

from mudroom.core.tree.entry import Entry, is_untouched
from mudroom.core.tree.landing_form import STAYS
from mudroom.core.tree.stack import LIVE, ForkState, to_text
from mudroom.errors import MudroomError, UsageError
from mudroom.stage import safe_open
from mudroom.stage.layers.landed import LANDED, load_landed
from mudroom.stage.originals.original import Original, Originals, read_rows
from mudroom.stage.source import OpenSource
from mudroom.vault.forks.stacking import require_idle, seal_upper
from mudroom.vault.record import FORMAT as RECORD_FORMAT
from mudroom.vault.store.fork import Fork, load_record
from mudroom.vault.store.store import Vault
from mudroom.vault.transfer.pack import Packer
from mudroom.vault.transfer.rebase import Claim, digest, digest_of

FORMAT = 1


class Label(NamedTuple):
    """``mudroom-fork``: MessagePack."""

    format: int
    name: str
    project: bytes
    vault_format: int
    exported: int
    """Nanoseconds since 1970."""


class ExportedFork(NamedTuple):
    size: int
    """Bytes of the archive."""
    remarks: tuple[str, ...]
    """Files that are not in it, with the reason."""


def export_fork(vault: Vault, fork: Fork, path: bytes, time: int) -> ExportedFork:
    """Write a fork to a new file, completely or not at all; compressed if the name ends with ``gz``.

    Hold the fork's lock; no command may be running in it. Raise UsageError if the file exists, OSError as the disk
    does.
    """
    require_idle(fork)
    if fork.interrupted is not None:
        raise MudroomError(f"the last command of {fork.name} was cut off", f"run mudroom diff {fork.name} first")
    if os.path.lexists(path):
        raise UsageError(f"{os.fsdecode(path)} exists already", "choose another name, or remove it")
    if fork.is_copy:
        seal_upper(vault, fork)
    with _new_file(path) as stream:
        packer = Packer(stream, _staying(vault, fork))
        _pack(packer, vault, fork, Label(FORMAT, fork.name, vault.project, RECORD_FORMAT, time))
        packer.close()
    return ExportedFork(os.stat(path).st_size, tuple(packer.remarks))


@contextmanager
def _new_file(path: bytes) -> Iterator[IO[bytes]]:
    """Write under another name, and rename the file when it is complete and on disk."""
    beside = path + b".part"
    with open(
        os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), "wb"
    ) as raw:
        try:
            if path.endswith((b".gz", b".tgz")):
                with gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=raw, mtime=0) as packed:
                    yield cast("IO[bytes]", packed)
            else:
                yield raw
            raw.flush()
            os.fsync(raw.fileno())
            os.rename(beside, path)
        except BaseException:
            os.unlink(beside)
            raise


def _staying(vault: Vault, fork: Fork) -> frozenset[bytes]:
    records = [fork.record, *(load_record(vault.layer(name) + b"/record") for name in fork.state.references)]
    remarks = (remark for record in records if record is not None for remark in record.changeset.remarks)
    return frozenset(remark.path for remark in remarks if remark.text.endswith(STAYS))


def _pack(packer: Packer, vault: Vault, fork: Fork, label: Label) -> None:
    state = fork.state
    packer.data(b"mudroom-fork", msgspec.msgpack.encode(label))
    packer.data(b"state", to_text(state).encode("ascii"))
    packer.data(b"digests", msgspec.msgpack.encode(_digests(vault, fork)))
    _pack_record(packer, vault, b"record", fork.record_path)
    packer.file(b"landed", fork.path + LANDED)
    for name in sorted(state.references):
        _pack_layer(packer, vault, b"layers/" + name.encode(), vault.layer(name), sealed=name != state.upper)
    if state.base != LIVE:
        packer.tree(b"base/source", vault.base(state.base) + b"/source", is_layer=False)
    packer.data(b"mudroom-end", b"")


def _pack_record(packer: Packer, vault: Vault, name: bytes, path: bytes) -> None:
    """Add a record, if there is one, without secrets of its command: earlier versions wrote it whole."""
    from mudroom.core.text.redaction import redact_argv

    record = load_record(path)
    if record is not None:
        shown = redact_argv(record.command, vault.secrets())
        packer.data(name, msgspec.msgpack.encode(record._replace(command=shown)))


def _pack_layer(packer: Packer, vault: Vault, name: bytes, place: bytes, *, sealed: bool) -> None:
    _pack_record(packer, vault, name + b"/record", place + b"/record")
    originals = place + b"/originals"
    if os.path.lexists(originals):
        os.close(safe_open.open_directory(originals))
    for part in sorted(os.listdir(originals)) if os.path.isdir(originals) else ():
        if part in (b"index", b"pack") or part.isdigit():
            packer.file(name + b"/originals/" + part, originals + b"/" + part)
    if os.path.isdir(place + b"/tree"):
        packer.tree(name + b"/tree", place + b"/tree")
    elif sealed:
        raise MudroomError(f"the layer {os.fsdecode(place)} is missing", "mudroom vault check says what needs it")


def _digests(vault: Vault, fork: Fork) -> list[tuple[bytes, Entry, bytes]]:
    """Return the digest of every original, from its kept content, else from the project's file if that is unchanged."""
    state = fork.state
    claims = set(_claims(vault, fork, state))
    digests: dict[Claim, bytes] = {}
    for name in sorted(state.references):
        digests.update(kept_digests(vault.layer(name)))
    with OpenSource(vault.source) as live:
        for path, entry in sorted(claims - digests.keys()):
            file_digest = digest_of(live, path, entry) if is_untouched(entry, live.look(path)) else None
            if file_digest is not None:
                digests[path, entry] = file_digest
    return [(path, entry, file_digest) for (path, entry), file_digest in sorted(digests.items())]


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
    """Yield the recorded originals of a layer. Raise MudroomError if the index is damaged."""
    index = layer + b"/originals/index"
    try:
        os.close(safe_open.open_directory(layer + b"/originals"))
        yield from read_rows(safe_open.read(index), index)
    except FileNotFoundError:
        return


def kept_digests(layer: bytes) -> dict[Claim, bytes]:
    """Return the digests of the originals whose content a layer keeps."""
    originals = Originals([layer])
    digests: dict[Claim, bytes] = {}
    for path in originals.paths():
        original = originals.get(path)
        opened = originals.content(path)
        if opened is None:
            continue
        try:
            if original is not None and original.entry is not None:
                digests[path, original.entry] = digest(opened)
        finally:
            os.close(opened)
    return digests
