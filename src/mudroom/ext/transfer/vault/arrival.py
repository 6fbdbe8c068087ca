"""Arrival of forks: archives become forks in this vault, many at once.

    forks/<name>/arrival    MessagePack of ``ArrivalNote``: the errand that made the fork, and its archive's digest

The order of an arrival:

1. Each archive is unpacked and checked against the project (``import_fork.py``). This takes most of the time, and holds
   no lock that others wait for: agents' commands continue. A refused archive does not stop the others.
2. Each fork's directory is made within its upper layer, with state, record and note.
3. One syncfs(2) covers all forks.
4. Under the arrivals lock, each fork gets its name by one rename. A taken name is left alone: the next free name is
   used. An archive that has arrived before makes no second fork.
5. The directory with the names is fsynced once. From then on a worker may discard its own copy.

If mudroom is killed, a fork exists with all its files, or not at all. ``gc`` removes layers without a fork.
"""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import IO, Any, Literal, NamedTuple

import msgspec

from mudroom.core.tree.stack import LIVE
from mudroom.errors import MudroomError, UsageError
from mudroom.ext.transfer.vault.archive import RefusedArchive
from mudroom.ext.transfer.vault.bundle import Label
from mudroom.ext.transfer.vault.import_fork import LIMIT, KnownBase, UnpackedFork, take_back, unpack_fork
from mudroom.stage import disk, safe_open
from mudroom.stage.disk import sync_filesystem
from mudroom.stage.layers.landed import LANDED, add_landed
from mudroom.stage.source import OpenSource
from mudroom.vault.arriving import unpacking
from mudroom.vault.lock import Lock
from mudroom.vault.record import save
from mudroom.vault.store.fork import Fork, fork_directory
from mudroom.vault.store.store import Vault
from mudroom.vault.sync import sync_directory

NOTE = b"/arrival"
LATE = "late"
FORMAT = 1
_LOCK = b"/arrival.lock"
_CLAIMS = 64 << 10
"""Maximum bytes of a worker's claims about a command, as JSON."""
_ROWS = 200
"""Maximum events, and maximum flows, from a worker's journal about a command."""
_KEYS = 64
"""Maximum number of claims, and maximum characters in a claim's name."""
_NAME = 64
"""Maximum characters in a fork's name (``is_plain``)."""


class Arrival(NamedTuple):
    """An archive to import, with what its sender says about it."""

    stream: IO[bytes]
    """Open for reading at its beginning; it need not seek. Read to its end, not closed."""
    name: str | None = None
    """None: the name in the archive."""
    errand: str = ""
    """The errand's id; empty: it belongs to no errand, and each arrival makes a fork."""
    attempt: int = 1
    worker: str = ""
    late: bool = False
    """Whether its attempt was given up; the fork's name then says so."""
    claims: Mapping[str, Any] = {}
    """The worker's claims about the command (exit code, journal events, flows): JSON values. They are not believed
    here; the journal keeps them as claims."""


class ArrivalNote(NamedTuple):
    """``forks/<name>/arrival``."""

    format: int
    errand: str
    attempt: int
    worker: str
    digest: bytes
    """The archive's BLAKE2b-256 digest."""


class Arrived(NamedTuple):
    state: Literal["new", "late", "here", "refused"]
    """``late``: another archive from the errand arrived before, or the attempt had been given up. ``here``: this
    archive arrived before; ``name`` is its fork. ``refused``: ``problem`` says why; there is no fork."""
    name: str
    wanted: str
    """The name that was asked for; it was taken if the fork has another name."""
    changed: int = 0
    """Number of changes against this project."""
    strangers: int = 0
    """Number of changes whose original is not in this project: they are conflicts unless resolved."""
    project: bytes = b""
    """The project it was exported from."""
    size: int = 0
    """Bytes of the archive as it arrived."""
    problem: str = ""
    error: MudroomError | None = None


class _Ready(NamedTuple):
    """A fork that only lacks its name."""

    number: int
    arrival: Arrival
    unpacked: UnpackedFork
    fork: Fork


