"""A story of hundreds of checkpoints in one session."""

from __future__ import annotations

import os
import time

from model_story import first
from story_world import Defect, World


def checkpoints(world: World, count: int) -> None:
    """Hundreds of checkpoints in one session: descriptors are bounded and the time is flat."""
    first(world)
    os.environ.update(MUDROOM_STATE=str(world.state), HOME=str(world.home))
    from mudroom.core.settings import Settings
    from mudroom.session import Session

    def median(times: list[float]) -> float:
        return round(sorted(times)[len(times) // 2] * 1000, 2)

    times, most = [], 0
    with Session.open(
        os.fsencode(world.project), state=os.fsencode(world.state), home=os.fsencode(world.home),
        environ=os.environb, settings=Settings(),
    ) as session:  # fmt: skip
        files = session.forks.files("a")
        for number in range(count):
            world.step = f"checkpoint {number}"
            files.write(f"many/{number % 7}", f"{number}\n")
            if number % 10 == 9:
                session.forks.tools.tree("a").unlink(f"many/{number % 7}".encode())
            began = time.monotonic()
            session.forks.checkpoint("a", f"p{number}")
            times.append(time.monotonic() - began)
            most = max(most, len(os.listdir("/proc/self/fd")))
        session.forks.rollback("a", "p5")
        if session.forks.tools.tree("a").read(b"many/5") != b"5\n":
            raise Defect("rollback to the 5th checkpoint")
        result = session.run([b"cat", b"many/5"], fork="a")
        if result.stdout != b"5\n":
            raise Defect(f"a command after the rollback: {result}")
    tenth = max(1, count // 10)
    world.figures.update(
        {
            "first ms": median(times[:tenth]),
            "last ms": median(times[-tenth:]),
            "descriptors": most,
            "checkpoints": count,
        }
    )
    if most > 120:
        raise Defect(f"{most} descriptors")
    if median(times[-tenth:]) > 4 * median(times[:tenth]) + 5:
        raise Defect(f"not flat: {world.figures}")
    world.ok("vault", "check")
    world.ok("discard", "a")
