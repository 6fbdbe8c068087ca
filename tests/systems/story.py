"""A model story: a few forks live through commands, file tools, the user's edits, checkpoints, applies, undo and
discards, by the command line. Every step is compared with a plain copy of the project on which the same was done.

A script of its own, so that it can run as any user and in namespaces: ``python story.py PROJECT STATE HOME MODEL``
prints one JSON object (``Outcome``). No test is here.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

sys.path[:0] = [str(Path(__file__).resolve().parents[1]), str(Path(__file__).resolve().parents[2] / "src")]

HOUR = 3600 * 10**9
MODES = 0o777


class Defect(Exception):
    """A promise that does not hold."""


class RefusedHere(Exception):
    """The first command was refused in one line; the project is as it was."""


class Outcome(NamedTuple):
    result: str
    """``works``, ``refused`` or ``defect``."""
    step: str
    """The step at which the story ended; empty if it came to its end."""
    text: str
    remarks: list[str]
    """What mudroom said about the file system, each line once."""
    seconds: float
    figures: dict[str, float]


class Ended(NamedTuple):
    code: int
    out: str
    err: str


class Able(NamedTuple):
    """What a file system can hold, found by doing."""

    links: bool
    hard_links: bool
    modes: bool
    xattrs: bool
    names: bool
    """Whether it tells upper from lower case."""
    counts: bool
    """Whether the number of links is right at once: FUSE keeps it for a second."""
    whole_seconds: bool


def probe(directory: Path) -> Able:
    base = Path(tempfile.mkdtemp(dir=directory))
    (base / "f").write_text("x")

    def works(act: Callable[[], object]) -> bool:
        try:
            act()
        except OSError:
            return False
        return True

    def counts_links() -> bool:
        (base / "g").write_text("x")
        (base / "g").stat()
        return works(lambda: os.link(base / "g", base / "i")) and (base / "g").stat().st_nlink == 2

    def changes_modes() -> bool:
        if not works(lambda: (base / "f").chmod(0o640)):
            return False
        return stat.S_IMODE((base / "f").stat().st_mode) == 0o640

    try:
        return Able(
            works(lambda: os.symlink("f", base / "l")),
            works(lambda: os.link(base / "f", base / "h")),
            changes_modes(),
            works(lambda: os.setxattr(base / "f", "user.k", b"v")),
            not (base / "F").exists(),
            counts_links(),
            (base / "f").stat().st_ctime_ns % 10**9 == 0 and base.stat().st_ctime_ns % 10**9 == 0,
        )
    finally:
        shutil.rmtree(base)


def fill(project: Path) -> None:
    """The project of the story, before any file system is laid over it."""
    project.mkdir(parents=True, exist_ok=True)
    texts = {
        "edit": "".join(f"line {number}\n" for number in range(30)),
        "merge": "".join(f"line {number}\n" for number in range(30)),
        "both": "one\n",
        "mine": "the user's\n",
        "stamp": "aaaa\n",
        "removed": "removed\n",
        "moved": "moved\n" * 50,
        "tool": "#!/bin/sh\necho tool\n",
        "kind": "kind\n",
        "gone/a": "a\n",
        "gone/b/c": "c\n",
        "d/a": "a\n",
        "d/sub/b": "b\n",
        "d/sub/deeper/c": "c\n",
        "pkg/index.js": "index\n",
        "pkg/lib/x.js": "x\n",
        "kept/f": "kept\n",
        "names/lower": "lower\n",
    }
    for name, text in texts.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    (project / "data").write_bytes(random.Random(1).randbytes(70_000))


Entry = tuple[str, int, bytes, tuple[tuple[str, bytes], ...]]
Tree = dict[str, Entry]

PLAIN = """
set -e
sed -i 's/line 3$/line three/' edit
sed -i 's/line 28$/line twenty-eight/' merge
echo fork > both
echo bbbb > stamp
rm -r gone removed
mkdir -p new/deep; echo n > new/deep/n; echo s > single
mv moved there
rm kind; mkdir kind; echo k > kind/k
rm -r d; echo file > d
truncate -s 300000 sparse; echo end >> sparse
"""
LINKS = "ln -s ../elsewhere new/link; rm -r pkg; ln -s ../elsewhere pkg; ln -s /nowhere dangling\n"
HARD = "ln new/deep/n new/hard\n"
MODE = "chmod 755 tool; echo '#!/bin/sh' > new/exec; chmod 750 new/exec\n"
XATTR = f'{sys.executable} -I -S -c \'import os; os.setxattr("single", "user.k", b"v")\'\n'
NAMES = "mv names/lower names/middle; mv names/middle names/Lower\n"


class World:
    """A project, its state, and the command line."""

    def __init__(self, project: Path, state: Path, home: Path, model: Path, seed: int = 0) -> None:
        self.project, self.state, self.home, self.models = project, state, home, model
        self.draw = random.Random(seed)
        self.ahead: Callable[[], int] = lambda: 0
        """The nanoseconds by which the next command's wall clock is ahead."""
        self.remarks: dict[str, None] = {}
        self.figures: dict[str, float] = {}
        self.step = ""
        self.view: tuple[str, ...] = ()
        """Options of exec."""
        state.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.able = probe(project)
        self.able_state = probe(state)
        self.calls = 0
        self.environ = {
            **{key: value for key, value in os.environ.items() if not key.startswith(("MUDROOM_", "XDG_"))},
            "MUDROOM_KEEPER": "0",
            "MUDROOM_STATE": str(state),
            "HOME": str(home),
            "LC_ALL": "C.UTF-8",
        }

    # --- commands ---

    def start(self, *argv: str, out: Any = None, err: Any = None, lead: bool = False) -> int:
        """Start mudroom in a process forked from this one, which has everything imported. Return its pid."""
        ahead = self.ahead()
        pid = os.fork()
        if pid:
            return pid
        try:
            if lead:
                os.setsid()
            os.chdir(self.project)
            null = os.open(os.devnull, os.O_RDWR)
            for target, stream in enumerate((null, out or null, err or null)):
                os.dup2(stream if isinstance(stream, int) else stream.fileno(), target)
            sys.stdin, sys.stdout, sys.stderr = (os.fdopen(n, m) for n, m in ((0, "r"), (1, "w"), (2, "w")))
            os.environ.clear()
            os.environ.update(self.environ)
            if ahead:
                from clocks import WallClock

                WallClock().ahead = ahead
            from mudroom.cli.main import run

            code = run(argv, os.environb)
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
        except BaseException:  # noqa: BLE001 - as the interpreter would
            traceback.print_exc()
            sys.stderr.flush()
        os._exit(1)

    def m(self, *argv: str) -> Ended:
        """Run mudroom. Raise Defect for a traceback, or an error that is not one line."""
        self.calls += 1
        self.step = " ".join(argv[:4])
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            _pid, status = os.waitpid(self.start(*argv, out=out, err=err), 0)
            out.seek(0)
            err.seek(0)
            ended = Ended(os.waitstatus_to_exitcode(status), out.read(), err.read())
        if "Traceback" in ended.err + ended.out or ended.code < 0:
            raise Defect(f"a traceback: {ended}")
        if ended.code == 125 and not ended.err.strip():
            raise Defect(f"exit 125 without a word: {ended}")
        if ended.code == 125 and re.search(r"^mudroom: (Errno|\[Errno)", ended.err, re.M):
            raise Defect(f"a bare errno: {ended}")
        for line in ended.err.splitlines():
            if "working in a copy" in line or "this file system" in line:
                self.remarks.setdefault(self.anonymous(line))
        return ended

    def anonymous(self, line: str) -> str:
        for path, name in ((self.project, "PROJECT"), (self.state, "STATE"), (self.home, "HOME")):
            line = line.replace(str(path), name)
        return line.removeprefix("mudroom: ").strip()

    def ok(self, *argv: str, code: int | tuple[int, ...] = 0) -> Ended:
        """Run mudroom, which has to end with ``code``."""
        ended = self.m(*argv)
        codes = code if isinstance(code, tuple) else (code,)
        if ended.code not in codes:
            raise Defect(f"{' '.join(argv)}: exit {ended.code}, not {codes}: {ended.err.strip()} {ended.out.strip()}")
        return ended

    def shell(self, fork: str, script: str) -> Ended:
        return self.ok("exec", "--fork", fork, *self.view, "--", "sh", "-c", script)

    # --- trees ---

    def tree(self, root: Path) -> Tree:
        """Everything below ``root`` that the project's file system can hold."""
        found: Tree = {}
        pending = [""]
        while pending:
            at = pending.pop()
            for entry in os.scandir(root / at):
                name = f"{at}/{entry.name}" if at else entry.name
                if name == ".mudroom":
                    continue
                info = entry.stat(follow_symlinks=False)
                mode = stat.S_IMODE(info.st_mode) & MODES if self.able.modes else 0
                xattrs: tuple[tuple[str, bytes], ...] = ()
                if stat.S_ISLNK(info.st_mode):
                    found[name] = ("link", 0, os.fsencode(os.readlink(entry.path)), ())
                elif stat.S_ISDIR(info.st_mode):
                    found[name] = ("directory", mode, b"", ())
                    pending.append(name)
                else:
                    if self.able.xattrs:
                        keys = [key for key in os.listxattr(entry.path) if key.startswith("user.")]
                        keys = [key for key in keys if "overlay" not in key]
                        xattrs = tuple((key, os.getxattr(entry.path, key)) for key in sorted(keys))
                    found[name] = ("file", mode, Path(entry.path).read_bytes(), xattrs)
        return found

    def expect(self, wanted: Tree, what: str, found: Tree | None = None) -> None:
        found = self.tree(self.project) if found is None else found
        if found != wanted:
            raise Defect(f"{what}: {difference(wanted, found)}")

    def model(self, name: str, source: Path | None = None) -> Path:
        """A plain copy of the project, or of another model."""
        target = self.models / name
        if target.exists():
            subprocess.run(["chmod", "-R", "u+rwX", str(target)], check=True)
            shutil.rmtree(target)
        subprocess.run(["cp", "-a", str(source or self.project), str(target)], check=True, capture_output=True)
        shutil.rmtree(target / ".mudroom", ignore_errors=True)
        return target

    def scripts(self) -> str:
        able, state = self.able, self.able_state
        parts = (
            (True, PLAIN), (able.links and state.links, LINKS), (able.hard_links and state.hard_links, HARD),
            (able.modes and state.modes, MODE), (able.xattrs and state.xattrs, XATTR),
            (able.names and state.names, NAMES),
        )  # fmt: skip
        return "".join(text for holds, text in parts if holds)

    def keep_stamp(self, name: str, content: str) -> None:
        """An edit of the user's that keeps size and mtime."""
        path = self.project / name
        info = path.stat()
        if len(content) != info.st_size:
            raise ValueError(name)
        path.write_text(content)
        os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))

    def lists(self) -> None:
        for verb in (("ls",), ("status",), ("fork", "ls")):
            self.ok(*verb)


