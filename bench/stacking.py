"""Fork, checkpoint, rollback and discard by the size of the project, beside what else gives one a tree to go back to:
``cp -a --reflink``, ``git worktree``, a btrfs snapshot, and the package sandfs; and eight attempts over one tree."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

from bench.measure import (
    Against,
    Contestant,
    Finding,
    Lap,
    Series,
    against,
    at_most,
    at_most_times,
    clocked,
    command,
    interleave,
    seconds_of,
)
from bench.place import Place, Scale, fill, have, make_repository, new_place
from mudroom.session import Session

_Where = TypeVar("_Where", Session, Place)

_ROUNDS = 15
_COPIED = 10_000
"""Larger projects are not copied and not committed: it takes too long, and the answer is known by then."""
_FLAT = at_most_times(1.5)
_ATTEMPTS = 8
_EDITED = 20
"""Files that an attempt reads and changes."""
_OPERATIONS = ("fork", "checkpoint", "fork of a fork", "rollback", "discard")


def stacks(base: bytes, scale: Scale) -> Iterator[Finding]:
    sizes = (*scale.projects[:-1], 1_000_000) if scale.projects[-1] >= 100_000 else scale.projects
    with ExitStack() as stack:
        contestants: list[Contestant] = []
        for size in sizes:
            place = stack.enter_context(new_place(base, f"stack-{size}"))
            fill(place.project, size)
            if have("git") and size <= _COPIED:
                make_repository(place.project, place.environ)
            session = stack.enter_context(place.session())
            contestants.append(_ours(session, size))
            contestants += _others(place, size) if size <= _COPIED else []
            contestants += stack.enter_context(_btrfs(base, place, size)) if size <= _COPIED else []
            contestants += _sandfs(place, size)
        found = interleave(contestants, _ROUNDS)
    for operation in _OPERATIONS:
        for size in sizes:
            yield _finding(found, operation, size, sizes[0])


def _finding(found: dict[str, Series], operation: str, size: int, smallest: int) -> Finding:
    rivals = ("cp -a --reflink=auto", "git worktree add", "btrfs snapshot", "sandfs fork")
    names = [f"{rival}, {size}" for rival in rivals] if operation in ("fork", "checkpoint") else []
    shown = tuple(other._replace(name=other.name.rpartition(",")[0]) for other in against(found, names))
    if size != smallest:
        shown = (*shown, Against(f"the same with {smallest} files", found[f"{operation} {smallest}"], _FLAT))
    ours = found[f"{operation} {size}"]
    return Finding("stack", f"{operation}, a project of {size:,} files", ours, at_most(0.005, "5 ms"), shown)


def _ours(session: Session, size: int) -> Contestant:
    """Each with a change in the fork, so that there is something to seal and to drop."""

    def measure() -> Iterator[Lap]:
        yield f"fork {size}", seconds_of(lambda: session.new_fork("bench"))
        session.files("bench").write("d0000/changed", "one\n")
        session.flush("bench")
        yield f"checkpoint {size}", seconds_of(lambda: session.checkpoint("bench", "point"))
        yield f"fork of a fork {size}", seconds_of(lambda: session.new_fork("child", parent="bench"))
        session.files("bench").write("d0000/changed", "two\n")
        session.flush("bench")
        yield f"rollback {size}", seconds_of(lambda: session.rollback("bench", "point"))
        yield f"discard {size}", seconds_of(lambda: session.discard("child"))
        session.discard("bench")

    return measure


def _others(place: Place, size: int) -> list[Contestant]:
    copy = place.root + b"/copy"

    def copied() -> Iterator[Lap]:
        copying: list[str | bytes] = ["cp", "-a", "--reflink=auto", place.project, copy]
        yield f"cp -a --reflink=auto, {size}", seconds_of(lambda: command(copying))
        command(["rm", "-rf", copy])

    def worktree() -> Iterator[Lap]:
        git = [b"git", b"-C", place.project, b"worktree"]
        add = [*git, b"add", b"-q", b"--detach", copy]
        yield f"git worktree add, {size}", seconds_of(lambda: command(add, env=place.environ))
        command([*git, b"remove", b"--force", copy], env=place.environ)

    return [copied, worktree] if have("git") else [copied]


@contextmanager
def _btrfs(base: bytes, place: Place, size: int) -> Iterator[list[Contestant]]:
    """On a loop mount of its own, with the same tree; only root may make one."""
    if os.geteuid() or not have("mkfs.btrfs"):
        yield []
        return
    image, mounted = base + b"/btrfs-%d.img" % size, base + b"/btrfs-%d" % size
    os.mkdir(mounted)
    with open(image, "wb") as stream:
        os.truncate(stream.fileno(), 2 << 30)
    command(["mkfs.btrfs", "-q", image])
    command(["mount", "-o", "loop", image, mounted])
    try:
        command(["btrfs", "subvolume", "create", mounted + b"/tree"])
        command(["cp", "-a", place.project + b"/.", mounted + b"/tree"])
        command(["sync", "-f", mounted])

        def snapshot() -> Iterator[Lap]:
            taking: list[str | bytes] = ["btrfs", "subvolume", "snapshot", mounted + b"/tree", mounted + b"/copy"]
            yield f"btrfs snapshot, {size}", seconds_of(lambda: command(taking))
            command(["btrfs", "subvolume", "delete", mounted + b"/copy"])

        yield [snapshot]
    finally:
        command(["umount", mounted])
        os.unlink(image)


def _module() -> Any:
    """The package sandfs, if it is installed."""
    try:
        import sandfs  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        return None
    return sandfs


def _sandfs(place: Place, size: int) -> list[Contestant]:
    module = _module()
    if module is None:
        return []
    workspace = module.Workspace()
    workspace.mount("/p", module.DirSource(os.fsdecode(place.project)))
    before = workspace.fork()
    before.write("/p/d0000/changed", b"one\n")
    return [lambda: [(f"sandfs fork, {size}", seconds_of(before.fork))]]


def attempts(base: bytes, scale: Scale) -> Iterator[Finding]:
    """Eight attempts, each in a copy of its own of 10,000 files and 256 MiB: read some, change them, list the changes,
    away with it."""
    files = 10_000 if scale.tree > 1_000 else 500
    with new_place(base, "attempts") as place:
        _heavy(place.project, files, 256 << 20 if files == 10_000 else 16 << 20)
        names = [b"d%04d/f%06d" % (number // 100, number) for number in range(0, files, files // _EDITED)][:_EDITED]
        with place.session() as session:
            ways: dict[str, Callable[[], object]] = {
                "file tools": lambda: _again(_by_tools, session, names),
                "commands": lambda: _again(_by_command, session, names),
                "cp -a --reflink=auto": lambda: _again(_by_copy, place, names),
            }
            if _module() is not None:
                ways["sandfs"] = lambda: _by_sandfs(place, names)
            found = interleave([_timed(name, way) for name, way in ways.items()], 3)
    rivals = against(found, ["cp -a --reflink=auto", "sandfs"])
    what = f"{_ATTEMPTS} attempts over {files:,} files"
    yield Finding("stack", f"{what}, by file tools", found["file tools"], None, rivals)
    yield Finding("stack", f"{what}, by a command each", found["commands"], None, rivals)


def _again(attempt: Callable[[_Where, list[bytes]], None], where: _Where, names: list[bytes]) -> None:
    for _ in range(_ATTEMPTS):
        attempt(where, names)


def _timed(name: str, way: Callable[[], object]) -> Contestant:
    return lambda: [(name, clocked(way)[0])]


def _heavy(directory: bytes, files: int, size: int) -> None:
    content = os.urandom(size // files)
    for number in range(files):
        path = directory + b"/d%04d/f%06d" % (number // 100, number)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as stream:
            stream.write(content)


def _by_tools(session: Session, names: list[bytes]) -> None:
    session.new_fork("attempt")
    files = session.files("attempt")
    for name in names:
        files.write(name, files.read(name) + b"changed\n")
    if len(session.changes("attempt").changes) != len(names):
        raise RuntimeError("not all changes are there")
    session.discard("attempt")


def _by_command(session: Session, names: list[bytes]) -> None:
    script = b"for f in " + b" ".join(names) + b"; do echo changed >> $f; done"
    result = session.run([b"sh", b"-c", script], fork="attempt")
    if len(result.changeset.changes) != len(names):
        raise RuntimeError("not all changes are there")
    session.discard("attempt")


def _by_copy(place: Place, names: list[bytes]) -> None:
    copy = place.root + b"/copy"
    command(["cp", "-a", "--reflink=auto", place.project, copy])
    for name in names:
        with open(copy + b"/" + name, "ab") as stream:
            stream.write(b"changed\n")
    shutil.rmtree(copy)


def _by_sandfs(place: Place, names: list[bytes]) -> None:
    module = _module()
    workspace = module.Workspace()
    workspace.mount("/p", module.DirSource(os.fsdecode(place.project)))
    for _ in range(_ATTEMPTS):
        attempt = workspace.fork()
        for name in names:
            path = "/p/" + os.fsdecode(name)
            attempt.write(path, bytes(attempt.read(path)) + b"changed\n")
        if len(list(attempt.changes())) != len(names):
            raise RuntimeError("not all changes are there")