def arrive(
    vault: Vault,
    arrivals: Iterable[Arrival],
    time: int,
    *,
    limit: int = LIMIT,
    known: KnownBase | None = None,
    is_exact: bool = False,
) -> list[Arrived]:
    """Make forks from archives, and return the outcomes in the same order. ``limit``: bytes that an archive may have.
    ``known``: None: no base is known. ``is_exact``: refuse an archive whose name is taken.

    Raise OSError as the disk does; then no archive has become a fork.
    """
    outcomes: dict[int, Arrived] = {}
    ready: list[_Ready] = []
    with unpacking(vault.path):
        try:
            for number, arrival in enumerate(arrivals):
                try:
                    check = _checker(vault, arrival, is_exact)
                    unpacked = unpack_fork(vault, arrival.stream, time, limit, known, check)
                except MudroomError as error:
                    outcomes[number] = Arrived("refused", "", arrival.name or "", problem=error.message, error=error)
                    continue
                ready.append(_Ready(number, arrival, unpacked, _made(vault, arrival, unpacked)))
            if ready:
                with OpenSource(vault.path) as root:
                    sync_filesystem(root.root)
                outcomes.update(_named(vault, ready, is_exact=is_exact))
        except BaseException:
            take_back(vault, [place for row in ready if os.path.lexists(row.fork.path) for place in row.unpacked.made])
            raise
    unused = [row for row in ready if outcomes[row.number].state in ("here", "refused")]
    take_back(vault, [place for row in unused for place in row.unpacked.made])
    return [outcomes[number] for number in sorted(outcomes)]


def note_of(fork: Fork) -> ArrivalNote | None:
    """Return a fork's note; None if it was made here, or the note is damaged."""
    try:
        return msgspec.msgpack.decode(safe_open.read(fork.path + NOTE), type=ArrivalNote)
    except (OSError, msgspec.MsgspecError):
        return None


def events(arrivals: Sequence[Arrival], outcomes: Sequence[Arrived]) -> list[tuple[str, str, dict[str, Any]]]:
    """Return the journal events for an arrival: (kind, fork, data). The worker's claims are below ``claims``, cut to a
    bounded size: a worker may send any amount."""
    rows: list[tuple[str, str, dict[str, Any]]] = []
    for arrival, outcome in zip(arrivals, outcomes, strict=True):
        if outcome.state == "here":
            continue  # its event was written when it arrived
        data: dict[str, Any] = {
            "errand": arrival.errand,
            "attempt": arrival.attempt,
            "worker": arrival.worker,
            "state": outcome.state,
            "changed": outcome.changed,
            "strangers": outcome.strangers,
            "bytes": outcome.size,
            "wanted": outcome.wanted if outcome.wanted != outcome.name else "",
            "problem": outcome.problem,
        }
        claims = bounded_claims(arrival.claims)
        rows.append(("arrive", outcome.name, {**{k: v for k, v in data.items() if v}, "claims": claims}))
    return rows


def bounded_claims(claims: Mapping[str, Any]) -> dict[str, Any]:
    """Return the claims as JSON values, with at most ``_ROWS`` rows in each list, and the number left out. If they have
    more than ``_CLAIMS`` bytes, the longest claims are left out wholly."""
    bounded: dict[str, Any] = {}
    for key, value in itertools.islice(claims.items(), _KEYS):
        name = str(key)[:_KEYS]
        if isinstance(value, (list, tuple)) and len(value) > _ROWS:
            bounded[f"{name}_left_out"] = len(value) - _ROWS
            value = value[-_ROWS:]
        bounded[name] = _as_json(value)
    sizes = {key: len(msgspec.json.encode(value)) for key, value in bounded.items()}
    for key in sorted(sizes, key=lambda key: -sizes[key]):
        if sum(sizes.values()) <= _CLAIMS:
            break
        del sizes[key]
        bounded[key] = "left out: too large"
    return bounded


def _as_json(value: Any) -> Any:
    try:
        return msgspec.json.decode(msgspec.json.encode(value))
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError):
        return "left out: it cannot be written as JSON"


# --- one fork ---


def _checker(vault: Vault, arrival: Arrival, is_exact: bool) -> Callable[[Label], None]:
    """Return a function that checks a label: the name must be possible before the archive is unpacked."""

    def check(label: Label) -> None:
        wanted = arrival.name or label.name
        place = vault.path + b"/forks/" + fork_directory(wanted)
        if is_exact and os.path.lexists(place):
            raise _taken(wanted)

    return check


def _taken(name: str) -> UsageError:
    return UsageError(f"there is a fork named {name} already", "mudroom vault import FILE OTHER-NAME")