def on(root: Path, script: str) -> None:
    done = subprocess.run(["sh", "-c", script], cwd=root, check=False, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"the model's script failed: {done.stderr}")


def difference(wanted: Tree, found: Tree) -> str:
    names = [name for name in sorted({*wanted, *found}) if wanted.get(name) != found.get(name)]
    rows = [f"{name}: {short(found.get(name))}, not {short(wanted.get(name))}" for name in names]
    return "; ".join(rows[:6]) + (f" and {len(rows) - 6} more" if len(rows) > 6 else "")


def short(entry: Entry | None) -> str:
    return "absent" if entry is None else f"{entry[0]} {entry[1]:o} {entry[2][:30]!r} {len(entry[2])} {entry[3] or ''}"


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
    ended = world.ok("exec", "--fork", fork, *world.view, "--", sys.executable, "-I", "-S", "-c", LOOK)
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
    done = subprocess.run(
        [sys.executable, "-c", TOOLS, str(world.project), str(world.state), str(world.home)],
        cwd=world.project, env={**world.environ, "PYTHONPATH": sys.path[1]}, check=False,
        capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode:
        raise Defect(f"file tools: {done.stderr.strip()[-1500:]}")


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


# --- beside the story ---


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


# --- full disks ---


class Filler:
    """Takes the rest of a small disk, by bytes or by inodes."""

    def __init__(self, directory: Path, what: str) -> None:
        self._directory, self._what = directory, what

    def take(self, spare: int = 0) -> None:
        self._directory.mkdir(exist_ok=True)
        try:
            if self._what == "inodes":
                for number in range(1_000_000):
                    (self._directory / str(number)).touch()
            else:
                with open(self._directory / "big", "wb", buffering=0) as stream:
                    for block in (1 << 20, 1 << 12, 1 << 9, 1):
                        try:
                            while True:
                                stream.write(bytes(block))
                        except OSError:
                            continue
        except OSError:
            pass
        for number in range(spare):
            (self._directory / str(number)).unlink(missing_ok=True)
        if spare and self._what == "bytes":
            with open(self._directory / "big", "r+b") as stream:
                size = stream.seek(0, 2)
                stream.truncate(max(0, size - spare * 4096))

    def give(self) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)


