"""A model story: a few forks live through commands, file tools, the user's edits, checkpoints, applies, undo and
discards, by the command line. Every step is compared with a plain copy of the project on which the same was done.

No test is here.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from story_world import PYTHON, Defect, RefusedHere, Tree, World, on

HOUR = 3600 * 10**9
LOOK = """
import hashlib, os
for directory, directories, files in os.walk("."):
    for name in sorted((*directories, *files)):
        path = os.path.normpath(os.path.join(directory, name))
        if path.split("/")[0] == ".mudroom": continue
        if os.path.islink(path): print(path, "link", os.readlink(path))
        elif os.path.isdir(path): print(path, "directory")
        else: print(path, "file", hashlib.blake2b(open(path, "rb").read()).hexdigest()[:16])
"""


def look_inside(world: World, fork: str, model: Path) -> None:
    """What a command sees is what the model has."""
    ended = world.ok("exec", "--fork", fork, *world.view, "--", PYTHON, "-I", "-S", "-c", LOOK)
    plain = subprocess.run([sys.executable, "-I", "-S", "-c", LOOK], cwd=model, check=True, capture_output=True)
    inside, outside = sorted(ended.out.splitlines()), sorted(plain.stdout.decode().splitlines())
    if inside != outside:
        raise Defect(
            f"fork {fork}: inside only {set(inside) - set(outside)}, outside only {set(outside) - set(inside)}"
        )


TOOLS = """
import os, sys
from mudroom.core.settings import Settings
from mudroom.session import Session
with Session.open(os.fsencode(sys.argv[1]), state=os.fsencode(sys.argv[2]), home=os.fsencode(sys.argv[3]),
                  environ=os.environb, settings=Settings()) as session:
    files = session.forks.files("b")
    files.write("tools/new", "by tools\\n")
    files.write("edit", "replaced by tools\\n")
    session.forks.checkpoint("b", "t1")
    session.forks.tools.tree("b").unlink(b"removed")
    session.forks.tools.tree("b").rename(b"kept/f", b"kept/g")
    session.forks.checkpoint("b", "t2")
    session.forks.tools.tree("b").remove(b"d")
    session.forks.checkpoint("b", "t3")
    assert session.forks.tools.tree("b").read(b"tools/new") == b"by tools\\n"
