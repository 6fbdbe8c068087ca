"""The keeper: a process that has everything loaded and keeps one process waiting for the next command.

It is one per state directory, interpreter and set of variables (``client.name_of``), and holds nothing of any command.
One that may not enter the control group of a caller is joined by another one, for that group alone. A client connects;
the process that waits takes the connection (``command.py``), and the keeper forks the next one. The keeper reads
nothing that a client sends. From the process of a command it learns which modules the command needed: it loads them,
too, so that the next one has them. It also learns the steps of the command's sandbox that do not depend on the command,
and which pages of memory the command has written to. The process that waits is told, has the steps performed ahead
(``prepared.py``), and makes its copies of the pages (``pages.py``).

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
import fcntl
import gc
import importlib
import marshal
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable, Iterable, Sequence

from mudroom.core.confinement.plan import TemplatePlan
from mudroom.ext.keeper.caller import identity
from mudroom.ext.keeper.code import Code
from mudroom.ext.keeper.command import Run, serve
from mudroom.ext.keeper.launcher import KeptLauncher
from mudroom.ext.keeper.lock import lock_content
from mudroom.ext.keeper.pages import MANY, Range, copy_ahead, joined, own_pages
from mudroom.ext.keeper.prepared import PreparedTemplate
from mudroom.ext.keeper.start import open_directory
from mudroom.sandbox.client.launcher_client import LauncherClient
from mudroom.typing import Any, NamedTuple, NoReturn

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
            try:
                importlib.import_module(name)
            except ImportError:
                pass  # the module is from another version; a command that needs it reports that


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
        try:
            if _is_named(directory, place.name, lock):  # otherwise the socket may belong to a later keeper
                os.unlink(place.name, dir_fd=directory)
        except FileNotFoundError:
            pass  # the directory is gone
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
    try:
        # The lock is held, so a socket with this name belongs to a dead keeper.
        os.unlink(name, dir_fd=directory)
    except FileNotFoundError:
        pass
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
        return {descriptor for descriptor, _events in poller.poll(int(seconds * 1000) + 1)}

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
            try:
                self._waiting.send(marshal.dumps((self._plan, self._pages)), _socket.MSG_DONTWAIT)
            except OSError:
                pass  # it was killed, or stopped

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
                    try:
                        pages = _pages() if _faults() - faults > MANY else []
                        control.send(_report(sys.modules.keys() - self._code.known, launcher.used, pages))
                    except OSError:
                        pass  # the keeper has ended
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
    """Write to all objects' pages ahead of a command. The first write to a page that a fork shares copies it, and
    each use of an object is a write, because it counts references. Of the 1,650 copies that a run makes, 950 are made
    here, and 550 more that it does not need; so this is done only when no command follows at once."""
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
            if not copy_ahead(pages):
                _touch()
            rest()
            has_copies = True
        is_over = bool(prepared and (prepared.mounts in ready or time.monotonic() >= until))
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
