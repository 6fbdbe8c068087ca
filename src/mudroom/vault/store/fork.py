"""A fork on disk.

forks/<name>/
    state           its stack of layers, its checkpoints (core/tree/stack.py)
    record          its last command's changes (vault/record.py); absent while the first command runs
    masked          names of the secrets that its commands saw empty; which of them its layers do not hold
    landed          paths that applies have landed while its layers still hold them (stage/originals/original.py)
    standing        door of its standing sandbox (vault/standing.py)
    lock            flock(2): one command, apply or mount in this fork at a time
    lost, examined  files that a crash of the machine has cut off (vault/forks/crash.py)
    running         start time of the running command, or of the one that ran when mudroom was killed
    work/<hex>/     work directories for the overlay mounts
    caches/         its package managers' caches (vault/caches/fork_cache.py)
    copy/           the copy view's files (stage/views/copy_view.py)
    artifacts/<n>/  output from commands in a copy view; an agent's collected files (ext/agents/session/artifact.py)
    home/           copies of agents' stores, with logins among them (vault/forks/logins.py)
    agent           flock(2): the agent that uses this fork as its workspace, during and after its run
    credentials     names of the credential stores that were open to its commands, one a line
    refused/<n>/    file tools' contents that lost against another writer (vault/forks/editor.py)
    private/        without namespaces: home and /tmp of the last command
    ports           the ports at which its servers were opened here (vault/forks/endpoint.py)
    mount           where it is mounted for the user's own tools (vault/store/mount_note.py)
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from mudroom.core.clock import CommandStart
from mudroom.core.system.closing import Descriptor
from mudroom.core.tree.change import Changeset
from mudroom.core.tree.path import show
from mudroom.core.tree.stack import Checkpoint, ForkState, NewerState, checkpoint_line, from_text, head_text
from mudroom.errors import UPGRADE, ForkGone, MudroomError, UsageError
from mudroom.stage import disk, safe_open
from mudroom.stage.layers.shown import with_shown
from mudroom.stage.reader import ANEW, FileReader
from mudroom.typing import TYPE_CHECKING
from mudroom.vault.lock import PATIENCE, Lock
from mudroom.vault.store.masked_secrets import masked_of

if TYPE_CHECKING:
    from mudroom.vault.record import ForkRecord
    from mudroom.vault.store.mount_note import MountNote


KEPT = 8
"""Number of texts kept, enough for the forks in use."""


class StateTexts:
    """The most recent states with their texts.

    Thread-safe: values are replaced as a whole; a lost update costs a parse.
    """

    def __init__(self) -> None:
        self._states: dict[bytes, ForkState] = {}
        self._lines: tuple[tuple[Checkpoint, ...], tuple[bytes, ...]] = ((), ())

    def parse(self, text: bytes) -> ForkState:
        """Return the state. Raise ValueError with the reason if it is damaged."""
        state = self._states.get(text)
        if state is None:
            state = from_text(text.decode("ascii"))
            self._keep(text, state)
        return state

    def format(self, state: ForkState) -> bytes:
        points, lines = self._lines
        pairs = zip(points, state.checkpoints, strict=False)
        same = next(
            (at for at, pair in enumerate(pairs) if pair[0] is not pair[1]), min(len(points), len(state.checkpoints))
        )
        new = (f"{checkpoint_line(point)}\n".encode("ascii") for point in state.checkpoints[same:])
        lines = (*lines[:same], *new)
        self._lines = state.checkpoints, lines
        text = b"".join((head_text(state).encode("ascii"), *lines, b"end\n"))
        self._keep(text, state)
        return text

    def _keep(self, text: bytes, state: ForkState) -> None:
        recent = list(self._states.items())[1 - KEPT :]
        self._states = dict([*recent, (text, state)])


TEXTS = StateTexts()


CREDENTIALS = b"/credentials"
DOOR = b"/standing"
SHOWN = b"/shown/"
"""Directory in the vault: for each layer, the secrets that a command was shown and has touched
(``stage/layers/shown.py``)."""
APART = b"/apart"
"""In a layer: a copy of its tree until the copy replaces the tree (``vault/forks/apart.py``)."""

RELEASED = b"/released"
"""Directory in the vault: a file for each layer that no sandbox can reach any more (``vault/forks/apart.py``)."""
_SMALL = 1 << 16
_LOOK = 0.005
"""Seconds between two attempts to take a lock: flock(2) has no timeout."""


def read_small(path: bytes) -> bytes:
    """Return the content of a file written by mudroom. For a few bytes this takes half the system calls of ``open``."""
    with Descriptor(disk.open_path(path, os.O_RDONLY | disk.O_CLOEXEC)) as descriptor:
        parts = [os.read(descriptor, _SMALL)]
        while len(parts[-1]) == _SMALL:
            parts.append(os.read(descriptor, _SMALL))
        return b"".join(parts)


PUSHES = b"/effects"
"""The directory with held pushes in a fork's directory, and with sent ones in an apply's."""


def write_small(path: bytes, content: bytes, flags: int) -> None:
    """Create or overwrite a file written by mudroom. ``flags``: O_EXCL or O_TRUNC."""
    descriptor = disk.open_path(path, os.O_WRONLY | os.O_CREAT | disk.O_CLOEXEC | disk.O_NOFOLLOW | flags, 0o666)
    with Descriptor(descriptor):
        while content:
            content = content[os.write(descriptor, content) :]


def interrupted_forks(vault: bytes) -> list[Fork]:
    """Return the forks in a vault in which a command is running, or was when mudroom was killed, sorted by name."""
    with os.scandir(vault + b"/forks") as scan:
        names = sorted(item.name for item in scan if os.path.lexists(item.path + b"/running"))
    return [Fork(os.fsdecode(name), vault + b"/forks/" + name, vault) for name in names]


def last_holder(fork: Fork) -> str:
    """Return the text of the process that took the fork's lock last, or an empty string.

    An attempt to take the lock writes the same text, which later says which command was cut off.
    """
    try:
        return read_small(fork.path + b"/lock").decode("utf-8", "replace").strip()
    except FileNotFoundError:
        return ""


class Fork:
    """A fork. ``_lock`` and ``_state`` are written by the thread that holds the fork's lock."""

    def __init__(self, name: str, path: bytes, vault: bytes, reading: FileReader = ANEW) -> None:
        self.name = name
        self.path = path
        self.vault = vault
        self.reading = reading
        self._lock: Lock | None = None
        self._state: ForkState | None = None

    def __repr__(self) -> str:
        return f"Fork({self.name!r})"

    # --- its state ---

    @property
    def state(self) -> ForkState:
        """The fork's stack and checkpoints. Read again on each access, except while this object holds the lock, because
        another process may have written it.

        Raise MudroomError if it is damaged, ForkGone if the fork was discarded or renamed meanwhile.
        """
        if self._state is not None:
            return self._state
        try:
            state = TEXTS.parse(read_small(self.path + b"/state"))
            self._state = state if self._lock is not None else None
            return state
        except FileNotFoundError:
            if not os.path.isdir(self.path):
                raise ForkGone(self.name) from None
            problem = "is missing"
        # possibly a passing shortage of descriptors or memory: do not advise removing the fork
        except OSError as error:
            message = f"the state of the fork {self.name} cannot be read: {error.strerror}"
            raise MudroomError(message, "other forks are not affected; try again") from error
        except NewerState as error:
            raise MudroomError(f"the state of the fork {self.name} {error}", UPGRADE) from error
        except ValueError as error:
            problem = str(error)
        raise MudroomError(
            f"the state of the fork {self.name} {problem}", "other forks are not affected; mudroom fork rm removes it"
        )

    def save(self, state: ForkState) -> None:
        """Replace the state atomically. After a power loss it is the old or the new state, whole.

        A fork's first state is not synced, because the files that its command writes are not either. It is not replaced
        by a rename either: no process looks for a fork that is being made (``Vault.add_fork``).
        """
        text, path = TEXTS.format(state), self.path + b"/state"
        try:
            write_small(path, text, os.O_EXCL)
        except FileExistsError:
            safe_open.replace(path, text)
        if self._lock is not None:
            self._state = state  # only after the rename: on a full disk the old state stays

    @property
    def is_blank(self) -> bool:
        """Whether the machine crashed before the fork's first state and record were on disk: nothing is known of it.

        A second name of the record is its parent's: no command has run in it.
        """
        try:
            if _size(self.path + b"/state") != 0:
                return False
            return not _size(self.record_path) or os.stat(self.record_path).st_nlink > 1
        except PermissionError:
            return False  # it may hold anything

    @property
    def state_or_none(self) -> ForkState | None:
        """The state, or None if it is damaged. It is then unknown which layers the fork needs, so no shared layer is
        removed."""
        try:
            return self.state
        except MudroomError:
            return None

    @property
    def created(self) -> int:
        state = self.state_or_none
        return state.created if state is not None and state.created else os.stat(self.path).st_ctime_ns

    # --- lock ---

    @contextmanager
    def lock(
        self, holder: str, waiting: Callable[[str], None] = lambda _other: None, *, standing: bool = False
    ) -> Iterator[None]:
        """Hold the fork's lock for the block. Wait for the present holder; call ``waiting`` with its text if that takes
        longer than ``PATIENCE``. Raise ForkGone if the fork was discarded or renamed meanwhile.

        The fork's standing sandbox is dissolved first (``vault/standing.py``). ``standing``: leave it, for a command
        that may run in it, or to read the lock's holder.
        """
        lock = Lock(self.path + b"/lock")
        _acquire(self, lambda: lock.acquire(holder, waiting, PATIENCE))
        with _released_at_the_end(self, lock):
            self._lock = lock
            try:
                if not standing:
                    dissolve(self)
                yield
            finally:
                self._lock = self._state = None

    @contextmanager
    def lock_if_free(self, holder: str, patience: float = 0.0, *, standing: bool = False) -> Iterator[bool]:
        """Try to take the fork's lock without waiting for a command. Yield whether it was taken.

        ``patience``: seconds to wait for a holder that only reads the fork; a command that runs in the fork is not
        waited for. Raise ForkGone if the fork was discarded or renamed. ``standing``: as for ``lock``.
        """
        lock = Lock(self.path + b"/lock", holder)
        until = time.monotonic() + patience
        while not _acquire(self, lock.acquire_now):
            if time.monotonic() >= until or self.interrupted is not None:
                yield False
                return
            time.sleep(_LOOK)
        with _released_at_the_end(self, lock):
            self._lock = lock
            try:
                if not standing:
                    dissolve(self)
                yield True
            finally:
                self._lock = self._state = None

    @contextmanager
    def moving(self) -> Iterator[None]:
        """Make readers of the fork's files wait for the block, in which files go from its layers to the project. Hold
        the fork's lock."""
        with Lock(self.path + b"/moving") as lock:
            try:
                yield
            finally:
                lock.unlink()

    def await_moving(self) -> None:
        """Wait for the end of ``moving`` in another process or thread."""
        if os.path.lexists(self.path + b"/moving"):
            with suppress(FileNotFoundError), Lock(self.path + b"/moving"):  # the next block removes the file
                pass

    @property
    def has_pushes(self) -> bool:
        """Whether pushes in it wait for an apply (``ext/effects/store.py``)."""
        try:
            return any(name.isdigit() for name in os.listdir(self.path + PUSHES))
        except FileNotFoundError:
            return False

    def begin(self, started: CommandStart, *, durable: bool = False) -> None:
        """Note that a command is about to run. Until ``end`` the record does not match the layers."""
        forget_release(self.vault, self.state.upper)
        if durable:
            safe_open.replace(self.path + b"/running", b"%d %d" % started)
        else:
            write_small(self.path + b"/running", b"%d %d" % started, os.O_TRUNC)

    def end(self) -> None:
        with suppress(FileNotFoundError):  # a lost record has no mark
            os.unlink(self.path + b"/running")

    @property
    def interrupted(self) -> CommandStart | None:
        """Start time of the running command, or of the one that ran when mudroom was killed; None without such a
        command. 0 if the time cannot be read. A fork that has lost its record counts as interrupted since it was made:
        its changes are collected again."""
        try:
            return CommandStart(*map(int, read_small(self.path + b"/running").split(b" ")))
        except FileNotFoundError:
            return CommandStart(self.created) if self.has_lost_record else None
        except (ValueError, TypeError):
            return CommandStart(0)  # partly written, or not by mudroom: treat it as a command that began

    @property
    def has_lost_record(self) -> bool:
        """Whether the record, or that of the sealed layers, is empty, or missing although layers are sealed: it was not
        on disk when the machine crashed. A collection always writes one if there are layers."""
        size = _size(self.record_path)
        if size == 0:
            return True
        state = self.state_or_none
        if state is None or not state.layers or os.path.exists(self.path + b"/mount"):
            return False
        return not (size and _size(self.layer(state.layers[-1]) + b"/record"))

    # --- its paths ---

    def layer(self, name: str) -> bytes:
        return self.vault + b"/layers/" + name.encode()

    @property
    def upper(self) -> bytes:
        """The writable layer's directory."""
        return self.layer(self.state.upper) + b"/tree"

    @property
    def sealed(self) -> tuple[bytes, ...]:
        """The sealed layers' directories, topmost first."""
        return tuple(self.layer(name) + b"/tree" for name in reversed(self.state.layers))

    @property
    def contents(self) -> tuple[bytes, ...]:
        """Directories with the staged files at their own paths. The first that has a path counts."""
        note = mount_note(self)
        if note is not None and note.is_content:
            return (note.place,)
        return (self.copy_place + b"/work",) if self.has_copy else self.layered

    @property
    def has_home(self) -> bool:
        """Whether an agent's commands have had copies of its stores, with logins among them (``forks/logins.py``)."""
        return os.path.isdir(self.path + b"/home")

    @property
    def has_copy(self) -> bool:
        """Whether the copy view's copy has been made. If so, it is the fork's present content."""
        return os.path.exists(self.copy_place + b"/manifest")

    @property
    def layered(self) -> tuple[bytes, ...]:
        """The layers' directories, ignoring a copy, with the secrets that some commands were shown."""
        layers = tuple(path for path in (self.upper, *self.sealed) if os.path.isdir(path))
        shown = self.shown
        if not shown:
            return layers

        return with_shown(layers, self.upper, shown, masked_of(self.path).at(self.state))

    @property
    def shown(self) -> bytes:
        """Directory with the secrets that commands were shown and have touched; empty if there are none."""
        return self.shown_at((*self.state.layers, self.state.upper))

    def shown_at(self, layers: Sequence[str]) -> bytes:
        """Return that directory for these layers, bottom first."""
        places = (self.vault + SHOWN + name.encode() for name in reversed(layers))
        return next((place for place in places if os.path.isdir(place)), b"")

    @property
    def record_path(self) -> bytes:
        return self.path + b"/record"

    @property
    def namespace_listener(self) -> bytes:
        """Socket for a running command that may use the network."""
        return self.path + b"/entrance"

    @property
    def copy_place(self) -> bytes:
        return self.path + b"/copy"

    @property
    def is_copy(self) -> bool:
        return os.path.isdir(self.copy_place)

    # --- its agent ---

    @property
    def agent(self) -> str:
        """The agent whose workspace this is, or was last; empty if there was none."""
        try:
            with open(self.path + b"/agent", encoding="utf-8") as stream:
                return stream.read()
        except FileNotFoundError:
            return ""

    def agent_lock(self, agent: str) -> Lock:
        """Return the lock that is held from an agent's start to its end, through all its commands."""
        return Lock(self.path + b"/agent", agent)

    # --- its records ---

    @property
    def credentials(self) -> tuple[str, ...]:
        """Names, as in agent cards, of the credential stores that were open to its commands."""
        try:
            with open(self.path + CREDENTIALS, encoding="utf-8") as stream:
                return tuple(stream.read().splitlines())
        except FileNotFoundError:
            return ()

    def note_credentials(self, names: Sequence[str]) -> None:
        """Record credential stores before a command that can open them, for the fork's reviewer."""
        if not names:
            return
        recorded = self.credentials
        new = [name for name in names if name not in recorded]
        if new:
            safe_open.replace(self.path + CREDENTIALS, "".join(f"{name}\n" for name in (*recorded, *new)).encode())

    @property
    def record(self) -> ForkRecord | None:
        """Its last command's record; None without a command or a change."""
        return self.reading.of(self.record_path, load_record)

    @property
    def sealed_changes(self) -> Changeset:
        layers = self.state.layers
        record = self.reading.of(self.layer(layers[-1]) + b"/record", load_record) if layers else None
        return record.changeset if record is not None else Changeset()


