"""Forks that are mounted for the user's own tools, and used by commands at the same time.

While the mount's note exists (``vault/store/mount_note.py``), the mounted directory is the truth about the fork: its
commands, file tools and background servers work in it, and its layers are read as under a live mount.

    kind      truth                                        the fork's files are read
    overlay   a kernel overlay in the host's namespace     in the layers
    fuse      fuse-overlayfs                               in the mount; the upper layer tells which have changed
    copy      the fork's staged copy, at that place        in the copy
    (any, read-only)                                       in the layers; no command runs

Order, so that a crash at any point loses nothing: the note, the mount, the note with its identity; and at the end the
unmount, fuse-overlayfs's marks converted, the changes recorded, the directory removed, the note removed. Each step can
be repeated.

A mount that has ended without mudroom (reboot, ``umount``, fuse-overlayfs was killed) is recognised by its identity,
and settled by the next holder of the fork's lock. It has ended only if that is proven: fuse-overlayfs holds a lock as
long as it runs, and the kernel refuses to mount an upper layer that is in use.
"""

from __future__ import annotations

import os
import signal
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from mudroom.core.clock import CommandStart
from mudroom.core.settings import Settings
from mudroom.core.system.closing import Descriptor
from mudroom.core.tree.change import Changeset
from mudroom.core.tree.path import is_below, show
from mudroom.core.tree.stack import LIVE
from mudroom.errors import MudroomError, UsageError
from mudroom.stage import disk
from mudroom.stage.layers.fuse_marks import convert_fuse_layer, is_mark
from mudroom.stage.layers.layer import remove_tree
from mudroom.stage.views.copy_view import CopyView
from mudroom.stage.views.mount import (
    Kind,
    abandon,
    best_kind,
    is_dead,
    is_mounted,
    mount_fuse,
    mount_overlay,
    unmount,
)
from mudroom.stage.views.overlay import OverlayView
from mudroom.stage.views.released import SandboxProcess, released
from mudroom.typing import Literal
from mudroom.vault.forks.collection import (
    CollectedCommand,
    Progress,
    gather,
    mounted_view,
    prepare_repository,
    stand_on_copy,
)
from mudroom.vault.forks.copy_layer import SEALING, copy_view, leave_copy, seal_copy
from mudroom.vault.forks.damage import UNREADABLE
from mudroom.vault.forks.open_fork import OpenFork
from mudroom.vault.forks.stacking import restore_record
from mudroom.vault.lock import LOCK_EX, flock, try_lock
from mudroom.vault.record import ForkRecord, load
from mudroom.vault.store.fork import Fork, forget_release, mount_note
from mudroom.vault.store.mount_note import (
    ALIVE,
    MountNote,
    read_masked,
    remove_note,
    write_masked,
    write_note,
)
from mudroom.vault.store.store import Vault

# --- Find the processes that still use an unmounted mount, and the servers behind FUSE mounts ---
# A mount lives on in copies of the mount namespace in which it was made (mount_namespaces(7)). Sandbox launchers have
# such copies and never use them, so a mount may survive its unmount without any user.


def users_of(device: int) -> list[SandboxProcess]:
    """Return the processes with an open or mapped file, a working directory or a root on a device. Processes that this
    user may not examine are left out: they belong to another user, to whom these mounts are closed."""
    mapped = f" {os.major(device):02x}:{os.minor(device):02x} ".encode()
    return sorted(
        SandboxProcess(pid, show(b" ".join(words)) or "?")
        for pid, words in _processes()
        if _uses(b"/proc/%d" % pid, device, mapped)
    )


def _processes() -> Iterator[tuple[int, list[bytes]]]:
    for name in os.listdir(b"/proc"):
        if name.isdigit():
            try:
                with open(b"/proc/" + name + b"/cmdline", "rb") as stream:
                    words = stream.read(16384).rstrip(b"\0").split(b"\0")
            except OSError:
                continue  # ended meanwhile
            yield int(name), words


