"""A fork's view, and collecting its changes after a command."""

from __future__ import annotations

import errno
import os
import stat
from _blake2 import blake2b
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress

from mudroom.core.clock import CommandStart, EditWindow, edit_window
from mudroom.core.confinement.container import user_of
from mudroom.core.confinement.fallback import Mode
from mudroom.core.settings import Settings
from mudroom.core.tree.change import Changeset, Remark
from mudroom.core.tree.entry import Entry, same_stamp
from mudroom.core.tree.path import ancestors, show
from mudroom.core.tree.quote import show_words
from mudroom.core.tree.stack import LIVE
from mudroom.errors import MudroomError, ProjectClosed
from mudroom.stage import disk
from mudroom.stage.layers.closed_directory import open_to_owner
from mudroom.stage.layers.layer import stamp_now
from mudroom.stage.layers.shown import HELD, write_paths
from mudroom.stage.source import OpenSource, is_absence, open_recorded
from mudroom.stage.view import View
from mudroom.stage.views.overlay import OverlayView
from mudroom.stage.views.preflight import is_in_memory, mounts, volumes
from mudroom.typing import TYPE_CHECKING, Any, Literal, NamedTuple
from mudroom.vault.forks.open_fork import OpenFork
from mudroom.vault.forks.stacking import seal_upper, tree_is_empty
from mudroom.vault.moment import present
from mudroom.vault.store.fork import Fork, load_record, mount_note
from mudroom.vault.store.store import Vault
from mudroom.vault.sync import sync_all

if TYPE_CHECKING:
    from mudroom.stage.originals.snapshot import Choose
    from mudroom.vault.store.mount_note import MountNote

MOST_TRIES = 20
"""Attempts to read a mounted fork's files while they are being changed."""
CLOSED = "the project's directory was closed to its owner (mode {mode:04o}): it is staged with mode {kept:04o}"
UNCOLLECTED = "the changes of its last command could not be collected, and do not land: {reason}"
KILLED = 128 + 9
"""Exit code of an interrupted command, whose sandbox was killed with mudroom."""
Progress = Callable[[str, int, int], None]
"""Activity, units done, units in total."""


class CollectedCommand(NamedTuple):
    """The command that made the changes, for the record."""

    argv: Sequence[bytes]
    exit_code: int
    time: int
    """Nanoseconds since 1970."""
    level: int | None = None


def view_of(
    vault: Vault, fork: Fork, opened: OpenFork, mode: Mode, progress: Progress | None = None, *, level: int = 1
) -> View:
    """Return a fork's view in this mode (``shown_view``): its mount, if it is mounted."""
    return shown_view(vault, fork, opened, mode, mount_note(fork), progress, level=level)


def shown_view(
    vault: Vault,
    fork: Fork,
    opened: OpenFork,
    mode: Mode,
    note: MountNote | None,
    progress: Progress | None = None,
    *,
    level: int = 1,
) -> View:
    """Return a fork's view in this mode, for a caller that has read its mount note. For a copy view call
    ``stand_on_copy`` first.

    At level 2 an overlay's work directory is beside its upper layer: the kernel requires both on one mount, and the
    container sees no other fork directory. A copy belongs to the container's user.
    """
    if note is not None and note.writable:
        return mounted_view(fork, opened, note)
    if mode == "overlay":
        state = fork.state
        base = vault.source if state.base == LIVE else vault.base(state.base) + b"/source"
        layers = (*opened.shown_layers(), *fork.sealed, *vault.masking(state))
        works = os.path.dirname(fork.upper) if level == 2 else fork.path
        return OverlayView(base, layers, fork.upper, works + b"/work")
    from mudroom.stage.views.copy_view import CopyView

    report = (
        None if progress is None else lambda done, total: progress("copying the snapshot for the command", done, total)
    )

    owner = user_of(disk.user(), disk.group()) if level == 2 else None
    return CopyView(fork.copy_place, opened.visible, report, owner=owner)


def work_place(fork: Fork) -> bytes:
    """Return the directory in which the fork's commands work without an overlay."""
    note = mount_note(fork)
    return note.place if note is not None else fork.copy_place + b"/work"


