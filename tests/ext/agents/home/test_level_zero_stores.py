"""Credential stores and sockets at level 0: what was named is the host's own, and nothing else is there."""

from __future__ import annotations

import os
import shutil
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from conftest import Place, act_as, full_listing
from furnished_home import VIEWS, card, furnished, run, said, short
from mudroom.core.agent.card import AgentCard, Requirements
from mudroom.core.result import to_json
from mudroom.core.settings import Settings
from mudroom.errors import UsageError

__all__ = ["furnished", "short"]  # fixtures
pytestmark = [pytest.mark.both_users, pytest.mark.root]


@pytest.mark.parametrize("view", VIEWS)
def test_a_named_store_is_the_hosts_own(furnished: Place, view: str) -> None:
    """What either side writes while a command runs: ``test_live_credentials.py``."""
    script = "cat ~/.config/gh/hosts.yml; echo new > ~/.config/gh/t && mv ~/.config/gh/t ~/.config/gh/hosts.yml"
    result = run(furnished, script, view, card(keychain=("gh",)))
    assert (said(result), (furnished.home / ".config/gh/hosts.yml").read_text()) == ("HIDDEN", "new\n")
    assert result.credentials == ("gh",)
    assert to_json(result)["credentials"] == ["gh"]
    assert any("credentials open to the command" in note and "gh" in note for note in result.notes)


def test_only_what_is_named_is_open(furnished: Place) -> None:
    named = card(oauth=("gh",), keychain=("~/.oddtool/auth.json",))
    found = said(run(furnished, "cd; grep -rls HIDDEN . | sort", card=named))
    assert found.split() == ["./.config/gh/hosts.yml", "./.oddtool/auth.json"]


def test_a_store_that_is_a_file_is_written_in_place(furnished: Place) -> None:
    session = furnished.session()
    act_as(session, card=card(keychain=("npm", "claude")))

    def told(script: str) -> str:
        return said(session.run([b"sh", b"-c", script.encode()], fork="a"))

    assert told("cat ~/.npmrc; echo two > ~/.npmrc") == "HIDDEN"
    assert (furnished.home / ".npmrc").read_text() == "two\n"
    (furnished.home / "new").write_text("three\n")
    os.rename(furnished.home / "new", furnished.home / ".npmrc")
    assert told("cat ~/.npmrc; cat ~/.claude/.credentials.json") == "three\nHIDDEN"
    assert told("echo four > /tmp/x; mv /tmp/x ~/.npmrc 2>/dev/null; cat ~/.npmrc") in ("three\n", "four\n")


def test_a_store_behind_a_link(furnished: Place) -> None:
    os.rename(furnished.home / ".config/gh", furnished.home / "dotfiles-gh")
    (furnished.home / ".config/gh").symlink_to("../dotfiles-gh")
    assert "HIDDEN" not in said(run(furnished, "cat ~/.config/gh/hosts.yml ~/dotfiles-gh/hosts.yml"))
    assert (
        said(run(furnished, "cat ~/.config/gh/hosts.yml; echo x > ~/.config/gh/y", card=card(keychain=("gh",))))
        == "HIDDEN"
    )
    assert (furnished.home / "dotfiles-gh/y").read_text() == "x\n"


@pytest.mark.parametrize("level", [0, 1])
@pytest.mark.parametrize("target", ["../../.bashrc", "../../notes", "inner"])
def test_a_link_that_an_agent_puts_into_its_store_opens_nothing_to_another(
    furnished: Place, target: str, level: int
) -> None:
    """Neither directly, nor by a link that lies beside it; and its own store is open all the same."""
    before = full_listing(furnished.home / "notes"), (furnished.home / ".bashrc").read_text()
    session = furnished.session()
    act_as(session, card=AgentCard("one", level, Requirements(keychain=("~/.config/tool",))))
    plant = f"cd ~/.config/tool; ln -s ../../.bashrc inner; ln -s {target} token"
    assert session.run([b"sh", b"-c", plant.encode()], fork="one").exit_code == 0
    act_as(session, card=AgentCard("two", level, Requirements(keychain=("~/.config/tool/token",))))
    result = session.run([b"sh", b"-c", b"echo bad >> ~/.config/tool/token; echo bad > ~/.config/tool/token/n"])
    assert result.credentials == ()
    assert (full_listing(furnished.home / "notes"), (furnished.home / ".bashrc").read_text()) == before
    assert any("is a symlink to a place that is not named: not opened" in note for note in result.notes)
    act_as(session, card=AgentCard("one", level, Requirements(keychain=("~/.config/tool",))))
    assert said(session.run([b"cat", os.fsencode(furnished.home / ".config/tool/settings")], fork="one")) == "shown"


