"""The headline job of sandfs: eight attempts at one task, side by side, over 10,000 small files and one of 256 MiB.

Each attempt, in a tree of its own: search every small file for a word, rewrite 50 of them, add 10, delete 5, check that
this is so, list the changes, away with it. What its README does not say is chosen here: small files of 14 kB, as the
space that copies take in its table tells, a hundred in each directory.

Workers are ready before the clock starts: a process each, as agents are; threads for sandfs, whose forks cannot leave
their process. It drops the GIL while it works, so threads are no handicap.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import ModuleType
from typing import Any, Protocol

from bench.measure import Contestant, Finding, Lap, against, command, interleave
from bench.place import Place, Scale, new_place
from bench.rivals import sandfs
from mudroom.session import Session
from mudroom.stage.layers.layer import remove_tree

_ATTEMPTS = 8
_SMALL, _PER_DIRECTORY = 14_000, 100
_REWRITTEN, _ADDED, _DELETED = 50, 10, 5
_WORD = b"needle"
_EVERY = 100
"""One small file in so many holds the word."""
_PATIENCE = 600.0

Worker = Callable[[int], AbstractContextManager[Callable[[], None]]]
"""Given its number, makes ready; what it gives does the attempt."""


class Gate(Protocol):
    """A barrier of threads or of processes."""

    def wait(self, timeout: float | None = None) -> int: ...
    def abort(self) -> None: ...


class Task:
    """Which files an attempt touches."""

    def __init__(self, files: int) -> None:
        self.files = [b"d%04d/f%06d.txt" % (number // _PER_DIRECTORY, number) for number in range(files)]
        self.found = len(self.files[::_EVERY])
        step = files // (_REWRITTEN + _DELETED)
        touched = self.files[::step]
        self.rewritten, self.deleted = touched[:_REWRITTEN], touched[_REWRITTEN : _REWRITTEN + _DELETED]
        self.added = [b"new/f%02d.txt" % number for number in range(_ADDED)]


def attempts(base: bytes, scale: Scale) -> Iterator[Finding]:
    files, large = (10_000, 256 << 20) if scale.tree > 1_000 else (1_000, 16 << 20)
    task, module = Task(files), sandfs()
    with new_place(base, "attempts") as place:
        _fill(place.project, task, large)
        time.sleep(0.1)  # so that the vault's index of directories takes in all that was just made
        _session(place).close()  # vault and index are there now: not to be made by eight at once
        ways = {
            "file tools": _timed("file tools", _processes, _tools(place, task)),
            "commands": _timed("commands", _processes, _commands(place, task)),
            "cp -a --reflink=auto, plain files": _cleared(
                place, _timed("cp -a --reflink=auto, plain files", _processes, _copied_files(place, task))
            ),
            "cp -a --reflink=auto, bare commands": _cleared(
                place, _timed("cp -a --reflink=auto, bare commands", _processes, _copied_commands(place, task))
            ),
        }
        if module is not None:
            ways["sandfs"] = lambda: _by_sandfs(module, place, task)
        found = interleave(list(ways.values()), scale.attempts)
    what = f"{_ATTEMPTS} attempts over {files:,} files and {large >> 20} MiB"
    rivals = against(found, ["sandfs", "cp -a --reflink=auto, plain files"])
    yield Finding("attempts", f"{what}, by file tools", found["file tools"], None, rivals)
    bare = against(found, ["cp -a --reflink=auto, bare commands"])
    yield Finding("attempts", f"{what}, by commands", found["commands"], None, bare)


def _fill(directory: bytes, task: Task, large: int) -> None:
    for number, name in enumerate(task.files):
        lines = b"".join(b"line %d of file %d\n" % (line, number) for line in range(_SMALL // 20))
        path = directory + b"/" + name
        os.makedirs(os.path.dirname(path), exist_ok=True)
        _put(path, lines + (_WORD + b"\n" if number % _EVERY == 0 else b""))
    with open(directory + b"/large.bin", "wb") as stream:
        for _ in range(large >> 20):
            stream.write(os.urandom(1 << 20))


# --- side by side ---


def _timed(name: str, side_by_side: Callable[[Worker], float], worker: Worker) -> Contestant:
    return lambda: [(name, side_by_side(worker))]


def _cleared(place: Place, contestant: Contestant) -> Contestant:
    """What it leaves to be written is not to be paid by whoever comes next."""

    def measure() -> Iterable[Lap]:
        laps = list(contestant())
        command(["sync", "-f", place.root])
        return laps

    return measure


def _processes(worker: Worker) -> float:
    context = multiprocessing.get_context("fork")
    gate = context.Barrier(_ATTEMPTS + 1)
    return _all_of([context.Process(target=_work, args=(worker, number, gate)) for number in range(_ATTEMPTS)], gate)


def _threads(worker: Worker) -> float:
    gate = threading.Barrier(_ATTEMPTS + 1)
    return _all_of([threading.Thread(target=_work, args=(worker, number, gate)) for number in range(_ATTEMPTS)], gate)


def _all_of(workers: Iterable[Any], gate: Gate) -> float:
    """The seconds from when all are ready until all are done. Raises BrokenBarrierError if one has failed."""
    workers = list(workers)
    for one in workers:
        one.start()
    try:
        gate.wait(_PATIENCE)
        started = time.perf_counter()
        gate.wait(_PATIENCE)
        return time.perf_counter() - started
    finally:
        for one in workers:
            one.join()


def _work(worker: Worker, number: int, gate: Gate) -> None:
    try:
        with worker(number) as attempt:
            gate.wait(_PATIENCE)
            attempt()
            gate.wait(_PATIENCE)
    except threading.BrokenBarrierError:
        return  # another one has failed, and says why
    except BaseException:
        gate.abort()
        raise


# --- by file tools ---


class Tools(Protocol):
    """What mudroom's file tools, sandfs and plain files have in common. Paths are relative to the tree."""

    def read(self, path: bytes) -> bytes: ...
    def write(self, path: bytes, content: bytes) -> object: ...
    def delete(self, path: bytes) -> object: ...
    def exists(self, path: bytes) -> bool: ...
    def files(self) -> list[bytes]:
        """All but the large one."""


