"""Apply where something is wrong with the place: one line, the right exit code, nothing lost; afterwards it works."""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import Place, listing
from test_vault_verb import Cli
from tiers import QUICK

pytestmark = [pytest.mark.both_users, pytest.mark.root]

SCRIPT = "echo more >> a; rm b; mkdir new; echo n > new/f; echo c >> d/c"
APPLIED = {"a": "a\nmore\n", "new/f": "n\n", "d/c": "c\nc\n"}


@pytest.fixture
def cli(place: Place) -> Cli:
    for name in ("a", "b", "d/c"):
        place.write(name, f"{name[-1]}\n")
    cli = Cli(place)
    stage(cli)
    return cli


def stage(cli: Cli, script: str = SCRIPT) -> None:
    done = cli("exec", "--fork", "x", "--", "sh", "-c", script)
    assert done.returncode == 0, done.stderr


def held(cli: Cli) -> list[str]:
    """The paths of what the fork has to apply."""
    return [row["path"] for row in cli.json("diff", "x")["changes"]["files"]]


def one_line(done: subprocess.CompletedProcess[str]) -> str:
    assert "Traceback" not in done.stderr
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    return lines[0]


def lands(cli: Cli) -> None:
    done = cli("apply", "x", "--yes")
    assert done.returncode == 0, done.stderr
    assert {name: (cli.place.project / name).read_text() for name in APPLIED} == APPLIED
    assert not (cli.place.project / "b").exists()


def test_a_project_that_was_moved(cli: Cli) -> None:
    project, moved = cli.place.project, cli.place.root / "moved"
    project.rename(moved)
    done = cli("apply", "x", "--yes", cwd=moved)
    assert done.returncode == 125
    assert f"{project}, which is gone, had such a fork: if it was moved, move it back" in one_line(done)
    moved.rename(project)
    lands(cli)


def test_a_project_that_is_now_a_link_to_elsewhere(cli: Cli) -> None:
    project, moved = cli.place.project, cli.place.root / "moved"
    project.rename(moved)
    project.symlink_to(moved)
    before = listing(moved)
    done = cli("apply", "x", "--yes")
    assert done.returncode == 125
    assert "there is no fork named x" in one_line(done)
    assert listing(moved) == before
    project.unlink()
    moved.rename(project)
    lands(cli)


def test_a_project_in_whose_place_there_is_another(cli: Cli) -> None:
    """It is refused. To one that adopts the forks, what is new lands; what was to be changed is not there: nothing of
    the other project's is touched."""
    project, moved = cli.place.project, cli.place.root / "moved"
    project.rename(moved)
    cli.place.write("a", "another a\n")
    os.utime(project / "a", (1, 1))  # not made in the second in which the other one was
    assert "is another directory than the one its forks and applies belong to" in one_line(cli("apply", "x", "--yes"))
    assert cli("vault", "adopt").returncode == 0
    done = cli("apply", "x", "--yes")
    assert done.returncode == 3, done.stderr
    assert (project / "a").read_text() == "another a\n"
    assert cli("undo").returncode == 0
    assert sorted(listing(project)) == ["a"]
    shutil.rmtree(project)
    moved.rename(project)
    assert cli("vault", "adopt").returncode == 0
    done = cli("apply", "x", "--yes")
    assert done.returncode == 0, done.stderr
    assert (project / "a").read_text() == "a\nmore\n"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to every directory")
def test_a_project_that_its_owner_may_not_write_to(cli: Cli) -> None:
    project = cli.place.project
    (project / "d").chmod(0o555)
    project.chmod(0o555)
    before = listing(project)
    done = cli("apply", "x", "--yes")
    assert (done.returncode, "Traceback" in done.stderr) == (3, False), done.stderr
    assert "may not be written" in done.stderr
    assert listing(project) == before
    project.chmod(0o755)
    (project / "d").chmod(0o755)
    lands(cli)


@pytest.fixture
def mounts() -> Iterator[list[Path]]:
    if os.geteuid():
        pytest.skip("only root may mount")
    mounted: list[Path] = []
    yield mounted
    for place in reversed(mounted):
        subprocess.run(["umount", place], check=True)


def test_a_project_on_a_read_only_file_system(cli: Cli, mounts: list[Path]) -> None:
    project = cli.place.project
    subprocess.run(["mount", "--bind", project, project], check=True)
    mounts.append(project)
    subprocess.run(["mount", "-o", "remount,bind,ro", project], check=True)
    before = listing(project)
    done = cli("apply", "x", "--yes")
    assert done.returncode in (3, 125)
    assert "Traceback" not in done.stderr and "ead-only file system" in done.stderr, done.stderr
    assert listing(project) == before
    subprocess.run(["mount", "-o", "remount,bind,rw", project], check=True)
    lands(cli)  # the vault is on the same file system, but another mount
    assert cli("undo").returncode == 0
    assert {name: one for name, one in listing(project).items() if not name.startswith(".mudroom")} == before


def on_a_small_disk(place: Place, mounts: list[Path], what: Path, size: str) -> None:
    what.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=0700", "tmpfs", what], check=True)
    mounts.append(what)


