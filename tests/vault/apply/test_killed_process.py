"""Verbs in a process of its own that is ended at one change of the disk after the other: by SIGKILL, or on Windows
(``dev/wine``) by TerminateProcess. The next process recovers: byte for byte before or after, never between, and the
verb can be said again.

``test_faults.py`` does the same at each call that the kernel counts, which Windows cannot. Here a process is started
for each, so the quick run takes one of the day; ``dev/wine --kills`` takes all.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from mudroom.core.tree.change import Changeset
from tiers import SEED
from workbench import Contents, Workbench, contents

if sys.platform != "win32":
    pytestmark = pytest.mark.deep  # beside test_faults.py


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


class Prepared(NamedTuple):
    """The project's contents before and after an apply, and what the fork changes: paths with verbs. ``later``: with
    its second command, which has no checkpoint."""

    before: Contents
    after: Contents
    changes: dict[bytes, str]
    later: dict[bytes, str]


def prepared(root: Path, verb: str) -> Prepared:
    """Make a project with a fork for ``verb``."""
    bench = Workbench(root)
    fill(bench.project)
    before = contents(bench.project)
    changes = later = paths(bench.run("f", command))
    bare = root / "bare"
    shutil.copytree(bench.project, bare)
    command(bare)
    after = contents(bare)
    if verb == "undo":
        assert bench.apply("f") == []
    if verb in ("rollback", "discard"):
        bench.forks.checkpoint("f", "one")
        later = paths(bench.run("f", command_later))
    bench.close()
    return Prepared(before, after, changes, later)


def command_later(work: Path) -> None:
    (work / "edited").unlink()
    (work / "new/sub/g").write_bytes(b"g\n")
    shutil.rmtree(work / "deep")
    (work / "second").write_bytes(b"2\n")


def paths(changes: Changeset) -> dict[bytes, str]:
    return {change.path: change.verb for change in changes.changes}


def child(root: Path, verb: str, at: int) -> tuple[int, list[str]] | None:
    """Return the number of changes and the conflicts, or None if the process was ended."""
    words = [sys.executable, "-c", PROGRAM.format(paths=sys.path, cache=sys.pycache_prefix), str(root), verb, str(at)]
    ended = subprocess.run(words, capture_output=True, check=False)
    if ended.returncode in (-9, 9):
        return None
    assert ended.returncode == 0, ended.stderr.decode("utf-8", "replace")
    count, conflicts = json.loads(ended.stdout)
    return count, conflicts


PROGRAM = """\
import sys
sys.path[:], sys.pycache_prefix, sys.dont_write_bytecode = {paths!r}, {cache!r}, not {cache!r}
import killed_verb
killed_verb.work(*sys.argv[1:])
"""
"""The Python for embedding, which ``dev/wine`` has, reads no PYTHONPATH."""


def check(root: Path, verb: str, at: int) -> int:
    """Do it in a process that is ended before change ``at``; 0: in one that is not. Recover, do it again, and go on to
    the end. Return the number of changes, or 0 if the process was ended."""
    ready = prepared(root, verb)
    done = child(root, verb, at)
    assert done is None or done[1] == []
    bench = Workbench(root)
    try:
        recovered = bench.changes.recover()
        assert all(not one.applied.conflicts for one in recovered), f"{verb} ended at change {at}"
        (_landed if verb in ("apply", "undo") else _stayed)(bench, ready, verb, done is not None)
        assert bench.changes.recover() == []
    except BaseException as error:
        error.add_note(f"{verb} ended at change {at}")
        raise
    bench.remove()
    return done[0] if done else 0


def _landed(bench: Workbench, ready: Prepared, verb: str, is_done: bool) -> None:
    """Of apply and undo: the project is as before or as after, and goes to the other and back."""
    now = contents(bench.project)
    assert now in (ready.before, ready.after), "torn"
    assert not is_done or now == (ready.after if verb == "apply" else ready.before)
    if now == ready.before and verb == "apply":
        assert bench.apply("f") == []
        assert contents(bench.project) == ready.after
    if contents(bench.project) == ready.after:
        assert bench.undo() == []
    assert contents(bench.project) == ready.before


def _stayed(bench: Workbench, ready: Prepared, verb: str, is_done: bool) -> None:
    """Of the others: the project is as it was; the fork has its changes or those after the verb, and lands."""
    assert contents(bench.project) == ready.before
    if verb == "discard":
        if "f" in [fork.name for fork in bench.vault.forks()]:
            assert not is_done and paths(bench.changes.of("f")) == ready.later
            bench.forks.discard("f")
        assert paths(bench.run("f", command)) == ready.changes, "the name is free"
    elif verb == "rollback":
        now = paths(bench.changes.of("f"))
        assert now == ready.changes or (now == ready.later and not is_done)
        bench.forks.rollback("f", "one")
    else:
        assert paths(bench.changes.of("f")) == ready.changes
        points = [point.name for point in bench.vault.fork("f").state.checkpoints]
        assert points in ([], ["here"]) and (points or not is_done)
        if not points:
            bench.forks.checkpoint("f", "here")
        bench.run("f", command_later)
        bench.forks.rollback("f", "here")
    assert paths(bench.changes.of("f")) == ready.changes
    assert bench.apply("f") == []
    assert contents(bench.project) == ready.after


SIZES = {"apply": 130, "undo": 25, "checkpoint": 40, "rollback": 20, "discard": 10}
"""Some changes fewer than each verb makes of these files."""


@pytest.mark.parametrize("verb", ["apply", "undo"])
def test_ended_at_a_change(tmp_path: Path, verb: str) -> None:
    """One of the day."""
    check(tmp_path / "one", verb, 1 + int(SEED) % SIZES[verb])


ROWS = 8
"""Parts of the test below, which can be run one by one."""


@pytest.mark.deep
@pytest.mark.limit(3600)
@pytest.mark.parametrize("row", range(1, ROWS + 1))
@pytest.mark.parametrize("verb", SIZES)
def test_ended_at_each_change(tmp_path: Path, verb: str, row: int) -> None:
    """In four processes at once: most of the time goes into their starts."""
    count = check(tmp_path / "whole", verb, 0)
    assert count > SIZES[verb], "the changes are seen"
    changes = range(row, count + 1, ROWS)
    with ThreadPoolExecutor(4) as pool:
        ended = list(pool.map(lambda at: check(tmp_path / str(at), verb, at), changes))
    sys.stdout.write(f"{verb}: ended at {len(changes)} of {count} changes\n")
    assert [at for at, done in zip(changes, ended, strict=True) if done and at < count - 1] == [], "each was ended"
