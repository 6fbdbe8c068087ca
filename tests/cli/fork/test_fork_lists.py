"""Forks in a list: how they are counted, and what is shown of their commands."""

from __future__ import annotations

import os
import subprocess

import pytest

from conftest import Place
from mudroom.cli.fork.ls import describe
from test_vault_verb import Cli


@pytest.fixture
def cli(place: Place) -> Cli:
    place.write("src/a", "1\n")
    (place.project / "src/lib").mkdir()
    return Cli(place)


def row(command: str, changed: int = 1) -> dict[str, object]:
    return {
        "fork": "x", "command": command.split(" "), "state": "ended", "level": 2, "changed": changed,
        "lines_added": 1, "lines_removed": 0, "agent": None, "checkpoints": ["one"], "problem": None,
    }  # fmt: skip


def test_a_script_is_one_line() -> None:
    assert describe(row("sh -c set -e\nmake\n"), 80) == "x  1 file, +1 -0  1 checkpoint  sh -c set -e …"
    assert describe(row("make"), 80) == "x  1 file, +1 -0  1 checkpoint  make"
    cut = describe(row("a" * 200, 2), 80)
    assert len(cut) == 80 and cut.startswith("x  2 files, ") and cut.endswith("a…")
    assert describe(row("make", 1490) | {"lines_added": 0}, 80) == "x  1,490 files  1 checkpoint  make", "not counted"
    assert len(describe(row("a" * 200), 10)) < 60, "some of it is shown however narrow it is"


def test_an_empty_directory_counts_everywhere(cli: Cli) -> None:
    assert cli("exec", "--fork", "x", "--", "rm", "-rf", "src").returncode == 0
    assert cli.json("ls")["forks"][0]["changed"] == 2
    assert sorted(one["path"] for one in cli.json("review", "x")["changes"]["files"]) == ["src/a", "src/lib"]
    assert cli("ls").stdout.startswith("x  2 files, +0 -1")


@pytest.mark.both_users
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting file systems needs root")
def test_a_full_disk_is_no_dead_end(cli: Cli) -> None:
    state = cli.place.state
    state.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m,mode=0700", "tmpfs", str(state)], check=True)
    try:
        assert cli("vault", "init").returncode == 0
        done = cli("run", "--keep", "--", "sh", "-c", "head -c 5000000 /dev/zero > big")
        (fork,) = os.listdir(next((state / "vaults").iterdir()) / "forks")
        assert done.returncode == 125 and f"mudroom discard {fork} gives back" in done.stderr
        for verb in ("ls", "status", "fork ls", "vault gc"):
            listed = cli(*verb.split())
            assert listed.returncode == 0, listed.stderr
            assert verb == "vault gc" or fork in listed.stdout
        assert cli("discard", fork).returncode == 0
        assert cli("run", "--keep", "--", "touch", "small").returncode == 0
    finally:
        subprocess.run(["umount", "--lazy", str(state)], check=True)
