"""The ground of a model story: a project that is filled, the command line on it, and trees to compare.

No test is here.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

MODES = 0o777
PYTHON = os.path.realpath(sys.executable)
"""As a command finds it: a virtual environment may be hidden from it."""


class Defect(Exception):
    """A promise that does not hold."""


class RefusedHere(Exception):
    """The first command was refused in one line; the project is as it was."""


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
XATTR = f'{PYTHON} -I -S -c \'import os; os.setxattr("single", "user.k", b"v")\'\n'
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
        self.pace: Callable[..., object] = lambda *_words: None
        """Called before and after each command: the file system may be mounted again meanwhile (``tests/reboot``)."""
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
        self.pace("before", *argv)
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            _pid, status = os.waitpid(self.start(*argv, out=out, err=err), 0)
            out.seek(0)
            err.seek(0)
            ended = Ended(os.waitstatus_to_exitcode(status), out.read(), err.read())
        self.pace("after", *argv)
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