def _uses(process: bytes, device: int, mapped: bytes) -> bool:
    try:
        files = [process + b"/fd/" + name for name in os.listdir(process + b"/fd")]
        for path in (process + b"/cwd", process + b"/root", *files):
            try:
                if os.stat(path).st_dev == device:
                    return True
            except OSError:
                continue  # closed meanwhile, or on a FUSE mount whose server has ended
        with open(process + b"/maps", "rb") as stream:
            return mapped in stream.read()
    except OSError:
        return False


def end_server(place: bytes, upper: bytes) -> int | None:
    """Send SIGTERM to the fuse-overlayfs that serves a mounted place. Return its pid, or None if there is none."""
    for pid, words in _processes():
        if words[0].endswith(b"/fuse-overlayfs") and place in words and any(upper in word for word in words):
            try:
                os.kill(pid, signal.SIGTERM)
            except ProcessLookupError:
                continue
            return pid
    return None


State = Literal["mounted", "ended", "lost", "elsewhere"]
"""lost: a copy's directory is missing. elsewhere: the mount is not at its place, but still exists."""
_UNKNOWN = (0, 0)
_ENDING, _LOOK = 0.3, 0.005
"""Seconds in which fuse-overlayfs ends after unmounting or a signal, and between two checks."""


def default_place(vault: Vault, name: str) -> bytes:
    """Return the default directory for mounting a fork."""
    return vault.path + b"/mounts/" + name.encode()


def mount(
    vault: Vault,
    fork: Fork,
    place: bytes,
    *,
    writable: bool,
    now: CommandStart,
    kind: Kind | None = None,
    settings: Settings,
    progress: Progress | None = None,
) -> MountNote:
    """Show a fork at ``place``, an empty or absent directory. Hold the fork's lock; it must not be mounted.

    Raise UsageError if the directory is not empty or lies where mudroom itself works (``_require_apart``), Unsupported
    if this kind of mount is not available here.
    """
    kind = kind or best_kind()
    if fork.has_copy and kind != "copy":
        kind = "copy"
    _require_apart(vault, fork, place)
    if kind == "fuse":
        _require_no_marks(fork)
    is_new = _make_place(place)
    note = MountNote(kind, writable, now, _UNKNOWN, os.path.realpath(place))
    try:
        prepare_repository(vault, fork)
        write_masked(fork.path, vault.mask.paths)
        if vault.mask.has_secrets:
            from mudroom.vault.forks.hidden import begin

            begin(vault, fork)
        if writable and fork.has_copy:
            _settle_copy(vault, fork)
        write_note(fork.path, note)
        if kind == "copy":
            _show_copy(vault, fork, note, settings, progress)
        else:
            _show(vault, fork, note)
        note = note._replace(identity=_identity(note.place) or _UNKNOWN)
        write_note(fork.path, note)
    except BaseException:
        _take_back(fork, note, is_new=is_new)
        raise
    return note


def _require_apart(vault: Vault, fork: Fork, place: bytes) -> None:
    """Raise UsageError if ``place`` is in the project, in a vault, or in another fork's mount.

    In any project's vault, it could be made inside a layer. In another fork's mount, a copy would appear among that
    fork's changes.
    """
    real = os.path.realpath(place)
    hint = "name a directory outside of it, or none"
    if is_below(real, vault.project) or is_below(real, vault.source):
        raise UsageError(f"{show(place)} lies in the project", hint)
    for other in vault.forks():
        note = _readable_note(other) if other.name != fork.name else None
        if note is not None and is_below(real, note.place):
            raise UsageError(f"{show(place)} lies where {other.name} is mounted", hint)
    vaults = os.path.dirname(os.path.realpath(vault.path))
    if is_below(real, vaults) and real != os.path.realpath(default_place(vault, fork.name)):
        raise UsageError(f"{show(place)} lies in mudroom's own files", hint)


def _require_no_marks(fork: Fork) -> None:
    """Raise UsageError if a command has made a file that fuse-overlayfs takes for a deletion mark: the mount would show
    the file that it names as deleted, and unmount would make it a deletion."""
    if not os.path.lexists(fork.record_path):
        return
    changes = load(fork.record_path, ForkRecord).changeset.changes
    marked = next((change.path for change in changes if change.staged is not None and is_mark(change.path)), None)
    if marked is not None:
        message = f"{show(marked)} has a name that fuse-overlayfs takes for a deleted file"
        raise UsageError(message, f"mudroom mount {fork.name} --kind copy shows the fork as it is")


