"""One small command: in a running session, as a whole process, and what stays in memory meanwhile."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

from bench.measure import (
    Budget,
    Contestant,
    Row,
    Series,
    at_most,
    interleave,
    more,
    seconds_of,
    timed,
    times,
    versus,
)
from bench.place import BWRAP, Place, Scale, discard, fill, have, new_place, run
from mudroom.session import Session

TRUE = "/bin/true"
_IN_A_ROW = 10


def session_command(base: bytes, scale: Scale) -> Iterator[Row]:
    """``/bin/true`` in a running session: staged, confined, its changes collected and journalled."""
    with new_place(base, "command") as place:
        fill(place.project, 10)
        with place.session() as session:
            found = interleave(_small_commands(session), scale.commands, warm_up=5)
    others = {name: found[name] for name in ("subprocess.run", "bwrap") if name in found}
    budgets = {"subprocess.run": more(0.004, "≤ 4 ms over it"), "bwrap": times(1)}
    yield from versus("command", "true in a running session", found["session"], others, budgets)
    yield from versus("command", "true in the bare launcher", found["launcher"], others, {})
    in_a_row = {"subprocess.run": found["subprocess.run, in a row"]}
    yield from versus("command", f"true, {_IN_A_ROW} in a row", found["session, in a row"], in_a_row, {})


def _small_commands(session: Session) -> dict[str, Contestant]:
    def in_session() -> list[float]:
        results = []
        seconds = seconds_of(lambda: results.append(run(session, TRUE)))
        discard(session, results[0])
        return [seconds]

    def in_a_row() -> list[float]:
        """Without the pause in which the launcher prepares the next sandbox."""
        results = []
        seconds = seconds_of(lambda: results.extend([run(session, TRUE) for _ in range(_IN_A_ROW)]))
        for result in results:
            discard(session, result)
        return [seconds / _IN_A_ROW]

    def plain_in_a_row() -> list[float]:
        return [seconds_of(lambda: [subprocess.run([TRUE]) for _ in range(_IN_A_ROW)]) / _IN_A_ROW]

    contestants: dict[str, Contestant] = {
        "session": in_session,
        "subprocess.run": lambda: [seconds_of(lambda: subprocess.run([TRUE], check=True))],
        "launcher": _bare_launcher(session),
        "session, in a row": in_a_row,
        "subprocess.run, in a row": plain_in_a_row,
    }
    if have("bwrap"):
        contestants["bwrap"] = lambda: [seconds_of(lambda: subprocess.run([*BWRAP, TRUE], check=True))]
    return contestants


def _bare_launcher(session: Session) -> Contestant:
    """A plan as the session makes it, performed without the session: no fork, no collecting, no journal."""
    fork = session.vault.new_fork("launcher")
    view = session._view(fork, "overlay")
    view.prepare()
    plan, environment = session._plan(fork, view, "overlay", session.project)
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)

    def launch() -> list[float]:
        view.prepare()  # the mark that the last mount has left goes away
        return [
            seconds_of(
                lambda: session.client.run(plan, [TRUE.encode()], environment, (null, null, null), new_session=True).wait()
            )
        ]

    return launch


def cold_command(base: bytes, scale: Scale) -> Iterator[Row]:
    """The whole program from the shell's point of view, nothing running before."""
    with new_place(base, "cold") as place:
        fill(place.project, 10)
        contestants: dict[str, Contestant] = {
            "mudroom": timed([*program(), "run", "--yes", "--", "true"], place.project, place.environ),
            "python -c pass": timed([sys.executable, "-c", "pass"], place.project, place.environ),
        }
        if have("bwrap"):
            contestants["bwrap"] = timed([*BWRAP, TRUE], place.project, place.environ)
        found = interleave(contestants, scale.cold, warm_up=2)
    ours = found.pop("mudroom")
    yield from versus("cold", "mudroom run --yes -- true", ours, found, {"": at_most(0.060, "≤ 60 ms")})


def program() -> list[str]:
    """The installed console script, if there is one."""
    script = os.path.join(os.path.dirname(sys.executable), "mudroom")
    return [script] if os.path.exists(script) else [sys.executable, "-m", "mudroom"]


def launcher_memory(base: bytes, scale: Scale) -> Iterator[Row]:
    """What stays in memory between two commands, against an idle interpreter and against bwrap while it runs one."""
    del scale
    with new_place(base, "memory") as place:
        yield from _memory(place)


def _memory(place: Place) -> Iterator[Row]:
    fill(place.project, 10)
    idle = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(60)"]
    with place.session() as session, subprocess.Popen(idle) as interpreter:
        others = {"idle python -I -S": interpreter}
        try:
            for _ in range(3):
                discard(session, run(session, TRUE))
            if have("bwrap"):
                others["bwrap, running"] = subprocess.Popen([*BWRAP, "sleep", "60"])
            for what, measure in (("RSS", resident), ("PSS", proportional)):
                ours = measure(session.client._pid)
                found = {name: measure(process.pid) for name, process in others.items()}
                readable = {name: _megabytes(value) for name, value in found.items() if value is not None}
                if ours is not None:
                    budgets: dict[str, Budget] = {"": at_most(15, "≤ 15 MB")}
                    yield from versus("memory", f"launcher, {what}", _megabytes(ours), readable, budgets)
            yield from _whole_tree(session.client._pid)
        finally:
            for process in others.values():
                process.kill()
                process.wait()


def _whole_tree(launcher: int) -> Iterator[Row]:
    """The launcher with the prepared root and the sandbox that waits: only root may read the others' PSS."""
    parts = [proportional(pid) for pid in (launcher, *descendants(launcher))]
    known = [part for part in parts if part is not None]
    if len(known) == len(parts):
        yield Row("memory", f"launcher and its {len(parts) - 1} helpers, PSS", _megabytes(sum(known)))


def _megabytes(size: float) -> Series:
    return Series((size / 1e6,), "MB")


def resident(pid: int) -> float | None:
    with open(f"/proc/{pid}/statm") as stream:
        return int(stream.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def proportional(pid: int) -> float | None:
    """Shared pages count by the share; None where it may not be read."""
    try:
        with open(f"/proc/{pid}/smaps_rollup") as stream:
            return next(int(line.split()[1]) * 1024.0 for line in stream if line.startswith("Pss:"))
    except PermissionError:
        return None


def descendants(pid: int) -> list[int]:
    with open(f"/proc/{pid}/task/{pid}/children") as stream:
        children = [int(word) for word in stream.read().split()]
    return [below for child in children for below in (child, *descendants(child))]
