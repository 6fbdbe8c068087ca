"""A fork as a sandbox for another framework's interface: commands and files, as in a container.

    with ForkWorkspace("proj") as workspace:
        workspace.run("make test", timeout=60)
        print(workspace.diff())
        workspace.apply()

The modules beside this one translate to a vendor's names; all behaviour is here.

Rules of this file:
1. A command that waits keeps one sandbox for all commands of the workspace: ``/tmp`` and background commands last until
   ``rest``, ``apply`` or ``close``. If the policy refuses that command, each command has a sandbox of its own.
2. A file is read and written by a command in the sandbox. So a link, a fifo or ``..`` leads where it leads there, and
   permissions and the policy hold as for the agent's own commands.
3. Nothing lands before ``apply``.
"""

from __future__ import annotations

import errno
import functools
import os
import posixpath
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from mudroom import api
from mudroom.errors import CommandNotStarted, Refused, Unsupported, UsageError, file_error
from mudroom.library.argument import variables_of
from mudroom.library.worker import in_thread
from mudroom.typing import TYPE_CHECKING, NamedTuple, ParamSpec, TypeVar, Unpack

if TYPE_CHECKING:
    from mudroom.api import Applied, ForkHandle, OutputChunk, Room
    from mudroom.library.argument import Word
    from mudroom.library.background_handle import BackgroundHandle
    from mudroom.library.opening import RoomOptions
    from mudroom.library.question import Ask
    from mudroom.library.value import ChangeList

    class WorkspaceOptions(RoomOptions, total=False):
        """Options for ``ForkWorkspace``."""

        fork: str | None
        cwd: str
        ask: Ask | None


P = ParamSpec("P")
T = TypeVar("T")

OUTPUT = 10 << 20
"""Bytes of each output stream that are kept."""
FILE = 100 << 20
"""Bytes of the largest file that is read."""
FILE_TIME = 120.0
"""Seconds for reading or writing a file: a fifo has no end."""
HIDDEN = ("-u", "MUDROOM_VALUES")
"""Options of env(1) by which the journal hides the values after them (``core/text/command_secret.py``)."""
WAITING, EVER = ("sleep", "infinity"), 1e9
TIMED_OUT, NOT_EXECUTABLE = 124, 126
"""Exit codes as of timeout(1) and sh(1). A refused command has the second."""


class EndedCommand(NamedTuple):
    """A command that has ended, or that has not started."""

    exit_code: int
    """124: out of time, 125: cannot be run here, 126: refused or not executable, 127: not found."""
    stdout: bytes
    stderr: bytes
    """With the reason of a refusal, and what the network gate has refused."""
    output: bytes
    """Both, in the order in which they came."""
    truncated: bool = False
    timed_out: bool = False
    started: bool = True
    refused: bool = False

    @property
    def text(self) -> str:
        return self.output.decode("utf-8", "replace")


class FoundEntry(NamedTuple):
    """A directory entry in the sandbox."""

    path: str
    """Relative to the directory that was listed; its name if it was asked for alone."""
    kind: str
    """``file``, ``directory``, ``link`` or ``other``."""
    size: int
    mode: int
    """Permission bits."""
    modified: float
    """Seconds since 1970."""
    owner: str
    group: str
    target: str
    """Of a link."""


_PRINTED = r"%P\0%f\0%y\0%s\0%m\0%T@\0%u\0%g\0%l\0"
_FIELDS = _PRINTED.count(r"\0")
_KINDS = {"f": "file", "d": "directory", "l": "link"}


def _entry(words: Sequence[bytes]) -> FoundEntry:
    """Return the entry of one line of find(1)."""
    below, name, kind, size, mode, modified, *texts = map(os.fsdecode, words)
    owner, group, target = texts
    kind = _KINDS.get(kind, "other")
    entry = FoundEntry(below or name, kind, int(size), int(mode, 8), float(modified), owner, group, target)
    datetime.fromtimestamp(entry.modified, UTC)  # ValueError and OverflowError if it is no time
    return entry