def _readable_note(fork: Fork) -> MountNote | None:
    try:
        return mount_note(fork)
    except UNREADABLE:
        return None  # fork lists say why


def _make_place(place: bytes) -> bool:
    if _is_closed(place):
        open_place(place)  # mudroom was killed while the mount was away
    try:
        os.makedirs(place, mode=0o700)
        return True
    except FileExistsError:
        if not os.path.isdir(place) or os.listdir(place):
            raise UsageError(
                f"{show(place)} is not an empty directory", "name an empty directory, or one that does not exist"
            ) from None
        return False


def _take_back(fork: Fork, note: MountNote, *, is_new: bool) -> None:
    """Undo a failed mount."""
    if note.kind != "copy" and is_mounted(note.place):
        unmount(note.kind, note.place)
    elif note.kind == "copy" and os.path.isdir(note.place) and not fork.has_copy:
        remove_tree(note.place)  # incomplete
    if is_new and os.path.isdir(note.place):
        os.rmdir(note.place)
    elif not is_new:
        os.makedirs(note.place, mode=0o700, exist_ok=True)
    remove_note(fork.path)


def _show(vault: Vault, fork: Fork, note: MountNote) -> None:
    state = fork.state
    base = vault.source if state.base == LIVE else vault.base(state.base) + b"/source"
    with OpenFork(vault, fork) as opened:
        shown = opened.shown_layers()
    view = OverlayView(base, (*shown, *fork.sealed, *vault.masking(state)), fork.upper, fork.path + b"/work")
    view.prepare()
    forget_release(vault.path, state.upper)
    layers = view.mount()
    if not note.writable:
        lowers: Sequence[bytes] = (layers.upper, *layers.lowers[:-1])
        upper, work = None, b""
    else:
        lowers, upper, work = layers.lowers[:-1], layers.upper, layers.work
    if note.kind == "overlay":
        mount_overlay(lowers, layers.lowers[-1], upper, work, note.place)
        return
    alive = disk.open_path(fork.path + ALIVE, os.O_RDWR | os.O_CREAT | disk.O_CLOEXEC | disk.O_NOFOLLOW, 0o600)
    with Descriptor(alive):
        flock(alive, LOCK_EX)
        mount_fuse(lowers, layers.lowers[-1], upper, work, note.place, kept=alive)


def _settle_copy(vault: Vault, fork: Fork) -> None:
    """Seal a fork's copy into its layers before the note is written: once there is a note, the mounted directory counts
    as the copy, and it is still empty."""
    seal_copy(vault, fork)
    vault.throw_away(fork.copy_place)
    vault.empty_trash()


def _show_copy(vault: Vault, fork: Fork, note: MountNote, settings: Settings, progress: Progress | None) -> None:
    if not note.writable:
        with OpenFork(vault, fork) as opened:
            CopyView(fork.path + b"/mounted", opened.merged(), work=note.place).prepare()
        return
    stand_on_copy(vault, fork, settings, progress)
    with OpenFork(vault, fork) as opened:
        copy_view(fork, opened.visible).prepare()


def _is_in_place(note: MountNote) -> bool:
    """Return whether the noted directory exists and is a mount point: on another device than the directory above."""
    above = _identity(os.path.dirname(note.place))
    return _identity(note.place) == note.identity and above is not None and above[0] != note.identity[0]


def _identity(place: bytes) -> tuple[int, int] | None:
    try:
        info = os.stat(place, follow_symlinks=False)
    except OSError:
        return None
    return info.st_dev, info.st_ino


def close_place(place: bytes) -> None:
    """Prevent writes where a mount is missing for a moment, by a regular file: no entry can be made below it."""
    os.close(disk.open_path(place, os.O_CREAT | os.O_EXCL | os.O_WRONLY | disk.O_CLOEXEC, 0o400))


def _is_closed(place: bytes) -> bool:
    """Return whether the entry at ``place`` was made by ``close_place``."""
    try:
        info = os.lstat(place)
    except OSError:
        return False
    return stat.S_ISREG(info.st_mode) and (info.st_mode & 0o7777, info.st_size, info.st_uid) == (0o400, 0, disk.user())


