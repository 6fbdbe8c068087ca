"""Vault check. Each problem is reported with the fork it concerns; nothing is changed.

The check reads the files that other modules read: states, records, originals, manifests, plans, the journal's chain. It
does not read the staged files' contents: they may differ from the record after a verb was cut off, and the next verb
collects them. A layer that has been used but has lost its tree is reported.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator

from mudroom.core.clock import CommandStart
from mudroom.core.journal.event import data_of, wall
from mudroom.core.journal.event_filter import EventFilter
from mudroom.core.system.closing import Descriptor
from mudroom.core.tree.path import show
from mudroom.core.tree.stack import LIVE, ForkState
from mudroom.errors import READ_AGAIN, MudroomError
from mudroom.stage import safe_open
from mudroom.stage.layers.landed import LANDED, load_landed
from mudroom.stage.originals.original import Original, is_whole, read_rows
from mudroom.stage.originals.snapshot import SnapshotSource
from mudroom.typing import NamedTuple, TypeVar
from mudroom.vault.apply.transaction import ApplyDirectory
from mudroom.vault.forks.damage import require_tree
from mudroom.vault.retention.leftover import is_incomplete
from mudroom.vault.retention.usage import slots_in_project, why_unusable
from mudroom.vault.store.fork import Fork, load_record
from mudroom.vault.store.store import Vault, vault_path

_T = TypeVar("_T")


class VaultProblem(NamedTuple):
    subject: str
    """``fork NAME``, ``apply u7``, ``journal``, ``vault``."""
    text: str
    hint: str = ""


def check(vault: Vault) -> list[VaultProblem]:
    """Return all problems; empty if the vault is whole. Agents may be running meanwhile."""
    unusable = why_unusable(vault)
    if unusable:
        hint = READ_AGAIN if unusable.startswith("cannot be read") else "upgrade mudroom, or move the vault aside"
        return [VaultProblem("vault", unusable, hint)]
    problems = list(_vault(vault))
    for fork in vault.forks():
        try:
            found = list(_fork(vault, fork))
        except OSError as error:
            found = [_problem(f"fork {fork.name}", error)]
        if os.path.lexists(fork.path):  # otherwise it was discarded meanwhile
            problems += found
    for path in vault.applies():
        problems += _apply(vault, ApplyDirectory(path))
    return [*problems, *_journal(vault)]


def _vault(vault: Vault) -> Iterator[VaultProblem]:
    state = os.path.dirname(os.path.dirname(vault.path))
    if vault_path(state, vault.project, vault.source) != vault.path:
        yield VaultProblem(
            "vault", f"it names the project {show(vault.project)}, but its directory is that of another path"
        )
    for name in (b"scratch", b"cache", b"forks", b"layers", b"bases", b"applies", b"trash"):
        if not os.path.isdir(vault.path + b"/" + name):
            yield VaultProblem("vault", f"its directory {show(name)} is missing", "create it, empty, with mode 700")


def _fork(vault: Vault, fork: Fork) -> Iterator[VaultProblem]:
    subject = f"fork {fork.name}"
    problems: list[VaultProblem] = []

    def read(reader: Callable[[], _T]) -> _T | None:
        try:
            return reader()
        except (MudroomError, OSError, ValueError) as error:
            problems.append(_problem(subject, error))
            return None

    if is_incomplete(fork.path, 1 << 62):
        yield VaultProblem(subject, "was cut off while it was being made, or is being made now", "mudroom vault gc")
        return
    state = read(lambda: fork.state)
    read(lambda: fork.record)
    read(lambda: load_landed(fork.path + LANDED))
    read(lambda: _read_running(fork))
    if state is not None:
        if state.base != LIVE:
            read(functools.partial(_read_snapshot, vault, state))
        for name in sorted(state.references):
            read(functools.partial(_read_layer, vault, fork, state, name))
    if fork.has_lost_record and not problems:
        problems.append(VaultProblem(subject, "its record is lost", f"mudroom diff {fork.name} collects it again"))
    yield from problems


def _read_running(fork: Fork) -> None:
    """Raise ValueError if the start time of a command cannot be read: readers of the fork then see a running
    command."""
    if fork.interrupted == CommandStart(0):
        raise ValueError("the start time of its command cannot be read")


def _problem(subject: str, error: Exception) -> VaultProblem:
    if isinstance(error, MudroomError):
        return VaultProblem(subject, error.message, error.hint)
    if isinstance(error, OSError) and error.filename is not None:
        return VaultProblem(subject, f"{show(os.fsencode(error.filename))}: {error.strerror}")
    return VaultProblem(subject, str(error))


def _read_snapshot(vault: Vault, state: ForkState) -> None:
    SnapshotSource(vault.base(state.base)).close()


def _read_layer(vault: Vault, fork: Fork, state: ForkState, name: str) -> None:
    place = vault.layer(name)
    sealed = name != state.upper
    if not os.path.isdir(place) or (sealed and not os.path.isdir(place + b"/tree")):
        uses = [point.name for point in state.checkpoints if name in point.layers]
        now = name in (state.upper, *state.layers)
        needed = "" if now else f" (only of the checkpoints {', '.join(uses)})"
        raise MudroomError(f"its layer {name} is missing{needed}", "its contents are lost; the rest can be exported")
    if not sealed:
        require_tree(fork)
    is_private = state.repository is not None and state.repository.layer == name
    if load_record(place + b"/record") is None and sealed and not is_private:
        raise MudroomError(f"its layer {name} has lost its record", f"mudroom diff {fork.name} shows what is left")
    _read_originals(
        place + b"/originals", "" if sealed else f"mudroom exec --fork {fork.name} -- true writes it again; "
    )


def _read_originals(place: bytes, mend: str) -> None:
    try:
        os.close(safe_open.open_directory(place))
        rows, damage = read_rows(safe_open.read(place + b"/index"), place + b"/index")
    except FileNotFoundError:
        return
    if damage:
        raise MudroomError(f"{show(place)}/index is damaged: {damage}", f"{mend}edits of both sides may be conflicts")
    for path, original in rows:
        if original.place:
            _read_original(place, path, original)


def _read_original(place: bytes, path: bytes, original: Original) -> None:
    with Descriptor(safe_open.open_regular(place + b"/" + os.fsencode(original.place))) as file:
        if original.offset + original.length > os.fstat(file).st_size:
            raise MudroomError(f"the original of {show(path)} in {show(place)} is cut off")
        if not is_whole(original, file):
            raise MudroomError(
                f"the original of {show(path)} in {show(place)} is damaged",
                "edits of both sides are a conflict then; the disk may be failing",
            )


def _apply(vault: Vault, place: ApplyDirectory) -> Iterator[VaultProblem]:
    subject, state = f"apply {place.name}", place.state()
    if state is None:
        return  # taken back before it began, or being removed
    try:
        record = place.load()
    except (MudroomError, OSError) as error:
        yield _problem(subject, error)
        return
    if state in ("prepare", "ready", "undoing", "redoing"):
        yield VaultProblem(subject, "was cut off", "the next mudroom run, apply or undo settles it")
        return
    if record.slots not in (place.path + b"/slots", slots_in_project(vault, os.fsencode(place.name))):
        yield VaultProblem(subject, f"has its slots at {show(record.slots)}: not a path that mudroom uses")
        return
    held = ("swap", "remove") if state == "done" else ()
    lost = [op.path for op in record.ops if op.kind in held and not os.path.lexists(record.slots + b"/%d" % op.slot)]
    if lost:
        yield VaultProblem(
            subject, f"cannot be undone completely: the old {show(lost[0])} is missing ({len(lost)} in all)"
        )


def _journal(vault: Vault) -> Iterator[VaultProblem]:
    if not os.path.exists(vault.path + b"/journal.db"):
        return
    try:
        broken = vault.journal.examine().broken
    except MudroomError as error:
        yield VaultProblem("journal", error.message, error.hint)
        return
    if broken is not None:
        yield VaultProblem("journal", broken.text, "mudroom log verify")
    yield from _restored(vault)


_WRITERS = ("run", "checkpoint", "edit", "rollback", "apply", "undo", "redo", "fork", "rename", "discard", "recover")


def _restored(vault: Vault) -> Iterator[VaultProblem]:
    """Yield the forks that the journal knows in a later state: their directories were restored without it, or were not
    on disk when the machine crashed."""
    last = {event.fork: event for event in vault.journal.events(where=EventFilter(_WRITERS))}
    for fork in vault.forks():
        state, event = fork.state_or_none, last.get(fork.name)
        if state is None or event is None or wall(event) < fork.created:
            continue
        data, is_older = data_of(event), False
        if event.kind == "checkpoint" and not data.get("automatic"):
            is_older = state.checkpoint(data["checkpoint"]) is None
        elif event.kind == "run" and "uncollected" not in data and os.path.exists(fork.record_path):
            began = wall(event) - data["duration_ms"] * 10**6
            is_older = os.stat(fork.record_path).st_mtime_ns < began - 2 * 10**9  # some backups keep whole seconds
        if is_older:
            yield VaultProblem(
                f"fork {fork.name}",
                "is older than its last command or checkpoint in the journal: by a crash, or by a part of a backup",
                f"mudroom exec --fork {fork.name} -- true records its files as they are; a whole backup has later ones",
            )