def _edit(tools: Tools, task: Task) -> None:
    found = sum(_WORD in tools.read(path) for path in tools.files())
    for path in task.rewritten:
        tools.write(path, tools.read(path).replace(b"line", b"row"))
    for path in task.added:
        tools.write(path, b"new\n")
    for path in task.deleted:
        tools.delete(path)
    good = found == task.found and all(b"row" in tools.read(path) for path in task.rewritten)
    good = good and all(tools.read(path) == b"new\n" for path in task.added)
    if not good or any(tools.exists(path) for path in task.deleted):
        raise RuntimeError("an attempt did not do what it should")


def _expect(task: Task, changed: Iterable[bytes]) -> None:
    """sandfs lists files, mudroom the new directory, too."""
    if set(changed) - {b"new"} != {*task.rewritten, *task.added, *task.deleted}:
        raise RuntimeError("the changes that are listed are not those that were made")


def _tools(place: Place, task: Task) -> Worker:
    @contextmanager
    def worker(number: int) -> Iterator[Callable[[], None]]:
        with _session(place) as session:
            yield lambda: attempt(session, f"attempt-{number}")

    def attempt(session: Session, name: str) -> None:
        session.forks.new(name)
        _edit(MudroomTools(session, name), task)
        _expect(task, (change.path for change in session.changes.of(name).changes))
        session.forks.discard(name)

    return worker


class MudroomTools:
    def __init__(self, session: Session, name: str) -> None:
        files = self._files = session.forks.files(name)
        self.read, self.write, self.delete = files.read, files.write, files.delete

    def exists(self, path: bytes) -> bool:
        return self._files.look(path) is not None

    def files(self) -> list[bytes]:
        return [os.fsencode(path) for path in self._files.glob("d*/*")]


def _copied_files(place: Place, task: Task) -> Worker:
    @contextmanager
    def worker(number: int) -> Iterator[Callable[[], None]]:
        copy = place.root + b"/copy-%d" % number
        yield lambda: attempt(copy)

    def attempt(copy: bytes) -> None:
        command(["cp", "-a", "--reflink=auto", place.project, copy])
        _edit(PlainTools(copy), task)
        remove_tree(copy)

    return worker


