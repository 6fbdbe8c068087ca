"""A story of verbs that are killed at random moments."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress

from full_disk import SMALL, Filler
from model_story import first, settle
from story_world import Defect, Tree, World, difference, on


def storm(world: World, rounds: int, filler: Filler | None = None) -> None:
    """Kill verbs at random moments. The project is as before or as after; nothing that was reported is lost."""
    first(world)
    world.ok("discard", "a")
    typical: dict[str, float] = {}
    kills = 0
    steps: dict[str, int] = {}

    def killed(*argv: str) -> bool:
        """Return whether the verb came to its end before the kill."""
        nonlocal kills
        world.calls += 1
        verb = world.step = argv[0]
        world.pace("before", *argv)
        if filler:
            filler.take(world.draw.choice((0, 2, 8, 64, 400)))
        began = time.monotonic()
        with open(world.models / "killed", "w+") as err:
            pid = world.start(*argv, err=err, lead=True)
            wait = world.draw.uniform(0, typical.get(verb, 0.15) * 1.05)
            done = wait_for(pid, wait) if verb in typical else os.waitpid(pid, 0)[1]
            if done is None:
                with suppress(ProcessLookupError):  # it is not the leader of its group yet
                    os.killpg(pid, signal.SIGKILL)
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                kills += 1
                steps[verb] = steps.get(verb, 0) + 1
            elif verb not in typical or os.waitstatus_to_exitcode(done) == 0:
                typical[verb] = max(time.monotonic() - began, typical.get(verb, 0) * 0.9)
            err.seek(0)
            text = err.read()
        if "Traceback" in text:
            raise Defect(f"{argv}: {text}")
        if filler:
            filler.give()
        return done is not None and os.waitstatus_to_exitcode(done) == 0

    def one_of(*trees: Tree) -> Tree:
        world.ok("recover", code=0)
        world.lists()
        found = world.tree(world.project)
        if found not in trees:
            raise Defect(
                f"torn by a kill in {world.step}: {difference(trees[0], found)} / {difference(trees[-1], found)}"
            )
        return found

    for number in range(rounds):
        settle(world)
        (world.project / "mine").write_text(f"edit {number}\n")
        before, model = world.tree(world.project), world.model("storm")
        on(model, SMALL)
        after = world.tree(model)
        fork = f"k{number}"
        killed("exec", "--fork", fork, "--", "sh", "-c", SMALL)
        one_of(before)
        if any(line.startswith(fork + " ") for line in world.ok("ls").out.splitlines()):
            world.ok("discard", fork)
        world.shell(fork, SMALL)
        for words, was, wanted, past in (
            (("apply", fork, "--yes"), before, after, "applied"),
            (("undo",), after, before, "undone"),
            (("redo",), before, after, "redone"),
        ):
            done = killed(*words)
            if one_of(was, wanted) == was:
                if done:
                    raise Defect(f"reported as {past}, and is not")
                world.ok(*words)
            world.expect(wanted, f"{past} after a kill")
        world.ok("undo")
        world.shell(fork, "echo again >> edit")
        killed("checkpoint", "p", "--fork", fork)
        killed("discard", fork)
        one_of(before)
        if any(line.startswith(fork + " ") for line in world.ok("ls").out.splitlines()):
            world.ok("discard", fork)
        world.ok("vault", "check")
    world.ok("vault", "gc")
    world.ok("vault", "check")
    world.ok("log", "verify")
    world.figures.update({"kills": kills, "rounds": rounds, **{f"killed {verb}": n for verb, n in steps.items()}})


def wait_for(pid: int, seconds: float) -> int | None:
    """Return the status of a child that ends within so many seconds, else None."""
    end = time.monotonic() + seconds
    descriptor = os.pidfd_open(pid)
    try:
        import select

        ready, _, _ = select.select([descriptor], [], [], max(0, end - time.monotonic()))
    finally:
        os.close(descriptor)
    return os.waitpid(pid, 0)[1] if ready else None
