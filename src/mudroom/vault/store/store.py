"""The vault: everything mudroom keeps about a project, outside the project.

    <state>/vaults/<name>-<hash of the path>/
        project         the project's path, as bytes
        directory       which directory that is (vault/store/directory_identity.py)
        source          the directory with its files, if it differs (``Vault.source``)
        format          "2 VERSION": of the mudroom that made it; the number rises with each format below
        lock            flock(2), with the holder's text (vault/lock.py)
        wanted, agents  flock(2): whose turn it is (vault/turn.py)
        journal.db      the journal (SQLite); journal.head, journal/: its last event, its archives
        (vault/journal/journal.py)
        approvals/<id>/ one question about a command or a host, with its answer (vault/approvals/question.py)
        scratch/        stays empty: sandboxes mount their root over it
        credentials.json, inspection/  for TLS inspection (ext/inspection)
        cache/          package managers' caches: pools that commands read (vault/caches/fork_cache.py)
        forks/<name>/   one fork: its state and its last command's changes (vault/store/fork.py)
        layers/<id>/    one layer: tree/, originals/, and once it is sealed the record of the stack up to it
                        or a private repository (vault/forks/private_repository.py): tree/ only
        masks/<hash>/   a layer that shows secrets empty; secrets: their paths (stage/views/secret.py)
        masks/git-<hash>/ a layer that keeps them from git; secrets.git: its cache (stage/views/git_mask.py)
        released/<id>   empty: no sandbox can reach the layer any more (vault/forks/apart.py)
        bases/<id>/     a project snapshot (stage/originals/snapshot.py)
        bases/.spare/   the last snapshot that no fork needs (vault/store/spare_base.py)
        applies/<uN>/   one apply: its plan and its slots (vault/apply/transaction.py)
        applies/pending name of the apply that is running, or ran when mudroom was killed
        outside/<fork>/ files that its commands wrote outside the project, for a day (ext/outside/store.py)
        merged/         merged content on its way into the project (vault/conflict/reconciliation.py)
        trash/          removed directories, deleted when there is time

docs/FORMAT.md says which files a reader may rely on.
"""

from __future__ import annotations

import _thread
import errno
import os
import sys
from collections.abc import Callable, Collection

from mudroom import __version__
from mudroom.core.tree import stack
from mudroom.core.tree.path import show
from mudroom.core.tree.stack import LIVE, ForkState
from mudroom.errors import OUTDATED, UPGRADE, ForkExists, ForkGone, MudroomError, UsageError
from mudroom.stage import disk, safe_open
from mudroom.stage.beneath import look
from mudroom.stage.layers.layer import is_whiteout, make_whiteout, remove_tree
from mudroom.stage.private_directory import make_private, project_name, require_private
from mudroom.stage.reader import ANEW, FileReader
from mudroom.stage.views.secret import NO_MASK, Mask
from mudroom.typing import TYPE_CHECKING
from mudroom.vault.lock import Lock
from mudroom.vault.moment import note
from mudroom.vault.store.directory_identity import note_directory, require_same_directory
from mudroom.vault.store.fork import SHOWN, Fork, forget_release, fork_directory
from mudroom.vault.sync import sync_all, sync_directory
from mudroom.vault.turn import Turn

if TYPE_CHECKING:
    from mudroom.vault.approvals.queue import Queue
    from mudroom.vault.journal.journal import Journal


# --- One spelling for each fork, on file systems that ignore case in names ---


def require_spelling(forks: bytes, name: str) -> None:
    """Raise UsageError if the fork's directory is spelled differently: records, rules and running commands would know
    the fork under two names. Windows also drops dots at the end."""
    names = [os.fsdecode(other) for other in os.listdir(forks)]
    other = next((other for other in names if other.lower() == name.lower().rstrip(".")), name)
    if name not in names and other != name:
        raise UsageError(
            f"the file system takes the name {name} for that of the fork {other}",
            f"write {other}, or a name that differs in more than upper and lower case",
        )