class PlainTools:
    """They know of no changes; nobody lists them."""

    def __init__(self, root: bytes) -> None:
        self._root = root + b"/"

    def read(self, path: bytes) -> bytes:
        with open(self._root + path, "rb") as stream:
            return stream.read()

    def write(self, path: bytes, content: bytes) -> None:
        os.makedirs(os.path.dirname(self._root + path), exist_ok=True)
        _put(self._root + path, content)

    def delete(self, path: bytes) -> None:
        os.unlink(self._root + path)

    def exists(self, path: bytes) -> bool:
        return os.path.exists(self._root + path)

    def files(self) -> list[bytes]:
        below = [name for name in os.listdir(self._root) if name.startswith(b"d")]
        return [name + b"/" + one for name in below for one in os.listdir(self._root + name)]


def _by_sandfs(module: ModuleType, place: Place, task: Task) -> Iterable[Lap]:
    """A workspace anew each time: it keeps all it has read, for all of its forks."""
    base = module.Workspace()
    base.mount("/p", module.DirSource(os.fsdecode(place.project)))

    @contextmanager
    def worker(_number: int) -> Iterator[Callable[[], None]]:
        yield attempt

    def attempt() -> None:
        fork = base.fork()
        _edit(SandfsTools(fork), task)
        _expect(task, (change.path.removeprefix("/p/").encode() for change in fork.changes()))

    return [("sandfs", _threads(worker))]


class SandfsTools:
    def __init__(self, workspace: Any) -> None:
        self._workspace = workspace

    def read(self, path: bytes) -> bytes:
        content: bytes = self._workspace.read("/p/" + path.decode())
        return content

    def write(self, path: bytes, content: bytes) -> None:
        self._workspace.write("/p/" + path.decode(), content)

    def delete(self, path: bytes) -> None:
        self._workspace.remove("/p/" + path.decode())

    def exists(self, path: bytes) -> bool:
        there: bool = self._workspace.exists("/p/" + path.decode())
        return there

    def files(self) -> list[bytes]:
        below = [entry.name for entry in self._workspace.list("/p") if entry.kind == "dir"]
        return [f"{name}/{one.name}".encode() for name in below for one in self._workspace.list("/p/" + name)]


# --- by commands ---

_SEARCH = b"grep -rlF %b d* | wc -l" % _WORD
_EDIT = b"sed -i s/line/row/ %b && mkdir -p new && for f in %b; do echo new > $f; done && rm %b"
_CHECK = b"grep -lF row %b | wc -l; cat %b | wc -l; for f in %b; do test ! -e $f || echo $f; done"


def _scripts(task: Task) -> tuple[bytes, bytes, bytes]:
    touched = tuple(b" ".join(paths) for paths in (task.rewritten, task.added, task.deleted))
    return _SEARCH, _EDIT % touched, _CHECK % touched


def _expected(task: Task) -> list[bytes]:
    return [b"%d\n" % task.found, b"", b"%d\n%d\n" % (_REWRITTEN, _ADDED)]


def _commands(place: Place, task: Task) -> Worker:
    scripts = _scripts(task)

    @contextmanager
    def worker(number: int) -> Iterator[Callable[[], None]]:
        with _session(place) as session:
            session.run([b"true"], fork=f"ready-{number}")  # its launcher is up
            session.forks.discard(f"ready-{number}")
            yield lambda: attempt(session, f"attempt-{number}")

    def attempt(session: Session, name: str) -> None:
        session.forks.new(name)
        results = [session.run([b"sh", b"-c", script], fork=name) for script in scripts]
        if [result.stdout for result in results] != _expected(task):
            raise RuntimeError(f"an attempt did not do what it should: {results}")
        _expect(task, (change.path for change in results[-1].changeset.changes))
        session.forks.discard(name)

    return worker


def _copied_commands(place: Place, task: Task) -> Worker:
    scripts = _scripts(task)

    @contextmanager
    def worker(number: int) -> Iterator[Callable[[], None]]:
        copy = place.root + b"/copy-%d" % number
        yield lambda: attempt(copy)

    def attempt(copy: bytes) -> None:
        command(["cp", "-a", "--reflink=auto", place.project, copy])
        run = [subprocess.run([b"sh", b"-c", script], cwd=copy, check=True, capture_output=True) for script in scripts]
        if [one.stdout for one in run] != _expected(task):
            raise RuntimeError("an attempt did not do what it should")
        remove_tree(copy)

    return worker


def _session(place: Place) -> Session:
    session = Session.open(place.project, state=place.state, home=place.home, environ=place.environ)
    session.forks.secrets.look()
    return session


def _put(path: bytes, content: bytes) -> None:
    with open(path, "wb") as stream:
        stream.write(content)
