"""Reasons why a fork cannot be read, for lists: an unreadable fork must not spoil the whole list.

A fork can be half-made or incomplete after a full disk or a kill, damaged, closed to its owner, or discarded meanwhile
by another process.
"""

from __future__ import annotations

import os

from mudroom.core.tree.entry import Entry
from mudroom.core.tree.path import show
from mudroom.errors import MudroomError
from mudroom.stage.stamp import look
from mudroom.vault.store.fork import APART, RELEASED, Fork

UNREADABLE = (MudroomError, OSError, ValueError)
"""Exceptions from reading a fork."""


def damage_of(fork: Fork, error: Exception) -> str | None:
    """Return why the fork cannot be read, or None if it is gone."""
    return reason_of(error) if os.path.lexists(fork.path) else None


def reason_of(error: Exception) -> str:
    """Return the reason for an error in one line, with an OSError's path if it has one."""
    if isinstance(error, MudroomError):
        return error.message
    if not isinstance(error, OSError):
        return "a file in it is malformed"
    reason = error.strerror or str(error)
    return reason if error.filename is None else f"{show(os.fsencode(error.filename))}: {reason}"


def require_files(fork: Fork) -> None:
    """Raise MudroomError if a sealed layer, or the writable layer's tree, is lost."""
    require_layers(fork)
    require_tree(fork)


def require_tree(fork: Fork) -> None:
    """Raise MudroomError if the writable layer's tree is lost: the fork's record names files in it, or it was checked
    when it held files.

    A layer that was not used yet has no tree, but may have originals, because file tools write these first. A verb that
    gives a fork a new layer writes the state before the record, so a record older than the state may describe another
    layer. A tree that is being replaced has a copy.
    """
    place = fork.layer(fork.state.upper)
    if os.path.isdir(place + b"/tree") or os.path.isdir(place + APART) or fork.has_copy or fork.interrupted is not None:
        return
    vault = place.rpartition(b"/layers/")[0]
    if os.path.lexists(vault + RELEASED + b"/" + fork.state.upper.encode()) or _has_newer_record(fork):
        raise MudroomError(
            f"the files of the fork {fork.name} are missing: its layer {fork.state.upper} has no tree",
            f"they are lost; mudroom discard {fork.name} removes the rest",
        )


def require_layers(fork: Fork) -> None:
    """Raise MudroomError if a sealed layer is gone: without it, files would look unchanged."""
    state = fork.state
    gone = {name for name in state.layers if not os.path.isdir(fork.layer(name) + b"/tree")}
    if gone:
        whole = [point.name for point in state.checkpoints if gone.isdisjoint(point.layers)]
        back = f"mudroom rollback --fork {fork.name} {whole[-1]} brings it back to then" if whole else ""
        hint = back or f"they are lost; mudroom discard {fork.name} removes the rest"
        raise MudroomError(f"files of the fork {fork.name} are missing: its layer {min(gone)} is gone", hint)


def _shape(entry: Entry | None) -> tuple[object, ...]:
    """Return the properties that stay the same when a layer's files are replaced by copies."""
    return () if entry is None else (entry.kind, entry.size, entry.target)


def _has_newer_record(fork: Fork) -> bool:
    """Whether the record is newer than the state, and names files that the sealed layers do not have."""
    record, layers = fork.record, fork.state.layers
    if record is None:
        return False
    sealed = {change.path: _shape(change.staged) for change in fork.sealed_changes.changes}
    above = (change for change in record.changeset.changes if change.staged is not None)
    if all(sealed.get(change.path) == _shape(change.staged) for change in above):
        return False
    if layers and not os.path.lexists(fork.layer(layers[-1]) + b"/record"):
        return False  # the sealed layers' files are unknown: that record was not durable when the power failed
    return look(fork.record_path).st_ctime_ns > look(fork.path + b"/state").st_ctime_ns
