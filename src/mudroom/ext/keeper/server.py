"""The keeper: a process that has everything loaded and keeps one process waiting for the next command.

It is one per state directory, and holds nothing of any command. A caller whose variables (``variables.py``), control
group or limits (``caller.py``) it cannot have gets one of its own once this one is idle. A client connects; the process
that waits takes the connection (``command.py``), and the keeper forks the next one. The keeper reads nothing that a
client sends. From the process of a command it learns which modules the command needed: it loads them, too, so that the
next one has them. It also learns the steps of the command's sandbox that do not depend on the command, and which pages
of memory the command has written to. The process that waits is told, has the steps performed ahead
(``PreparedTemplate``), and makes its copies of the pages.

It ends after some idle minutes, at SIGTERM (``mudroom keeper stop``), when its code has changed, and when its directory
is gone. Running commands continue. It can be killed at any time: the waiting process ends with it, and a client without
an answer runs its command itself.

    state/keeper/                0700
    state/keeper/NAME            its socket, 0600
    state/keeper/NAME.lock       locked while it lives (flock(2)); its mtime: the last command's end (``lock.py``)
    state/keeper/NAME.rehearsal  a directory, while it starts
"""

from __future__ import annotations

import _socket
import ctypes
import fcntl
import gc
import importlib
import marshal
import mmap
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress

from mudroom.core.confinement.plan import TemplatePlan
from mudroom.core.system.closing import ClosedOnError, Descriptor
from mudroom.errors import MudroomError
from mudroom.ext.keeper.caller import CallerSurroundings, Elsewhere, identity, take_over
from mudroom.ext.keeper.code import Code
from mudroom.ext.keeper.command import Run, serve
from mudroom.ext.keeper.start import open_directory
from mudroom.ext.keeper.status import lock_content
from mudroom.sandbox.client.connection import Connection, wait_readable
from mudroom.sandbox.client.invocation import ClientTraits
from mudroom.sandbox.client.launcher_client import FIRST_TO_GO, TEMPLATES, LauncherClient, SpawnedLauncher
from mudroom.sandbox.client.template import request, require_prepared
from mudroom.sandbox.host.host import FileIdentity, identify, shown_paths
from mudroom.typing import Any, NamedTuple, NoReturn


class PreparedTemplate:
    """A template that is made ahead of a command: most parts of a sandbox exist before its command is known. A session
    makes a template at its second command. A command on the command line has its own session; so that it need not wait,
    the process that waits for it makes a template with the last command's steps.

    1. It serves only a command that has compiled exactly these steps itself, with the same files behind the steps'
       paths (``shown_paths``) and the same host mounts. Otherwise it is closed, unused. So a command gets nothing from
       another one, and sees the host as it does in-process.
    2. It does not outlive a change of the host's mounts: it has copies of them, and would keep a file system busy that
       the user unmounts.
    3. No command has run in it or in a clone of it before.

    Owner: the only thread of a process that waits for a command; later the command's thread.
    """

    def __init__(self, launcher: Connection, plan: TemplatePlan) -> None:
        """Ask the launcher for a template, and return at once. Raise OSError or MudroomError if that is not
        possible."""
        self.plan = plan
        self.mounts = os.open("/proc/self/mountinfo", os.O_RDONLY | os.O_CLOEXEC)
        """Descriptor marked with POLLPRI once the mounts have changed since now (proc_pid_mounts(5)). The mark is gone
        when it was seen (mounts_poll in fs/proc_namespace.c)."""
        self.has_old_mounts = False
        """The mark was seen."""
        self._poller = select.poll()
        self._poller.register(self.mounts, select.POLLPRI)
        self._files = self._identify()  # before they are mounted
        with ClosedOnError(self.mounts):
            self._connection, self._report = request(launcher, plan)

    def taken(self, plan: TemplatePlan) -> Connection | None:
        """Return the template for a command with this plan, or None if it does not fit. Call it once."""
        connection: Connection | None = self._connection
        try:
            is_current = not self.has_old_mounts and not self._poller.poll(0)
            serves = plan == self.plan and is_current and self._identify() == self._files
            if serves:
                require_prepared(self._report, plan)
                # the launcher may have reaped it: a spare that was just cloned still has its socket
                serves = self._connection.is_open() and not wait_readable([self._report], time.monotonic())
        except MudroomError:
            serves = False
        if not serves:
            self._connection.close()
            connection = None
        os.close(self._report)
        os.close(self.mounts)
        return connection

    def close(self) -> None:
        self._connection.close()
        os.close(self._report)
        os.close(self.mounts)

    def _identify(self) -> list[FileIdentity]:
        return [identify(path) for path in shown_paths((*self.plan.shared, *self.plan.ahead))]


