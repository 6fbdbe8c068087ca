"""A conversation of a fork that is discarded is named, and can be had for a day where ``claude --continue`` looks."""

from __future__ import annotations

import os

import pytest

from conftest import Place
from mudroom.ext.agents.home.agent_home import STORE
from mudroom.ext.outside.store import copy_out, stored
from mudroom.session import Session
from test_carried_homes import TALK, sh
from test_logins import log_in, opened

pytestmark = pytest.mark.both_users


def discarded(session: Session, fork: str = "a") -> list[str]:
    session.forks.discard(fork)
    return [remark for remark in session.forks.remarks if "conversation" in remark]


@pytest.mark.parametrize("view", ["overlay", "copy", "landlock"])
def test_it_is_named_and_can_be_copied_out(place: Place, view: str) -> None:
    session, host = opened(place, view=view), log_in(place)
    sh(
        session,
        "a",
        f"mkdir -p ~/.codex/sessions/2026; echo one >~/{TALK}; echo no >~/.codex/x; ln -s /etc ~/.codex/sessions/l",
    )
    assert discarded(session) == ["a had a conversation with codex; 1 file of 1 can be had for a day: mudroom keep a"]
    (kept,) = stored(session.vault)
    assert (kept.fork, kept.path) == ("a", os.fsencode(place.home / TALK))
    (place.home / TALK).parent.mkdir(parents=True)
    copy_out(kept, kept.path)
    assert (place.home / TALK).read_text() == "one\n"
    assert not (place.home / ".codex/x").exists() and host.read_text() == '{"token": "old"}'


def test_a_fork_without_one_says_nothing(place: Place) -> None:
    session = opened(place)
    sh(session, "a", "echo x >~/.codex/config.toml; echo 1 >f")
    assert discarded(session) == [] and stored(session.vault) == []


def test_one_that_is_too_large_is_gone_and_that_is_said(place: Place) -> None:
    session = opened(place)
    sh(session, "a", f"mkdir -p ~/.codex/sessions/2026; head -c 20000000 /dev/zero >~/{TALK}")
    assert discarded(session) == ["a had a conversation with codex; it is gone, too"]


def test_what_another_fork_of_this_name_has_is_its_own(place: Place) -> None:
    session = opened(place)
    for text in ("one", "two"):
        sh(session, "a", f"mkdir -p ~/.codex/sessions/2026; echo {text} >~/{TALK}")
        discarded(session)
    (kept,) = stored(session.vault)
    with open(kept.place) as stream:
        assert stream.read() == "two\n"


def test_one_that_cannot_be_read_is_gone_and_stops_no_discard(place: Place) -> None:
    session = opened(place)
    sh(session, "a", f"mkdir -p ~/.codex/sessions/2026; echo one >~/{TALK}")
    store = os.fsdecode(session.vault.fork("a").path + b"/home/codex" + STORE)
    with open(store, "w") as stream:
        stream.write("{")
    (told,) = discarded(session)
    assert told.startswith("the conversations with codex in a are gone, too: they cannot be stored: ")
    assert session.vault.find("a") is None