def test_a_link_to_what_is_named_too_is_followed_wherever_it_lies(furnished: Place) -> None:
    (furnished.home / ".config/tool/token").symlink_to("../../notes/n")
    named = card(keychain=("~/.config/tool/token", "~/notes"))
    result = run(furnished, "echo x > ~/.config/tool/token", card=named)
    assert result.credentials == ("~/.config/tool/token", "~/notes")
    assert (furnished.home / "notes/n").read_text() == "x\n"
    real = furnished.home / "notes/n"
    assert f"credentials ~/.config/tool/token: {furnished.home}/.config/tool/token is a symlink: {real} is open" in (
        result.notes
    )


@pytest.mark.parametrize("level", [0, 1])
@pytest.mark.parametrize("place", ["~/.config", "~/.local", "~/linked-config"])
def test_a_directory_of_other_tools_places_is_not_opened(furnished: Place, place: str, level: int) -> None:
    """Links in there are followed: no agent may put one."""
    (furnished.home / ".local/share").mkdir(parents=True, exist_ok=True)
    (furnished.home / "linked-config").symlink_to(".config")
    session = furnished.session()
    act_as(session, card=AgentCard("one", level, Requirements(keychain=(place,))))
    result = session.run([b"sh", b"-c", b"touch ~/.config/bad ~/.local/bad"])
    assert result.credentials == ()
    assert not (furnished.home / ".config/bad").exists()
    assert not (furnished.home / ".local/bad").exists()
    why = "is a symlink to a place that is not named" if "linked" in place else "contains other tools' stores"
    assert any(why in note for note in result.notes)


@pytest.mark.parametrize("target", ["..", "../.ssh", "/", "/etc", "../.aws/credentials", "../.config"])
@pytest.mark.parametrize("level", [0, 1])
def test_a_link_in_the_place_of_a_store_opens_nothing(furnished: Place, target: str, level: int) -> None:
    """Whoever may write beside a store could have put it there."""
    os.rename(furnished.home / ".config/gh", furnished.home / "away")
    (furnished.home / ".config/gh").symlink_to(target)
    before = full_listing(furnished.home)
    session = furnished.session()
    act_as(session, card=AgentCard("agent", level, Requirements(keychain=("gh",))))
    result = session.run([b"sh", b"-c", b"cd ~/.config/gh && { touch bad; ls -A; cat id_ed25519; }; cat ~/.config/gh"])
    assert full_listing(furnished.home) == before
    assert result.credentials == ()
    assert "HIDDEN" not in said(result)
    assert any("is a symlink to a place that is not named: not opened" in note for note in result.notes)


def test_files_that_the_policy_shows(furnished: Place) -> None:
    settings = Settings(
        level=0, credentials=(b"~/.netrc", b"~/.ssh/id_ed25519"), read=(os.fsencode(furnished.home / ".aws"),)
    )
    session = furnished.session(settings)
    script = b"cd; grep -rls HIDDEN . | sort; "
    script += b"for f in .netrc .ssh/id_ed25519 .aws/credentials; do echo bad > $f; done 2>/dev/null"
    result = session.run([b"sh", b"-c", script])
    assert result.stdout.split() == [b"./.aws/credentials", b"./.netrc", b"./.ssh/id_ed25519"]
    assert (furnished.home / ".netrc").read_text() == (furnished.home / ".aws/credentials").read_text() == "HIDDEN"


def test_a_user_without_a_home(furnished: Place) -> None:
    shutil.rmtree(furnished.home)
    result = run(furnished, "cd && touch ~/.cache/x && ls -A / > /dev/null && echo over")
    assert said(result) == "over\n"
    assert not furnished.home.exists()


