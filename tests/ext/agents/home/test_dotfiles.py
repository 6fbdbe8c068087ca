"""The user's settings of git and shells: an agent's commands change a copy that is the fork's, shown as settings."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from conftest import Place, act_as, environment
from mudroom.core.result import Result
from mudroom.core.settings import Settings
from mudroom.ext.agents.catalog import Catalog
from mudroom.ext.agents.home.agent_settings import agent_settings, land, take_back
from mudroom.ext.agents.settings_review import changed_settings
from mudroom.sandbox.host.host import landlock_abi
from mudroom.session import Session

pytestmark = pytest.mark.both_users

IDENTITY = "[user]\n\tname = Ann\n\temail = ann@example.org\n"
MODES = ["overlay", "landlock"] if landlock_abi() else ["overlay"]
"""With mounts, and behind links without them."""


@pytest.fixture(params=MODES)
def session(place: Place, request: pytest.FixtureRequest) -> Session:
    """An agent's session in a home with settings of git and a shell."""
    (place.home / ".gitconfig").write_text(IDENTITY)
    (place.home / ".bashrc").write_text("export KEY=secret\n")
    session = place.session(Settings(network="none"))
    act_as(session, card=Catalog().profile("claude").card(1))
    session.machine.confinement.mode = request.param
    return session


def run(session: Session, script: str) -> Result:
    result = session.run([b"sh", b"-c", script.encode()], fork="f")
    assert result.exit_code == 0, (result.stderr, result.notes)
    return result


def changed(session: Session) -> dict[str, str]:
    return {
        os.fsdecode(change.path): change.change for _home, changes in agent_settings(session, "f") for change in changes
    }


def test_settings_of_git_are_staged_and_land_if_chosen(session: Session, place: Place) -> None:
    run(session, "git config --global alias.st '!touch planted'")
    config = place.home / ".gitconfig"
    assert config.read_text() == IDENTITY
    assert changed(session) == {".gitconfig": "changed"}
    assert changed_settings(session, "f") == ["  ~/.gitconfig  changed"]
    assert run(session, "git config --global alias.st; git config user.name").stdout == b"!touch planted\nAnn\n"
    (landed,) = land(session, "f", lambda change: change.path == b".gitconfig")
    assert landed.reason == ""
    assert config.read_text().startswith(IDENTITY) and "planted" in config.read_text()
    assert changed(session) == {}
    assert [item.reason for item in take_back(session)] == [""]
    assert config.read_text() == IDENTITY


def test_lines_for_a_shell_are_added_to_the_users_own(session: Session, place: Place) -> None:
    bashrc = place.home / ".bashrc"
    bashrc.chmod(0o600)
    result = run(session, "cat ~/.bashrc; test ! -e ~/.zshrc; echo 'alias rm=evil' >> ~/.bashrc; echo x >> ~/.zshrc")
    assert b"secret" not in result.stdout
    assert bashrc.read_text() == "export KEY=secret\n" and not (place.home / ".zshrc").exists()
    assert changed(session) == {".bashrc": "changed", ".zshrc": "new"}
    assert run(session, "cat ~/.bashrc").stdout == b"alias rm=evil\n"
    assert [item.reason for item in land(session, "f", lambda _change: True)] == ["", ""]
    assert bashrc.read_text() == "export KEY=secret\nalias rm=evil\n"
    assert bashrc.stat().st_mode & 0o777 == 0o600
    assert changed(session) == {}
    take_back(session)
    assert bashrc.read_text() == "export KEY=secret\n" and not (place.home / ".zshrc").exists()


def test_a_file_without_newline_gets_one_before_the_lines(session: Session, place: Place) -> None:
    (place.home / ".bashrc").write_text("export A=1")
    run(session, "echo 'export B=2' >> ~/.bashrc")
    land(session, "f", lambda _change: True)
    assert (place.home / ".bashrc").read_text() == "export A=1\nexport B=2\n"


