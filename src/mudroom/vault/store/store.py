"""The vault: what mudroom keeps about one project, outside of it.

    <state>/vaults/<name>-<hash of the path>/
        project         the project's path, as bytes
        format          "2"
        lock            flock(2), and who holds it (vault/lock.py)
        wanted, agents  flock(2): whose turn it is (vault/turn.py)
        journal.db      the journal (SQLite); journal.head, journal/: its last event, its archives
        (vault/journal/journal.py)
        approvals/<id>/ one question about a command or a host, and how it was answered (vault/approvals/question.py)
        scratch/        stays empty: sandboxes mount their root over it
        cache/          the caches of package managers, shared by all commands of this project
        forks/<name>/   one fork: its state and the changes of its last command (vault/store/fork.py)
        layers/<id>/    one layer: tree/, originals/, and once it is sealed the record of what the stack came to
        masks/<hash>/   a layer that shows secrets empty; secrets: where they are (stage/views/secret.py)
        bases/<id>/     one snapshot of the project (stage/originals/snapshot.py)
        applies/<uN>/   one apply: its plan and its slots (vault/apply/transaction.py)
        applies/pending the name of the apply that is going on, or was when mudroom was killed
        merged/         what was merged on its way into the project (vault/conflict/reconciliation.py)
        trash/          on its way out; emptied when there is time

docs/FORMAT.md says what of this a reader may rely on.
"""

from __future__ import annotations

import _thread
import os
from _blake2 import blake2b
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from mudroom.core.tree.path import show
from mudroom.errors import MudroomError, UsageError
from mudroom.stage.reader import ANEW, FileReader
from mudroom.stage.views.secret import NO_MASK
from mudroom.vault.lock import Lock
from mudroom.vault.store.fork import Fork, fork_directory
from mudroom.vault.turn import Turn

if TYPE_CHECKING:
    from mudroom.core.tree.stack import ForkState
    from mudroom.stage.views.secret import Mask
    from mudroom.vault.approvals.queue import Queue
    from mudroom.vault.journal.journal import Journal

FORMAT = b"2"
_DIRECTORIES = (b"scratch", b"cache", b"forks", b"layers", b"bases", b"applies", b"trash")