def open_place(place: bytes) -> None:
    """Remove the file made by ``close_place``. Raise OSError if it is missing."""
    os.unlink(place)


# --- the present state ---


def state_of(vault: Vault, fork: Fork, note: MountNote) -> State:
    """Return whether a mount still exists. This is cheap while it does."""
    if note.identity == _UNKNOWN:
        return "ended"  # mudroom was killed while making it
    if note.kind == "copy":
        if note.writable and not fork.has_copy:
            return "ended"
        return "mounted" if _identity(note.place) == note.identity else "lost"
    is_in_place = _is_in_place(note)
    if note.kind == "overlay":
        if is_in_place:
            return "mounted"
        scratch = vault.path + b"/probe-" + vault.new_id().encode()
        is_gone = not note.writable or all(released([fork.upper], scratch))
    else:
        is_gone = not _is_served(fork) if is_in_place else _has_ended(fork)
    if is_in_place or is_gone:
        return "ended" if is_gone else "mounted"
    return "elsewhere" if users_of(note.identity[0]) else "ended"


def _has_ended(fork: Fork) -> bool:
    """Wait briefly for the fork's fuse-overlayfs to end. Return whether it has ended."""
    until = time.monotonic() + _ENDING
    while _is_served(fork):
        if time.monotonic() >= until:
            return False
        time.sleep(_LOOK)
    return True


