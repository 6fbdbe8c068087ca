# ruff: noqa: E501 - lines of scripts
"""An errand's command that wants what the worker's user has: the home, keys, the environment, this and other origins'
bases and errands, the link. And a base that leads its reader astray."""

from __future__ import annotations

import gzip
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from scripted_origin import ScriptedOrigin, WorkerProcess
from worker_fixtures import origin, process, project, start, started, worker_home

from mudroom.core.settings import Settings
from tiers import daily

__all__ = ["origin", "process", "project", "start", "started", "worker_home"]  # fixtures

pytestmark = pytest.mark.both_users
Worker = Callable[..., ScriptedOrigin]
PLANTED = "planted-by-the-worker-user"


def full_listing(root: Path) -> dict[str, tuple[int, int, int, int]]:
    return {
        str(path): (info.st_mode, info.st_size, info.st_mtime_ns, info.st_ino)
        for path in root.rglob("*/tree/**/*")
        for info in (path.lstat(),)
    }


def output_of(worker: ScriptedOrigin, base: bytes, script: str, name: str, **fields: Any) -> str:
    stream = worker.sh(base, script, name=name, **fields)
    worker.outcome(stream)
    return (worker.printed(stream) + worker.printed(stream, 2)).decode(errors="replace")


def plant(home: Path) -> None:
    for name in (".ssh/id_ed25519", ".aws/credentials", ".netrc", "notes", ".config/gh/hosts.yml", ".bash_history"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(f"{PLANTED}\n")


@pytest.mark.parametrize("view", daily(["auto", "copy"]))
def test_a_command_finds_nothing_of_the_worker(
    process: Worker, start: Worker, project: Path, worker_home: Path, view: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(worker_home)
    monkeypatch.setenv("WORKER_TOKEN", PLANTED)
    monkeypatch.setenv("SSH_AUTH_SOCK", str(worker_home / "agent"))
    other = start(name=os.urandom(16).hex())  # another origin for the same user, with its own base
    other.hello()
    (project / "others").write_text(f"{PLANTED}, another origin\n")
    other.send_base(project)
    (project / "others").unlink()
    worker = process()
    worker.hello()
    base = worker.send_base(project)
    settings = Settings(view=view)  # type: ignore[arg-type]
    assert output_of(worker, base, "cat a.txt", "hostile-0", settings=settings) == "one\n"
    snapshots = [str(path) for path in worker_home.rglob("grounds")]
    assert snapshots
    before = {path: full_listing(Path(path)) for path in snapshots}
    script = f"""
        find / -xdev -type f -newer a.txt -size -100k ! -path '/proc/*' -exec grep -as {PLANTED} {{}} + 2>/dev/null
        grep -ras {PLANTED} /home /root /tmp /var /run /srv /mnt /dev/shm 2>/dev/null
        (for pid in /proc/[0-9]*; do tr '\\0' '\\n' <$pid/environ | grep -a {PLANTED}; done) 2>/dev/null
        for place in {worker_home}/.ssh {worker_home}/notes {worker_home}/.local/state {" ".join(snapshots)}; do
            ls -d $place /proc/1/root$place /proc/self/cwd/../../../..$place 2>/dev/null
        done
        ls -l /proc/self/fd /proc/1/fd 2>/dev/null | grep -a -e grounds -e errands -e 'pipe:' -e worker/ | grep -v ' [012] ->'
        for tree in {" ".join(snapshots)}; do mkdir -p $tree; echo evil >$tree/evil; rm -rf $tree; done 2>/dev/null
        kill -9 -1 {os.getpid()} {worker.pid} $PPID 2>/dev/null
        true
    """
    found = output_of(worker, base, script, "hostile-1", settings=settings, judge=(b"sh", b"-c", script.encode()))
    assert found == ""
    assert "evil" not in output_of(worker, base, "cat a.txt; ls -R", "hostile-2", settings=settings)
    assert {path: full_listing(Path(path)) for path in before} == before
    assert isinstance(worker.worker, WorkerProcess) and worker.worker.process.poll() is None


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_a_base_that_leads_astray(process: Worker, project: Path, worker_home: Path, tmp_path: Path) -> None:
    """Links that lead out of the project, to places that the worker's user has, and a repository that names one of
    theirs."""
    plant(worker_home)
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "f").write_text(PLANTED)
    git = "git -c user.name=T -c user.email=t@example.org"
    subprocess.run(["sh", "-ec", f"{git} init -q; {git} add .; {git} commit -qm one"], cwd=theirs, check=True)
    for name, target in {
        "up": "../../../../../../../../../../../..",
        "keys": str(worker_home / ".ssh"),
        "notes": str(worker_home / "notes"),
        ".mudroom": str(worker_home),
        ".envrc": str(worker_home / ".netrc"),
        "self": "/proc/self/root",
        "loop": "loop",
    }.items():
        (project / name).symlink_to(target)
    (project / "sub").mkdir()
    (project / "sub/.git").write_text(f"gitdir: {theirs}/.git\n")
    worker = process()
    worker.hello()
    base = worker.send_base(project)
    script = f"""
        cat notes keys/id_ed25519 .mudroom/notes .envrc up{worker_home}/notes self{worker_home}/notes up{theirs}/f 2>/dev/null
        {git} -C sub log -p 2>/dev/null
        for name in notes keys .mudroom .envrc; do echo mine >$name/x; echo mine >$name; done 2>/dev/null
        rm -rf sub/.git keys .mudroom; mkdir -p sub/.git/refs/heads .mudroom keys
        echo x >.mudroom/policy.yaml; echo x >keys/id_ed25519; echo ref: refs/heads/main >sub/.git/HEAD
        true
    """
    stream = worker.sh(base, script, name="astray-01")
    outcome = worker.outcome(stream)
    assert (worker.printed(stream), outcome.state) == (b"", "ended"), outcome
    archive = worker.fetch(outcome)
    assert PLANTED.encode() not in gzip.decompress(archive)
    for name in (".ssh/id_ed25519", "notes", ".netrc"):
        assert (worker_home / name).read_text() == f"{PLANTED}\n"


def test_unusual_ends_of_a_command_come_home(process: Worker, project: Path) -> None:
    """Closed directories, names that are no text, sparse files, a removed project, and output that looks like frames."""
    worker = process()
    worker.hello()
    base = worker.send_base(project)
    scripts = {
        "closed": "mkdir -p d/e; echo x >d/e/f; chmod 0 d/e d; chmod 0 .",
        "names": "printf x >\"$(printf 'a\\377\\n\\033[31m')\"; mkdir 'x\n..'; ln -s \"$(printf '\\377')\" l; mkfifo pipe",
        "sparse": "truncate -s 50M big",
        "gone": 'rm -rf ./* .??*; rmdir "$PWD"; true',
        "frames": "head -c 200000 /dev/urandom; printf '\\0\\0\\0\\005\\004\\0\\0\\0\\001x' >&2",
        "ends": "kill -9 $$",
        "leaves": "setsid sleep 1000 & setsid sh -c 'sleep 1000 & sleep 1000' & exit 3",
    }
    for name, script in scripts.items():
        stream = worker.sh(base, script, name=f"end-{name}-00")
        outcome = worker.outcome(stream)
        assert outcome.state == "ended", (name, outcome)
        if outcome.archive:
            assert len(worker.fetch(outcome)) == outcome.archive
    assert output_of(worker, base, "cat a.txt", "end-of-all") == "one\n"
