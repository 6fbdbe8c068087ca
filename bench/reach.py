"""docs/evidence/SPEED.md: a row for each promise about speed, measured in one run of three minutes, each beside
its rival of the same minute.

``mudroom keeper`` is used where it exists; ``MUDROOM_KEEPER=0`` switches it off. A fork that has run a command before
may keep its sandbox: that is "one fork", as an agent works, and a *kept* mount; "a new fork each" has neither.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing
from typing import cast

import mudroom
from bench.gate import gate
from bench.landing import SYNCFS, many_added, many_modified
from bench.limited import at_once, codex_sandbox
from bench.measure import (
    FAILURES,
    NONE,
    Against,
    Budget,
    Contestant,
    Finding,
    Found,
    Lap,
    Rival,
    Series,
    against,
    at_least_times,
    at_most,
    at_most_times,
    clocked,
    command,
    interleave,
    reason,
    seconds_of,
    timed,
    unmeasured,
)
from bench.memory import descendants, launcher_of, proportional
from bench.place import BWRAP, Place, Scale, discard, fill, have, make_repository, new_place, run, run_in
from bench.small import program
from bench.view import BEFORE, LOOP, PYTHON, WRITE, PlainOverlay
from mudroom.sandbox.client.template import REST
from mudroom.session import Session

TRUE = "/bin/true"
_SESSION, _CHILD = "the same by its session", "`subprocess.run`"
_BWRAP, _PASS, _CODEX, _SQUID = "`bwrap --unshare-all`", "`python -I -S -c pass`", "`codex sandbox`", "squid"
_ROW = 10
_FORKS = 12
"""As many sandboxes stand at once."""
_STANDS = 4
"""Commands of a fork after which its sandbox stands."""
_SETTLE = 0.3
"""Seconds until what is prepared is there, and what has ended is gone."""
_RESTS = REST / 1000 + 1.0
"""Seconds until a standing sandbox has let its spare go, too."""
_PATIENCE = 20.0
"""Seconds in which a keeper has to be there."""

Part = Callable[[bytes, Scale], Iterator[Finding]]


def reach(base: bytes, scale: Scale) -> Iterator[Finding]:
    """Each part by itself: one that fails is a row, and the others are measured."""
    for part in (_session, _library, _at_once, _whole_process, _view, _gate, _memory, _landing):
        try:
            yield from part(base, scale)
        except Exception as error:  # noqa: BLE001 - it is told in its row
            yield unmeasured("reach", part.__name__.strip("_").replace("_", " "), reason(error))


# --- commands of a session ---


def _session(base: bytes, scale: Scale) -> Iterator[Finding]:
    with new_place(base, "reach-session") as place:
        fill(place.project, 10)
        with place.session() as session:
            kept = _in_one_fork(session)
            contestants: list[Contestant] = [
                lambda: [("one fork", seconds_of(kept))],
                Rival(timed(_BWRAP, [*BWRAP, TRUE]), _BWRAP),
                _in_new_fork(session),
                lambda: [("in a row", seconds_of(lambda: [kept() for _ in range(_ROW)]))],
                Rival(_plain_row, f"{_BWRAP}, in a row"),
            ]
            found = interleave(contestants, min(scale.commands, 40), warm_up=3)
    budget = {_BWRAP: at_most_times(0.7)}
    yield Finding("reach", "`true` in a session, one fork", found["one fork"], None, against(found, [_BWRAP], budget))
    yield Finding(
        "reach", "`true` in a session, a new fork each", found["new fork"], None, against(found, [_BWRAP], budget)
    )
    name = f"{_BWRAP}, in a row"
    others = against(found, [name], {name: at_most_times(1)})
    yield Finding("reach", f"{_ROW} in a row, one fork", found["in a row"], None, others)


def _library(base: bytes, scale: Scale) -> Iterator[Finding]:
    """A warm call of the library beside the same call of its session, and a plain child process."""
    with new_place(base, "reach-library") as place:
        fill(place.project, 10)
        environ = {os.fsdecode(name): os.fsdecode(value) for name, value in place.environ.items()}
        with mudroom.open(place.project, environ=environ) as room, room._life.call() as session:
            kept = _in_one_fork(session)

            def call() -> None:
                room.run([TRUE], fork="library", check=True)

            contestants: list[Contestant] = [
                lambda: [("library", seconds_of(call))],
                lambda: [(_SESSION, seconds_of(kept))],
                lambda: [(_CHILD, seconds_of(lambda: subprocess.run([TRUE], capture_output=True, check=True)))],
                Rival(timed(_BWRAP, [*BWRAP, TRUE]), _BWRAP),
            ]
            found = interleave(contestants, min(scale.commands, 40), warm_up=4)
    budgets = {_SESSION: at_most_times(1.1), _BWRAP: at_most_times(0.7)}
    others = against(found, [_SESSION, _CHILD, _BWRAP], budgets)
    yield Finding("reach", '`room.run(["true"])`, one fork', found["library"], None, others)


def _in_one_fork(session: Session) -> Callable[[], None]:
    def once() -> None:
        result = session.run([TRUE.encode()], fork="reach")
        if result.exit_code:
            raise RuntimeError(f"true failed in the sandbox: {result.stderr.decode(errors='replace')}")

    return once


def _in_new_fork(session: Session) -> Contestant:
    def lap() -> Iterator[Lap]:
        seconds, result = clocked(lambda: run(session, TRUE))
        yield "new fork", seconds
        discard(session, result)

    return lap


def _plain_row() -> Iterable[Lap]:
    def all_of_them() -> None:
        for _ in range(_ROW):
            command([*BWRAP, TRUE])

    return [(f"{_BWRAP}, in a row", seconds_of(all_of_them))]


def _at_once(base: bytes, scale: Scale) -> Iterator[Finding]:
    for finding in at_once(base, scale):
        others = tuple(other for other in finding.others if other.name.startswith("bwrap"))
        shown = tuple(other._replace(name=_BWRAP) for other in others)
        yield finding._replace(bench="reach", what="100 at once", others=shown)


# --- whole processes ---


def _whole_process(base: bytes, scale: Scale) -> Iterator[Finding]:
    with new_place(base, "reach-process") as place:
        fill(place.project, 10)
        cwd, env = place.project, place.environ
        alone = dict(env)
        del env[b"MUDROOM_KEEPER"]  # it says that there is none; here commands start one
        own = program()
        lines = {
            "run": ["run", "--yes", "--", "true"],
            "exec": ["exec", "--json", "--fork", "reach", "--", "true"],
            "status": ["status"],
        }

        def in_a_row() -> list[Lap]:
            """Without the pause in which the keeper prepares the next command, and the last one's sandbox is gone."""
            kept = timed("run, row", [*own, *lines["run"]], cwd, env)
            return [("run, row", seconds_of(lambda: [*map(list, (kept() for _ in range(_ROW)))]) / _ROW)]

        why = _start_keeper(place, [*own, *lines["run"]])
        try:
            contestants: list[Contestant] = [
                *(timed(f"{verb}, keeper", [*own, *words], cwd, env) for verb, words in lines.items() if not why),
                *(() if why else (in_a_row,)),
                timed(_PASS, [sys.executable, "-I", "-S", "-c", "pass"], cwd, env),
                *(timed(verb, [*own, *words], cwd, alone) for verb, words in lines.items()),
                codex_sandbox(place, _CODEX, "true"),
            ]
            found = interleave(contestants, max(3, min(scale.cold, 20)), warm_up=2)
            yield from _processes(found, why)
            if not why:
                yield _keeper_memory(place)
        finally:
            if not why:
                _keeper(place, "stop")