def mounted_view(fork: Fork, opened: OpenFork, note: MountNote) -> View:
    """Return the view of a fork that is mounted for the user's own tools."""
    if note.kind == "copy":
        from mudroom.vault.forks.copy_layer import copy_view

        return copy_view(fork, opened.lower)
    from mudroom.stage.views.mounted import MountedView

    return MountedView(note.place, note.identity, fork.upper, by_fuse=note.kind == "fuse")


def prepare_repository(vault: Vault, fork: Fork) -> list[str]:
    """Give a fork a private repository if the project's repository lies outside the project, and update it if the fork
    has not changed it. Return notes.

    Hold the fork's lock; no command may be running in it. Costs one lstat(2) for a project whose ``.git`` is a
    directory.
    """
    if vault.is_elsewhere:
        return []  # its repository is on its own machine, and none on this machine belongs to it
    try:
        is_usual = stat.S_ISDIR(os.lstat(vault.source + b"/.git").st_mode)
    except OSError:
        is_usual = True
    if is_usual and fork.state.repository is None:
        return []
    from mudroom.vault.forks.private_repository import renew

    return renew(vault, fork)


def with_objects(vault: Vault, fork: Fork, settings: Settings) -> Settings:
    """Return the settings for a command in a fork: with a private repository, the user's git objects are readable."""
    if fork.state.repository is None:
        return settings
    from mudroom.vault.forks.private_repository import objects_outside

    return settings._replace(read=(*settings.read, *objects_outside(vault, fork)))


def stand_on_copy(vault: Vault, fork: Fork, settings: Settings, progress: Progress | None = None) -> list[str]:
    """Prepare a fork for work in a copy: seal its upper layer and turn its base into a snapshot.

    Return notes about files that had to be left out of the snapshot.
    """
    if fork.has_copy:
        return []

    seal_upper(vault, fork)
    notes = take_snapshot(vault, fork, settings, progress) if fork.state.base == LIVE else []
    os.makedirs(fork.copy_place, 0o700, exist_ok=True)
    return notes


def stand_on_base(
    vault: Vault, fork: Fork, mode: Mode, settings: Settings, progress: Progress | None = None, *, freezes: bool
) -> list[str]:
    """Prepare a fork for work in this mode. Return notes about files that had to be left out of the snapshot.

    ``freezes``: the fork's overlay needs a snapshot as its base, which costs one copy of the project; a copy view needs
    two.
    """
    if mode != "overlay":
        return stand_on_copy(vault, fork, settings, progress)
    if not freezes:
        return []

    seal_upper(vault, fork)
    return take_snapshot(vault, fork, settings, progress)


def take_snapshot(vault: Vault, fork: Fork, settings: Settings, progress: Progress | None = None) -> list[str]:
    """Freeze the present project, and let the fork stand on the snapshot.

    Return notes about files that had to be left out.
    """
    from mudroom.stage.exclude import named
    from mudroom.stage.originals.snapshot import EMPTY, chooser

    report = None if progress is None else lambda done, total: progress("copying the project", done, total)
    name = vault.new_id()
    devices, strange = volumes(vault.source, mounts())
    notes = _taken(vault, name, chooser(settings, devices), settings.copy_limit, report)
    if strange:
        notes.append(EMPTY.format(paths=named(strange), why="of the network, or of a program"))
    if vault.mask.shown:
        write_paths(vault.base(name) + HELD, vault.mask.shown)
    sync_all(vault.base(name))
    fork.save(fork.state._replace(base=name))
    return notes


def _taken(vault: Vault, name: str, choose: Choose, limit: int, report: Callable[[int, int], None] | None) -> list[str]:
    """Take the snapshot ``name``: update the spare snapshot, or copy everything."""
    from mudroom.vault.store.spare_base import take_spare

    place, masked = vault.base(name), vault.mask.paths
    if take_spare(vault, name):
        from mudroom.stage.originals.renewal import renew

        try:
            return renew(vault.source, place, choose=choose, limit=limit, masked=masked, progress=report)
        except (MudroomError, OSError):
            pass  # the spare is removed; a whole copy meets the same problem, or does not need the spare
    from mudroom.stage.originals.snapshot import take

    return take(vault.source, place, choose=choose, limit=limit, masked=masked, progress=report)