class _Output:
    """Collects output. Used by the thread that runs the command."""

    def __init__(self, limit: int, then: Callable[[str, str], object] | None) -> None:
        self._limit, self._then = limit, then
        self.streams = {"stdout": bytearray(), "stderr": bytearray()}
        self.both = bytearray()
        self.is_truncated = False

    def hear(self, chunk: OutputChunk) -> None:
        stream = self.streams[chunk.stream]
        data = chunk.data[: self._limit - len(stream)]
        self.is_truncated |= len(data) < len(chunk.data)
        stream += data
        self.both += data
        if self._then is not None:
            self._then(chunk.stream, chunk.text)

    def ended(self, code: int, said: str, **kind: bool) -> EndedCommand:
        """``said``: mudroom's own lines, for stderr."""
        words = said.encode("utf-8", "surrogateescape")
        out, err = (bytes(self.streams[name]) for name in ("stdout", "stderr"))
        return EndedCommand(code, out, err + words, bytes(self.both) + words, self.is_truncated, **kind)


class ForkWorkspace:
    """A fork of ``project``, made if there is none of this name. Thread-safe: ``_lock`` guards ``_waiting``,
    ``_waits``, ``_started`` and ``_active``.

    The policy judges the commands as those of ``agent``; a question is refused, and waits for ``mudroom approve``.
    ``cwd``: where commands start, relative to the project. ``options``: as for ``mudroom.open``. ``room``: an open one,
    instead of ``project`` and ``options``.
    """

    def __init__(
        self,
        project: Word = ".",
        *,
        fork: str | None = None,
        cwd: str = "",
        ask: Ask | None = None,
        room: Room | None = None,
        **options: Unpack[RoomOptions],
    ) -> None:
        options["agent"] = options.get("agent") or "agent"
        self.room = room or api.open(project, ask=ask, **options)
        try:
            self.is_new = fork is None or all(row.name != fork for row in self.room.forks())
            self.fork = self.room.fork(fork)
            self.root = self.room.project
            self.cwd = posixpath.join(self.root, cwd)
            self._lock = threading.Lock()
            self._waiting: BackgroundHandle | None = None
            self._waits = True
            self._started: list[BackgroundHandle] = []
            """With ``_waiting``."""
            self._active = 0
            self._end = weakref.finalize(self, _forget, self.room, self.fork, self.is_new, self._started, os.getpid())
            self.fork.exists("")  # file tools that are used before a command need not wait for its end
        except BaseException:
            self.room.close()
            raise

    def __enter__(self) -> ForkWorkspace:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<mudroom workspace {self.fork.name} of {self.root}>"

    # --- commands ---

    def run(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        input: str | bytes | None = None,  # noqa: A002
        limit: int = OUTPUT,
        on_output: Callable[[str, str], object] | None = None,
    ) -> EndedCommand:
        """Run a command to its end. A text is a line for sh. ``timeout`` 0 and None: the workspace's. ``on_output`` is
        called with the stream's name and a text."""
        self._hold()
        output = _Output(limit, on_output)
        with self._lock:
            self._active += 1
        try:
            argv, place = self._at(command, cwd, env)
            result = self.fork.run(argv, cwd=place, timeout=timeout or None, input=input, on_output=output.hear)
        except (CommandNotStarted, UsageError) as error:
            if self.room.is_closed:
                raise
            return output.ended(error.exit_code, f"{error.message}\n", started=False)
        finally:
            with self._lock:
                self._active -= 1
        if not result.ran:
            return output.ended(NOT_EXECUTABLE, f"mudroom: refused: {result.reason}\n", started=False, refused=True)
        said = "".join(f"mudroom: {denial}\n" for denial in result.denials if denial.kind == "network")
        code = TIMED_OUT if result.timed_out else result.exit_code
        return output.ended(code, said, timed_out=result.timed_out)

    def start(
        self, command: str | Sequence[str], *, cwd: str | None = None, env: Mapping[str, str] | None = None
    ) -> BackgroundHandle:
        """Start a command that runs beside others, until its end or the workspace's."""
        self._hold()
        argv, place = self._at(command, cwd, env)
        with self._lock:
            self._started.append(self.fork.start(argv, cwd=place, timeout=EVER))
            return self._started[-1]

    def _at(
        self, command: str | Sequence[str], cwd: str | None, env: Mapping[str, str] | None
    ) -> tuple[list[str], str]:
        """Return argv, and a directory in the project. env(1) sets variables, because a command under other settings
        cannot join the sandbox, and goes to directories outside the project. The journal keeps only the
        variables' names. Raise UsageError for a name that is none."""
        argv = ["sh", "-c", command] if isinstance(command, str) else [str(word) for word in command]
        place = posixpath.normpath(posixpath.join(self.cwd, cwd or ""))
        is_inside = place == self.root or place.startswith(self.root.rstrip("/") + "/")
        options = [] if is_inside else ["--chdir", place]
        variables = [os.fsdecode(name + b"=" + value) for name, value in variables_of(env or {}, "env")]
        options += [*HIDDEN, *variables] if variables else []
        return ["env", *options, *argv] if options else argv, place if is_inside else self.root

    def _hold(self) -> None:
        with self._lock:
            if not self._waits or (self._waiting is not None and self._waiting.poll() is None):
                return
            try:
                self._waiting = self.fork.start(WAITING, timeout=EVER)
                self._started.append(self._waiting)
            except (Refused, Unsupported):
                self._waits = False

    def rest(self) -> None:
        """End the background commands, and what is in ``/tmp``, once commands of other threads have ended. The next
        command begins a new sandbox."""
        with self._lock:
            _ended(self._started)
            self._waiting = None

    # --- files ---

    def path(self, path: str | os.PathLike[str]) -> str:
        """Return an absolute path in the sandbox. A relative one begins at the directory of the commands."""
        return posixpath.join(self.cwd, os.fspath(path))

    def read(self, path: str | os.PathLike[str], limit: int = FILE) -> bytes:
        """Raise FileNotFoundError, IsADirectoryError … as ``open`` does, and OSError (EFBIG) above ``limit`` bytes."""
        return self._file(["head", f"--bytes={limit + 1}", "--", self.path(path)], path, limit=limit).stdout

    def write(self, path: str | os.PathLike[str], content: str | bytes) -> None:
        """Create or replace a file; missing directories are created."""
        place = self.path(path)
        written = ["dd", f"of={place}", "status=none", "bs=1M"]
        try:
            self._file(written, path, content)
        except FileNotFoundError:
            self.make_directory(posixpath.dirname(place))
            self._file(written, path, content)

    def make_directory(self, path: str | os.PathLike[str]) -> None:
        """Create a directory and those above it. It may exist."""
        self._file(["mkdir", "-p", "--", self.path(path)], path)

    def remove(self, path: str | os.PathLike[str], *, recursive: bool = False) -> None:
        self._file(["rm", "-r" if recursive else "-d", "--", self.path(path)], path)

    def move(self, old: str | os.PathLike[str], new: str | os.PathLike[str]) -> None:
        self._file(["mv", "-f", "-T", "--", self.path(old), self.path(new)], old)

    def entry(self, path: str | os.PathLike[str]) -> FoundEntry:
        """Return the entry at a path, without following a link there."""
        return self._entries(path, self.path(path), 0, 0)[0]

    def entries(self, path: str | os.PathLike[str], depth: int = 1) -> list[FoundEntry]:
        """Return a directory's entries, sorted by path; ``depth``: with those of directories in it."""
        return sorted(self._entries(path, self.path(path) + "/", 1, depth))

    def _entries(self, path: str | os.PathLike[str], place: str, least: int, most: int) -> list[FoundEntry]:
        depths = ["-mindepth", str(least), "-maxdepth", str(most)]
        ended = self._file(["find", place, *depths, "-printf", _PRINTED], path, limit=FILE)
        *words, _rest = ended.stdout.split(b"\0")
        try:
            found = [_entry(words[first : first + _FIELDS]) for first in range(0, len(words), _FIELDS)]
        except (ValueError, OverflowError, OSError):
            found = []
        if not found and (least == 0 or words):
            raise file_error(OSError(errno.EIO, "what find(1) has printed is not a listing", os.fspath(path)))
        return found

    def _file(
        self, argv: list[str], path: str | os.PathLike[str], content: str | bytes = b"", limit: int = OUTPUT
    ) -> EndedCommand:
        ended = self.run(argv, cwd="/", env={"LC_ALL": "C"}, timeout=FILE_TIME, input=content, limit=limit)
        if ended.timed_out:
            number, why = errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)
        elif ended.truncated:
            number, why = errno.EFBIG, f"larger than {limit} bytes"
        elif ended.exit_code == 0:
            return ended
        else:
            why = ended.stderr.decode("utf-8", "replace").strip().rpartition("\n")[2]
            number = next((number for number in _FAILURES if why.endswith(os.strerror(number))), errno.EIO)
            if not ended.started:
                number = errno.EACCES
            why = os.strerror(number) if number != errno.EIO and ended.started else why
        raise file_error(OSError(number, why, os.fspath(path)))

    # --- what has changed ---

    def changes(self) -> ChangeList:
        return self.fork.changes()

    def diff(self, paths: Word | Sequence[Word] = ()) -> str:
        return self.fork.diff(paths)

    def apply(self, paths: Word | Sequence[Word] = (), *, verify: str | Sequence[str] | None = None) -> Applied:
        """End all commands, and merge the fork's changes into the project."""
        self.rest()
        return self.fork.apply(paths, verify=verify)

    def discard(self) -> None:
        """End all commands, drop the fork and close the workspace."""
        self._close(is_dropped=True)

    def close(self) -> None:
        """End all commands. The fork stays, for ``mudroom diff`` and ``mudroom apply``, unless it was made here and has
        no changes. Harmless when repeated."""
        self._close(is_dropped=False)

    def _close(self, *, is_dropped: bool) -> None:
        if self._end.detach() is None:
            return
        if self._active:
            self.room.close()  # which ends the commands of other threads; the fork stays
        else:
            _close(self.room, self.fork, is_dropped, self.is_new, self._started)


