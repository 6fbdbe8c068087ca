"""Every verb that writes, with power cut in its middle and at its end, on real file systems (``cuts.py``)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cuts import VERBS, Cut, play, prepare
from durable import TABLE
from remounted import KINDS, ORDINARY, remounted

pytestmark = [
    pytest.mark.slow,
    pytest.mark.both_users,
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="mounting file systems needs root"),
]


def found(base: Path, kind: str, user: str, verbs: tuple[str, ...], most: int) -> list[Cut]:
    with remounted(base, kind, user) as ground:
        before = prepare(ground)
        return [cut for verb in verbs for cut in play(ground, before, verb, most)]


@pytest.mark.limit(600)
@pytest.mark.parametrize(("kind", "user"), [("ext4", ORDINARY), pytest.param("btrfs", "", marks=pytest.mark.deep)])
def test_the_power_is_cut_at_the_end_of_an_undo_and_of_a_checkpoint(tmp_path: Path, kind: str, user: str) -> None:
    """The first lost what the fork had again, on ext4; the second lost the checkpoint, on btrfs."""
    cuts = found(tmp_path, kind, user, ("undo", "checkpoint"), 1)
    assert [cut for cut in cuts if cut.verdict == "lost"] == []


@pytest.mark.deep
@pytest.mark.limit(3600)
@pytest.mark.parametrize("user", ["", ORDINARY])
@pytest.mark.parametrize("kind", KINDS)
def test_no_verb_loses_what_it_has_reported(tmp_path: Path, kind: str, user: str) -> None:
    cuts = found(tmp_path, kind, user, tuple(VERBS), 4)
    assert [cut for cut in cuts if cut.verdict == "lost"] == []


def test_every_verb_that_reports_something_durable_is_cut() -> None:
    """The others only write in the page cache, or what they write is cut by ``tests/power``."""
    cut = {words[0] for words in VERBS.values()}
    same = {"run", "shell", "agent", "acp", "mcp", "hook", "worker", "fleet", "mount", "unmount", "review", "serve"}
    small = {"recover", "log", "approve", "policy", "net", "send"}
    assert {verb for verb, row in TABLE.items() if row.durable} == cut | same | small