def keep_artifacts(fork: Fork, argv: Sequence[bytes], streams: Mapping[str, bytes]) -> None:
    """Keep a command's captured output in a copy view, in ``artifacts/<n>/command``, ``stdout``, ``stderr``.

    Output to a terminal is not captured. ``argv``: as ``OpenFork.shown`` returns it.
    """
    if not streams:
        return
    artifacts = fork.path + b"/artifacts"
    os.makedirs(artifacts, mode=0o700, exist_ok=True)
    place = artifacts + b"/%d" % (len(os.listdir(artifacts)) + 1)
    os.mkdir(place, 0o700)
    for name, data in {"command": b"\0".join(argv), **streams}.items():
        with open(place + b"/" + name.encode(), "wb") as stream:
            stream.write(data)


def gather(
    fork: Fork,
    opened: OpenFork,
    view: View,
    command: CollectedCommand,
    started: CommandStart,
    *,
    settle: bool = True,
    crashed: bool = False,
    durable: bool = False,
) -> Changeset:
    """Collect the fork's changes and write its record. Hold the fork's lock; no command may be running in it.
    ``settle``: settle the fork's repository if it has changed one. ``crashed``: the machine has crashed while the
    command ran. ``durable``: so is the record."""
    if os.path.lexists(fork.path + b"/engine"):
        from mudroom.core.registry import part

        part("engine", "storage", "a fork with an engine of containers").own(view.staged[0])
    closed, window = open_to_owner(view.staged[0]), edit_window(started, present())
    if opened.shown_paths and isinstance(view, OverlayView) and not view.is_live and mount_note(fork) is None:
        from mudroom.vault.forks.hidden import keep_apart

        if keep_apart(fork, opened):
            opened.reopen_shown()
    untouched = isinstance(view, OverlayView) and _is_untouched(fork, opened)
    if untouched:
        changeset = Changeset()
    else:
        if is_in_memory(fork.path):
            _stamp_anew(fork, view.staged[0])
        changeset = _collected(fork, opened, view, window)
    below = opened.lower.look(b"") if closed is not None else None
    # otherwise it was closed before, and no command has done it
    if closed is not None and (below is None or closed != below.mode):
        remark = Remark(b"", CLOSED.format(mode=closed, kept=closed | stat.S_IRWXU))
        changeset = changeset._replace(remarks=(*changeset.remarks, remark))
    if changeset.remarks:
        from mudroom.vault.forks.hidden import note_own

        note_own(fork, changeset, opened.masked)
    if settle and isinstance(view, OverlayView) and not view.is_live and os.path.lexists(fork.upper + b"/.git"):
        from mudroom.vault.forks.repository_pin import settle_repository

        settle_repository(fork, opened, changeset, window)
    if crashed or os.path.lexists(fork.path + b"/lost"):  # ``LOST``: few commands need its module
        from mudroom.vault.forks.crash import add_empty, with_losses

        if crashed:
            add_empty(fork, changeset.changes)
        changeset = with_losses(fork, changeset)
    if not untouched or changeset.remarks:
        from mudroom.vault.record import FORK_FORMAT, ForkRecord, save

        argv = opened.shown(command.argv)
        record = ForkRecord(
            FORK_FORMAT, fork.name, view.kind, argv, command.time, command.exit_code, changeset, command.level
        )
        save(fork.record_path, record, durable=durable)
    return changeset


class _SealedLayers(Fork):
    """The sealed layers of a fork, seen as a fork whose uppermost layer is the top one."""

    @property
    def contents(self) -> tuple[bytes, ...]:
        return self.layered

    @property
    def has_copy(self) -> bool:
        return False