FORMAT = b"2"
OUTSIDE = b"/outside"
"""In a vault: files that commands wrote outside the project (``ext/outside/store.py``)."""
CREDENTIALS = b"/credentials.json"
"""In a vault: credentials' names and places (``ext/inspection/credentials.py``)."""
_DIRECTORIES = (b"scratch", b"cache", b"forks", b"layers", b"bases", b"applies", b"trash")
HELD = (errno.ENOTEMPTY, errno.EBUSY)
"""rmdir(2) errors where a file system renames a removed file that is still open, until it is closed: ``.nfs…``
(fs/nfs/unlink.c), ``.fuse_hidden…`` (libfuse without hard_remove)."""


Later = Callable[[bytes, Callable[[], None]], None]
"""Performs an action that need not be waited for and may be cut off. The action uses only files below the directory."""


def at_once(_place: bytes, action: Callable[[], None]) -> None:
    action()


class Vault:
    """A project's vault. ``_opening`` is the lock for opening the journal."""

    def __init__(
        self,
        path: bytes,
        project: bytes,
        new_id: Callable[[], str] = lambda: os.urandom(6).hex(),
        *,
        source: bytes = b"",
    ) -> None:
        self.path = path
        self.project = project
        """The project's path, by which commands, records and archives name it. Its files are opened at ``source``."""
        self.source = source or project
        """Directory with the project's files. It differs if the project appears to commands elsewhere
        (docs/decisions/0062); then it is never written to."""
        self.is_elsewhere = self.source != project
        self.is_copied = False
        """Whether it or the project was copied, so that stamps must be renewed (``retention/restored.py``)."""
        self.lock = Lock(path + b"/lock")
        self.turn = Turn(path)
        self.mask = NO_MASK
        """The layer that shows secrets empty. Callers that open forks make it first (``session/secrets.py``)."""
        self.reading: FileReader = ANEW
        """Reader for records and similar files. A caller that reads them often sets a reader with a cache."""
        self.new_id = new_id
        self.secrets: Callable[[], Collection[str]] = tuple
        """Returns the values that must not be written to the journal or the approval queue. Called when the journal is
        first used, when the mask has changed, and for each question."""
        self.later: Later = at_once
        """Closes the journal, and empties the trash after a command without changes. Any value other than ``at_once``
        means that this process is about to end by _exit(2)."""
        self._journal: Journal | None = None
        self._opening = _thread.allocate_lock()
        """Guards opening the journal, and ``_told``."""
        self._told: Mask | None = None
        """The mask whose values the journal knows."""
        self._whole: Vault | None = None

    @property
    def has_credentials(self) -> bool:
        """Whether the gate inserts credentials into requests from this project's commands. Costs a stat(2)."""
        return os.path.exists(self.path + CREDENTIALS)

    def masked(self, mask: Mask) -> Vault:
        """Return the same vault with another mask, for one command. Locks, turn and journal are shared."""
        vault = Vault(self.path, self.project, self.new_id, source=self.source)
        vault.lock, vault.turn, vault.mask, vault.reading = self.lock, self.turn, mask, self.reading
        vault.secrets, vault._whole = self.secrets, self._whole or self
        return vault

    def git_mask(self, state: ForkState) -> bytes:
        """Return the layer that hides masked files from git in a fork; empty if there is none. A snapshot has a layer
        made from its own index, because the project's index may be newer."""
        if state.base == LIVE:
            return self.mask.git if self.mask.git and os.path.isdir(self.mask.git) else b""
        from mudroom.stage.views.git_mask import snapshot_layer

        return snapshot_layer(self.base(state.base), self.project, self.mask.paths)

    def masking(self, state: ForkState) -> tuple[bytes, ...]:
        """Return the layers between a fork's own layers and its base, topmost first: the mask, the git layer, and a
        private repository. Every reader and mount gets them here."""
        layers = (self.mask.layer, self.git_mask(state), self.private_layer(state))
        return tuple(layer for layer in layers if layer)

    def private_layer(self, state: ForkState) -> bytes:
        """Return the layer with a private repository (``vault/forks/private_repository.py``); empty if there is
        none."""
        return self.layer(state.repository.layer) + b"/tree" if state.repository is not None else b""

    @property
    def journal(self) -> Journal:
        """The journal, opened at first use: importing SQLite and OpenSSL's hashes costs more than starting a
        command."""
        if self._whole is not None:
            return self._whole.journal
        with self._opening:
            if self._journal is None:
                from mudroom.vault.journal.journal import Journal

                self._journal = Journal(self.path + b"/journal.db")
                self._told = None
            if self._told is not self.mask:  # other files may be masked now
                self._told = self.mask
                self._journal.conceal(self.secrets())
            return self._journal

    @property
    def approvals(self) -> Queue:
        from mudroom.vault.approvals.queue import Queue

        return Queue(self.path, secrets=self.secrets)

    def close(self) -> None:
        self.turn.close()
        if self._journal is not None:
            self.later(self.path, self._journal.close if self.later is at_once else self._journal.leave)

    @property
    def scratch(self) -> bytes:
        return self.path + b"/scratch"

    @property
    def merged(self) -> bytes:
        return self.path + b"/merged"

    @property
    def cache(self) -> bytes:
        return self.path + b"/cache"

    # --- forks ---

    def new_layer(self, *, durable: bool = False) -> str:
        """Make a new, empty layer and return its id. Its tree is made at the first write. ``durable``: for a state that
        is synced: btrfs keeps that, and drops a layer that was not."""
        name = self.new_id()
        os.mkdir(self.path + b"/layers/" + name.encode(), 0o700)
        if durable:
            sync_directory(self.path + b"/layers")
        return name

    def layer(self, name: str) -> bytes:
        return self.path + b"/layers/" + name.encode()

    def base(self, name: str) -> bytes:
        return self.path + b"/bases/" + name.encode()

    def new_fork(
        self, name: str, *, time: int = 0, named: bool = False, complete: Callable[[Fork], None] = lambda _fork: None
    ) -> Fork:
        """Make an empty fork. Raise UsageError if the name is taken or not allowed. ``complete``: as for
        ``add_fork``."""
        return self.add_fork(name, ForkState(self.new_layer(), created=time, named=named), complete)

    def add_fork(self, name: str, state: ForkState, complete: Callable[[Fork], None] = lambda _fork: None) -> Fork:
        """Make a fork. Raise ForkExists.

        It is made in its upper layer's directory, with the additions that ``complete`` makes, and gets its name once it
        is whole: a process that is killed meanwhile leaves a layer that no fork needs.
        """
        fork = self._open_fork(name)
        if os.path.lexists(fork.path):
            if not fork.is_blank:
                raise ForkExists(name)
            self.throw_away(fork.path)
        made = Fork(name, self.layer(state.upper) + b"/fork", self.path, self.reading)
        os.mkdir(made.path, 0o700)
        made.save(state)
        try:
            complete(made)
            disk.rename_path(made.path, fork.path)  # fails if the other directory has files, as every fork has
        except BaseException as error:
            self.throw_away(self.layer(state.upper))
            if isinstance(error, OSError) and error.errno in (errno.EEXIST, errno.ENOTEMPTY):
                raise ForkExists(name) from None
            raise
        return fork

    def seal(self, fork: Fork, *, durable: bool = False) -> None:
        """Seal the fork's upper layer, and give the fork a new one. ``durable``: for a checkpoint that is reported. Its
        files and the new layer are synced before the state names them: btrfs keeps a state that was synced, and drops a
        layer that was not.

        The record of the stack up to the sealed layer is kept with that layer. The fork's own record stays until its
        next command.
        """
        state = fork.state
        beside = self.layer(state.upper) + b"/record"
        if os.path.lexists(beside):
            remove_tree(beside)  # left by a crash, or made by a container's user
        if fork.record is not None:
            os.link(fork.record_path, beside)  # safe: a record is replaced, never written in place
        upper = self.new_layer()
        if durable:
            sync_all(self.path)
        fork.save(stack.seal(state, upper))

    def _open_fork(self, name: str) -> Fork:
        return Fork(name, self.path + b"/forks/" + fork_directory(name), self.path, self.reading)

    def fork(self, name: str) -> Fork:
        """Return the fork. Raise UsageError if it does not exist, or the name is not allowed."""
        if (fork := self.find(name)) is None:
            raise UsageError(f"there is no fork named {name}", self._missing_fork_hint(name))
        return fork

    def find(self, name: str) -> Fork | None:
        """Return the fork, or None. Raise UsageError if the name is not allowed."""
        fork = self._open_fork(name)
        if not os.path.isdir(fork.path) or fork.is_blank:
            return None
        if MAY_FOLD:
            require_spelling(self.path + b"/forks", name)
        return fork

    def check_name(self, name: str) -> None:
        """Raise UsageError if no fork has the name now, and the journal has no event of one that had it."""
        from mudroom.core.journal.event_filter import EventFilter

        if next(iter(self.journal.events(last=1, where=EventFilter(forks=(name,)))), None) is None:
            self.fork(name)

    def _missing_fork_hint(self, name: str) -> str:
        """Return a hint for a missing fork. A moved project's forks stay in the vault for its old path."""
        if os.path.isdir(self._open_fork(name).path):
            return "it was new when the machine crashed, and nothing of it was on disk: its name is free"
        vaults = os.path.dirname(self.path)
        for other in sorted(os.listdir(vaults)):
            place = vaults + b"/" + other
            if os.path.isdir(place + b"/forks/" + fork_directory(name)):
                project = project_of(place)
                if project and not os.path.isdir(project):
                    return f"{show(project)}, which is gone, had such a fork: if it was moved, move it back"
        from difflib import get_close_matches as close_to

        near = close_to(name, [fork.name for fork in self.forks()], 1)
        return f"{f'did you mean {near[0]}? ' if near else ''}mudroom ls shows the forks of this project"

    def forks(self) -> list[Fork]:
        """Return all forks, oldest first, including damaged forks. A fork that is discarded meanwhile is left out."""
        with os.scandir(self.path + b"/forks") as scan:
            names = [item.name for item in scan]
        forks = []
        for name in names:
            fork = Fork(os.fsdecode(name), self.path + b"/forks/" + name, self.path)
            try:
                if fork.state_or_none is not None or not fork.is_blank:
                    forks.append((fork.created, fork.name, fork))
            except FileNotFoundError:
                continue
        return [fork for _created, _name, fork in sorted(forks, key=lambda row: row[:2])]

    def discard(self, fork: Fork, *, durable: bool = False, spares: bool = False) -> None:
        """Move the fork to the trash, with every layer and snapshot that no other fork needs. Hold its lock.

        ``durable``: survive a power loss, which could otherwise bring the fork back without its files. ``spares``: keep
        the snapshot for the next fork that takes one.
        """
        state = fork.state_or_none
        if not self.throw_away(fork.path):
            raise ForkGone(fork.name)
        if durable:
            self.sync_trash()  # before its layers go
        if state is not None:
            layers, base = self._unshared(state)
            for layer in layers:
                self.throw_away(self.layer(layer))
            if base:
                from mudroom.vault.store.spare_base import throw_away_base

                throw_away_base(self, base, spares=spares)

    def _unshared(self, state: ForkState) -> tuple[list[str], str]:
        """Return the layers and the snapshot (or "") that no other fork needs. The upper layer is never shared."""
        if state.references == {state.upper} and state.base == LIVE:
            return [state.upper], ""
        others = [other.state_or_none for other in self.forks()]
        if None in others:  # a damaged fork's needs are unknown: keep everything that may be shared
            return [state.upper], ""
        needed = {layer for other in others if other is not None for layer in other.references}
        is_last = state.base != LIVE and all(other is None or other.base != state.base for other in others)
        return sorted(state.references - needed), state.base if is_last else ""

    def throw_away(self, path: bytes) -> bool:
        """Move a directory or file to the trash; ``empty_trash`` frees its bytes. Return whether it was there: of two
        callers, only one gets True."""
        above, _slash, name = path.rpartition(b"/")
        if above == self.path + b"/layers":
            forget_release(self.path, name.decode())
            if os.path.isdir(self.path + SHOWN):
                self.throw_away(self.path + SHOWN + name)
                self.throw_away(self.path + SHOWN + name + b".own")
        try:
            disk.rename_path(path, self.path + b"/trash/" + os.urandom(8).hex().encode())
        except FileNotFoundError:
            return False  # never written, or another process has thrown it away
        return True

    def sync_trash(self) -> None:
        """Make all moves to the trash durable. A rename is durable wholly or not at all."""
        sync_directory(self.path + b"/trash")

    def empty_trash(self, progress: Callable[[int, int], None] | None = None) -> None:
        """Delete the trash. Directories that cannot be removed yet stay for the next time. ``progress`` gets the number
        of files so far, and 0 for an unknown total."""
        done = 0

        def removed(count: int) -> None:
            nonlocal done
            done += count
            if progress is not None:
                progress(done, 0)

        for name in os.listdir(self.path + b"/trash"):
            try:
                remove_tree(self.path + b"/trash/" + name, removed)
            except FileNotFoundError:
                continue  # another process removes it, too
            except PermissionError:
                from mudroom.core.registry import part

                part("engine", "storage", "a fork with an engine of containers").remove(self.path + b"/trash/" + name)
            except OSError as error:
                if error.errno not in HELD:
                    raise

    # --- applies ---

    def applies(self) -> list[bytes]:
        """Return all applies' directories, oldest first."""
        names = [name for name in os.listdir(self.path + b"/applies") if name[:1] == b"u" and name[1:].isdigit()]
        return [self.path + b"/applies/" + name for name in sorted(names, key=lambda name: int(name[1:]))]

    def has_unfinished(self) -> bool:
        """Whether a killed mudroom has left an apply or an undo unfinished (``ApplyDirectory.begin``)."""
        return os.path.exists(self.path + b"/applies/pending")

    def new_apply(self) -> bytes:
        """Return a new apply's directory. Its number is also free in the project: slots there may belong to another
        state directory, or to one that was deleted."""
        require_own(self)
        before = self.applies()
        number = int(os.path.basename(before[-1])[1:]) + 1 if before else 1
        while os.path.lexists(self.source + b"/.mudroom/apply/u%d" % number):
            number += 1
        path = self.path + b"/applies/u%d" % number
        os.mkdir(path, 0o700)
        return path


