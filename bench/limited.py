"""A command with limits, beside other sandboxes; and a hundred at once."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

from bench.measure import (
    Contestant,
    Finding,
    Lap,
    Rival,
    Series,
    against,
    at_most_times,
    clocked,
    interleave,
    seconds_of,
    timed,
)
from bench.place import BWRAP, Place, Scale, discard, fill, new_place, run
from mudroom.core.confinement.limit import Limits
from mudroom.core.settings import Settings
from mudroom.errors import Unsupported
from mudroom.session import Session

TRUE = "/bin/true"
_AT_ONCE = 100
LIMITS = Limits(memory=1 << 30, processes=200, cpus=2.0)
_BWRAP = "bwrap --unshare-all, no limits"
_DOCKER = "docker run --memory --pids-limit --cpus"
_SRT = "srt -c, a whole process"
_SANDLOCK = "sandlock Sandbox.run, in a running Python"
_SANDLOCK_LOOP = """
import sys, time
from sandlock import Sandbox
readable = ["/usr", "/lib", "/lib64", "/bin", "/etc", "/proc", "/dev"]
for _ in sys.stdin:
    started = time.perf_counter()
    Sandbox(fs_readable=readable, fs_writable=["/dev/null"], max_memory="1G", max_processes=200).run(["/bin/true"])
    print(time.perf_counter() - started, flush=True)
"""


def limited(base: bytes, scale: Scale) -> Iterator[Finding]:
    """``/bin/true`` in a running session that holds memory, processes and processors, each command in a group of its
    own."""
    with new_place(base, "limited") as place:
        fill(place.project, 10)
        with place.session(settings=Settings(limits=LIMITS)) as session:
            try:
                discard(session, run(session, TRUE))
            except (Unsupported, RuntimeError) as error:
                print(f"limits cannot be held here, and are not measured: {error}", file=sys.stderr)
                return
            rivals = [Rival(_bwrap(), _BWRAP), Rival(_srt(place), _SRT), Rival(_docker, _DOCKER)]
            with Sandlock() as sandlock:
                contestants: list[Contestant] = [_limited(session), *rivals, Rival(sandlock.lap, _SANDLOCK)]
                found = interleave(contestants, scale.cold, warm_up=2)
        others = against(found, (_BWRAP, _SANDLOCK, _SRT, _DOCKER), {_BWRAP: at_most_times(1)})
        yield Finding("limited", "true with limits, in a running session", found["limited"], None, others)


def _limited(session: Session) -> Contestant:
    def lap() -> Iterator[Lap]:
        seconds, result = clocked(lambda: run(session, TRUE))
        yield "limited", seconds
        discard(session, result)

    return lap


def _bwrap() -> Contestant:
    return timed(_BWRAP, [*BWRAP, TRUE])


def _srt(place: Place) -> Contestant:
    settings = place.root + b"/srt.json"
    with open(settings, "w") as stream:
        stream.write(
            '{"network": {"allowedDomains": [], "deniedDomains": []},'
            ' "filesystem": {"denyRead": [], "allowWrite": ["."], "denyWrite": []}}'
        )
    return timed(_SRT, [installed("srt"), "--settings", settings, "-c", TRUE], place.project, place.environ)


def _docker() -> Iterable[Lap]:
    """With whatever image is there: none can be fetched for a benchmark."""
    listed = subprocess.run(["docker", "images", "-q"], capture_output=True, text=True, check=True)
    if not listed.stdout.split():
        raise RuntimeError("Docker has no image")
    limits = ["--memory", "1g", "--pids-limit", "200", "--cpus", "2", "--network", "none"]
    return timed(_DOCKER, ["docker", "run", "--rm", *limits, listed.stdout.split()[0], TRUE])()


class Sandlock:
    """Its library, imported once, in its own Python."""

    def __init__(self) -> None:
        beside = installed("sandlock-mcp")
        self._child: subprocess.Popen[str] | None = None
        if os.path.isabs(beside):
            python = os.path.join(os.path.dirname(beside), "python3")
            pipe = subprocess.PIPE
            self._child = subprocess.Popen([python, "-c", _SANDLOCK_LOOP], stdin=pipe, stdout=pipe, text=True)

    def __enter__(self) -> Sandlock:
        return self

    def lap(self) -> Iterator[Lap]:
        if self._child is None or self._child.stdin is None or self._child.stdout is None:
            raise RuntimeError("sandlock is not installed")
        self._child.stdin.write("go\n")
        self._child.stdin.flush()
        yield _SANDLOCK, float(self._child.stdout.readline())

    def __exit__(self, *_error: object) -> None:
        if self._child is not None:
            self._child.communicate()


def installed(name: str) -> str:
    """Return the path of a program in one of the directories of MUDROOM_RIVALS or on PATH; else the name itself, of
    which the start fails."""
    path = os.environ.get("MUDROOM_RIVALS", "") + os.pathsep + os.environ.get("PATH", os.defpath)
    return shutil.which(name, path=path) or name


def codex_sandbox(place: Place, name: str, *argv: str) -> Rival:
    """``codex sandbox`` in a project. It makes its helper below HOME, and refuses to below TMPDIR, where this place is:
    temporary files have a directory of their own."""
    words = [installed("codex"), "sandbox", "-c", 'sandbox_mode="workspace-write"', "--", *argv]
    temporary = place.root + b"/temporary"
    os.makedirs(temporary, exist_ok=True)
    return Rival(timed(name, words, place.project, {**place.environ, b"TMPDIR": temporary}), name)


def at_once(base: bytes, scale: Scale) -> Iterator[Finding]:
    """A hundred commands of one session, each in a fork of its own, all at the same time."""
    with new_place(base, "at-once") as place:
        fill(place.project, 10)
        with Session.open(place.project, state=place.state, home=place.home, environ=place.environ) as session:
            contestants: list[Contestant] = [
                _many(lambda: session.run([TRUE.encode()], fork=None), session),
                Rival(_many_plain(_BWRAP, [*BWRAP, TRUE]), _BWRAP),
                _many_plain("subprocess.run", [TRUE]),
            ]
            found = interleave(contestants, max(2, scale.looks), warm_up=1)
        others = against(found, (_BWRAP, "subprocess.run"), {_BWRAP: at_most_times(1)})
        ours: Series = found["mudroom"]
        yield Finding("limited", f"{_AT_ONCE} sandboxes at once, to the end of all", ours, None, others)


def _many(start: Callable[[], object], session: Session) -> Contestant:
    def lap() -> Iterator[Lap]:
        before = {fork.name for fork in session.vault.forks()}
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            yield "mudroom", seconds_of(lambda: [one.result() for one in [pool.submit(start) for _ in range(_AT_ONCE)]])
        for fork in session.vault.forks():
            if fork.name not in before:
                session.forks.discard(fork.name)

    return lap


def _many_plain(name: str, argv: list[str]) -> Contestant:
    def lap() -> Iterator[Lap]:
        def all_of_them() -> None:
            children = [subprocess.Popen(argv) for _ in range(_AT_ONCE)]
            if any(child.wait() for child in children):
                raise RuntimeError(f"{argv[0]} failed")

        yield name, seconds_of(all_of_them)

    return lap
