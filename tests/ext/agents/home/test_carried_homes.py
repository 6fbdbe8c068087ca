"""A fork of a fork has its agents' stores: a conversation goes on in both, and neither sees the other's."""

from __future__ import annotations

import json
import os

import pytest

from conftest import Place
from mudroom.ext.agents.home import staged_home
from mudroom.session import Session
from test_logins import log_in, opened

pytestmark = pytest.mark.both_users

TALK = ".codex/sessions/2026/a.jsonl"


def sh(session: Session, fork: str, script: str) -> str:
    result = session.run([b"sh", b"-c", script.encode()], fork=fork)
    assert result.exit_code == 0, result.stderr
    return result.stdout.decode()


@pytest.mark.parametrize("view", ["overlay", "copy", "landlock"])
@pytest.mark.parametrize("at", [None, "point"])
def test_a_conversation_goes_on_in_both(place: Place, view: str, at: str | None) -> None:
    session, host = opened(place, view=view), log_in(place)
    sh(session, "a", f"mkdir -p ~/.codex/sessions/2026; echo one >~/{TALK}; echo x=1 >~/.codex/config.toml; echo 1 >f")
    if at is not None:
        session.forks.checkpoint("a", at)
    session.forks.new("b", parent="a", at=at)
    assert sh(session, "b", f"cat ~/{TALK} ~/.codex/config.toml; echo two >>~/{TALK}") == "one\nx=1\n"
    assert sh(session, "a", f"cat ~/{TALK}") == "one\n"
    assert sh(session, "b", f"cat ~/{TALK}") == "one\ntwo\n"
    assert host.read_text() == '{"token": "old"}'


def test_a_fork_of_the_project_has_no_conversation(place: Place) -> None:
    session = opened(place)
    sh(session, "a", f"mkdir -p ~/.codex/sessions/2026; echo one >~/{TALK}")
    session.forks.new("b")
    assert sh(session, "b", f"ls ~/{TALK} 2>&1 || true").endswith("No such file or directory\n")


def test_links_and_pipes_in_a_store_lead_nowhere(place: Place) -> None:
    session = opened(place)
    secret = place.home / "secret"
    secret.write_text("of the host")
    sh(session, "a", f"cd ~/.codex; ln -s {secret} link; mkfifo pipe; ln -s / root; echo x >kept")
    session.forks.new("b", parent="a")
    (store,) = place.state.glob("vaults/*/forks/b/home/codex/0")
    assert os.readlink(store / "link") == str(secret) and (store / "root").is_symlink()
    assert (store / "kept").read_text() == "x\n"


def test_a_login_that_could_not_be_kept_stays_where_it_is(place: Place) -> None:
    session, host = opened(place), log_in(place)
    renew = 'echo \'{"token": "new"}\' >~/.codex/auth.json; mkdir -p ~/.codex/sessions; echo s >~/.codex/sessions/s'
    sh(session, "a", f"rm {host}; true")
    host.unlink()
    host.write_text('{"token": "old"}')
    with pytest.MonkeyPatch.context() as patch:
        from mudroom.ext.agents.home import login

        def fails(*_words: object) -> None:
            raise OSError(28, "No space left on device")

        patch.setattr(login, "_replace", fails)
        sh(session, "a", renew)
    session.forks.new("b", parent="a")
    (below,) = place.state.glob("vaults/*/forks/b/home/codex")
    assert (below / "0/sessions/s").exists() and not (below / "0/auth.json").exists()
    assert json.loads(sh(session, "b", "cat ~/.codex/auth.json"))["token"] == "old"


def test_a_store_that_is_too_large_is_left_out_and_that_is_said(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    session = opened(place)
    sh(session, "a", "echo 12345 >~/.codex/x")
    monkeypatch.setattr(staged_home, "MOST_CARRIED", 3)
    session.forks.new("b", parent="a")
    assert list(session.forks.remarks) == ["codex's store in a is larger than 0 MiB: the new fork has none"]


def test_a_fork_whose_conversation_cannot_be_copied_is_not_made(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fork without it would look like one whose agent has said nothing yet."""
    session = opened(place)
    sh(session, "a", "echo x >~/.codex/x; echo x >f")
    session.forks.checkpoint("a", "point")
    layers = sorted(os.listdir(session.vault.path + b"/layers"))

    def fails(*_words: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(staged_home, "_copy", fails)
    for at in ("point", None):
        with pytest.raises(OSError, match="No space left"):
            session.forks.new("b", parent="a", at=at)
        assert session.vault.find("b") is None
    assert sorted(os.listdir(session.vault.path + b"/layers")) == layers
    monkeypatch.undo()
    session.forks.new("b", parent="a", at="point")
    (store,) = place.state.glob("vaults/*/forks/b/home/codex/0")
    assert (store / "x").read_text() == "x\n"