MAY_FOLD = sys.platform in ("darwin", "win32")
"""Whether file systems usually ignore case in names."""


def require_own(vault: Vault) -> None:
    """Raise UsageError if the project's files belong to another machine: they are never written here."""
    if vault.is_elsewhere:
        raise UsageError(
            f"{show(vault.project)} is only shown here: its changes are applied where the project is",
            "bring the fork home, and apply it there: mudroom apply FORK",
        )


def project_of(vault: bytes) -> bytes:
    """Return a vault's project path; empty if it cannot be read: the vault is incomplete, or belongs to another
    user."""
    return _path_in(vault + b"/project")


def source_of(vault: bytes) -> bytes:
    """Return the directory with the project's files if it differs from the project's path; else an empty path."""
    return _path_in(vault + b"/source")


def _path_in(file: bytes) -> bytes:
    try:
        with open(file, "rb") as stream:
            return stream.read(1 << 16)
    except OSError:
        return b""


def require_private_state(state: bytes) -> None:
    """Make the state directory if it is missing, and close it to other users. Costs one lstat(2) if nothing must be
    done, and for root one for each directory above. Raise MudroomError as ``stage/private_directory.py`` says."""
    try:
        info = None if sys.platform == "win32" else os.lstat(state)  # on Windows lstat shows no access lists
    except OSError:
        info = None
    if info is None or info.st_mode & 0o170077 != 0o040000 or info.st_uid != disk.user() or not info.st_uid:
        require_private(state)