@pytest.mark.parametrize("full", ["project", "state"])
def test_a_full_disk(place: Place, mounts: list[Path], full: str) -> None:
    """A real one; an apply that finds every single call failing is in tests/vault/apply/test_faults.py."""
    on_a_small_disk(place, mounts, place.project if full == "project" else place.state, "600k")
    for name in ("a", "b", "d/c"):
        place.write(name, f"{name[-1]}\n")
    cli = Cli(place)
    stage(cli, SCRIPT + "; head -c 200000 /dev/zero > large")
    filler = (place.project if full == "project" else place.state) / "filler"
    with pytest.raises(OSError) as error, filler.open("wb", buffering=0) as stream:
        while True:
            stream.write(b"x" * 4096)
    assert error.value.errno == errno.ENOSPC
    before = listing(place.project)
    done = cli("apply", "x", "--yes")
    if full == "state" and done.returncode == 0:
        pytest.fail("the state directory had no room for a backup")
    assert done.returncode == 125, done.stderr
    assert "Traceback" not in done.stderr and "No space left on device" in done.stderr, done.stderr
    assert listing(place.project) == before
    filler.unlink()
    lands(cli)
    assert (place.project / "large").stat().st_size == 200_000


def test_a_diff_and_a_discard_on_a_full_disk(place: Place, mounts: list[Path]) -> None:
    on_a_small_disk(place, mounts, place.state, "600k")
    place.write("a", "a\n")
    cli = Cli(place)
    stage(cli, "echo more >> a; head -c 200000 /dev/zero > large")
    filler = place.state / "filler"
    with pytest.raises(OSError), filler.open("wb", buffering=0) as stream:
        while True:
            stream.write(b"x" * 4096)
    shown = cli("diff", "x")
    assert (shown.returncode, shown.stderr.count("\n")) == (0, 1), shown.stderr
    assert "+more" in shown.stdout
    only_this = re.search("--reviewed ([0-9a-f]{40}) x", shown.stderr)
    assert only_this is not None, shown.stderr
    filler.unlink()
    cli("exec", "--fork", "x", "--", "sh", "-c", "echo again >> a")
    assert cli("apply", "--reviewed", only_this[1], "x", "--yes").returncode == 4
    with pytest.raises(OSError), filler.open("wb", buffering=0) as stream:
        while True:
            stream.write(b"x" * 4096)
    done = cli("discard", "x", "--yes")
    assert done.returncode in (0, 125), done.stderr  # the journal may have room now
    assert done.returncode == 0 or done.stderr.startswith("mudroom: x is discarded; the journal "), done.stderr
    assert "no forks" in cli("ls").stderr


def test_a_file_that_nobody_may_change(cli: Cli) -> None:
    """chattr +i: even root gets EPERM."""
    project = cli.place.project
    set_immutable = subprocess.run(["chattr", "+i", project / "a"], capture_output=True, check=False)
    if set_immutable.returncode:
        pytest.skip("chattr +i is not possible here: " + set_immutable.stderr.decode().strip())
    try:
        done = cli("apply", "x", "--yes")
        assert (done.returncode, (project / "a").read_text()) == (3, "a\n"), done.stderr
        assert "Traceback" not in done.stderr and "  conflict  a: " in done.stderr
        assert (project / "new/f").read_text() == "n\n" and not (project / "b").exists()
    finally:
        subprocess.run(["chattr", "-i", project / "a"], check=True)
    done = cli("apply", "x", "--yes")
    assert done.returncode == 0, done.stderr
    assert (project / "a").read_text() == "a\nmore\n"


def test_a_whole_directory_that_could_not_be_placed_stays_in_the_fork_whole(cli: Cli) -> None:
    """Its files, too, are still to be applied."""
    stage(cli, "rm -r d")
    files = ["a", "b", "d/c", "new/f"]
    assert held(cli) == files
    project = cli.place.project
    project.chmod(0o555)
    subprocess.run(["chattr", "+i", project], capture_output=True, check=False)
    try:
        done = cli("apply", "x", "--yes")
        if done.returncode == 0:
            pytest.skip("nothing keeps root from writing here: no chattr")
        assert done.returncode == 3, done.stderr
        assert held(cli) == files
    finally:
        subprocess.run(["chattr", "-i", project], capture_output=True, check=False)
        project.chmod(0o755)
    assert cli("apply", "x", "--yes").returncode == 0
    assert sorted(listing(project)) == ["a", "new", "new/f"]


@pytest.mark.slow
@pytest.mark.limit(300)
def test_very_many_changes(place: Place) -> None:
    """100,000 with MUDROOM_BIG=1."""
    files = 50_000 if os.environ.get("MUDROOM_BIG") else 300 if QUICK else 10_000
    for number in range(100):
        (place.project / f"d{number}").mkdir()
    for number in range(files):
        (place.project / f"d{number % 100}/f{number}").touch()
    cli = Cli(place)
    stage(cli, "for d in d*; do (cd $d; for f in *; do echo x > $f; : > n$f; done); done")
    done = cli("apply", "x", "--yes")
    assert done.returncode == 0, done.stderr[-1000:]
    assert f"{2 * files:,} written" in done.stderr, done.stderr[-500:]
    assert len(done.stderr.splitlines()) < 60
    assert (place.project / "d7/f107").read_text() == "x\n" and (place.project / "d7/nf107").exists()
    assert cli("undo").returncode == 0
    assert (place.project / "d7/f107").read_text() == "" and not (place.project / "d7/nf107").exists()