class Vault:
    def __init__(self, path: bytes, project: bytes, new_id: Callable[[], str] = lambda: os.urandom(6).hex()) -> None:
        self.path = path
        self.project = project
        self.lock = Lock(path + b"/lock")
        self.turn = Turn(path)
        self.mask = NO_MASK
        """What commands and file tools see empty; whoever opens forks looks for it first (``session/secrets.py``)."""
        self.reading: FileReader = ANEW
        """How records and the like are read; who is asked for them again and again keeps what it has read."""
        self.new_id = new_id
        self.secrets: Callable[[], Iterable[str]] = tuple
        """Values that the journal is never to hold; asked for when it is first used."""
        self._journal: Journal | None = None
        self._opening = _thread.allocate_lock()
        """Guards the opening of the journal."""
        self._whole: Vault | None = None

    def masked(self, mask: Mask) -> Vault:
        """Return the same vault under another mask, for one command: locks, turn and journal are those of this one."""
        found = Vault(self.path, self.project, self.new_id)
        found.lock, found.turn, found.mask, found.reading = self.lock, self.turn, mask, self.reading
        found.secrets, found._whole = self.secrets, self._whole or self
        return found

    @property
    def journal(self) -> Journal:
        """Loaded at first use: SQLite and OpenSSL's hashes cost more to import than a command to start."""
        if self._whole is not None:
            return self._whole.journal
        with self._opening:
            if self._journal is None:
                from mudroom.vault.journal.journal import Journal

                journal = Journal(self.path + b"/journal.db")
                journal.conceal(self.secrets())
                self._journal = journal
            return self._journal

    @property
    def approvals(self) -> Queue:
        from mudroom.vault.approvals.queue import Queue

        return Queue(self.path)

    def close(self) -> None:
        self.turn.close()
        if self._journal is not None:
            self._journal.close()

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

    def new_layer(self) -> str:
        """A new, empty layer: its id. Its tree is made when somebody is about to write to it."""
        name = self.new_id()
        os.mkdir(self.path + b"/layers/" + name.encode(), 0o700)
        return name

    def layer(self, name: str) -> bytes:
        return self.path + b"/layers/" + name.encode()

    def base(self, name: str) -> bytes:
        return self.path + b"/bases/" + name.encode()

    def new_fork(self, name: str, *, time: int = 0, named: bool = False) -> Fork:
        """An empty fork. Raises UsageError if there is one of that name."""
        from mudroom.core.tree.stack import ForkState

        return self.add_fork(name, ForkState(self.new_layer(), created=time, named=named))

    def add_fork(self, name: str, state: ForkState) -> Fork:
        fork = self._place(name)
        try:
            os.mkdir(fork.path, 0o700)
        except FileExistsError:
            raise UsageError(f"there is a fork named {name} already", "choose another name, or discard it") from None
        fork.save(state)
        return fork

    def seal(self, fork: Fork) -> None:
        """The fork's upper as it is becomes a sealed layer. What the stack up to here comes to goes with it; the
        fork's own record stays until its next command."""
        from mudroom.core.tree import stack

        state = fork.state
        beside = self.layer(state.upper) + b"/record"
        if os.path.lexists(beside):
            from mudroom.stage.layers.layer import remove_tree

            remove_tree(beside)  # a crash has left it, or who is in a container has put it there
        if fork.record is not None:
            os.link(fork.record_path, beside)  # a record is replaced, never written to, so both may have it
        fork.save(stack.seal(state, self.new_layer()))

    def _place(self, name: str) -> Fork:
        return Fork(name, self.path + b"/forks/" + fork_directory(name), self.path, self.reading)

    def fork(self, name: str) -> Fork:
        fork = self._place(name)
        if not os.path.isdir(fork.path):
            raise UsageError(f"there is no fork named {name}", self._where_it_may_be(name))
        return fork

    def has_fork(self, name: str) -> bool:
        """Raises UsageError if this can be no fork's name."""
        return os.path.isdir(self._place(name).path)

    def _where_it_may_be(self, name: str) -> str:
        """A project that is moved leaves its forks behind: everything about them names its path."""
        vaults = os.path.dirname(self.path)
        for other in sorted(os.listdir(vaults)):
            place = vaults + b"/" + other
            if os.path.isdir(place + b"/forks/" + fork_directory(name)):
                project = project_of(place)
                if project and not os.path.isdir(project):
                    return f"{show(project)}, which is gone, had one: if it was moved, move it back to get at that"
        return "mudroom ls shows the forks of this project"

    def forks(self) -> list[Fork]:
        """Oldest first."""
        with os.scandir(self.path + b"/forks") as scan:
            names = [item.name for item in scan]
        found = [Fork(os.fsdecode(name), self.path + b"/forks/" + name, self.path) for name in names]
        return sorted(found, key=lambda fork: (fork.created, fork.name))

    def discard(self, fork: Fork) -> None:
        """The fork is gone when this returns, with every layer and snapshot that no other fork needs."""
        state = fork.state_or_none
        self.throw_away(fork.path)
        if state is not None:
            for place in self._only_of(state):
                self.throw_away(place)
        self.empty_trash()

    def _only_of(self, state: ForkState) -> list[bytes]:
        """The layers and the snapshot that no other fork needs. Its upper is always its own."""
        from mudroom.core.tree.stack import LIVE

        if state.references == {state.upper} and state.base == LIVE:
            return [self.layer(state.upper)]
        others = [other.state_or_none for other in self.forks()]
        if None in others:  # what that one needs cannot be told: nothing shared goes
            return [self.layer(state.upper)]
        needed = {layer for other in others if other is not None for layer in other.references}
        places = [self.layer(layer) for layer in state.references - needed]
        if state.base != LIVE and all(other is None or other.base != state.base for other in others):
            places.append(self.base(state.base))
        return places

    def throw_away(self, path: bytes) -> None:
        """Out of sight at once; its bytes are freed by ``empty_trash``."""
        for number in range(1_000_000):
            place = self.path + b"/trash/%d" % number
            if not os.path.lexists(place):
                try:
                    os.rename(path, place)
                except FileNotFoundError:
                    pass  # it was never written
                return
        raise MudroomError("the vault's trash is full")

    def empty_trash(self) -> None:
        from mudroom.stage.layers.layer import remove_tree

        for name in os.listdir(self.path + b"/trash"):
            try:
                remove_tree(self.path + b"/trash/" + name)
            except FileNotFoundError:
                continue  # another process is at it, too

    # --- applies ---

    def applies(self) -> list[bytes]:
        """The directories of all applies, oldest first."""
        names = [name for name in os.listdir(self.path + b"/applies") if name[:1] == b"u" and name[1:].isdigit()]
        return [self.path + b"/applies/" + name for name in sorted(names, key=lambda name: int(name[1:]))]

    def has_unfinished(self) -> bool:
        """Whether a killed mudroom has left an apply or an undo in the middle (``ApplyDirectory.begin``)."""
        return os.path.exists(self.path + b"/applies/pending")

    def new_apply(self) -> bytes:
        before = self.applies()
        number = int(os.path.basename(before[-1])[1:]) + 1 if before else 1
        path = self.path + b"/applies/u%d" % number
        os.mkdir(path, 0o700)
        return path