def vault_path(state: bytes, project: bytes, source: bytes = b"") -> bytes:
    """Return a vault's path: it depends on the project's path, and on the source directory if that differs."""
    key = project if source in (b"", project) else project + b"\0" + source  # no path holds a NUL
    return state + b"/vaults/" + project_name(project, key)


def open_vault(state: bytes, project: bytes, source: bytes = b"") -> Vault:
    """Return the vault for ``project`` (a real path), and make it if needed. ``source``: the directory with its files
    if that differs; then ``project`` is the path at which commands see it.

    Raise MudroomError if it cannot be made, belongs to another user, or has another format, UsageError if it belongs to
    another directory at this path (``directory_identity.py``).
    """
    path = vault_path(state, project, source)
    try:
        with open(path + b"/format", "rb") as stream:
            written = stream.read().strip()
    except (FileNotFoundError, NotADirectoryError):
        return _make_vault(path, project, source)
    except OSError as error:
        raise MudroomError(
            f"the vault {os.fsdecode(path)} cannot be read: {error.strerror}",
            "mudroom vault check says what is damaged",
        ) from error
    if other := other_format(written):
        raise MudroomError(f"the vault {os.fsdecode(path)} {other[0]}", other[1])
    if os.stat(path).st_uid != disk.user():
        raise MudroomError(
            f"the vault {os.fsdecode(path)} belongs to another user",
            "set MUDROOM_STATE to a directory of your own, or run mudroom as that user",
        )
    vault = Vault(path, project, source=source)
    vault.is_copied = not vault.is_elsewhere and require_same_directory(path, project)
    return vault