def _size(path: bytes) -> int | None:
    try:
        return os.lstat(path).st_size
    except FileNotFoundError:
        return None


def _acquire(fork: Fork, acquire: Callable[[], bool | None]) -> bool | None:
    try:
        return acquire()
    except FileNotFoundError:
        raise ForkGone(fork.name) from None


@contextmanager
def _released_at_the_end(fork: Fork, lock: Lock) -> Iterator[None]:
    """Release a lock that was taken. Raise ForkGone if its file was moved away: a fork is discarded or renamed while
    its lock is held."""
    try:
        if not lock.is_at_its_path:
            raise ForkGone(fork.name)
        yield
    finally:
        lock.release()


def dissolve(fork: Fork) -> None:
    """End the fork's standing sandbox, if there is one, and its mounts. Hold the fork's lock."""
    if not os.path.lexists(fork.path + DOOR):
        return
    from mudroom.vault.standing import end_sandbox

    state, vault = fork.state_or_none, os.path.dirname(os.path.dirname(fork.path))
    uppers = [fork.path + b"/caches/upper", *([fork.layer(state.upper) + b"/tree"] if state is not None else [])]
    end_sandbox(fork.name, fork.path + DOOR, uppers, vault + b"/probe-" + os.urandom(4).hex().encode())


def mount_note(fork: Fork) -> MountNote | None:
    """Return where the fork is mounted for the user's own tools, or was when that mount ended; None if it is not."""
    if not os.path.exists(fork.path + b"/mount"):
        return None
    from mudroom.vault.store.mount_note import read_note

    return read_note(fork.path)


