"""The table of README: a row for each promise about speed, all measured in one run of three minutes, each beside its
rival of the same minute.

``mudroom keeper`` is used where it exists; ``MUDROOM_KEEPER=0`` switches it off. A fork that has run a command before
may keep its sandbox: that is "one fork", as an agent works, and a *kept* mount; "a new fork each" has neither.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from typing import cast

import mudroom
from bench.gate import gate
from bench.landing import SYNCFS, many_added, many_modified
from bench.limited import at_once, installed
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
from bench.memory import descendants, proportional
from bench.place import BWRAP, Place, Scale, discard, fill, have, make_repository, new_place, run, run_in
from bench.small import program
from bench.view import BEFORE, LOOP, PYTHON, WRITE
from mudroom.session import Session

TRUE = "/bin/true"
_SESSION, _CHILD = "the same by its session", "`subprocess.run`"
_BWRAP, _PASS, _CODEX, _SQUID = "`bwrap --unshare-all`", "`python -I -S -c pass`", "`codex sandbox`", "squid"
_ROW = 10
_FORKS = 12
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
        run_words = [*program(), "run", "--yes", "--", "true"]
        exec_words = [*program(), "exec", "--json", "--fork", "reach", "--", "true"]
        status_words = [*program(), "status"]
        codex = [installed("codex"), "sandbox", "-c", 'sandbox_mode="workspace-write"', "--", "true"]
        why = _start_keeper(place, run_words)
        try:
            verbs = {"run": run_words, "exec": exec_words, "status": status_words}
            kept = {f"{verb}, keeper": words for verb, words in verbs.items()} if not why else {}
            contestants: list[Contestant] = [
                *(timed(name, words, cwd, env) for name, words in kept.items()),
                timed(_PASS, [sys.executable, "-I", "-S", "-c", "pass"], cwd, env),
                *(timed(verb, words, cwd, alone) for verb, words in verbs.items()),
                Rival(timed(_CODEX, codex, cwd, env), _CODEX),
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
        ("run, keeper", "`mudroom run --yes -- true`, with keeper", _PASS, 2.0),
        ("run", "`mudroom run --yes -- true`, without keeper", _PASS, 6.0),
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
        fill(place.project, 1_000)
        if have("git"):
            make_repository(place.project, place.environ)
        else:
            del commands["git status, 1,000 files"]
            yield unmeasured("reach", "git status, 1,000 files", "git is not installed")
        with place.session() as session:
            contestants = [_looked(name, place, session, argv) for name, argv in commands.items()]
            found = interleave(contestants, max(3, min(scale.commands, 15)))
    for name in commands:
        for mount, times in (("kept", 1.15), ("first", 1.5)):
            bare = Against("the bare tree", found[f"{name}, bare"], at_most_times(times))
            yield Finding("reach", f"{name}, {mount} mount", found[f"{name}, {mount}"], None, (bare,))


def _looked(name: str, place: Place, session: Session, argv: list[str]) -> Contestant:
    """In a new fork, in one whose mount stands, and bare; timed by a loop beside the program."""
    loop = [*PYTHON, LOOP, "1", *argv]
    fork = f"stands-{argv[0].rpartition('/')[2]}"

    def measure() -> Iterator[Lap]:
        result = run(session, *loop)
        yield f"{name}, first", float(result.stdout)
        discard(session, result)
        if session.vault.find(fork) is None:
            for _ in range(BEFORE):
                run_in(session, fork, *loop)
        for _ in range(2):
            yield f"{name}, kept", float(run_in(session, fork, *loop).stdout)
        for _ in range(2):
            output = subprocess.run(loop, cwd=place.project, env=place.environ, check=True, stdout=subprocess.PIPE)
            yield f"{name}, bare", float(output.stdout)

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
    """What a dozen forks that have run a command add to a session's processes, each."""
    del scale
    what = "memory of a fork that has run a command"
    with new_place(base, "reach-memory") as place:
        fill(place.project, 10)
        with place.session() as session:
            sizes = []
            for number in range(_FORKS + 1):
                session.run([TRUE.encode()], fork=f"reach-{number}")
                if number in (0, _FORKS):
                    time.sleep(0.3)  # until what is prepared is there and what has ended is gone
                    sizes.append(_below(session.machine.client._pid))
    first, last = sizes
    if first is None or last is None:
        yield unmeasured("reach", what, "only root may read it: --user NAME as root")
    else:
        yield Finding("reach", what, Series(((last - first) / _FORKS / 1e6,), "MB"), at_most(2, "2 MB"))


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
