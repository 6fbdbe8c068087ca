"""Merges beside those of ``git merge-file``: never clean where git conflicts, and the same bytes where both are clean.

MUDROOM_TRIPLES says how many triples are merged, MUDROOM_FIRST_TRIPLE which is the first, and MUDROOM_TEST_SECONDS how
long a test may take: a run by hand with 100000 takes some five minutes.
"""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from pathlib import Path

import pytest

import triples

TRIPLES = int(os.environ.get("MUDROOM_TRIPLES", "400"))
FIRST = int(os.environ.get("MUDROOM_FIRST_TRIPLE", "0"))

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def test_random_triples(tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    for seed in range(FIRST, FIRST + TRIPLES):
        _, triple = triples.triple(seed)
        outcome = triples.outcome(triple, tmp_path)
        assert outcome != "wrong", f"triple {seed}"
        counts[outcome] += 1
    assert counts["clean"] > TRIPLES / 2
    assert counts["cautious"] < TRIPLES / 50, counts


@pytest.mark.parametrize("name", triples.GENERATORS)
def test_triples_of_each_kind(name: str, tmp_path: Path) -> None:
    generator, _ = triples.GENERATORS[name]
    for seed in range(15):
        assert triples.outcome(generator(random.Random(seed)), tmp_path) != "wrong", seed


# Found by long runs: git chose differently on the two sides where both had made the same change, and conflicts.
@pytest.mark.parametrize("seed", [102919, 106770, 108479, 109561, 111369, 121172, 123311, 128973, 131204, 134988])
def test_triples_that_were_wrong_once(seed: int, tmp_path: Path) -> None:
    assert triples.outcome(triples.triple(seed)[1], tmp_path) in ("conflict", "cautious")
