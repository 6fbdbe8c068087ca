"""A staged home: what a command reads of it, what lands in it, and that an undo takes all of it back."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from box import if_namespaces
from clocks import give_way
from conftest import Place, environment, listing, tick
from forked import popen
from mudroom.core.result import Result
from mudroom.sandbox.host.home import hidden_in_home
from mudroom.session import Session

pytestmark = if_namespaces


SECRET = "sesame-open-42"
TOKEN = "npm_" + "a1B2c3D4e5" * 3 + "f6G7h8"
HELD = {
    ".ssh/id_ed25519": SECRET, ".aws/credentials": SECRET, ".gnupg/secring": SECRET, ".netrc": SECRET,
    ".config/gh/hosts.yml": SECRET, ".bash_history": SECRET, ".mozilla/cookies": SECRET, ".kube/config": SECRET,
    ".local/share/keyrings/login.keyring": SECRET, ".claude/.credentials.json": SECRET, "Documents/letter": SECRET,
    "notes.txt": SECRET, ".npmrc": f"//registry.npmjs.org/:_authToken={TOKEN}\n", ".config/a/b/.env": f"K={SECRET}",
    ".config/mudroom/policy.yaml": "", ".thunderbird/mail": SECRET,
    ".gitconfig": f"[url \"https://me:{TOKEN}@host\"]\n\tinsteadOf = x\n",
}  # fmt: skip


@pytest.fixture
def home(place: Place) -> Iterator[Path]:
    """A home with a project, mudroom's state, secrets, and dot files in it."""
    place.project.rmdir()
    place.project = place.home / "code/project"
    place.project.mkdir(parents=True)
    place.state = place.home / ".local/state/mudroom"
    put(place.home, ".bashrc", "export A=1\n")
    put(place.home, ".config/app/settings", "a\nb\nc\nd\ne\n")
    put(place.home, "code/other/file", SECRET)
    yield place.home


def put(home: Path, name: str, content: str) -> None:
    path = home / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)


def run(place: Place, script: str, session: Session | None = None) -> tuple[Session, Result]:
    session = session or place.session()
    result = session.run([b"sh", b"-c", script.encode()], roots=[os.fsencode(place.home)])
    return session, result


def seen(home: Path) -> dict[str, tuple[str, int, bytes]]:
    return {name: row for name, row in listing(home).items() if not name.startswith(".local/state")}


INSTALL = """
echo 'export PATH=~/.tool/bin:$PATH' >> ~/.bashrc
mkdir -p ~/.tool/bin ~/.config/fish/completions
printf '#!/bin/sh\\necho installed\\n' > ~/.tool/bin/tool; chmod 755 ~/.tool/bin/tool; ln -s tool ~/.tool/bin/alias
echo f >> ~/.config/app/settings; ~/.tool/bin/alias; echo p > made
"""


def test_an_installer_is_applied_and_taken_back(place: Place, home: Path) -> None:
    place.session().close()
    before = seen(home)
    session, result = run(place, INSTALL)
    assert (result.exit_code, result.stdout) == (0, b"installed\n"), result.stderr
    assert seen(home) == before
    landed = session.changes.apply(result.fork)
    assert landed.roots[0].tied.is_home
    assert (home / ".tool/bin/alias").read_text().endswith("echo installed\n")
    assert (home / ".bashrc").read_text().startswith("export A=1\nexport PATH")
    tick()
    put(home, ".config/app/settings", "A\nb\nc\nd\ne\nf\n")
    session.changes.undo()
    put(home, ".config/app/settings", (home / ".config/app/settings").read_text().replace("A", "a"))
    assert seen(home) == before


def test_no_secret_of_the_home_is_read(place: Place, home: Path) -> None:
    for name, content in HELD.items():
        put(home, name, content)
    os.link(home / ".netrc", home / ".config/app/same")
    (home / ".config/real").mkdir()
    put(home, ".config/real/key", SECRET)
    (home / ".docker").symlink_to(".config/real")
    _session, result = run(place, "cd ~; grep -rs '' . 2>/dev/null | cat; ls -R . | cat")
    assert SECRET.encode() not in result.stdout
    assert TOKEN.encode() not in result.stdout
    assert b"export A=1" in result.stdout
    assert b"vaults" not in result.stdout, "mudroom's state"
    assert not result.has_changes, [root.changeset.changes for root in result.roots]
    assert any("left out of it" in note for note in result.notes)