def _is_served(fork: Fork) -> bool:
    """Return whether fuse-overlayfs still runs for a fork. The mount itself cannot tell: the kernel answers for a while
    without asking it."""
    try:
        alive = disk.open_path(fork.path + ALIVE, os.O_RDWR | disk.O_CLOEXEC | disk.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    with Descriptor(alive):
        return not try_lock(alive, LOCK_EX)


def settled(vault: Vault, fork: Fork, now: int, ending: Callable[[], object] = lambda: None) -> MountNote | None:
    """Return a mounted fork's note, or None if it is not mounted. Hold the fork's lock.

    If the mount has ended, bring its changes into the fork; ``ending`` is called before that. Raise MudroomError if it
    is unclear where the fork's files are now.
    """
    note = mount_note(fork)
    if note is None:
        return None
    state = state_of(vault, fork, note)
    if state == "mounted":
        return note
    if state == "ended":
        ending()
        _finish(vault, fork, note, now)
        return None
    raise _unclear(fork, note, state)


def _unclear(fork: Fork, note: MountNote, state: State) -> MudroomError:
    if state == "lost":
        return MudroomError(
            f"the directory in which {fork.name} is mounted, {show(note.place)}, is not there any more",
            f"move it back; without it, mudroom unmount {fork.name} --lost goes on with what the fork held before",
        )
    rows = ", ".join(f"{user.pid} ({user.command})" for user in users_of(note.identity[0])[:3])
    return MudroomError(
        f"the mount of {fork.name} is not at {show(note.place)} any more, but is still used by {rows or 'a program'}",
        "end the programs that have files of it open",
    )


def require_masked(fork: Fork, paths: frozenset[bytes]) -> frozenset[bytes]:
    """Return the secrets that are shown empty in a fork's mount. Raise UsageError if any in ``paths`` is not."""
    masked = read_masked(fork.path)
    new = sorted(paths - masked)
    if new:
        raise UsageError(
            f"{show(new[0])} is a secret that can be read where {fork.name} is mounted",
            f"mudroom unmount {fork.name}, and mount it again",
        )
    return masked


def collect(vault: Vault, fork: Fork, note: MountNote, now: int) -> Changeset:
    """Record a mounted fork's present changes. Hold the fork's lock.

    The record keeps its command as long as nothing has changed since; otherwise it names the mount.
    """
    before = fork.record
    with OpenFork(vault, fork) as opened:
        view = mounted_view(fork, opened, note)
        by_mount = CollectedCommand((b"mudroom", b"mount", os.fsencode(fork.name)), 0, now)
        if before is None or not before.command:
            return gather(fork, opened, view, by_mount, note.since)
        last = CollectedCommand(before.command, before.exit_code, before.started, before.level)
        changeset = gather(fork, opened, view, last, note.since)
        if changeset == before.changeset:
            return changeset
        return gather(fork, opened, view, by_mount, note.since)


# --- the end ---


def unmount_fork(vault: Vault, fork: Fork, now: int, *, lost: bool = False) -> Changeset:
    """Unmount a fork and collect its changes. Also works when the mount has ended, and only the note is left.

    ``lost``: give up a copy whose directory is gone. Hold the fork's lock. Raise UsageError if the fork is not mounted,
    MudroomError if the mount is in use.
    """
    note = mount_note(fork)
    if note is None:
        raise UsageError(f"{fork.name} is not mounted", "mudroom mount lists the mounted forks")
    state = state_of(vault, fork, note)
    if state == "elsewhere" or (state == "lost" and not lost and note.writable):
        raise _unclear(fork, note, state)
    if state == "mounted" and note.kind != "copy":
        unmount(note.kind, note.place)
    return _finish(vault, fork, note, now)


def _finish(vault: Vault, fork: Fork, note: MountNote, now: int) -> Changeset:
    """Collect the changes after a mount has ended, and remove its directory and the note."""
    if note.kind != "copy" and is_dead(note.place):
        abandon(note.place)
    elif note.kind != "copy" and note.identity == _UNKNOWN and is_mounted(note.place):
        unmount(note.kind, note.place)
    if note.kind == "fuse":
        _end_server(fork, note)
    changeset = Changeset()
    if note.writable:
        changeset = _copied(vault, fork, note, now) if note.kind == "copy" else _layered(vault, fork, note, now)
    elif fork.record is not None:
        changeset = fork.record.changeset
    _remove_place(vault, fork, note)
    remove_note(fork.path)
    return changeset


def _end_server(fork: Fork, note: MountNote) -> None:
    """End an unused mount's fuse-overlayfs. It continues as long as a launcher has a copy of the mount. Raise
    MudroomError if it does not end."""
    if _has_ended(fork):
        return
    server = end_server(note.place, fork.upper if note.writable else b"")
    if not _has_ended(fork):
        raise MudroomError(f"the fuse-overlayfs of {fork.name} does not end", f"kill -9 {server or ''}".rstrip())


def _copied(vault: Vault, fork: Fork, note: MountNote, now: int) -> Changeset:
    if fork.has_copy and _identity(note.place) == note.identity:
        collect(vault, fork, note, now)
        leave_copy(vault, fork)
    elif fork.has_copy or note.identity == _UNKNOWN:  # lost or incomplete: the layers hold the fork's earlier content
        if os.path.exists(fork.copy_place + SEALING) and os.path.isdir(fork.upper):
            remove_tree(fork.upper)
        restore_record(vault, fork)
    if fork.is_copy:
        vault.throw_away(fork.copy_place)
        vault.empty_trash()
    record = fork.record
    return record.changeset if record is not None else Changeset()


def _layered(vault: Vault, fork: Fork, note: MountNote, now: int) -> Changeset:
    if not os.path.isdir(fork.upper):
        return Changeset()
    if note.kind == "fuse":
        convert_fuse_layer(fork.upper)
        write_note(fork.path, note._replace(kind="overlay"))  # from here on the layer has the kernel's format
    command = CollectedCommand((b"mudroom", b"mount", os.fsencode(fork.name)), 0, now)
    with OpenFork(vault, fork) as opened:
        view = OverlayView(vault.source, fork.sealed, fork.upper, fork.path + b"/work")
        changeset = gather(fork, opened, view, command, note.since)
        view.unmounted()
    return changeset


def _remove_place(vault: Vault, fork: Fork, note: MountNote) -> None:
    """Remove a mount's directory. A directory with other files in it stays."""
    if note.kind == "copy":
        is_ours = _identity(note.place) == note.identity or is_below(note.place, vault.path)
        if is_ours and os.path.isdir(note.place):
            remove_tree(note.place)
        if os.path.isdir(fork.path + b"/mounted"):
            remove_tree(fork.path + b"/mounted")
        return
    with suppress(OSError):  # gone, or the user has put files there since the mount ended
        os.rmdir(note.place)