def forget_release(vault: bytes, layer: str) -> None:
    """Note that a layer is about to be mounted for writing."""
    with suppress(FileNotFoundError):
        os.unlink(vault + RELEASED + b"/" + layer.encode())


def load_record(path: bytes) -> ForkRecord | None:
    """Return the record in a file; None if the file does not exist or is empty (``has_lost_record``), or its fork was
    discarded meanwhile."""
    with suppress(FileNotFoundError):
        if os.lstat(path).st_size:
            from mudroom.vault.record import ForkRecord, load

            return load(path, ForkRecord)
    return None


def fork_directory(name: str) -> bytes:
    """Return a fork's directory name, which is the fork's name. Raise UsageError if the name is not allowed."""
    if not is_plain(name):
        raise UsageError(
            f"{show(os.fsencode(name))!r} cannot be the name of a fork",
            "use up to 64 letters, digits, '-', '_' and '.', starting with a letter or digit",
        )
    if name in ("base", "now"):
        raise UsageError(
            f"{name} cannot be the name of a fork: it has another meaning in mudroom diff", "choose another name"
        )
    return name.encode()


def is_plain(name: str) -> bool:
    """Whether the name is safe as a file name and as a word: at most 64 letters, digits, '-', '_' and '.', starting
    with a letter or digit."""
    letters = name.replace("-", "").replace("_", "").replace(".", "")
    return letters.isascii() and letters.isalnum() and not name.startswith((".", "-", "_")) and len(name) <= 64