def _processes(found: Found, why: str) -> Iterator[Finding]:
    rows = (
        ("run, keeper", "`mudroom run --yes -- true`, with keeper", _PASS, 1.8),
        ("run, row", f"`mudroom run --yes -- true`, with keeper, {_ROW} in a row", _PASS, 3.0),
        ("run", "`mudroom run --yes -- true`, without keeper", _PASS, 8.0),
        ("exec, keeper", "`mudroom exec --json -- true`, with keeper", _CODEX, 0.25),
        ("exec", "`mudroom exec --json -- true`, without keeper", _CODEX, None),
        ("status, keeper", "`mudroom status`, with keeper", _PASS, None),
        ("status", "`mudroom status`, without keeper", _PASS, None),
    )
    for name, what, rival, times in rows:
        if name not in found:
            yield unmeasured("reach", what, why)
            continue
        budgets = {rival: at_most_times(times)} if times else {}
        yield Finding("reach", what, found[name], None, against(found, [rival], budgets))


def _start_keeper(place: Place, words: list[str]) -> str:
    """Let a command start a keeper, and wait for it. Return why there is none."""
    if _keeper(place, "status") is None:
        return "this mudroom has no keeper"
    limit = time.monotonic() + _PATIENCE
    while time.monotonic() < limit:
        command(words, place.project, place.environ)
        if _keepers(place):
            return ""
        time.sleep(0.1)
    return "no keeper has started"


