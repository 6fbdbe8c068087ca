"""``python -m bench``: one table, with ratios. Run it as the user you are; ``--quick`` takes half a minute.

Every row names what it is measured against, and the budget of docs/DESIGN.md section 11 where there is one.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from bench.timing import Figure, figure, side_by_side
from mudroom.session import Session
from mudroom.stage.overlay import remove_tree

BWRAP = ["bwrap", "--unshare-all", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"]
CLOCK_REALTIME_COARSE = 5


class Row(NamedTuple):
    what: str
    figure: Figure
    against: str
    other: Figure
    budget: str = ""

    def line(self) -> str:
        ratio = self.figure.median / self.other.median
        extra = (self.figure.median - self.other.median) * 1000
        ms, spread = self.figure.median * 1000, f"{self.figure.least * 1000:.1f}-{self.figure.most * 1000:.1f}"
        other = self.other.median * 1000
        cells = (
            self.what,
            f"{ms:.2f}",
            spread,
            self.against,
            f"{other:.2f}",
            f"{ratio:.2f}",
            f"{extra:+.2f}",
            self.budget,
        )
        return "| " + " | ".join(cells) + " |"


class Bench:
    def __init__(self, root: Path, quick: bool) -> None:
        self.root, self.quick = root, quick
        self.home = root / "home"
        self.home.mkdir()
        self._number = 0

    def project(self) -> Path:
        self._number += 1
        path = self.root / f"project{self._number}"
        path.mkdir()
        return path

    def session(self, project: Path) -> Session:
        now = time.time_ns()
        while time.clock_gettime_ns(CLOCK_REALTIME_COARSE) <= now:
            pass
        return Session.open(
            os.fsencode(project),
            state=os.fsencode(self.root / "state"),
            home=os.fsencode(self.home),
            environ=os.environb,
        )

    def command(self) -> list[Row]:
        with self.session(self.project()) as session:
            true = [b"/bin/true"]
            contestants = {
                "mudroom": lambda: session.run(true, fork="bench"),
                "subprocess.run": lambda: subprocess.run(["/bin/true"], check=True),
            }
            if shutil.which("bwrap"):
                contestants["bwrap --unshare-all"] = lambda: subprocess.run([*BWRAP, "/bin/true"], check=True)
            found = side_by_side(contestants, 50 if self.quick else 300, warm_up=10)
        what = "`true` in a running session"
        rows = [Row(what, found["mudroom"], "`subprocess.run`", found["subprocess.run"], "≤ +4 ms")]
        if "bwrap --unshare-all" in found:
            rows.append(Row(what, found["mudroom"], "`bwrap --unshare-all`", found["bwrap --unshare-all"], "≤ 1.0"))
        return rows

    def cold(self) -> list[Row]:
        project = self.project()
        environment = {**os.environ, "HOME": str(self.home), "MUDROOM_STATE": str(self.root / "state")}
        script = str(Path(sys.executable).parent / "mudroom")
        quiet = subprocess.DEVNULL

        def mudroom() -> None:
            subprocess.run(
                [script, "run", "--yes", "--", "true"], cwd=project, env=environment, stderr=quiet, check=True
            )

        found = side_by_side(
            {"mudroom": mudroom, "python": lambda: subprocess.run([sys.executable, "-c", "pass"], check=True)},
            10 if self.quick else 40,
        )
        return [
            Row("`mudroom run --yes -- true`, cold", found["mudroom"], "`python -c pass`", found["python"], "≤ 60 ms")
        ]

    def view(self) -> list[Row]:
        project, count = self.project(), 2000 if self.quick else 20000
        for number in range(count):
            path = project / f"d{number % 200}" / f"f{number}.txt"
            path.parent.mkdir(exist_ok=True)
            path.write_text(f"line {number}\n" * 20)
        git = "git -c user.name=b -c user.email=b@example.org -c gc.auto=0"
        subprocess.run(["sh", "-c", f"git init -q && git add -A && {git} commit -qm x"], cwd=project, check=True)
        rows = []
        with self.session(project) as session:
            for name, command in (
                ("git status", "git status --short"),
                ("find", "find . -type f"),
                ("grep -r", "grep -r 'no such text' ."),
            ):
                loop = f"for i in 1 2 3; do {command} >/dev/null; done"
                loop = f"{command} >/dev/null; s=$(date +%s%N); {loop}; e=$(date +%s%N); echo $((e-s))"
                samples: dict[str, list[float]] = {"view": [], "bare": []}
                for _round in range(3 if self.quick else 7):
                    inside = session.run([b"sh", b"-c", loop.encode()], fork="view").stdout
                    outside = subprocess.run(["sh", "-c", loop], cwd=project, capture_output=True, check=True).stdout
                    samples["view"].append(int(inside) / 3e9)
                    samples["bare"].append(int(outside) / 3e9)
                what = f"`{name}` over {count:,} files, in the view"
                rows.append(Row(what, figure(samples["view"]), "bare tree", figure(samples["bare"]), "≤ 1.15"))
        return rows

    def applying(self) -> list[Row]:
        count, edits = (4000, 1000) if self.quick else (40000, 10000)
        make = f"""
