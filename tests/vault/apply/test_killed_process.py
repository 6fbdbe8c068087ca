"""Apply and undo in a process of its own that is ended at one change of the disk after the other: by SIGKILL, or on
Windows (``dev/wine``) by TerminateProcess. The next process recovers: byte for byte before or after, never between.

``test_crash.py`` does the same for each change with fork(2), which Windows lacks. Here a process is started for each,
so the quick run takes one of the day; ``dev/wine --all`` takes all.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tiers import SEED
from workbench import Contents, Killer, Workbench, contents

if sys.platform != "win32":
    pytestmark = pytest.mark.deep  # beside test_crash.py

HERE = Path(__file__)


def fill(project: Path) -> None:
    for name in ("edited", "gone/a", "gone/b/c", "removed", "kind", "moved", "case", "deep/deeper/f", "untouched"):
        path = project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode() + b"\n")


def command(work: Path) -> None:
    """Everything that an apply knows to do without links and modes."""
    (work / "edited").write_bytes(b"edited\nmore\n")
    shutil.rmtree(work / "gone")
    (work / "removed").unlink()
    (work / "new/sub").mkdir(parents=True)
    (work / "new/sub/f").write_bytes(b"n\n")
    (work / "kind").unlink()
    (work / "kind").mkdir()
    (work / "kind/k").write_bytes(b"k\n")
    (work / "moved").rename(work / "there")
    (work / "deep/deeper/f").write_bytes(b"f\nmore\n")
    (work / "single").write_bytes(b"s\n")


def prepared(root: Path, verb: str) -> tuple[Contents, Contents]:
    """Make a project with a fork for ``verb``. Return the project's contents before and after an apply."""
    bench = Workbench(root)
    fill(bench.project)
    before = contents(bench.project)
    bench.run("f", command)
    bare = root / "bare"
    shutil.copytree(bench.project, bare)
    command(bare)
    after = contents(bare)
    if verb == "undo":
        assert bench.apply("f") == []
    bench.close()
    return before, after


def work(root: str, verb: str, at: str) -> None:
    """In the child: do it, ended before change number ``at``."""
    bench = Workbench(Path(root))
    killer = Killer(int(at))
    killer.begin()
    conflicts = bench.apply("f") if verb == "apply" else bench.undo()
    killer.at = 0
    sys.stdout.write(json.dumps([killer.count, conflicts]))


def child(root: Path, verb: str, at: int) -> tuple[int, list[str]] | None:
    """Return the number of changes and the conflicts, or None if the process was ended."""
    words = [sys.executable, "-B", "-c", PROGRAM.format(path=sys.path, here=str(HERE)), str(root), verb, str(at)]
    ended = subprocess.run(words, capture_output=True, check=False)
    if ended.returncode in (-9, 9):
        return None
    assert ended.returncode == 0, ended.stderr.decode("utf-8", "replace")
    count, conflicts = json.loads(ended.stdout)
    return count, conflicts


PROGRAM = "import sys, runpy; sys.path[:] = {path!r}; runpy.run_path({here!r}, run_name='__main__')"
"""The Python for embedding, which ``dev/wine`` has, reads no PYTHONPATH."""


def check(root: Path, verb: str, at: int) -> None:
    before, after = prepared(root, verb)
    done = child(root, verb, at)
    bench = Workbench(root)
    recovered = bench.changes.recover()
    assert all(not one.applied.conflicts for one in recovered), f"{verb} ended at change {at}"
    now = contents(bench.project)
    assert now in (before, after), f"torn: {verb} ended at change {at}"
    assert done is None or now == (after if verb == "apply" else before)
    if now == before and verb == "apply":
        assert bench.apply("f") == [], f"{verb} ended at change {at}"
        assert contents(bench.project) == after
    if contents(bench.project) == after:
        assert bench.undo() == [], f"{verb} ended at change {at}"
    assert contents(bench.project) == before, f"{verb} ended at change {at}"
    assert bench.changes.recover() == []
    bench.remove()


@pytest.mark.parametrize("verb", ["apply", "undo"])
def test_ended_at_a_change(tmp_path: Path, verb: str) -> None:
    """One of the day: an apply of these files makes some 200 changes, an undo half of them."""
    check(tmp_path / "one", verb, 1 + int(SEED) % (200 if verb == "apply" else 80))


@pytest.mark.deep
@pytest.mark.parametrize("verb", ["apply", "undo"])
def test_ended_at_each_change(tmp_path: Path, verb: str) -> None:
    prepared(tmp_path / "whole", verb)
    counted = child(tmp_path / "whole", verb, 0)
    assert counted is not None and counted[1] == []
    assert counted[0] > 20, "the changes are seen"
    for at in range(1, counted[0] + 1):
        check(tmp_path / str(at), verb, at)


if __name__ == "__main__":
    work(*sys.argv[1:])