def _keeper(place: Place, verb: str) -> str | None:
    """Return what ``mudroom keeper`` says; None if there is no such verb."""
    words = [*program(), "keeper", verb, "--json"]
    done = subprocess.run(words, cwd=place.project, env=place.environ, capture_output=True, text=True, check=False)
    return done.stdout if done.stdout.startswith("{") else None


def _keepers(place: Place) -> list[int]:
    said = json.loads(_keeper(place, "status") or "{}")
    return [int(row["pid"]) for row in said.get("keepers", ())]


def _keeper_memory(place: Place) -> Finding:
    """Of the keeper and all below it, when a dozen forks have each run a command."""
    what = f"memory of a keeper with {_FORKS} forks"
    for number in range(_FORKS):
        words = [*program(), "exec", "--json", "--fork", f"reach-{number}", "--", "true"]
        command(words, place.project, place.environ)
    sizes = [proportional(pid) for keeper in _keepers(place) for pid in (keeper, *descendants(keeper))]
    known = [size for size in sizes if size is not None]
    if not known or len(known) < len(sizes):
        return unmeasured("reach", what, "only root may read it: --user NAME as root")
    return Finding("reach", what, Series((sum(known) / 1e6,), "MB"), at_most(60, "60 MB"))


# --- the view ---


def _view(base: bytes, scale: Scale) -> Iterator[Finding]:
    commands = {
        "git status, 1,000 files": ["git", "status", "--porcelain"],
        "find, 1,000 files": ["find", ".", "-type", "f"],
        "grep -r, 1,000 files": ["grep", "-r", "file 123", "."],
        "write and remove 100 files": [*PYTHON, WRITE, "100"],
    }
    with new_place(base, "reach-view") as place:
        bare = place.root + b"/bare"
        for tree in (place.project, bare):
            fill(tree, 1_000)
            if have("git"):
                make_repository(tree, place.environ)
        if not have("git"):
            del commands["git status, 1,000 files"]
            yield unmeasured("reach", "git status, 1,000 files", "git is not installed")
        with place.session() as session, ExitStack() as stands:
            contestants: list[Contestant] = []
            for number, (name, argv) in enumerate(commands.items()):
                loop, layers = [*PYTHON, LOOP, "1", *argv], place.root + b"/plain-%d-" % number
                plain = stands.enter_context(PlainOverlay(bare, layers + b"stands", place.environ))
                looked = _looked_plainly(name, plain, bare, layers, place.environ, loop)
                contestants += [
                    _looked(name, session, f"stands-{number}", loop),
                    _looked_bare(name, bare, place.environ, loop),
                    Rival(looked, *(f"{name}, {kind}" for kind in _PLAIN)),
                ]
            found = interleave(contestants, max(3, min(scale.commands, 15)))
    for name in commands:
        for (mount, times), kind in zip((("kept", 1.15), ("first", 1.5)), _PLAIN, strict=True):
            outside = Against("the bare tree", found[f"{name}, bare"], at_most_times(times))
            kernel = against(found, [f"{name}, {kind}"], {f"{name}, {kind}": at_most_times(1.1)})
            others = (outside, *(other._replace(name=kind) for other in kernel))
            yield Finding("reach", f"{name}, {mount} mount", found[f"{name}, {mount}"], None, others)


_PLAIN = ("a plain overlay that stands", "a new plain overlay")
"""Of the kernel, with nothing of mudroom: what is over it is ours, what it is over the bare tree is the kernel's."""


def _looked(name: str, session: Session, fork: str, loop: list[str]) -> Contestant:
    """In a new fork, and in one whose mount stands; timed by a loop beside the program."""

    def measure() -> Iterator[Lap]:
        result = run(session, *loop)
        yield f"{name}, first", float(result.stdout)
        discard(session, result)
        for _ in range(BEFORE if session.vault.find(fork) is None else 0):
            run_in(session, fork, *loop)
        for _ in range(2):
            yield f"{name}, kept", float(run_in(session, fork, *loop).stdout)

    return measure