def other_format(written: bytes) -> tuple[str, str] | None:
    """Return the fault of a ``format`` file and what helps; None if it is this mudroom's. The version behind the number
    is that of the mudroom that made it."""
    number, _space, version = show(written).partition(" ")
    if number == FORMAT.decode():
        return None
    newer = f"install it: pipx install --force mudroom=={version}" if version else UPGRADE
    made = f"was made by mudroom {version}: it " if version else ""
    is_older = number.isdigit() and int(number) < int(FORMAT)
    return f"{made}has format {number}, this mudroom knows 2", OUTDATED if is_older else newer


def _require_ability(vault: bytes) -> None:
    """Raise MudroomError if the file system lacks a feature that a vault needs. Tested by trial.

    Permissions: without them (FAT, NTFS, Windows disks in WSL) other users could read the vault, and all files in a
    fork would be executable. Whiteouts: fuse-overlayfs takes them for its own, and neither shows one nor lets its
    directory be removed.
    """
    trial = vault + b"/trial-" + os.urandom(4).hex().encode()  # not in the trash, which another process may empty
    os.mkdir(trial, 0o700)
    # on Windows it inherits the state directory's access list
    if sys.platform != "win32" and os.lstat(trial).st_mode & 0o077:
        os.rmdir(trial)
        raise _unable(vault, "does not keep permissions")
    opened = disk.open_layer(trial)
    try:
        make_whiteout(opened, b"w")
        entry = look(opened, b"w")
        kept = entry is not None and is_whiteout(opened, b"w", entry)
    except FileNotFoundError:
        kept = False
    finally:
        os.close(opened)
    if not kept:
        raise _unable(vault, "cannot keep what a fork deletes (fuse-overlayfs?)")
    remove_tree(trial)


