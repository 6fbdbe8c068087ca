"""Level 0: no isolation, and still nothing on disk changes but the fork."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import forked
from conftest import Place, act_as, environment, tick
from furnished_home import VIEWS, furnish, furnished, run, said, short
from mudroom.core.agent.sandbox_level import BARE, LevelPolicy
from mudroom.core.result import to_json
from mudroom.core.settings import Settings
from mudroom.errors import UsageError

__all__ = ["furnished", "short"]  # fixtures
pytestmark = [pytest.mark.both_users, pytest.mark.root]


# --- it works ---


@pytest.mark.parametrize("view", VIEWS)
def test_the_project_is_staged_at_its_own_path(furnished: Place, view: str) -> None:
    result = run(furnished, "pwd; echo two >> f; rm -r d; mkdir n; echo n > n/n; chmod 755 f", view)
    assert said(result) == f"{furnished.project}\n"
    assert sorted(change.path for change in result.changeset.changes) == [b"d", b"d/x", b"f", b"n", b"n/n"]
    assert (furnished.project / "f").read_text() == "one\n"
    assert (furnished.project / "d/x").exists()


def test_it_says_that_nothing_is_isolated(furnished: Place) -> None:
    result = run(furnished, "true")
    assert result.level == to_json(result)["level"] == 0
    assert BARE in result.notes
    assert "no isolation" in BARE


def test_a_home_in_a_private_place(place: Place) -> None:
    furnish(place)
    found = said(
        run(
            place,
            "cd; cat .bashrc; cat linked; bin/tool; grep -rls HIDDEN .; echo x > .cache/x; "
            "touch x 2>/dev/null || echo over",
        )
    )
    assert found == "rcnoteworks\nover\n"


def test_the_home_is_there_without_its_credentials(furnished: Place) -> None:
    listed = said(run(furnished, "cd; find . -type f -o -type l | sort; cat linked; bin/tool"))
    for shown in (".bashrc", "notes/n", ".config/tool/settings", ".cargo/env", ".local/share/other/x", "linked"):
        assert f"./{shown}\n" in listed
    assert listed.endswith("noteworks\n")
    for hidden in ("id_ed25519", "npmrc", "hosts.yml", "credentials", "keyring", "netrc", "claude", "auth.json"):
        assert hidden not in listed


@pytest.mark.parametrize("view", VIEWS)
def test_credentials_that_were_not_named_cannot_be_read_by_any_path(furnished: Place, view: str) -> None:
    found = said(run(furnished, "grep -rs HIDDEN ~ /proc/self/root$HOME /proc/1/root$HOME; echo over", view))
    assert found == "over\n"


@contextmanager
def mounted(directory: Path) -> Iterator[Path]:
    second = Path(tempfile.mkdtemp(prefix="mudroom second ", dir="/mnt"))
    subprocess.run(["mount", "--bind", directory, second], check=True)
    try:
        yield second
    finally:
        subprocess.run(["umount", second], check=True)
        second.rmdir()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts on the host")
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("what", ["home", "home/.ssh", "", "state/vaults", "project"])
def test_a_second_mount_shows_no_more(furnished: Place, short: Path, view: str, what: str) -> None:
    furnished.write(".env", "HIDDEN=1\n")
    (furnished.state / "vaults").mkdir(parents=True, exist_ok=True)
    (furnished.state / "vaults/token").write_text("HIDDEN")
    with mounted(short / what) as second:
        found = said(run(furnished, f"grep -rs HIDDEN '{second}'; cat .env; echo over", view))
    assert found == "over\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts on the host")
def test_a_second_mount_of_ordinary_files_is_there(furnished: Place) -> None:
    with mounted(furnished.home / "notes") as second:
        assert said(run(furnished, f"cat '{second}/n'")) == "note"


def test_mudrooms_own_state_is_not_there(furnished: Place) -> None:
    found = said(run(furnished, f"ls -A {furnished.state}; find {furnished.root} -name journal.db; echo over"))
    assert (furnished.state / "vaults").exists()
    assert found == "over\n"


def test_temporary_files_and_caches_are_its_own(furnished: Place) -> None:
    mark = Path("/var/tmp/mudroom-level-zero")
    result = run(furnished, f"touch /tmp/a /dev/shm/b {mark} ~/.cache/c && mktemp && ls /tmp")
    assert result.exit_code == 0
    assert not mark.exists()
    assert not (furnished.home / ".cache").exists()
    assert said(run(furnished, "ls ~/.cache /dev/shm")).split() == [
        str(p) for p in ("/dev/shm:", f"{furnished.home}/.cache:", "c")
    ]


def test_caches_that_are_the_whole_of_a_directory(place: Place) -> None:
    """Nothing of ``~/.cargo`` is missing or hidden, so it is shown as it is, read-only: nothing can be made in it."""
    for name in ("registry", "git"):
        (place.home / ".cargo" / name).mkdir(parents=True, exist_ok=True)
    result = run(place, "echo x > ~/.cargo/git/new && cat ~/.cargo/git/new; ls ~/.cargo/registry")
    assert said(result) == "x\n"
    assert not (place.home / ".cargo/git/new").exists()


def test_the_network_is_the_hosts(furnished: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        script = f"import socket; socket.create_connection(('127.0.0.1', {port}), 5)"
        assert run(furnished, f'{sys.executable} -c "{script}"').exit_code == 0


@pytest.mark.skipif(os.geteuid() == 0, reason="root cannot map itself into a nested namespace without CAP_SETFCAP")
def test_a_sandbox_of_its_own_works_inside(furnished: Place) -> None:
    nested = "unshare -Urmp --fork --mount-proc sh -c 'mount -t tmpfs t /mnt && touch /mnt/x && ls /proc/1/status'"
    result = run(furnished, nested)
    assert (result.exit_code, said(result)) == (0, "/proc/1/status\n")


def test_it_is_remembered(furnished: Place) -> None:
    session = furnished.session()
    act_as(session, level=0)
    session.run([b"true"])
    last = [event for event in session.vault.journal.events(last=None) if event.kind == "run"][-1]
    assert json.loads(last.data)["level"] == 0


# --- the level is the policy's to decide ---


def test_the_policy_raises_and_it_is_said(furnished: Place) -> None:
    session = furnished.session(Settings(levels=LevelPolicy(minimum=1)))
    act_as(session, level=0)
    result = session.run([b"ls", b"/home"])
    assert result.level == 1
    assert "raised from 0 to 1: the least that the policy permits (levels.minimum)" in result.notes
    assert BARE not in result.notes


def test_the_policy_refuses_and_nothing_is_left(furnished: Place) -> None:
    session = furnished.session(Settings(levels=LevelPolicy(allow=(1, 2))))
    act_as(session, level=0)
    with pytest.raises(UsageError, match="this command is refused"):
        session.run([b"true"])
    assert session.vault.forks() == []


# --- the command line ---


def mudroom(place: Place, *words: str) -> subprocess.CompletedProcess[str]:
    tick()
    path = {key: value for key, value in os.environ.items() if key == "PYTHONPATH"}
    return forked.run(words, cwd=place.project, env=environment(place, **path))


def test_the_command_line(furnished: Place) -> None:
    done = mudroom(furnished, "run", "--no", "--level", "0", "--", "true")
    assert done.returncode == 0
    assert done.stderr.count("no isolation") == 1
    assert done.stderr.index("no isolation") < done.stderr.index("changed nothing")


def test_what_is_said_of_it_afterwards(furnished: Place) -> None:
    assert mudroom(furnished, "exec", "--level", "0", "--fork", "a", "--", "touch", "new").returncode == 0
    assert "  level 0  " in mudroom(furnished, "ls").stdout
    assert json.loads(mudroom(furnished, "ls", "--json").stdout)["forks"][0]["level"] == 0
    assert mudroom(furnished, "exec", "--fork", "a", "--", "touch", "newer").returncode == 0
    assert "level 0" not in mudroom(furnished, "status").stdout
    assert json.loads(mudroom(furnished, "status", "--json").stdout)["forks"][0]["level"] == 1
    furnished.write(".mudroom/policy.yaml", "run:\n  level: 0\n")
    for path, verdict in (
        ("/etc/hostname", "read-only"),
        (str(furnished.project / "f"), "staged"),
        ("/tmp/x", "private"),
    ):
        assert f": {verdict}: " in mudroom(furnished, "policy", "why", path).stdout
