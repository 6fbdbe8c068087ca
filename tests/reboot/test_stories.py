"""The model stories across clean remounts and power cuts. btrfs, overlayfs, FUSE, NFS and ZFS get a device number at
each mount, and a loop device may get another one."""

from __future__ import annotations

import os
from collections.abc import Container
from pathlib import Path

import pytest

from remounted import KINDS, ORDINARY, remounted
from stories import PowerCuts, Remounts, tell

pytestmark = [
    pytest.mark.slow,
    pytest.mark.both_users,
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="mounting file systems needs root"),
]
USERS = ("", ORDINARY)
STORIES = ((), ("--view", "copy"), ("--clock",), ("--kills", "2"))


@pytest.mark.deep
@pytest.mark.limit(900)
@pytest.mark.parametrize("options", STORIES, ids=" ".join)
@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_story_with_a_remount_before_each_command(
    tmp_path: Path, kind: str, user: str, options: tuple[str, ...]
) -> None:
    remount(tmp_path, kind, user, options, 1)


@pytest.mark.limit(300)
def test_a_story_with_a_few_remounts(tmp_path: Path) -> None:
    remount(tmp_path, "ext4", "", (), 9)


def remount(base: Path, kind: str, user: str, options: tuple[str, ...], each: int) -> None:
    with remounted(base, kind, user) as ground:
        remounts = Remounts(ground, each)
        outcome = tell(ground, remounts, *options)
        assert (outcome.result, outcome.text) == ("works", ""), outcome
        assert remounts.count > 20, "the story was paced"


@pytest.mark.deep
@pytest.mark.limit(1800)
@pytest.mark.parametrize("options", [(), ("--view", "copy")], ids=" ".join)
@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_story_with_power_cuts(tmp_path: Path, kind: str, user: str, options: tuple[str, ...]) -> None:
    cut(tmp_path, kind, user, options, range(1, 1000), 2)


@pytest.mark.deep
@pytest.mark.limit(300)
def test_a_story_with_a_few_power_cuts(tmp_path: Path) -> None:
    cut(tmp_path, "ext4", "", (), range(3, 1000, 8), 1)


def cut(base: Path, kind: str, user: str, options: tuple[str, ...], chosen: Container[int], most: int) -> None:
    with remounted(base, kind, user) as ground:
        cuts = PowerCuts(ground, chosen, most)
        outcome = tell(ground, cuts, *options)
        assert (outcome.result, outcome.text) == ("works", ""), outcome
        assert [cut for cut in cuts.cuts if cut.verdict == "lost"] == []
        assert len(cuts.cuts) > 5, "power was cut"