def _unable(vault: bytes, what: str) -> MudroomError:
    return MudroomError(
        f"{os.fsdecode(vault)} is on a file system that {what}",
        "set MUDROOM_STATE to a directory on another one, such as a volume: MUDROOM_STATE=/var/tmp/mudroom",
    )


def _make_vault(path: bytes, project: bytes, source: bytes) -> Vault:
    try:
        make_private(path)
        for name in _DIRECTORIES:
            make_private(path + b"/" + name)
        _require_ability(path)
        note(path)
        # format last: it marks the vault as complete, even after a power loss
        if source not in (b"", project):
            first = [(b"source", source)]
        else:
            note_directory(path, project)
            first = []
        for name, content in (*first, (b"project", project), (b"format", FORMAT + b" " + __version__.encode() + b"\n")):
            # two processes may make the vault at once
            safe_open.replace(path + b"/" + name, content, path + b"/" + name + b"-" + os.urandom(4).hex().encode())
            sync_directory(path)
        for above in (path, os.path.dirname(path), os.path.dirname(os.path.dirname(path))):
            sync_directory(above)
    except OSError as error:
        raise MudroomError(
            f"the vault {os.fsdecode(path)} cannot be made: {error.strerror}",
            "set MUDROOM_STATE to a directory you may write to",
        ) from error
    vault = Vault(path, project, source=source)
    spread_layers(vault)
    return vault


def spread_layers(vault: Vault) -> bool:
    """Let ext4 put each layer into a block group of its own, together with its fork, which is made inside it
    (``Vault.add_fork``). Return whether that is in effect (``stage/top_directory.py``)."""
    from mudroom.stage.top_directory import spread

    return spread(vault.path + b"/layers")