SMALL = """
echo more >> edit; rm -r gone; mkdir -p new/deep; echo n > new/deep/n; mv moved there
head -c 60000 /dev/zero | tr '\\0' x > big; rm -r d; echo file > d; cat data > data2; mkdir many
i=0; while [ $i -lt 30 ]; do echo $i > many/$i; i=$((i+1)); done
"""


def full_story(world: World, filler: Filler) -> None:
    """Each verb on a full disk: done, or refused in one line with nothing lost; after room is made it goes on."""
    first(world)
    world.ok("discard", "a")
    before = world.tree(world.project)
    model = world.model("full")
    on(model, SMALL)
    after = world.tree(model)
    refused = 0
    for spare in (0, 1, 4, 16, 40):

        def at_full(*argv: str, states: tuple[Tree, ...], spare: int = spare) -> bool:
            """Return whether it was done."""
            nonlocal refused
            filler.take(spare)
            ended = world.m(*argv)
            world.lists()
            found = world.tree(world.project)
            filler.give()
            if len([line for line in ended.err.splitlines() if line.startswith("mudroom:")]) > 1:
                raise Defect(f"{argv}: more than one line: {ended.err}")
            world.ok("recover", code=(0, 3))
            now = world.tree(world.project)
            if now not in states:
                raise Defect(
                    f"{argv} on a full disk ({spare} spare): {difference(states[0], now)} (before: {found == now})"
                )
            refused += ended.code != 0
            if ended.code == 125 and not re.search("space|full|make room", ended.err):
                raise Defect(f"{argv}: does not say that the disk is full: {ended.err}")
            return ended.code == 0

        at_full("exec", "--fork", "f", "--", "sh", "-c", SMALL, states=(before,))
        if world.m("ls").out.startswith("f "):
            world.ok("discard", "f")
        world.shell("f", SMALL)
        at_full("checkpoint", "p", "--fork", "f", states=(before,))
        if not at_full("apply", "f", "--yes", states=(before, after)) and world.tree(world.project) == before:
            world.ok("apply", "f", "--yes")
        world.expect(after, "applied after the disk was full")
        if not at_full("undo", states=(after, before)) and world.tree(world.project) == after:
            world.ok("undo")
        world.expect(before, "undone after the disk was full")
        if not at_full("redo", states=(before, after)) and world.tree(world.project) == before:
            world.ok("redo")
        world.expect(after, "redone after the disk was full")
        world.ok("undo")
        at_full("discard", "f", states=(before,))
        world.m("discard", "f")
        at_full("vault", "gc", states=(before,))
        world.ok("vault", "check")
    world.figures["refused"] = refused
    world.ok("log", "verify", code=(0,))