"""


def by_tools(world: World) -> None:
    world.step = "file tools"
    world.pace("before", "tools")
    done = subprocess.run(
        [sys.executable, "-c", TOOLS, str(world.project), str(world.state), str(world.home)],
        cwd=world.project, env={**world.environ, "PYTHONPATH": sys.path[1]}, check=False,
        capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode:
        raise Defect(f"file tools: {done.stderr.strip()[-1500:]}")
    world.pace("after", "tools")


def first(world: World) -> None:
    """The first command: refused in one line, or everything after it has to work."""
    before = world.tree(world.project)
    ended = world.m("exec", "--fork", "a", *world.view, "--", "true")
    if ended.code:
        world.expect(before, "refused, and the project is changed")
        lines = [line for line in ended.err.splitlines() if line.strip()]
        if len(lines) != 1:
            raise Defect(f"refused in {len(lines)} lines: {ended.err}")
        raise RefusedHere(world.anonymous(lines[0]))


def damage(world: World) -> None:
    """A fork whose state is torn is a row of the lists, and goes by one command."""
    world.shell("torn", "echo x > torn")
    (state,) = world.state.glob("vaults/*/forks/torn/state")
    state.write_bytes(state.read_bytes()[:-7])
    world.lists()


def settle(world: World) -> None:
    """Wait until a coarse clock tells what is in the project from what is written next."""
    if world.able.whole_seconds:
        latest = max(path.lstat().st_ctime for path in world.project.rglob("*"))
        time.sleep(max(0.0, latest + 4 - time.time()))
        world.remarks.setdefault(
            "what was written in the three seconds before a command conflicts with what it changes"
        )


def story(world: World) -> None:
    first(world)
    world.ok("discard", "a")
    settle(world)
    before = world.tree(world.project)
    model = world.model("a")
    world.shell("a", world.scripts())
    on(model, world.scripts())
    world.expect(before, "exec changed the project")
    look_inside(world, "a", model)
    damage(world)

    # the user works, too; stamps are kept
    (world.project / "mine").write_text("the user's own edit\n")
    (world.project / "both").write_text("user\n")
    world.keep_stamp("stamp", "cccc\n")
    text = (world.project / "merge").read_text()
    (world.project / "merge").write_text(text.replace("line 2\n", "line two\n"))
    (world.project / "notes").write_text("new\n")
    edited = world.tree(world.project)
    world.lists()
    world.ok("diff", "a")
    other_fork(world)
    world.expect(edited, "a fork changed the project")

    # apply with two conflicts
    landed = applied_with_conflicts(world, model, edited)
    undo_redo(world, edited, landed)
    late_edits(world)
    discard_and_end(world)


def other_fork(world: World) -> None:
    model = world.model("b")
    world.shell("b", "echo b > b; rm -r names; mkdir names; echo 1 > names/1")
    on(model, "echo b > b; rm -r names; mkdir names; echo 1 > names/1")
    world.ok("checkpoint", "p1", "--fork", "b")
    held = world.model("b@p1", model)
    world.shell("b", "rm b; rm -r names; echo more >> edit; rm -r kept")
    world.ok("checkpoint", "p2", "--fork", "b")
    world.ok("rollback", "p1", "--fork", "b", "--yes")
    look_inside(world, "b", held)
    by_tools(world)
    on(
        held,
        "mkdir tools; echo 'by tools' > tools/new; echo 'replaced by tools' > edit;"
        "rm removed; mv kept/f kept/g; rm -r d",
    )
    look_inside(world, "b", held)
    world.ok("fork", "new", "c", "--from", "b@t1")
    world.ok("diff", "b@t1", "b")


def applied_with_conflicts(world: World, model: Path, edited: Tree) -> Tree:
    world.ok("apply", "a", "--yes", code=3)
    wanted = world.tree(model)
    for name in ("mine", "both", "stamp", "notes"):
        wanted[name] = edited[name]
    merged = (model / "merge").read_bytes().replace(b"line 2\n", b"line two\n")
    wanted["merge"] = (*edited["merge"][:2], merged, edited["merge"][3])
    world.expect(wanted, "after an apply with conflicts")
    check_links(world)
    world.ok("resolve", "a", "both", "--theirs")
    world.ok("resolve", "a", "stamp", "--mine")
    world.ok("apply", "a", "--yes")
    wanted["both"] = world.tree(model)["both"]
    world.expect(wanted, "after the resolved rest")
    return wanted


def check_links(world: World) -> None:
    if world.able.hard_links and world.able_state.hard_links:
        one, other = (world.project / "new/hard").stat(), (world.project / "new/deep/n").stat()
        if (one.st_dev, one.st_ino) != (other.st_dev, other.st_ino):
            if world.able.counts and world.able_state.counts:
                raise Defect("hard links are not the same file after the apply")
            world.remarks.setdefault(
                "hard links can land as separate files: the driver keeps their number for a second"
            )


def undo_redo(world: World, before: Tree, after: Tree) -> None:
    for _turn in range(2):
        world.ok("undo")
        world.ok("undo")
        world.expect(before, "after undo")
        world.ok("redo")
        world.ok("redo")
        world.expect(after, "after redo")


def late_edits(world: World) -> None:
    """An edit after the apply that keeps size and stamp is not undone."""
    world.keep_stamp("single", "S\n")
    world.keep_stamp("there", "MOVED\n" * 50)
    world.ok("undo")  # of the rest
    ended = world.ok("undo", code=3)
    for name, text in (("single", "S\n"), ("there", "MOVED\n" * 50)):
        if not (world.project / name).is_file() or (world.project / name).read_text() != text:
            raise Defect(f"undo removed an edit of {name}: {ended.out} {ended.err}")
    os.unlink(world.project / "single")
    os.unlink(world.project / "there")


def discard_and_end(world: World) -> None:
    settle(world)
    now = world.tree(world.project)
    model = world.model("c")
    world.ok("fork", "new", "d")
    world.shell("d", "rm -r names pkg; mkdir pkg; echo 1 > pkg/1")
    on(model, "rm -r names pkg; mkdir pkg; echo 1 > pkg/1")
    world.ok("apply", "d", "--yes")
    world.expect(world.tree(model), "after the second fork's apply")
    world.ok("undo")
    world.expect(now, "after the second fork's undo")
    for fork in ("b", "c", "torn"):
        world.ok("discard", fork)
    for fork in ("a", "d"):
        world.m("discard", fork)
    world.ok("vault", "gc")
    world.ok("recover")
    world.expect(now, "at the end")
    world.ok("vault", "check")
    world.ok("log", "verify")
    world.lists()
    left = [line for line in world.ok("ls").out.splitlines() if line.strip()]
    if any(line.startswith(("a ", "b ", "c ", "d ", "torn ")) for line in left):
        raise Defect(f"forks are left: {left}")


@contextmanager
def crowd(world: World) -> Iterator[None]:
    """Lists all the time, which may never fail."""
    log = world.models / "crowd"
    stop, stopped = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(stopped)
        count, failure = 0, ""
        os.set_blocking(stop, False)
        try:
            while not failure and not _is_closed(stop):
                verb = (("ls",), ("status",), ("fork", "ls"), ("ls", "--json"))[count % 4]
                count += 1
                ended = world.m(*verb)
                if ended.code:
                    failure = f"{verb}: {ended}"
        except Defect as error:
            failure = str(error)
        log.write_text(json.dumps([count, failure]))
        os._exit(0)
    os.close(stop)
    try:
        yield
    finally:
        os.close(stopped)
        os.waitpid(pid, 0)
    count, failure = json.loads(log.read_text())
    world.figures["lists"] = count
    if failure:
        raise Defect(f"a list failed beside the story: {failure}")


def _is_closed(descriptor: int) -> bool:
    try:
        return os.read(descriptor, 1) == b""
    except BlockingIOError:
        return False


def stepping(world: World) -> Callable[[], int]:
    """A wall clock that jumps between any two commands."""
    return lambda: world.draw.choice((-9600, -25, -1, 0, 1, 25, 9600)) * HOUR
