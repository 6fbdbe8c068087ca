"""One small command: in a running session, in the launcher alone, and as a whole process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

from bench.measure import (
    Contestant,
    Finding,
    Lap,
    Rival,
    against,
    at_most_over,
    at_most_times,
    clocked,
    interleave,
    seconds_of,
    timed,
)
from bench.place import BWRAP, Scale, discard, fill, new_place, run, run_in
from mudroom.sandbox.client.invocation import Invocation
from mudroom.session import Session
from mudroom.vault.forks.collection import view_of
from mudroom.vault.forks.open_fork import OpenFork

TRUE = "/bin/true"
_IN_A_ROW = 10
_FORK = "bench"
_BWRAP = "bwrap --unshare-all"
_INTERPRETER = "python -I -S -c pass"


def session_command(base: bytes, scale: Scale) -> Iterator[Finding]:
    """``/bin/true`` in a running session: staged, confined, its changes collected and journalled. An agent runs one
    command after the other in its fork; the first ones of a fork cost more."""
    with new_place(base, "command") as place:
        fill(place.project, 10)
        with place.session() as session:
            found = interleave(_contestants(session), scale.commands, warm_up=5)
    names = ("subprocess.run", _BWRAP)
    budgets = {"subprocess.run": at_most_over(0.004, "4 ms"), _BWRAP: at_most_times(0.7)}
    yield Finding("command", "true in a running session", found["session"], None, against(found, names, budgets))
    yield Finding("command", "true in a running session, in a new fork", found["new"], None, against(found, names))
    yield Finding("command", "true in the launcher alone", found["launcher"], None, against(found, names))
    in_a_row = against(found, ["subprocess.run, in a row", _BWRAP], {_BWRAP: at_most_times(1)})
    yield Finding("command", f"true in a running session, {_IN_A_ROW} in a row", found["in a row"], None, in_a_row)


def _contestants(session: Session) -> list[Contestant]:
    def in_session() -> Iterator[Lap]:
        yield "session", seconds_of(lambda: run_in(session, _FORK, TRUE))

    def in_a_new_fork() -> Iterator[Lap]:
        seconds, result = clocked(lambda: run(session, TRUE))
        yield "new", seconds
        discard(session, result)

    def in_a_row() -> Iterator[Lap]:
        """Without the pause in which the launcher prepares the next sandbox."""
        seconds = seconds_of(lambda: [run_in(session, _FORK, TRUE) for _ in range(_IN_A_ROW)])
        yield "in a row", seconds / _IN_A_ROW

    def plain_in_a_row() -> Iterator[Lap]:
        yield "subprocess.run, in a row", seconds_of(lambda: [plain() for _ in range(_IN_A_ROW)]) / _IN_A_ROW

    def plain() -> object:
        return subprocess.run([TRUE], check=True)

    return [
        in_session,
        in_a_new_fork,
        lambda: [("subprocess.run", seconds_of(plain))],
        Rival(timed(_BWRAP, [*BWRAP, TRUE]), _BWRAP),
        _bare_launcher(session),
        in_a_row,
        plain_in_a_row,
    ]


def _bare_launcher(session: Session) -> Contestant:
    """A plan as the session makes it, performed without the session: no fork, no collecting, no journal."""
    fork = session.vault.new_fork("launcher")
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    stdio = (null, null, null)

    def launch() -> Iterator[Lap]:
        with OpenFork(session.vault, fork) as opened:
            view = view_of(session.vault, fork, opened, "overlay")
        view.prepare()
        private = fork.path + b"/private"
        plan, environment = session.machine.confinement.plan(
            view.mount(), "overlay", session.project, private, session.actor.settings
        )
        start = session.machine.client.run
        yield "launcher", seconds_of(lambda: start(plan, Invocation([TRUE.encode()], environment, stdio)).wait())

    return launch


def cold_command(base: bytes, scale: Scale) -> Iterator[Finding]:
    """The whole program from the shell's point of view, nothing running before."""
    with new_place(base, "cold") as place:
        fill(place.project, 10)
        cwd, env = place.project, place.environ
        contestants: list[Contestant] = [
            timed("mudroom", [*program(), "run", "--yes", "--", "true"], cwd, env),
            timed(_INTERPRETER, [sys.executable, "-I", "-S", "-c", "pass"], cwd, env),
            Rival(timed(_BWRAP, [*BWRAP, TRUE], cwd, env), _BWRAP),
        ]
        found = interleave(contestants, scale.cold, warm_up=2)
    others = against(found, (_INTERPRETER, _BWRAP), {_INTERPRETER: at_most_times(8)})
    yield Finding("cold", "mudroom run --yes -- true, a whole process", found["mudroom"], None, others)


def program() -> list[str]:
    """The installed console script, if there is one."""
    script = os.path.join(os.path.dirname(sys.executable), "mudroom")
    return [script] if os.path.exists(script) else [sys.executable, "-m", "mudroom"]