def test_settings_with_secrets_are_reduced_and_never_land(session: Session, place: Place) -> None:
    config = place.home / ".gitconfig"
    config.write_text(IDENTITY + '[url "https://ann:token@host/"]\n\tinsteadOf = host:\n')
    before = config.read_text()
    session = place.session(Settings(network="none"))
    act_as(session, card=Catalog().profile("claude").card(1))
    assert b"token" not in run(session, "cat ~/.gitconfig; git config --global core.pager evil").stdout
    assert changed(session) == {".gitconfig": "changed"}
    (landed,) = land(session, "f", lambda _change: True)
    assert "secret" in landed.reason
    assert config.read_text() == before


def test_what_the_host_changes_is_seen_unless_the_fork_has_its_own(session: Session, place: Place) -> None:
    run(session, "true")
    config = place.home / ".gitconfig"
    config.write_text(IDENTITY.replace("Ann", "Bob"))
    assert run(session, "git config user.name").stdout == b"Bob\n"
    run(session, "git config --global user.name Eve")
    config.write_text(IDENTITY.replace("Ann", "Carl"))
    assert run(session, "git config user.name").stdout == b"Eve\n"
    ((_home, (change,)),) = agent_settings(session, "f")
    assert change.conflict
    (landed,) = land(session, "f", lambda _change: True)
    assert "changed on the host" in landed.reason
    assert "Carl" in config.read_text()


PLANTS = {
    "a link": 'rm -f "$0" && ln -s /etc/passwd "$0"',
    "a fifo": 'rm -f "$0" && mkfifo "$0"',
    "a directory": 'rm -f "$0" && mkdir -p "$0/x"',
    "a closed file": 'echo x > "$0"; chmod 0 "$0"',
    "a large file": 'truncate -s 1G "$0"',
    "a hard link": 'rm -f "$0"; echo x > "$0.x"; ln "$0.x" "$0"',
}


@pytest.mark.parametrize("plant", PLANTS)
def test_what_a_sandbox_puts_in_the_place_of_a_file(session: Session, place: Place, plant: str) -> None:
    before = (place.home / ".gitconfig").read_bytes()
    run(session, f"""sh -c '{PLANTS[plant]}' "$(readlink ~/.gitconfig)" """)
    changed(session)
    land(session, "f", lambda _change: True)
    assert b"root:" not in (place.home / ".gitconfig").read_bytes()
    assert (place.home / ".gitconfig").stat().st_size <= max(len(before), 2)
    run(session, "git config --global alias.x y || true")


def test_a_link_of_the_host_is_left(session: Session, place: Place) -> None:
    """Dotfile managers keep the file elsewhere."""
    (place.home / "dotfiles").mkdir()
    (place.home / ".bashrc").rename(place.home / "dotfiles/bashrc")
    (place.home / ".bashrc").symlink_to("dotfiles/bashrc")
    run(session, "echo evil >> ~/.bashrc")
    (landed,) = land(session, "f", lambda _change: True)
    assert "link" in landed.reason
    assert (place.home / "dotfiles/bashrc").read_text() == "export KEY=secret\n"


def test_a_plain_command_has_settings_of_git_that_end_with_it(place: Place) -> None:
    (place.home / ".gitconfig").write_text(IDENTITY)
    session = place.session(Settings(network="none"))
    script = "git config --global core.pager less && git config core.pager && git config user.name"
    assert run(session, script).stdout == b"less\nAnn\n"
    assert (place.home / ".gitconfig").read_text() == IDENTITY
    assert agent_settings(session, "f") == []
    assert session.run([b"git", b"config", b"--global", b"core.pager"], fork="f").exit_code == 1


def test_two_forks_do_not_meet(session: Session, place: Place) -> None:
    run(session, "git config --global alias.x y; echo 1 >> ~/.profile")
    result = session.run([b"sh", b"-c", b"git config alias.x; cat ~/.profile"], fork="g")
    assert result.stdout == b""


def test_the_listing_of_the_fork_names_the_files(session: Session, place: Place) -> None:
    """The command line's words, as a user types them."""
    run(session, "echo evil >> ~/.profile")
    words = [sys.executable, "-m", "mudroom", "agent", "settings", "f", "--diff"]
    shown = subprocess.run(words, cwd=place.project, env=environment(place), capture_output=True, text=True, check=True)
    assert "~/.profile  new" in shown.stdout and "+evil" in shown.stdout