import os
os.mkdir('new')
for n in range({count}):
    os.makedirs(f'new/{{n % 100}}', exist_ok=True)
    open(f'new/{{n % 100}}/{{n}}', 'w').write(str(n))
"""
        edit = f"for n in range({edits}):\n open(f'f{{n}}','a').write('more\\n')"
        rows = []
        for what, prepare, program in (
            (f"apply: new directory of {count:,} files", 0, make),
            (f"apply: {edits:,} modified files", edits, edit),
        ):
            ours, theirs, back = [], [], []
            for _round in range(1 if self.quick else 3):
                project = self.project()
                for number in range(prepare):
                    (project / f"f{number}").write_text("base\n")
                other = self.root / f"other{self._number}"
                subprocess.run(["cp", "-a", str(project), str(other)], check=True)
                with self.session(project) as session:
                    result = session.run([os.fsencode(sys.executable), b"-c", program.encode()])
                    assert result.exit_code == 0, result.stderr
                    ours.append(_timed(lambda: session.apply(result.fork, verify_fork=False)))  # noqa: B023
                    theirs.append(_timed(functools.partial(_run, "rsync", "-a", f"{project}/", str(other))))
                    back.append(_timed(session.undo))
            budget = "≤ 100 ms" if "new" in what else "≤ 0.3 ms a file"
            rows.append(Row(what, figure(ours), "`rsync -a`", figure(theirs), budget))
            rows.append(Row(what.replace("apply", "undo"), figure(back), "`rsync -a`", figure(theirs)))
        return rows

    def forks(self) -> list[Row]:
        figures = []
        for count in (10, 1000 if self.quick else 100_000):
            project = self.project()
            for number in range(count):
                path = project / f"d{number // 1000}" / f"f{number}"
                path.parent.mkdir(exist_ok=True)
                path.touch()
            with self.session(project) as session:
                vault = session.vault
                numbers = iter(range(100_000))
                found = side_by_side({"fork": lambda: vault.discard(vault.new_fork(f"f{next(numbers)}"))}, 100)  # noqa: B023
            figures.append((count, found["fork"]))
        (few, small), (many, large) = figures
        return [Row(f"fork and discard, {many:,} files", large, f"the same, {few} files", small, "≤ 5 ms, flat")]


def _run(*command: str) -> None:
    subprocess.run(command, check=True)


def _timed(call: object) -> float:
    assert callable(call)
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--only", choices=("command", "cold", "view", "applying", "forks"))
    parser.add_argument("--dir", help="where to work; default: the temporary directory")
    parser.add_argument("--json", metavar="FILE", help="write the figures there, too")
    args = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="mudroom-bench-", dir=args.dir))
    rows: list[Row] = []
    try:
        bench = Bench(root, args.quick)
        who = (
            f"uid {os.geteuid()}, {os.cpu_count()} CPUs, Linux {platform.release()}, Python {platform.python_version()}"
        )
        print(f"{who}; times in ms, medians\n")
        print("| what | ms | min-max | against | ms | ratio | difference | budget |\n|---|---|---|---|---|---|---|---|")
        for name in ("command", "cold", "view", "applying", "forks"):
            if args.only in (None, name):
                for row in getattr(bench, name)():
                    print(row.line(), flush=True)
                    rows.append(row)
    finally:
        remove_tree(os.fsencode(root))
    if args.json:
        Path(args.json).write_text(json.dumps([row._asdict() for row in rows]))


main()
