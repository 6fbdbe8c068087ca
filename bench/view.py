"""Programs that look through a tree, in the view and outside of it.

Timed by a small loop next to the program, inside the sandbox too: what a sandbox costs to start is not in it. The
first command of a fork has a mount whose caches are empty, so the first time is told apart from the ones after it. A
fork that has run some commands keeps its mount: there the first time of a command is taken, when nobody has changed
the project since the fork's command before.

``PlainOverlay`` is the kernel's part: the same overlay, and nothing else of what mudroom does.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import TracebackType

from bench.measure import Contestant, Finding, Lap, against, at_most_times, interleave, unmeasured
from bench.place import Place, Scale, discard, fill, have, make_repository, new_place, run, run_in
from mudroom.session import Session

_TIMES = 5
BEFORE = 6
"""Commands after which a fork keeps its mount, and its project is watched."""
_TURNS = ("first in its mount", "again", "in a mount that stands")
LOOP = """
import subprocess, sys, time
for _ in range(int(sys.argv[1])):
    started = time.perf_counter()
    subprocess.run(sys.argv[2:], stdout=subprocess.DEVNULL, check=True)
    print(time.perf_counter() - started)
"""
WRITE = """
import os, sys
for number in range(int(sys.argv[1])):
    with open(f"new-{number}", "wb") as stream:
        stream.write(b"x" * 1000)
for number in range(int(sys.argv[1])):
    os.unlink(f"new-{number}")
"""
PYTHON = [sys.executable, "-I", "-S", "-c"]
_OVERLAY = """
import ctypes, json, os, subprocess, sys
NEWNS, NEWUSER, REC, PRIVATE, NOSUID, NODEV = 0x20000, 0x10000000, 0x4000, 1 << 18, 2, 4
libc, (project, upper, work) = ctypes.CDLL(None, use_errno=True), map(os.fsencode, sys.argv[1:])
def check(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
user, group = os.geteuid(), os.getegid()
check(libc.unshare(NEWNS | (NEWUSER if user else 0)))
if user:
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with open("/proc/self/" + name, "w") as stream:
            stream.write(text)
check(libc.mount(b"none", b"/", None, ctypes.c_ulong(REC | PRIVATE), None))
options = b"lowerdir=%b,upperdir=%b,workdir=%b,userxattr,volatile" % (project, upper, work)
check(libc.mount(b"overlay", project, b"overlay", ctypes.c_ulong(NOSUID | NODEV), options))
os.chdir(project)
for line in sys.stdin:
    done = subprocess.run(json.loads(line), stdout=subprocess.PIPE, check=True)
    print(done.stdout.decode().strip(), flush=True)
"""


class PlainOverlay:
    """An overlay of the kernel over a tree, made as mudroom makes one, in a process that has two namespaces of its own,
    if it is an ordinary user's, and no confinement. It stands until it is closed."""

    def __init__(self, tree: bytes, layer: bytes, environ: Mapping[bytes, bytes]) -> None:
        """``layer``: a directory that is not there yet: a volatile overlay takes none twice."""
        paths = (tree, layer + b"/upper", layer + b"/work")
        for path in paths[1:]:
            os.makedirs(path)
        argv: list[str | bytes] = [*PYTHON, _OVERLAY, *paths]
        self._process = subprocess.Popen(
            argv,
            cwd=tree,
            env=environ,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def __enter__(self) -> PlainOverlay:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._process.communicate()

    def run(self, argv: Sequence[str]) -> str:
        """Return what a program says in one line. Raise RuntimeError if there is no overlay, or the program fails."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with suppress(BrokenPipeError):  # it has ended
            self._process.stdin.write(json.dumps(list(argv)) + "\n")
            self._process.stdin.flush()
            said = str(self._process.stdout.readline())
            if said:
                return said
        raise RuntimeError("no overlay could be mounted, or a program has failed in it")


def workloads(base: bytes, scale: Scale) -> Iterator[Finding]:
    writes = scale.tree // 10
    commands = {
        f"find . -type f, {scale.tree:,} files": ["find", ".", "-type", "f"],
        f"grep -r, {scale.tree:,} files": ["grep", "-r", "file 123", "."],
        f"write and remove {writes:,} files": [*PYTHON, WRITE, str(writes)],
    }
    with new_place(base, "view") as place:
        fill(place.project, scale.tree)
        if have("git"):
            commands = {f"git status, {scale.tree:,} files": ["git", "status", "--porcelain"]} | commands
            make_repository(place.project, place.environ)
        with place.session() as session:
            contestants = [one for name, argv in commands.items() for one in _pair(name, place, session, argv)]
            found = interleave(contestants, scale.looks)
    if not have("git"):
        yield unmeasured("view", f"git status, {scale.tree:,} files", "git is not installed")
    for name in commands:
        for turn in _TURNS:
            bare = against(
                {"the bare tree": found[f"{name}, bare"]}, ["the bare tree"], {"the bare tree": at_most_times(1.15)}
            )
            yield Finding("view", f"{name}, {turn}", found[f"{name}, {turn}"], None, bare)


def _pair(name: str, place: Place, session: Session, argv: list[str]) -> tuple[Contestant, Contestant]:
    loop = [*PYTHON, LOOP, str(_TIMES), *argv]

    def staged() -> Iterable[Lap]:
        result = run(session, *loop)
        discard(session, result)
        first, *rest = (float(line) for line in result.stdout.split())
        laps = [(f"{name}, first in its mount", first), *((f"{name}, again", seconds) for seconds in rest)]
        return [*laps, (f"{name}, in a mount that stands", standing())]

    fork = "stands-" + name.partition(" ")[0]

    def standing() -> float:
        again = [*PYTHON, LOOP, "1", *argv]
        if session.vault.find(fork) is None:
            for _ in range(BEFORE):
                run_in(session, fork, *again)
        return float(run_in(session, fork, *again).stdout)

    def bare() -> Iterable[Lap]:
        output = subprocess.run(loop, cwd=place.project, env=place.environ, check=True, stdout=subprocess.PIPE).stdout
        return [(f"{name}, bare", float(line)) for line in output.split()]

    return staged, bare
