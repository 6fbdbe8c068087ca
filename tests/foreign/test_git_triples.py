"""The merges of contents that git's own tests ask for, by mudroom's merge and by ``git merge-file``: never clean where
git conflicts, and the same bytes where both are clean. Git's scripts are run in a sandbox."""

from __future__ import annotations

import io
import subprocess
import tarfile
from collections.abc import Iterable
from pathlib import Path

import pytest

import merge_recorder
import suite
from conftest import Place
from mudroom.core.merge.diff3 import merge3
from mudroom.core.merge.marker import why_not_mergeable

SMOKE = ("t6403-merge-file.sh", "t6427-diff3-conflict-markers.sh", "t6404-recursive-merge.sh")
MORE = ("t3402-rebase-merge.sh", "t3430-rebase-merges.sh", "t4200-rerere.sh", "t7600-merge.sh", "t7607-merge-state.sh")
REFUSED = 255
"""Exit status of ``git merge-file`` for what is not text; below it is the number of conflicts."""

Triple = dict[str, bytes]


def recorded(place: Place, tests: Path, scripts: Iterable[str]) -> dict[str, Triple]:
    """Return the three contents of each merge, by script and hash."""
    for name, content in merge_recorder.FILES.items():
        place.write(name, content, 0o755)
    session = suite.open_mode(place, "overlay", tests)
    result = suite.run_in(session, place, f"sh record.sh '{tests}' {' '.join(scripts)}", "overlay")
    assert result.exit_code == 0, result.stderr
    triples: dict[str, Triple] = {}
    with tarfile.open(fileobj=io.BytesIO(suite.staged(session, "triples.tar"))) as archive:
        for member in archive:
            if (file := archive.extractfile(member)) is not None and member.name.count("/") == 2:
                _top, name, side = member.name.split("/")
                triples.setdefault(name, {})[side] = file.read()
    return triples


def by_git(triple: Triple, directory: Path) -> tuple[str, bytes]:
    for side, content in triple.items():
        (directory / side).write_bytes(content)
    words = ["git", "merge-file", "-p", "-q", "ours", "base", "theirs"]
    done = subprocess.run(words, cwd=directory, capture_output=True, check=False)
    word = "refused" if done.returncode == REFUSED else "conflict" if done.returncode else "clean"
    return word, done.stdout


def by_mudroom(triple: Triple, from_git: bytes) -> str:
    if any(map(why_not_mergeable, triple.values())):
        return "refused"
    merged = merge3(triple["base"], triple["ours"], triple["theirs"])
    if not merged.clean:
        return "conflict"
    return "clean" if merged.content() == from_git else "clean, other bytes"


def compare(place: Place, scripts: Iterable[str], least: int, *, whole: bool) -> None:
    triples = recorded(place, suite.source("git") / "t", scripts)
    assert len(triples) >= least, sorted(triples)
    git = {name: by_git(triple, place.root) for name, triple in triples.items()}
    ours = {name: by_mudroom(triple, git[name][1]) for name, triple in triples.items()}
    assert {"clean", "conflict"} <= set(ours.values())
    theirs = {name: word for name, (word, _text) in git.items()}
    lines = suite.surprises(theirs, suite.Ran(ours), suite.table("git_triples"), "overlay", whole=whole)
    assert lines == [], "\n".join(lines)


@pytest.mark.slow
def test_merges_of_three_scripts(place: Place) -> None:
    compare(place, SMOKE, 20, whole=False)


@pytest.mark.deep
@pytest.mark.foreign
@pytest.mark.limit(900)
def test_merges_of_all_scripts(place: Place) -> None:
    tests = suite.source("git") / "t"
    scripts = [path.name for path in sorted(tests.glob("t64*.sh"))]
    compare(place, [*scripts, *(name for name in MORE if (tests / name).exists())], 150, whole=True)