def test_what_is_left_out_can_neither_be_changed_nor_moved_away(place: Place, home: Path) -> None:
    put(home, ".ssh/id", SECRET)
    put(home, ".local/share/app/data", "d")
    script = (
        "echo x > ~/.ssh/authorized_keys; mv ~/.ssh ~/.s; rm -rf ~/.ssh ~/.local; mv ~/.local ~/.l; umount ~/.ssh;"
        " mkdir -p ~/.local/state/mudroom/vaults; touch ~/.local/state/mudroom/x; mv ~/code ~/c; cat ~/.ssh/id ~/.s/id"
    )
    session, result = run(place, script)
    assert SECRET.encode() not in result.stdout
    (root,) = result.roots
    assert all(not change.path.startswith((b".ssh", b".local/state", b"code")) for change in root.changeset.changes)
    session.changes.apply(result.fork)
    assert (home / ".ssh/id").read_text() == SECRET
    assert not (home / ".local/share/app").exists()
    session.changes.undo()
    assert (home / ".local/share/app/data").read_text() == "d"


def test_a_socket_in_the_home_is_not_reached(place: Place, home: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server, pytest.MonkeyPatch.context() as patch:
        patch.chdir(home)  # its whole path is too long for a socket
        server.bind(".agent.sock")
        server.listen()
        script = "import socket,os; socket.socket(socket.AF_UNIX).connect(os.path.expanduser('~/.agent.sock'))"
        session = place.session()
        result = session.run([b"/usr/bin/python3", b"-c", script.encode()], roots=[os.fsencode(home)])
        assert b"refused" in result.stderr, result.stderr


def test_a_file_does_not_land_through_a_link_of_another_fork(place: Place, home: Path) -> None:
    """An accomplice has put a link where this fork's directory was."""
    put(home, ".ssh/id", SECRET)
    put(home, ".dir/keep", "k")
    session, first = run(place, "echo key > ~/.dir/authorized_keys")
    _session, second = run(place, "rm -r ~/.dir; ln -s .ssh ~/.dir", session)
    session.changes.apply(second.fork)
    assert (home / ".dir").is_symlink()
    landed = session.changes.apply(first.fork)
    assert landed.roots[0].landed.conflicts
    assert os.listdir(home / ".ssh") == ["id"]


def test_settings_without_a_credential_are_staged(place: Place, home: Path) -> None:
    put(home, ".npmrc", "fund=false\n")
    put(home, ".gitconfig", "[user]\n\tname = Me\n")
    session, result = run(place, "echo audit=false >> ~/.npmrc; git config --global user.email me@here")
    assert result.exit_code == 0, result.stderr
    session.changes.apply(result.fork)
    assert (home / ".npmrc").read_text() == "fund=false\naudit=false\n"
    assert "me@here" in (home / ".gitconfig").read_text()


def test_a_fork_that_conflicts_in_the_home_stays_in_reach(place: Place, home: Path) -> None:
    session, result = run(place, "printf '\\0a' > ~/.config/app/settings")
    tick()
    put(home, ".config/app/settings", "\0b")
    landed = session.changes.apply(result.fork)
    assert landed.roots[0].landed.conflicts
    assert b"settings" in b"".join(session.changes.whole_diff(result.fork))
    session.forks.discard(result.fork)


def test_a_command_that_is_killed_leaves_only_its_own_files(place: Place, home: Path) -> None:
    """The sandbox makes the places of caches in the home."""
    place.session().close()
    before = seen(home)
    words = ["run", "--home", "--keep", "--", "sh", "-c", "echo x > ~/.made; sleep 600"]
    with popen(words, cwd=place.project, env=environment(place)) as process:
        while not any(path.name == ".made" for path in place.state.glob("vaults/home*/layers/*/tree/.*")):
            give_way()
        process.kill()
    session = place.session()
    session.sandboxes.collect_cut_off()
    (fork,) = session.vault.forks()
    session.changes.apply(fork.name)
    assert {name: row for name, row in seen(home).items() if name != ".made"} == before
    assert (home / ".made").read_text() == "x\n"


def test_a_directory_that_is_closed_to_its_owner_is_not_searched_and_left_out(tmp_path: Path) -> None:
    """A command could open its copy of it."""
    closed = tmp_path / ".closed"
    closed.mkdir(mode=0)
    scandir = os.scandir

    def refusing(path: bytes) -> object:
        if os.fsdecode(path) == str(closed):  # root reads it, too
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return scandir(path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "scandir", refusing)
        hidden = hidden_in_home(os.fsencode(tmp_path), (), (), (), ())
    closed.chmod(0o700)
    assert os.fsencode(closed) in hidden.emptied