def _close(room: Room, fork: ForkHandle, is_dropped: bool, is_new: bool, started: list[BackgroundHandle]) -> None:
    try:
        _ended(started)
        is_there = any(row.name == fork.name for row in room.forks())
        if is_there and (is_dropped or (is_new and not fork.changes() and not fork.effects())):
            fork.discard()
    finally:
        room.close()


def _ended(started: list[BackgroundHandle]) -> None:
    while started:
        started.pop().end(0.1)


def _forget(room: Room, fork: ForkHandle, is_new: bool, started: list[BackgroundHandle], pid: int) -> None:
    """Close a workspace that nothing refers to, or that its program has not closed. In another thread, because a
    collection may come while this one holds a lock; at the program's end there are no more threads."""
    if room.is_closed or os.getpid() != pid:
        return
    if threading.main_thread().is_alive():
        arguments = (room, fork, False, is_new, started)
        threading.Thread(target=_close, args=arguments, name="mudroom forgotten").start()
    else:
        _close(room, fork, False, is_new, started)


_FAILURES = (
    errno.ENOENT, errno.EISDIR, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.EEXIST, errno.ENOTEMPTY, errno.ELOOP,
    errno.ENOSPC, errno.EROFS, errno.ENAMETOOLONG, errno.ENXIO,
)  # fmt: skip


async def aside(call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return the result of a workspace's method, run in a thread. Cancelling the task ends its command."""
    return await in_thread(functools.partial(call, *args, **kwargs), api.Cancellation())