def mend_sealed(vault: Vault, fork: Fork) -> None:
    """Collect the changes of the sealed layers again where their record is lost (``Fork.has_lost_record``). Hold the
    fork's lock."""
    state = fork.state
    if not state.layers or load_record(fork.layer(state.layers[-1]) + b"/record") is not None:
        return
    from mudroom.stage.originals.collection import collect
    from mudroom.vault.record import FORK_FORMAT, ForkRecord, save

    below = _SealedLayers(fork.name, fork.path, vault.path, fork.reading)
    below._state = state._replace(upper=state.layers[-1], layers=state.layers[:-1])
    mend_sealed(vault, below)
    window = edit_window(CommandStart(fork.created), present())
    with OpenFork(vault, below) as opened:
        view = shown_view(vault, below, opened, "overlay", None)
        changes = collect(
            opened.apart_from_git(view), opened.staged(), opened.lower, opened.ground(Changeset()), window
        )
    record = ForkRecord(FORK_FORMAT, fork.name, view.kind, (), fork.created, KILLED, changes)
    save(fork.layer(state.layers[-1]) + b"/record", record, durable=True)


def note_uncollected(fork: Fork, reason: str) -> None:
    """Say in the fork's record that the last command's changes are not in it: a layer that is sealed now keeps the
    record. Hold the fork's lock."""
    from mudroom.vault.record import FORK_FORMAT, ForkRecord, save

    record = fork.record or ForkRecord(
        FORK_FORMAT, fork.name, "copy" if fork.has_copy else "overlay", (), 0, 0, Changeset()
    )
    changeset, begins = record.changeset, UNCOLLECTED.partition("{")[0]
    remarks = [remark for remark in changeset.remarks if not remark.text.startswith(begins)]
    remarks.append(Remark(b"", UNCOLLECTED.format(reason=reason)))
    save(fork.record_path, record._replace(changeset=changeset._replace(remarks=tuple(remarks))), durable=False)


def _stamp_anew(fork: Fork, staged: bytes) -> None:
    """Give the recorded files a new ctime. The command may have changed a file without changing any time
    (``is_in_memory``); then a review before it would have the same fingerprint as a review after it."""
    record = fork.record
    with suppress(FileNotFoundError), OpenSource(staged, is_layer=True) as source:
        for change in record.changeset.changes if record is not None else ():
            with suppress(OSError):  # it is gone, or in a layer below, which no command can write
                stamp_now(source.root, change.path)


def set_fork_apart(vault: Vault, fork: Fork) -> None:
    """Make sure that only mudroom can change the fork's files, and that its record describes these files. Hold the
    fork's lock; no command may be running in it."""
    from mudroom.vault.forks.apart import set_apart

    if set_apart(vault, fork):
        collect_again(vault, fork)


def collect_again(vault: Vault, fork: Fork) -> None:
    """Collect a fork's changes anew, as those of its last command. Hold the fork's lock; no command may be running in
    it."""
    record = fork.record
    if record is not None:
        with OpenFork(vault, fork) as opened:
            view = view_of(vault, fork, opened, "copy" if fork.has_copy else "overlay")
            if not os.path.isdir(view.staged[0]):
                return  # all its files are in sealed layers, whose entries are in the record
            command = CollectedCommand(record.command, record.exit_code, record.started, record.level)
            gather(fork, opened, view, command, CommandStart(record.started))


def _collected(fork: Fork, opened: OpenFork, view: View, window: EditWindow) -> Changeset:
    """Return a fork's changes. In a mounted fork the user may remove a file during the collection: then collect
    again."""
    from mudroom.stage.originals.collection import collect

    tries = 1 if mount_note(fork) is None else MOST_TRIES
    while True:
        tries -= 1
        try:
            return collect(opened.apart_from_git(view), opened.staged(), opened.lower, opened.ground(), window)
        except OSError as error:
            if not tries or not is_absence(error):
                closed = _closed_to_user(fork, opened.ground().project, error)
                if closed is None:
                    raise
                raise closed from error


def _closed_to_user(fork: Fork, project: bytes, error: OSError) -> ProjectClosed | None:
    """Return an error about a project directory that its owner has closed, or None if none is on the path in ``error``.
    A command may have opened its own view of it."""
    if error.errno != errno.EACCES or not isinstance(error.filename, bytes):
        return None
    for path in (*ancestors(error.filename), error.filename):
        place = project + b"/" + path
        if os.path.isdir(place) and not os.access(place, os.R_OK | os.X_OK):
            opens = f"chmod u+rwx {show_words([place])}"
            return ProjectClosed(
                f"the command has changed {show(path)}, which is closed to you in the project: {opens} opens it",
                f"then mudroom diff {fork.name} shows the changes",
            )
    return None