def project_of(vault: bytes) -> bytes:
    """The project that a vault belongs to; empty if that cannot be read: it was not finished, or is somebody else's."""
    try:
        with open(vault + b"/project", "rb") as stream:
            return stream.read(1 << 16)
    except OSError:
        return b""


def vault_path(state: bytes, project: bytes) -> bytes:
    """Where the vault of a project is: its name for people, a hash of its path for certain."""
    digest = blake2b(project, digest_size=6).hexdigest().encode()
    readable = bytes(c if chr(c).isalnum() and c < 128 else ord("-") for c in os.path.basename(project))[:40]
    return state + b"/vaults/" + (readable or b"project") + b"-" + digest


def open_vault(state: bytes, project: bytes) -> Vault:
    """The vault of ``project`` (a real path), made if there is none.

    Raises MudroomError if it cannot be made, is somebody else's, or was written by another format of mudroom.
    """
    path = vault_path(state, project)
    try:
        with open(path + b"/format", "rb") as stream:
            found = stream.read().strip()
    except FileNotFoundError:
        return _make_vault(path, project)
    except OSError as error:
        raise MudroomError(f"the vault {os.fsdecode(path)} cannot be read: {error.strerror}") from error
    if found != FORMAT:
        older = found.isdigit() and int(found) < int(FORMAT)
        raise MudroomError(
            f"the vault {os.fsdecode(path)} has format {found.decode('ascii', 'replace')}, this mudroom knows 2",
            "it was made by a mudroom before the first release: move it aside" if older else "upgrade mudroom",
        )
    if os.stat(path).st_uid != os.geteuid():
        raise MudroomError(f"the vault {os.fsdecode(path)} belongs to another user")
    return Vault(path, project)


def _make_vault(path: bytes, project: bytes) -> Vault:
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
        for name in _DIRECTORIES:
            os.makedirs(path + b"/" + name, mode=0o700, exist_ok=True)
        for name, content in ((b"project", project), (b"format", FORMAT + b"\n")):  # format last: it says "complete"
            with open(path + b"/" + name, "wb") as stream:
                stream.write(content)
    except OSError as error:
        raise MudroomError(
            f"the vault {os.fsdecode(path)} cannot be made: {error.strerror}",
            "set MUDROOM_STATE to a directory you may write to",
        ) from error
    return Vault(path, project)
