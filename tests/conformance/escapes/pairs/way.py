"""The ways from a fork to the project, each accompanied by the accomplice: what was changed on the way, by attempt."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

from mudroom.core.registry import part_or_none
from mudroom.errors import ForkMoved
from mudroom.session import Session

from .landing import LANDINGS, TOP
from .outside import Accomplice, Ground, changed, lines
from .side import ForkSide, ProcessSide, Side, command_line

Found = dict[str, str]
GIVER = "a"
TRIES = 3
"""Reviews before a user gives up."""
ARCHIVES = part_or_none("call", "archives")
QUIET = [name for name, landing in LANDINGS.items() if landing.when == "after" or name.startswith("mapped")]


def hand_over(ground: Ground, side: Side, accomplice: Accomplice, names: Iterable[str] = LANDINGS) -> None:
    """Let the giver make what lands, and give descriptors of it to the accomplice. It has ended afterwards."""
    output = side.run(ground.argv("hand", ground.key, ",".join(names), str(ground.handing)))
    handed = [line["handed"] for line in lines(output) if "handed" in line]
    if not handed:
        raise AssertionError(f"nothing was made: {output[-2000:]}")
    if handed[-1]:
        accomplice.settle()


def applied(session: Session, fork: str) -> bool:
    """Review and apply, again after a refusal, as a user would. Return False if it is always refused."""
    for _tries in range(TRIES):
        session.changes.review(fork)
        try:
            session.changes.apply(fork)
            return True
        except ForkMoved:
            continue
    return False


def _apply(ground: Ground, session: Session, accomplice: Accomplice, names: list[str]) -> Found:
    hand_over(ground, ForkSide(session, GIVER), accomplice, names)
    session.changes.review(GIVER)
    accomplice.act("before")
    accomplice.act("during")
    try:
        session.changes.apply(GIVER)
    except ForkMoved:
        if not applied(session, GIVER):
            return {}
    accomplice.act("after")
    return changed(ground.project, names)


def by_apply(ground: Ground, session: Session, accomplice: Accomplice) -> Found:
    """A review and an apply."""
    return _apply(ground, session, accomplice, list(LANDINGS))


def by_quiet_apply(ground: Ground, session: Session, accomplice: Accomplice) -> Found:
    """The same, without attempts that change a stamp between the review and the apply."""
    return _apply(ground, session, accomplice, QUIET)


def by_run(ground: Ground, session: Session, accomplice: Accomplice) -> Found:
    """``mudroom run --yes``, in another process."""
    side = command_line(ground.project, ground.home, ground.state, ["run", "--yes"])
    accomplice.hurry()
    hand_over(ground, side, accomplice)
    accomplice.act("after")
    return changed(ground.project, [name for name, landing in LANDINGS.items() if landing.when != "before"])


def by_checkpoint(ground: Ground, session: Session, accomplice: Accomplice) -> Found:
    """A sealed checkpoint, from which another fork is made and applied."""
    hand_over(ground, ForkSide(session, GIVER), accomplice)
    session.forks.checkpoint(GIVER, "sealed")
    accomplice.act("before")
    accomplice.act("during")
    session.forks.new("second", parent=GIVER, at="sealed")
    landed = applied(session, "second")
    accomplice.act("after")
    return changed(ground.project) if landed else {}


def by_rollback(ground: Ground, session: Session, accomplice: Accomplice) -> Found:
    """A rollback to a sealed checkpoint, and an apply."""
    hand_over(ground, ForkSide(session, GIVER), accomplice)
    session.forks.checkpoint(GIVER, "sealed")
    session.run([b"rm", b"-r", TOP.encode()], fork=GIVER)
    accomplice.act("before")
    accomplice.act("during")
    session.forks.rollback(GIVER, "sealed")
    landed = applied(session, GIVER)
    accomplice.act("after")
    return changed(ground.project) if landed else {}


def by_undo(ground: Ground, session: Session, accomplice: Accomplice) -> Found:
    """An undo, which leaves nothing of the fork."""
    hand_over(ground, ForkSide(session, GIVER), accomplice)
    session.changes.review(GIVER)
    session.changes.apply(GIVER)
    accomplice.act("before")
    accomplice.act("during")
    session.changes.undo()
    accomplice.act("after")
    if not (ground.project / TOP).exists():
        return {}
    left = {path.name for path in (ground.project / TOP).iterdir()}
    return {name: "something is left" for name in LANDINGS if name in left}


def by_redo(ground: Ground, session: Session, accomplice: Accomplice) -> Found:
    """An undo and a redo, which lands what was reviewed."""
    hand_over(ground, ForkSide(session, GIVER), accomplice)
    session.changes.review(GIVER)
    session.changes.apply(GIVER)
    session.changes.undo()
    accomplice.act("before")
    accomplice.act("during")
    session.changes.redo()
    accomplice.act("after")
    return changed(ground.project)


def by_transfer(ground: Ground, session: Session, accomplice: Accomplice) -> Found:
    """An export, a discard, an import and an apply."""
    hand_over(ground, ForkSide(session, GIVER), accomplice)
    accomplice.act("before")
    accomplice.act("during")
    bundle = io.BytesIO()
    ARCHIVES.export(session, GIVER, bundle)
    session.forks.discard(GIVER)
    ARCHIVES.import_stream(session, io.BytesIO(bundle.getvalue()), "again")
    landed = applied(session, "again")
    accomplice.act("after")
    return changed(ground.project) if landed else {}


def by_mount(ground: Ground, session: Session, accomplice: Accomplice) -> Found:
    """``mudroom mount``: the fork as a directory of the user."""
    hand_over(ground, ForkSide(session, GIVER), accomplice)
    mounted = session.forks.mount(GIVER)
    try:
        for phase in ("before", "during", "after"):
            accomplice.act(phase)
        place = Path(os.fsdecode(mounted.place))
        return changed(place)
    finally:
        session.forks.unmount(GIVER)


WAYS: dict[str, Callable[[Ground, Session, Accomplice], Found]] = {
    "apply": by_apply,
    "quiet apply": by_quiet_apply,
    "run --yes": by_run,
    "checkpoint": by_checkpoint,
    "rollback": by_rollback,
    "undo": by_undo,
    "redo": by_redo,
    **({} if ARCHIVES is None else {"export and import": by_transfer}),
    "mount": by_mount,
}


def unconfined(ground: Ground) -> tuple[int, Found]:
    """Return how many descriptors the accomplice is given where nothing confines, and what it changed: two directories
    of one user, and an apply that moves."""
    sides = []
    for name in ("a", "b"):
        shutil.copytree(ground.project, ground.root / name)
        sides.append(ProcessSide(ground.root / name, [], {**os.environ, "HOME": str(ground.home)}))
    accomplice = Accomplice(ground, sides[1])
    try:
        hand_over(ground, sides[0], accomplice)
        accomplice.act("before")
        accomplice.act("during")
        subprocess.run(["mv", str(ground.root / "a" / TOP), str(ground.project)], check=True)
        accomplice.act("after")
        return accomplice.holds(), changed(ground.project)
    finally:
        accomplice.end()