# --- The memory pages that a command writes to, copied ahead of it ---
# A process shares its memory with the keeper that forked it. The first write to a page copies it: 2.4 µs each, and a
# command writes to 1,600, since each use of an object counts a reference in it. The pages hardly differ between
# commands. A command that had to copy many pages therefore reports them, and the process that waits for the next
# command makes the same copies while it waits.
#
# Rules of this file:
# 1. A page that is copied ahead has the same content that a later copy would have: it is not written to meanwhile. A
#    wrongly chosen page costs memory, nothing else.
# 2. Only page numbers are passed on.
# 3. A kernel without MADV_POPULATE_WRITE (before Linux 5.14) or a readable pagemap copies every page when it is written
#    to.


Range = tuple[int, int]
"""(number of the first page, count)."""

MANY = 150
"""Page faults from which on a command reports its pages."""
MOST_PAGES = 6000
"""Pages that are copied ahead: 23 MiB, more than a keeper has."""
MOST_RANGES = 2000
_POPULATE_WRITE = 23
"""MADV_POPULATE_WRITE, madvise(2)."""
_PRESENT, _EXCLUSIVE, _OF_A_FILE = 1 << 63, 1 << 56, 1 << 61
"""Bits in a pagemap entry (Documentation/admin-guide/mm/pagemap.rst); reading them needs no privilege."""
_OWN = _PRESENT | _EXCLUSIVE
_ENTRY = 8
"""Bytes."""
_GAP = 2
"""Pages between two ranges that are merged: a call costs as much as a copy."""