def test_a_project_in_a_hidden_place(furnished: Place) -> None:
    furnished.project = furnished.home / ".claude/plugin"
    furnished.project.mkdir()
    (furnished.project / "f").write_text("one\n")
    result = run(furnished, "cat f; echo two > f; ls -A ~/.claude")
    assert (said(result), [change.path for change in result.changeset.changes]) == ("one\nplugin\n", [b"f"])
    assert (furnished.project / "f").read_text() == "one\n"


def test_what_is_named_and_not_there_is_said(place: Place) -> None:
    result = run(place, "touch ~/.config/gh/x", card=card(keychain=("gh", "~/.nothing")))
    assert result.credentials == ()
    assert [note for note in result.notes if note.startswith("credentials")] == [
        "credentials gh: not found: ~/.config/gh (a login inside will not be kept)",
        "credentials ~/.nothing: not found: ~/.nothing (a login inside will not be kept)",
    ]
    assert list(place.home.iterdir()) == []


@pytest.mark.parametrize("level", [0, 1])
def test_a_store_never_holds_the_project(tmp_path: Path, place: Place, level: int) -> None:
    project = place.home / "work/project"
    project.mkdir(parents=True)
    place.project = project
    session = place.session()
    act_as(session, card=AgentCard("a", level, Requirements(keychain=("~/work",))))
    with pytest.raises(UsageError, match="the project is there"):
        session.run([b"true"])
    assert sorted(os.listdir(tmp_path)) == ["home", "project", "state"]


def test_at_level_1_the_named_store_is_open_and_nothing_else(furnished: Place) -> None:
    session = furnished.session()
    act_as(session, card=AgentCard("a", 1, Requirements(keychain=("gh",))))
    result = session.run(
        [b"sh", b"-c", b"cd; cat .config/gh/hosts.yml; cat .bashrc; echo x > .config/gh/t; ls -A .config"]
    )
    assert result.level == 1
    assert result.credentials == ("gh",)
    assert result.stdout == b"HIDDENfish\ngh\ngit\n"  # fish and git: settings of the fork's own
    assert (furnished.home / ".config/gh/t").read_text() == "x\n"


@contextmanager
def daemon(path: Path) -> Iterator[None]:
    """A program of the host that answers on a unix socket."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        path.chmod(0o777)
        server.listen(8)
        over = threading.Event()

        def serve() -> None:
            while True:
                connection, _address = server.accept()
                if over.is_set():
                    connection.close()
                    return
                connection.sendall(b"reached")
                connection.close()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            over.set()
            with socket.socket(socket.AF_UNIX) as last:
                last.connect(str(path))
            thread.join()


CONNECT = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); print(s.recv(100).decode())"


@pytest.mark.parametrize("view", VIEWS)
def test_a_socket_of_the_host_that_was_named(furnished: Place, short: Path, view: str) -> None:
    with daemon(short / "agent.sock"):  # beside the home
        script = f"{sys.executable} -c '{CONNECT}' {short}/agent.sock"
        agent = str(short / "agent.sock")
        assert said(run(furnished, script, view, card(keychain=("ssh-agent",)), SSH_AUTH_SOCK=agent)) == "reached\n"
        assert "reached" not in said(run(furnished, script, view, card(keychain=("gh",)), SSH_AUTH_SOCK=agent))
        assert said(run(furnished, "echo $SSH_AUTH_SOCK", view, SSH_AUTH_SOCK=agent)) == "\n"
        assert (
            said(run(furnished, "echo $SSH_AUTH_SOCK", view, card(keychain=("ssh-agent",)), SSH_AUTH_SOCK=agent))
            == f"{agent}\n"
        )


def test_a_socket_in_a_private_place_that_was_named(furnished: Place) -> None:
    place = Path(f"/tmp/mudroom-{os.getpid()}.sock")
    try:
        with daemon(place):
            script = f"ls /tmp; {sys.executable} -c '{CONNECT}' {place}"
            assert "reached\n" in said(
                run(furnished, script, card=card(keychain=("ssh-agent",)), SSH_AUTH_SOCK=str(place))
            )
            assert "reached" not in said(run(furnished, script))
    finally:
        place.unlink()