def _looked_bare(name: str, tree: bytes, environ: Mapping[bytes, bytes], loop: list[str]) -> Contestant:
    """In a tree of its own: a session watches its project, which costs whoever opens a file there."""

    def measure() -> Iterator[Lap]:
        for _ in range(2):
            output = subprocess.run(loop, cwd=tree, env=environ, check=True, stdout=subprocess.PIPE)
            yield f"{name}, bare", float(output.stdout)

    return measure


def _looked_plainly(
    name: str, stands: PlainOverlay, tree: bytes, layers: bytes, environ: Mapping[bytes, bytes], loop: list[str]
) -> Contestant:
    """In overlays of the kernel over that tree. ``layers``: the beginning of the names of new directories."""
    numbers = itertools.count()

    def measure() -> Iterator[Lap]:
        with PlainOverlay(tree, layers + b"%d" % next(numbers), environ) as new:
            yield f"{name}, {_PLAIN[1]}", float(new.run(loop))
        for _ in range(2):
            yield f"{name}, {_PLAIN[0]}", float(stands.run(loop))

    return measure


# --- the gate ---


def _gate(base: bytes, scale: Scale) -> Iterator[Finding]:
    goals: dict[str, tuple[str, Budget]] = {
        "a tunnel, 64 MiB": ("gate: throughput of a tunnel", at_least_times(0.7)),
        "a new tunnel, a request, closed, p50": ("gate: a new tunnel, a request, closed", at_most_times(1.2)),
    }
    found: dict[str, Finding] = {}
    why = "the gate has no such row"
    with closing(_gate_findings(base, scale)) as findings:
        try:
            while not found.keys() >= goals.keys():  # what comes after the last of them is not measured
                finding = next(findings)
                found |= {finding.what: finding}
        except StopIteration:
            pass
        except FAILURES as error:
            why = reason(error)
    for name, (what, budget) in goals.items():
        if name not in found:
            yield unmeasured("reach", what, why)
            continue
        others = [other for other in found[name].others if other.name.startswith(_SQUID)]
        shown = tuple(other._replace(name=_SQUID, budget=budget) for other in others)
        missing = (Against(_SQUID, NONE, budget, "it is not installed or did not start"),)
        yield found[name]._replace(bench="reach", what=what, budget=None, others=shown or missing)


def _gate_findings(base: bytes, scale: Scale) -> Generator[Finding]:
    return cast("Generator[Finding]", gate(base, scale._replace(tree=1_000, looks=max(3, scale.looks))))


# --- memory ---


def _memory(base: bytes, scale: Scale) -> Iterator[Finding]:
    """What a dozen forks add to a session's processes, each: that have run a command, and whose sandbox stands."""
    del scale
    rows = (("memory of a fork that has run a command", 1, _SETTLE), ("memory of a standing sandbox", _STANDS, _RESTS))
    for number, (what, commands, settle) in enumerate(rows):
        with new_place(base, f"reach-memory-{number}") as place:
            fill(place.project, 10)
            with place.session() as session:
                sizes = [_with_forks(session, forks, commands, settle) for forks in (1, _FORKS)]
        first, last = sizes
        if first is None or last is None:
            yield unmeasured("reach", what, "only root may read it: --user NAME as root")
        else:
            yield Finding("reach", what, Series(((last - first) / (_FORKS - 1) / 1e6,), "MB"), at_most(2, "2 MB"))


def _with_forks(session: Session, forks: int, commands: int, settle: float) -> float | None:
    for number in range(forks):
        for _ in range(commands):
            session.run([TRUE.encode()], fork=f"reach-{number}")
    time.sleep(settle)
    return _below(launcher_of(session))


def _below(pid: int) -> float | None:
    sizes = [proportional(child) for child in (pid, *descendants(pid))]
    known = [size for size in sizes if size is not None]
    return sum(known) if len(known) == len(sizes) else None


# --- apply ---


def _landing(base: bytes, scale: Scale) -> Iterator[Finding]:
    less = scale._replace(applies=3, modified=min(scale.modified, 2_000), added=min(scale.added, 10_000))
    for part, rivals in ((many_modified, ("rsync -a",)), (many_added, (SYNCFS, "rsync -a; sync -f"))):
        for finding in part(base, less, ("apply, at once", *rivals)):
            if finding.what.startswith("apply ") and finding.what.endswith(", at once"):
                shown = tuple(other for other in finding.others if other.name in rivals)
                yield finding._replace(bench="reach", what=finding.what.removesuffix(", at once"), others=shown)
