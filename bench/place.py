"""Where a benchmark works: a project, a home and a state directory of its own, and the trees that fill a project."""

from __future__ import annotations

import os
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from bench.measure import command
from mudroom.core.result import Result
from mudroom.session import Session
from mudroom.stage.layers.layer import remove_tree

_CLOCK_REALTIME_COARSE = 5  # linux/time.h
_PER_DIRECTORY = 100
BWRAP = ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"]


class Scale(NamedTuple):
    """How much of everything."""

    commands: int
    """Rounds of commands that take milliseconds."""
    cold: int
    """Rounds of whole processes."""
    tree: int
    """Files of the tree that is looked through."""
    looks: int
    """Rounds of looking through it."""
    added: int
    modified: int
    """Files that an apply brings."""
    applies: int
    """Rounds of that."""
    projects: tuple[int, ...]
    """Sizes of the projects that are forked."""
    stacks: tuple[int, ...]
    """Sizes of those with checkpoints, too."""
    stack_rounds: int
    """Rounds of that."""
    attempts: int
    """Rounds of eight attempts at once."""


FULL = Scale(200, 30, 20_000, 7, 40_000, 10_000, 3, (10, 10_000, 100_000), (10, 10_000, 1_000_000), 25, 3)
QUICK = Scale(20, 5, 1_000, 2, 1_000, 200, 2, (10, 1_000), (10, 1_000, 10_000), 10, 1)


class Place:
    def __init__(self, root: bytes) -> None:
        self.root = root
        self.project, self.home, self.state = (root + b"/" + name for name in (b"project", b"home", b"state"))
        self.environ = {
            b"PATH": os.environb.get(b"PATH", b"/usr/bin:/bin"),
            b"HOME": self.home,
            b"LANG": b"C.UTF-8",
            b"MUDROOM_STATE": self.state,
            b"MUDROOM_KEEPER": b"0",
        }
        os.mkdir(self.project)
        os.mkdir(self.home)

    @contextmanager
    def session(self, **options: Any) -> Iterator[Session]:
        tick()
        with Session.open(self.project, state=self.state, home=self.home, environ=self.environ, **options) as session:
            session.vault.lock.acquire("bench", lambda holder: None)
            try:
                yield session
            finally:
                session.vault.lock.release()


@contextmanager
def new_place(base: bytes, name: str) -> Iterator[Place]:
    """A place below ``base`` that is gone afterwards."""
    root = base + b"/" + name.encode()
    os.mkdir(root)
    try:
        yield Place(root)
    finally:
        remove_tree(root)


def tick() -> None:
    """Wait until file systems stamp a later time than now: what was written before is then older than what starts
    after. At most 4 ms."""
    now = time.time_ns()
    while time.clock_gettime_ns(_CLOCK_REALTIME_COARSE) <= now:
        pass


def run(session: Session, *argv: str | bytes) -> Result:
    """Run in a new fork. Raises RuntimeError if the command fails or was not staged by the overlay."""
    return run_in(session, None, *argv)


def run_in(session: Session, fork: str | None, *argv: str | bytes) -> Result:
    """Run in this fork, as ``run`` does; None: a new one."""
    result = session.run([os.fsencode(word) for word in argv], fork=fork)
    if result.exit_code:
        raise RuntimeError(f"{argv[0]!r} failed in the sandbox: {result.stderr.decode(errors='replace')}")
    if result.notes:
        raise RuntimeError(f"this machine gives less than is to be measured: {'; '.join(result.notes)}")
    return result


def discard(session: Session, result: Result) -> None:
    session.vault.discard(session.vault.fork(result.fork))


def fill(directory: bytes, files: int) -> None:
    """Small text files of different content, a hundred in each directory."""
    for start in range(0, files, _PER_DIRECTORY):
        below = directory + b"/d%04d" % (start // _PER_DIRECTORY)
        os.makedirs(below)
        for number in range(start, min(start + _PER_DIRECTORY, files)):
            with open(below + b"/f%06d.txt" % number, "wb") as stream:
                stream.write(b"file %d\n" % number * (4 + number % 60))


def fill_empty(directory: bytes, files: int) -> None:
    """The same names, nothing in them: a million take half a minute, and no blocks."""
    for start in range(0, files, _PER_DIRECTORY):
        below = directory + b"/d%04d" % (start // _PER_DIRECTORY)
        os.makedirs(below)
        at = os.open(below, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for number in range(start, min(start + _PER_DIRECTORY, files)):
                os.mknod(b"f%06d.txt" % number, stat.S_IFREG | 0o644, dir_fd=at)
        finally:
            os.close(at)


def make_repository(directory: bytes, environ: dict[bytes, bytes]) -> None:
    """Commit all that is in ``directory``; its index is written later than the files, so that git believes it."""
    who = ["-c", "user.name=bench", "-c", "user.email=bench@localhost"]
    command(["git", "init", "-q"], directory, environ)
    command(["git", "config", "gc.auto", "0"], directory, environ)  # no tidying up behind our back
    command(["git", "add", "-A"], directory, environ)
    command(["git", *who, "commit", "-q", "-m", "bench"], directory, environ)
    command(["git", "gc", "-q"], directory, environ)  # in packs, as after a clone
    time.sleep(1.1)  # git compares whole seconds in places
    command(["git", "update-index", "-q", "--really-refresh", "--force-write-index"], directory, environ)


def missing(*programs: str) -> list[str]:
    return [program for program in programs if shutil.which(program) is None]


def have(program: str) -> bool:
    return not missing(program)
