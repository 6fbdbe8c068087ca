"""Random git commands of a user and of two forks, with applies, undos and rollbacks in any order: after each step the
repository is sound, and nothing of the user's is lost.

    MUDROOM_GIT_STEPS=5000 MUDROOM_SEED=7 .venv/bin/python -m pytest tests/ext/commits/session/test_git_machine.py

A finding is printed with the shortest list of steps that leads to it.
"""

from __future__ import annotations

import os
from collections import Counter

import pytest
from git_machine import KINDS, Run, run, shorten

from mudroom.sandbox.client.client import Client
from tiers import SEED, daily

STEPS = int(os.environ.get("MUDROOM_GIT_STEPS", "2000"))
QUICK_STEPS = 60
PART = 250
"""Steps in one repository: in old ones most refs have gone their own way, and few applies move any."""
OUTCOMES = ("ref moved", "ref beside", "immediate undo", "immediate redo", "whole applies")
"""What has to come up, so that a run means anything."""


def perform(client: Client, kind: str, seed: str, count: int) -> Run:
    done = run(client, kind, seed, count)
    if done.finding:
        done = shorten(client, kind, seed, done)
        steps = "\n".join(f"    {tuple(step)}" for step in done.steps)
        pytest.fail(f"{kind}, seed {seed}: {done.finding}\nafter\n{steps}", pytrace=False)
    return done


@pytest.mark.slow
@pytest.mark.limit(300)
@pytest.mark.parametrize("kind", daily(KINDS))
def test_some_steps(client: Client, kind: str) -> None:
    assert len(perform(client, kind, SEED, QUICK_STEPS).steps) == QUICK_STEPS


@pytest.mark.deep
@pytest.mark.limit(7200)
def test_many_steps(client: Client) -> None:
    parts = -(-STEPS // PART)
    counts = perform(client, KINDS[0], f"{SEED}-0", min(PART, STEPS)).counts
    for number in range(1, 3 * parts):
        if number >= parts and not missing(counts):
            break  # on some days a rare outcome takes some parts more
        counts += perform(client, KINDS[number % len(KINDS)], f"{SEED}-{number}", PART).counts
    assert STEPS < 2000 or not missing(counts), counts


def missing(counts: Counter[str]) -> list[str]:
    return [outcome for outcome in OUTCOMES if STEPS >= 2000 and not counts[outcome]]
