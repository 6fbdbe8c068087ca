"""Merges beside those of ``git merge-file``: never clean where git conflicts, and the same bytes where both are clean.

MUDROOM_TRIPLES says how many triples are merged, MUDROOM_FIRST_TRIPLE which is the first, and MUDROOM_TEST_SECONDS how
long a test may take: a run by hand with 100000 takes some five minutes.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

import merge_history
import triples

TRIPLES = int(os.environ.get("MUDROOM_TRIPLES", "400"))
FIRST = int(os.environ.get("MUDROOM_FIRST_TRIPLE", "0"))

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def test_random_triples(tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    for seed in range(FIRST, FIRST + TRIPLES):
        _, triple = triples.triple(seed)
        outcome = merge_history.outcome(triple, tmp_path)
        assert outcome != "wrong", f"triple {seed}"
        counts[outcome] += 1
    assert counts["clean"] > TRIPLES / 2
    assert counts["cautious"] < TRIPLES / 50, counts


@pytest.mark.parametrize("name", triples.GENERATORS)
def test_triples_of_each_kind(name: str, tmp_path: Path) -> None:
    generator, _ = triples.GENERATORS[name]
    for seed in range(15):
        assert merge_history.outcome(generator(random.Random(seed)), tmp_path) != "wrong", seed


# Found by long runs: git chose differently on the two sides where both had made the same change, and conflicts.
@pytest.mark.parametrize("seed", [102919, 106770, 108479, 109561, 111369, 121172, 123311, 128973, 131204, 134988])
def test_triples_that_were_wrong_once(seed: int, tmp_path: Path) -> None:
    assert merge_history.outcome(triples.triple(seed)[1], tmp_path) in ("conflict", "cautious")


class History:
    """A repository with merges in it."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.git("init", "-q", "-b", "main")

    def git(self, *words: str) -> str:
        names = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
        run = subprocess.run(["git", *names, *words], cwd=self.place, env=triples.ENV, capture_output=True, check=False)
        return run.stdout.decode().strip()

    def commit(self, lines: list[bytes], name: str = "file") -> None:
        (self.place / name).write_bytes(triples.joined(lines))
        self.git("add", name)
        self.git("commit", "-q", "-m", "change")


def changed(rng: random.Random, lines: list[bytes]) -> list[bytes]:
    at = rng.randrange(len(lines))
    return triples.edited(rng, [*lines[:at], b"new %d" % rng.randrange(10**9), *lines[at:]])


@pytest.fixture
def history(tmp_path: Path) -> History:
    (tmp_path / "repository").mkdir()
    history = History(tmp_path / "repository")
    rng = random.Random(3)
    lines = triples.source(rng, 60)
    history.commit(lines)
    for number in range(6):
        history.git("checkout", "-q", "-b", f"side{number}")
        history.commit(changed(rng, lines))
        history.git("checkout", "-q", "main")
        lines = changed(rng, lines)
        history.commit(lines)
        history.git("merge", "-q", "-s", "ours", "-m", "merge", f"side{number}")  # what it holds is all the same
    return history


def test_a_history_is_merged_again(history: History, capsys: pytest.CaptureFixture[str]) -> None:
    cases = list(merge_history.merges(history.place))
    assert len(cases) == 6
    report = merge_history.compare(history.place, cases)
    assert sum(report.counts.values()) == 6
    assert report.wrong == []
    assert merge_history.main(str(history.place)) == 0
    assert "clean" in capsys.readouterr().out


def test_changes_are_picked_onto_other_versions(history: History) -> None:
    report = merge_history.compare(history.place, merge_history.picks(history.place, 60))
    assert sum(report.counts.values()) > 10
    assert report.wrong == []


def test_a_triple_that_git_merges_otherwise_is_told(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge_history, "git_merge", lambda place, triple: None)
    report = merge_history.compare(history.place, merge_history.merges(history.place))
    assert len(report.wrong) == report.counts["wrong"] > 0