def _is_untouched(fork: Fork, opened: OpenFork) -> bool:
    """Return whether no command has ever changed a file in the fork, so that there is nothing to collect.

    Then its layer is empty, and the layer's directory has the same mode as the directory below.
    """
    state = fork.state
    pristine = (
        not state.layers
        and not opened.holds_shown
        and state.repository is None
        and not os.path.lexists(fork.record_path)
    )
    if not (pristine and not fork.has_copy and tree_is_empty(fork)):
        return False
    below = opened.lower.look(b"")
    try:
        return below is not None and stat.S_IMODE(os.lstat(fork.upper).st_mode) == below.mode
    except FileNotFoundError:
        return True  # no layer was ever made


# --- the paths that one command changed, for the journal ---
# A command that restores a file's size and times is not seen; the digest of the last event differs from the content
# then. While several commands run in one fork, each one's event has the changes of all.


MOST_PATHS = 200
"""Paths in one event. Those nearest to the project's top are kept, so that of a new directory there is at least its
name."""
MOST_BYTES, LARGEST = 8 << 20, 1 << 20
"""Bytes that are read for the digests of one event, and of one file."""

PathChange = Literal["added", "modified", "deleted", "mode"]


def recorded_changes(fork: Fork) -> Changeset:
    """Return the changes in a fork's record, or in that of its sealed layers."""
    record = fork.record
    return record.changeset if record is not None else fork.sealed_changes


def changed_paths(
    vault: Vault, fork: Fork, before: Changeset, after: Changeset, hides: Callable[[bytes], bool]
) -> dict[str, Any]:
    """Return the fields ``paths`` and ``paths_left_out`` of an event; none if nothing has changed. A row is path, kind
    and digest of the content (``digest_of``), empty if it was not read. Secrets (``hides``) are not told."""
    rows = list(_differences(before, after))
    if not rows:
        return {}
    paths, most = list[list[str]](), MOST_BYTES
    told = sorted(rows, key=lambda row: (row[0].count(b"/"), row[0]))[:MOST_PATHS]
    try:
        told = [row for row in told if not hides(row[0])]
    except MudroomError:  # the names of secrets are not known
        told = []
    with OpenFork(vault, fork) as opened:
        places = opened.recorded()
        for path, kind, entry in told:
            digest, size = "", entry.size if entry is not None and entry.kind == "file" else -1
            if entry is not None and 0 <= size <= min(LARGEST, most):
                most -= size
                try:
                    with os.fdopen(open_recorded(places, path, entry), "rb") as stream:
                        digest = digest_of(stream.read(LARGEST))
                except (MudroomError, OSError):
                    pass  # it has changed since, or is closed to us
            paths.append([os.fsdecode(path), kind, digest])
    left_out = len(rows) - len(told)
    return {"paths": paths} | ({"paths_left_out": left_out} if left_out else {})


def digest_of(content: bytes) -> str:
    return blake2b(content, digest_size=16).hexdigest()


def _differences(before: Changeset, after: Changeset) -> Iterator[tuple[bytes, PathChange, Entry | None]]:
    """Yield each path with another entry in the fork than before, and that entry; None if the path is deleted."""
    earlier = {change.path: change for change in before.changes}
    for change in after.changes:
        was = earlier.pop(change.path, None)
        old = was.staged if was is not None else change.base
        if not same_stamp(old, change.staged):
            yield change.path, _kind(old, change.staged), change.staged
    for path, gone in earlier.items():  # as in the project again
        if not same_stamp(gone.staged, gone.base):
            yield path, _kind(gone.staged, gone.base), None


def _kind(old: Entry | None, new: Entry | None) -> PathChange:
    if old is None or new is None:
        return "added" if old is None else "deleted"
    return "mode" if same_stamp(old, new._replace(mode=old.mode)) else "modified"