def _made(vault: Vault, arrival: Arrival, unpacked: UnpackedFork) -> Fork:
    """Make the fork's directory within its upper layer, as ``Vault.add_fork`` does."""
    fork = Fork(arrival.name or unpacked.label.name, vault.layer(unpacked.state.upper) + b"/fork", vault.path)
    os.mkdir(fork.path, 0o700)
    fork.save(unpacked.state)
    if unpacked.record is not None:
        save(fork.record_path, unpacked.record._replace(name=fork.name), durable=False)
    if unpacked.landed:
        add_landed(fork.path + LANDED, unpacked.landed)
    note = ArrivalNote(FORMAT, arrival.errand, arrival.attempt, arrival.worker, unpacked.digest)
    with open(fork.path + NOTE, "xb") as stream:
        stream.write(msgspec.msgpack.encode(note))
    return fork


# --- names ---


def _named(vault: Vault, ready: list[_Ready], *, is_exact: bool) -> dict[int, Arrived]:
    """Give the forks their names, all under the same lock."""
    outcomes = {}
    with Lock(vault.path + _LOCK, "an arrival of forks"):
        here = _errands_here(vault) if any(row.arrival.errand for row in ready) else {}
        for row in ready:
            outcomes[row.number] = _name_one(vault, row, here, is_exact=is_exact)
        sync_directory(vault.path + b"/forks")
    return outcomes


def _errands_here(vault: Vault) -> dict[str, dict[bytes, str]]:
    """Return each errand's archives that have become forks: name by digest."""
    here: dict[str, dict[bytes, str]] = {}
    with os.scandir(vault.path + b"/forks") as scan:
        names = [item.name for item in scan]
    for name in names:
        note = note_of(Fork(os.fsdecode(name), vault.path + b"/forks/" + name, vault.path))
        if note is not None and note.errand:
            here.setdefault(note.errand, {})[note.digest] = os.fsdecode(name)
    return here


def _name_one(vault: Vault, row: _Ready, here: dict[str, dict[bytes, str]], *, is_exact: bool) -> Arrived:
    arrival, unpacked = row.arrival, row.unpacked
    changes = {change.path for change in unpacked.record.changeset.changes} if unpacked.record is not None else set()
    outcome = Arrived(
        "new",
        row.fork.name,
        row.fork.name,
        len(changes),
        len(changes & unpacked.strangers),
        unpacked.label.project,
        unpacked.size,
    )
    of_errand = here.setdefault(arrival.errand, {}) if arrival.errand else {}
    earlier = of_errand.get(unpacked.digest)
    if earlier is not None:
        return outcome._replace(state="here", name=earlier)
    is_late = arrival.late or bool(of_errand)
    name = stem = _joined(row.fork.name, LATE) if is_late else row.fork.name
    number = 1
    while not _renamed(vault, row.fork.path, name):
        if is_exact:
            return _refused(outcome, _taken(name))
        number += 1
        name = _joined(stem, str(number))
    if not _has_base(vault, unpacked):
        vault.throw_away(vault.path + b"/forks/" + fork_directory(name))
        return _refused(outcome, RefusedArchive("the snapshot that it stands on has just been removed"))
    of_errand[unpacked.digest] = name
    return outcome._replace(state="late" if is_late else "new", name=name)


def _refused(outcome: Arrived, error: MudroomError) -> Arrived:
    return outcome._replace(state="refused", name="", problem=error.message, error=error)


def _joined(stem: str, end: str) -> str:
    return f"{stem[: _NAME - len(end) - 1]}-{end}"


def _renamed(vault: Vault, place: bytes, name: str) -> bool:
    """Give a fork its name. Return False if another fork has it."""
    target = vault.path + b"/forks/" + fork_directory(name)
    if os.path.lexists(target):
        return False
    try:
        disk.rename_path(place, target)  # fails if the other directory has files, as every fork has
    except OSError as error:
        if error.errno in (errno.EEXIST, errno.ENOTEMPTY):
            return False
        raise
    return True


def _has_base(vault: Vault, unpacked: UnpackedFork) -> bool:
    """Return whether the base of a fork that has its name still exists."""
    # Checked only once the fork has its name: the removal moves a snapshot aside first and then looks for forks on it
    # (``throw_away_base``), so one side notices the other.
    base = unpacked.state.base
    return base == LIVE or os.path.exists(vault.base(base) + b"/manifest")