def own_pages() -> list[Range]:
    """Return the private, writable pages that this process does not share, in order. Raise OSError if the kernel does
    not show them."""
    pages: list[int] = []
    with Descriptor(os.open("/proc/self/pagemap", os.O_RDONLY | os.O_CLOEXEC)) as pagemap:
        for first, count in _writable():
            data = os.pread(pagemap, count * _ENTRY, first * _ENTRY)
            entries = memoryview(data)[: len(data) // _ENTRY * _ENTRY].cast("Q")
            pages += [first + at for at, entry in enumerate(entries) if entry & _OWN == _OWN and not entry & _OF_A_FILE]
    return ranges(pages)


def _writable() -> Iterator[Range]:
    """Yield the private mappings that this process may write to (proc_pid_maps(5))."""
    with Descriptor(os.open("/proc/self/maps", os.O_RDONLY | os.O_CLOEXEC)) as descriptor:
        text = b"".join(iter(lambda: os.read(descriptor, 65536), b""))
    for line in text.splitlines():
        place, permissions, _rest = line.split(b" ", 2)
        if permissions[1:2] == b"w" and permissions[3:4] == b"p":
            start, _dash, end = place.partition(b"-")
            yield int(start, 16) // mmap.PAGESIZE, (int(end, 16) - int(start, 16)) // mmap.PAGESIZE


def ranges(pages: Iterable[int]) -> list[Range]:
    """Return sorted page numbers as ranges, including small gaps between them."""
    found: list[Range] = []
    first = end = -1
    for page in pages:
        if first >= 0 and page <= end + _GAP:
            end = page + 1
            continue
        if first >= 0:
            found.append((first, end - first))
        first, end = page, page + 1
    return [*found, (first, end - first)] if first >= 0 else found


def joined(one: Sequence[Range], other: Sequence[Range]) -> list[Range]:
    """Return the pages in both; only ``other`` if both together would be too many."""
    both = ranges(sorted({page for first, count in (*one, *other) for page in range(first, first + count)}))
    fits = sum(count for _first, count in both) <= MOST_PAGES and len(both) <= MOST_RANGES
    return both if fits else list(other)


def copy_ahead(wanted: Iterable[Range]) -> bool:
    """Copy these pages for this process. Return False if the kernel does not support it. A missing page is skipped."""
    madvise = ctypes.CDLL(None).madvise
    madvise.argtypes = (ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int)
    done = False
    for first, count in wanted:
        if madvise(first * mmap.PAGESIZE, count * mmap.PAGESIZE, _POPULATE_WRITE) == 0:
            done = True
    return done


# --- The launcher that is kept ---
# The launcher for a command that a keeper runs: it is started before its command, and makes a template for the last
# command's steps (``prepared.py``). A command with other steps runs exactly as it does in-process.


class KeptLauncher:
    """A launcher that is started ahead of its command: a ``client.LauncherProcess``.

    Owner: the command's thread.
    """

    most_templates, is_local = TEMPLATES, True
    traits = ClientTraits(awaits_tick=True)

    def __init__(self) -> None:
        self._spawned = SpawnedLauncher(apart=True)
        self._ended: list[int] = []
        """Pids of launchers that end, or have ended."""
        self._was_asked = False
        self._prepared: PreparedTemplate | None = None
        self.used: TemplatePlan | None = None
        """The last command's shared steps; None: it had none."""
        self.took_prepared = False
        """Whether a command has had the template that was made ahead."""
        self._surroundings: CallerSurroundings | None = None
        """Those of the caller, if they are others than the keeper's."""

    @property
    def connection(self) -> Connection | None:
        return self._spawned.connection

    def start(self) -> None:
        if self.connection is not None and self.connection.is_open():
            return  # it was started ahead
        self.drop_prepared()
        self._spawn()
        try:
            self._take_over()
        except Elsewhere as error:
            raise MudroomError(
                "the sandbox launcher may not enter this control group",
                "run the command again; nothing was applied",
            ) from error

    def surround(self, wanted: CallerSurroundings) -> None:
        """Give the command's launcher its caller's surroundings, and drop what was made ahead. Raise Elsewhere if that
        is not permitted."""
        self._surroundings = wanted
        self.drop_prepared()
        if self.connection is not None:
            self._take_over()

    def _take_over(self) -> None:
        if self._surroundings is not None:
            oom = max(FIRST_TO_GO, int(self._surroundings.oom))  # as of each launcher
            take_over(self._surroundings._replace(oom=f"{oom}\n"), self.require_pid())

    def _spawn(self) -> None:
        self._end()  # it has died
        self._spawned.start()

    def _end(self) -> None:
        pid = self._spawned.let_go()
        if pid:
            self._ended.append(pid)

    # --- ahead of a command ---

    def start_ahead(self, plan: TemplatePlan | None) -> PreparedTemplate | None:
        """Start a launcher, and a template for this plan. Return the template, or None if there is none."""
        try:
            if self.connection is None:
                self._spawn()
            if plan is not None and self.connection is not None:
                self.drop_prepared()
                self._prepared = PreparedTemplate(self.connection, plan)
        except (OSError, MudroomError):
            pass  # the launcher is gone, or a limit is reached: a command will find and report that
        return self._prepared

    def drop_prepared(self) -> None:
        prepared, self._prepared = self._prepared, None
        if prepared is not None:
            prepared.close()

    def template_ahead(self, shared: TemplatePlan | None) -> Connection | None:
        self.used = shared
        prepared, self._prepared = self._prepared, None
        if prepared is None:
            return None
        if shared is None:
            prepared.close()
            return None
        template = prepared.taken(shared)
        self.took_prepared = self.took_prepared or template is not None
        return template

    # --- its end ---

    def has_ended(self) -> bool:
        return False

    def require_pid(self) -> int:
        pid, self._was_asked = self._spawned.pid, True
        if not pid:  # pid 0 would move this process itself (cgroups(7))
            raise MudroomError("the sandbox launcher died", "run the command again; nothing was applied")
        return pid

    def close(self) -> None:
        """End the launcher and all its sandboxes. A command's groups are removed next, so those who asked for the pid
        wait for its end; for all others ``reap`` does, when the command has a result."""
        self.drop_prepared()
        was_asked, self._was_asked = self._was_asked, False
        self._end()
        if was_asked:
            self.reap()

    def reap(self) -> None:
        """Wait for the launchers' ends."""
        while self._ended:
            os.waitpid(self._ended.pop(), 0)


BREATH = 0.05
"""Seconds from a command's start to the next fork, unless it ends before or the next client comes: a short command
needs the processors."""
QUIET = 2
"""Milliseconds without a client after which a waiting process prepares: clients that come at once are served first."""
_BACKLOG = 128
_LAST_BREATH = 5.0
"""Seconds that a rehearsal's thread may take to end."""
HELD = 120.0
"""Seconds that a sandbox is kept ready for a command: it has copies of the host's mounts."""
MOUNTED = 500
"""Milliseconds between a host mount's change and a new sandbox."""
TAKEN, OUTDATED = b"t", b"o"
_MOST = 1 << 16
"""Maximum bytes in a message between the keeper and one of its processes."""


class Place(NamedTuple):
    directory: bytes
    name: str
    idle: float
    """Seconds without a command after which the keeper ends."""
    look: float
    """Seconds between two checks that the directory and the code are unchanged."""


class Ended(Exception):
    """The keeper is told to end."""


def load(names: Iterable[str]) -> None:
    """Import modules; names that cannot be imported are skipped."""
    for name in names:
        if name not in sys.modules:
            with suppress(ImportError):  # the module is from another version; a command that needs it reports that
                importlib.import_module(name)


def keep(place: Place, code: Code, run: Run, rehearse: Callable[[bytes], None]) -> None:
    """Run the keeper until it ends. Return at once if a keeper exists already, or if none can run here. ``rehearse`` is
    called before the first command, with a directory path that it may create."""
    own_directory = os.open("/proc/self", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    own = identity(own_directory)
    os.close(own_directory)
    if own is None or not code.note():
        return  # it is confined, or its files have just changed: a later command starts a keeper
    directory = open_directory(place.directory)
    try:
        lock = os.open(place.name + ".lock", os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, FileNotFoundError):
        return  # a keeper exists, or this one is told to end
    os.ftruncate(lock, 0)  # the content written by an earlier keeper
    rehearse(place.directory + b"/" + place.name.encode() + b".rehearsal")
    if not (code.note() and _is_alone()):
        return
    os.write(lock, lock_content(os.getpid()))
    if not _is_named(directory, place.name, lock):
        return
    listener = _listen(directory, place.name)
    signal.signal(signal.SIGTERM, _end)
    keeper = KeeperLoop(place, directory, listener, lock, own, code, run)
    try:
        keeper.run()
    except Ended:
        pass
    finally:
        with suppress(FileNotFoundError):  # the directory is gone
            if _is_named(directory, place.name, lock):  # otherwise the socket may belong to a later keeper
                os.unlink(place.name, dir_fd=directory)
        keeper.close()


def _is_named(directory: int, name: str, lock: int) -> bool:
    """Return whether the lock file still has its name. ``mudroom keeper stop`` unlinks the file of a keeper that is
    starting."""
    try:
        return os.path.samestat(os.stat(name + ".lock", dir_fd=directory, follow_symlinks=False), os.fstat(lock))
    except FileNotFoundError:
        return False


def _is_alone() -> bool:
    """Wait until this is the only thread, since a fork has only its own. Return False if that takes too long."""
    until = time.monotonic() + _LAST_BREATH
    while len(os.listdir("/proc/self/task")) > 1:
        if time.monotonic() > until:
            return False
        time.sleep(0.001)
    return True


def _end(_number: int, _frame: object) -> None:
    raise Ended


def _listen(directory: int, name: str) -> _socket.socket:
    with suppress(FileNotFoundError):
        # The lock is held, so a socket with this name belongs to a dead keeper.
        os.unlink(name, dir_fd=directory)
    listener = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    listener.setblocking(False)
    mask = os.umask(0o177)
    try:
        listener.bind(f"/proc/self/fd/{directory}/{name}")
    finally:
        os.umask(mask)
    listener.listen(_BACKLOG)
    return listener


class KeeperLoop:
    """Owner: the only thread of its process."""

    def __init__(
        self,
        place: Place,
        directory: int,
        listener: _socket.socket,
        lock: int,
        own: tuple[object, ...],
        code: Code,
        run: Run,
    ) -> None:
        self._place, self._listener, self._lock = place, listener, lock
        self._own, self._code, self._run = own, code, run
        self._directory = directory
        self._waiting: _socket.socket | None = None
        """Socket to the process that waits for a client. That process sends ``TAKEN`` when a client comes."""
        self._taken: dict[int, _socket.socket] = {}
        """Sockets to the processes that run commands, by descriptor. Such a process sends ``OUTDATED`` before it
        begins, or a report (``_report``) at its end."""
        self._plan: tuple[Any, ...] | None = None
        """Shared steps of the last command that had a sandbox (``TemplatePlan``)."""
        self._last = time.monotonic()
        """The end of the last command. A refused client is none: a keeper that serves nobody ends."""
        self._pages: list[Range] = []
        """Pages that commands have written to."""

    def close(self) -> None:
        self._listener.close()
        for control in (self._waiting, *self._taken.values()):
            if control is not None:
                control.close()
        os.close(self._lock)

    def run(self) -> None:
        """Keep a process waiting until the keeper ends."""
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # so that children need not be waited for: waitpid(2), NOTES
        gc.collect()
        gc.freeze()  # the collector would write to every page that processes share
        gc.disable()
        self._last = fork_at = looked = time.monotonic()
        while True:
            now = time.monotonic()
            if self._waiting is None and fork_at <= now:
                self._fork()
            until = min(self._last + self._place.idle, looked + self._place.look)
            if now >= until:
                if now >= self._last + self._place.idle or not (self._is_in_place() and self._code.looks_current()):
                    return
                looked = now
            elif self._waiting is None:
                until = fork_at
            ready = self._wait(max(0.0, until - now))
            if self._code.events in ready and not self._code.note_events():
                return
            if self._listener.fileno() in ready:
                fork_at = now
            for descriptor in ready & self._taken.keys():
                if not self._learn(self._taken.pop(descriptor)):
                    return
                fork_at = now
            if self._waiting is not None and self._waiting.fileno() in ready:
                now = time.monotonic()
                fork_at = now + BREATH if self._note_taken() else now

    def _is_in_place(self) -> bool:
        """Return whether the directory still exists and contains the lock file and the socket."""
        try:
            is_there = os.path.samestat(os.stat(self._place.directory), os.fstat(self._directory))
            os.stat(self._place.name, dir_fd=self._directory, follow_symlinks=False)  # without it no client comes
            return is_there and _is_named(self._directory, self._place.name, self._lock)
        except OSError:
            return False

    def _wait(self, seconds: float) -> set[int]:
        """Return the descriptors that are readable, after at most ``seconds``. The listener is polled only while there
        is no waiting process."""
        poller = select.poll()
        poller.register((self._waiting or self._listener).fileno(), select.POLLIN)
        for descriptor in (*self._taken, *(self._code.events,) * (self._code.events >= 0)):
            poller.register(descriptor, select.POLLIN)
        return {descriptor for descriptor, _events in poller.poll(seconds * 1000)}

    def _note_taken(self) -> bool:
        """Return whether a client took the waiting process; otherwise it was killed."""
        assert self._waiting is not None
        control, self._waiting = self._waiting, None
        if receive(control) != TAKEN:
            control.close()
            return False
        self._taken[control.fileno()] = control
        return True

    def _learn(self, control: _socket.socket) -> bool:
        """Load the modules that a command had to load, and tell the waiting process what it may prepare. Return whether
        the loaded code is still current."""
        message = receive(control)
        control.close()
        if message == OUTDATED:
            return False
        if not message:
            return True  # it was killed, or its client was refused
        os.utime(self._lock)
        self._last = time.monotonic()
        reported, plan, pages = marshal.loads(message)
        before = self._plan, self._pages
        self._plan = plan or self._plan
        self._pages = joined(self._pages, pages) if pages else self._pages
        if (self._plan, self._pages) != before:
            self._tell_ahead()
        names = [name for name in reported if name not in sys.modules]
        if not names:
            return True
        load(names)
        gc.freeze()
        if self._waiting is not None:  # it was forked without these modules
            self._waiting.close()
            self._waiting = None
        return self._code.note()

    def _tell_ahead(self) -> None:
        if self._waiting is not None and (self._plan or self._pages):
            with suppress(OSError):  # it was killed, or stopped
                self._waiting.send(marshal.dumps((self._plan, self._pages)), _socket.MSG_DONTWAIT)

    def _fork(self) -> None:
        ours, theirs = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        if os.fork() == 0:
            ours.close()
            self._become_command(theirs)
        theirs.close()
        self._waiting = ours
        self._tell_ahead()

    def _become_command(self, control: _socket.socket) -> NoReturn:
        """Wait for a client, and run its command."""
        try:
            os.close(self._lock)  # this copy would hold the lock
            os.close(self._directory)
            for other in self._taken.values():
                other.close()
            for number in (signal.SIGTERM, signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL)
            launcher = KeptLauncher()
            connection = _accept(self._listener, control, launcher, self._code.rest)
            self._listener.close()
            if connection is not None:
                faults = _faults()
                actions = serve(
                    connection,
                    self._own,
                    lambda: self._is_current(control),
                    self._run,
                    LauncherClient(launcher),
                    launcher.surround,
                    (control.fileno(),),
                )
                control.setblocking(False)
                receive(control)  # what was told too late would become an error at the other end
                if actions is not None:
                    with suppress(OSError):  # the keeper has ended
                        pages = _pages() if _faults() - faults > MANY else []
                        control.send(_report(sys.modules.keys() - self._code.known, launcher.used, pages))
                    for act in actions:
                        act()
            launcher.close()
            launcher.reap()
        finally:
            os._exit(0)

    def _is_current(self, control: _socket.socket) -> bool:
        if self._code.is_current():
            return True
        control.send(OUTDATED)
        return False


def _touch() -> None:
    """Write to all objects' pages ahead of a command, where ``copy_ahead`` is not possible. The first write to a page
    that a fork shares copies it, and each use of an object is a write, because it counts references. Of the 1,650
    copies that a run makes, 950 are made here, and 550 more that it does not need; so a first command, whose pages are
    learnt, makes its copies itself."""
    gc.unfreeze()
    gc.get_objects()
    gc.freeze()


def receive(control: _socket.socket) -> bytes:
    """Return the next message; empty if the other end is gone."""
    try:
        return control.recv(_MOST)
    # The other end may have gone without reading its messages, which is an error here (unix_release_sock in
    # net/unix/af_unix.c).
    except OSError:
        return b""


def _report(modules: Iterable[str], used: TemplatePlan | None, pages: Sequence[Range]) -> bytes:
    """Return a message with the modules that a command has loaded, its sandbox's shared steps, and the pages it has
    written to. If they do not fit, return a message without them."""
    message = marshal.dumps((list(modules), tuple(used) if used is not None else None, list(pages)))
    return message if len(message) <= _MOST else marshal.dumps(([], None, []))


def _faults() -> int:
    """Return how many page faults (mappings and copies) this process has had that needed no disk I/O."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def _pages() -> Sequence[Range]:
    try:
        return own_pages()
    except OSError:
        return []  # this kernel does not show them


def _accept(
    listener: _socket.socket, control: _socket.socket, launcher: KeptLauncher, rest: Callable[[], None] = lambda: None
) -> _socket.socket | None:
    """Return the next client's connection, and tell the keeper that this process is taken; None if the keeper has
    ended. Until a client comes, prepare what it will need, but not while the last command may still need the
    processors. ``rest`` is called once then."""
    poller = select.poll()
    poller.register(listener.fileno(), select.POLLIN)
    poller.register(control.fileno(), select.POLLIN)
    wanted: TemplatePlan | None = None
    """Plan for a template that is to be made after ``timeout``."""
    pages: Sequence[Range] = ()
    prepared: PreparedTemplate | None = None
    has_copies, has_launcher, until = False, False, 0.0
    timeout: int | None = QUIET
    while True:
        ready = dict(poller.poll(timeout))
        if prepared is not None and prepared.mounts in ready:
            prepared.has_old_mounts = True
        if control.fileno() in ready:
            message = receive(control)
            if not message:
                return None
            plan, pages = marshal.loads(message)
            has_copies, timeout, until = False, QUIET, time.monotonic() + HELD
            if plan is not None and (prepared is None or prepared.plan != plan):
                wanted = TemplatePlan(*plan)
            continue
        if listener.fileno() in ready:
            try:
                accepted, _address = listener._accept()  # type: ignore[attr-defined]
            except BlockingIOError:
                continue  # the client has gone
            control.send(TAKEN)
            return _socket.socket(fileno=accepted)
        if not has_copies:
            if pages and not copy_ahead(pages):
                _touch()
            rest()
            has_copies, timeout = True, 0  # one that has come meanwhile waits for no launcher
            continue
        is_over = bool(prepared and (prepared.has_old_mounts or time.monotonic() >= until))
        if prepared is not None and (wanted is not None or is_over):
            poller.unregister(prepared.mounts)
            launcher.drop_prepared()
            if wanted is None and time.monotonic() < until:  # a file system was mounted
                wanted, timeout, prepared = prepared.plan, MOUNTED, None
                continue
            prepared = None
        if prepared is None and (wanted is not None or not has_launcher):
            prepared, wanted, has_launcher = launcher.start_ahead(wanted), None, True
            if prepared is not None:
                poller.register(prepared.mounts, select.POLLPRI)
        timeout = max(0, int(1000 * (until - time.monotonic()))) if prepared is not None else None