# --- kills ---


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
        done = killed("apply", fork, "--yes")
        if one_of(before, after) == before:
            if done:
                raise Defect("reported as applied, and is not")
            world.ok("apply", fork, "--yes")
        world.expect(after, "applied after a kill")
        done = killed("undo")
        if one_of(after, before) == after:
            if done:
                raise Defect("reported as undone, and is not")
            world.ok("undo")
        world.expect(before, "undone after a kill")
        done = killed("redo")
        if one_of(before, after) == before:
            if done:
                raise Defect("reported as redone, and is not")
            world.ok("redo")
        world.expect(after, "redone after a kill")
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


def import_all() -> None:
    """So that each forked command need not."""
    import importlib
    import pkgutil

    import mudroom

    for module in pkgutil.walk_packages(mudroom.__path__, "mudroom."):
        if not re.search(r"windows|macos|\.nt_|\.(web|tui|launcher)\b|__main__", module.name):
            importlib.import_module(module.name)


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


# --- many checkpoints ---


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


def play(words: list[str]) -> Outcome:
    parser = argparse.ArgumentParser()
    for name in ("project", "state", "home", "model"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--clock", action="store_true")
    parser.add_argument("--view")
    parser.add_argument("--crowd", action="store_true")
    parser.add_argument("--full", choices=("bytes", "inodes"))
    parser.add_argument("--filler", type=Path)
    parser.add_argument("--kills", type=int)
    parser.add_argument("--checkpoints", type=int)
    args = parser.parse_args(words)
    began = time.monotonic()
    os.umask(0o022)
    for path in (args.home, args.model):
        path.mkdir(parents=True, exist_ok=True)
    if not (args.project / "edit").exists():
        fill(args.project)
    import_all()
    world = World(args.project, args.state, args.home, args.model, args.seed)
    if args.view:
        world.view = ("--view", args.view)
    if args.clock:
        world.ahead = stepping(world)
    result, text, step = "works", "", ""
    filler = Filler(args.filler, args.full or "bytes") if args.filler else None
    try:
        if args.kills:
            storm(world, args.kills, filler)
        elif args.checkpoints:
            checkpoints(world, args.checkpoints)
        elif args.full:
            assert filler
            full_story(world, filler)
        elif args.crowd:
            with crowd(world):
                story(world)
        else:
            story(world)
    except RefusedHere as error:
        result, text, step = "refused", str(error), world.step
    except Exception as error:  # noqa: BLE001 - told to whoever reads the outcome
        where = traceback.format_exc() if not isinstance(error, Defect) else ""
        result, text, step = "defect", f"{error}\n{where}".strip(), world.step
    world.figures["calls"] = world.calls
    return Outcome(result, step, text, list(world.remarks), round(time.monotonic() - began, 1), world.figures)


if __name__ == "__main__":
    sys.stdout.write(json.dumps(play(sys.argv[1:])._asdict()) + "\n")
