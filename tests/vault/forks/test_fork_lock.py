"""A fork's lock, for those who would rather not wait."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from inner_path import inner
from mudroom.core.clock import CommandStart
from mudroom.errors import MudroomError
from mudroom.ext.agents.core.fork_consent import ShownPort
from mudroom.ext.agents.links.fork_grants import edit_grants
from mudroom.vault import standing
from mudroom.vault.lock import Lock, holder_of
from mudroom.vault.store.fork import Fork
from mudroom.vault.store.store import open_vault
from whole_text import whole


@pytest.fixture
def fork(tmp_path: Path) -> Iterator[Fork]:
    (tmp_path / "p").mkdir()
    vault = open_vault(inner(tmp_path / "state"), inner(tmp_path / "p"))
    yield vault.new_fork("a")
    vault.close()


def test_who_only_looks_is_waited_for(fork: Fork, monkeypatch: pytest.MonkeyPatch) -> None:
    other = Lock(fork.path + b"/lock", "the page")
    assert other.acquire_now()
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        other.release()

    monkeypatch.setattr("mudroom.vault.store.fork.time.sleep", wait)
    with fork.lock_if_free("mudroom apply", 60) as free:
        assert free
    assert len(waits) == 1


def test_a_command_is_not_waited_for(fork: Fork) -> None:
    with Lock(fork.path + b"/lock", "npm install"):
        fork.begin(CommandStart(1))
        with fork.lock_if_free("mudroom apply", 3600) as free:
            assert not free


def test_nobody_is_waited_for_without_patience(fork: Fork) -> None:
    with Lock(fork.path + b"/lock", "the page"), fork.lock_if_free("mudroom apply") as free:
        assert not free


def test_what_tells_of_a_command_may_be_half_written(fork: Fork) -> None:
    assert fork.interrupted is None
    for content in (b"", b"12x", b"\xff"):
        with open(fork.path + b"/running", "wb") as stream:
            stream.write(content)
        assert fork.interrupted == CommandStart(0)


def test_the_holder_of_a_lock_is_told_whatever_was_written_before(tmp_path: Path) -> None:
    path = inner(tmp_path / "lock")
    for holder in ("a long command line", "sh", "", "a command line"):
        with Lock(path, holder):
            descriptor = os.open(path, os.O_RDONLY)
            assert holder_of(descriptor) == (holder or "another mudroom")
            os.close(descriptor)


def test_a_lock_is_not_cut_to_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ext4 would flush it to the disk with every command."""
    monkeypatch.setattr(os, "ftruncate", lambda *_arguments: pytest.fail("it was cut"))
    for holder in ("a long command line", "sh"):
        with Lock(inner(tmp_path / "lock"), holder):
            pass


def test_a_sandbox_that_stands_and_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mudroom that holds it was stopped (Ctrl-Z): its socket takes the connection, and nobody answers."""
    monkeypatch.setattr(standing, "PATIENCE", 0.05)
    door = os.fsencode(tmp_path / "standing")
    listening = standing.open_door(door)
    told = "the sandbox that stands for the fork f does not answer"
    hint = "continue or end the mudroom that has run commands in it"
    with pytest.raises(MudroomError, match=whole(f"{told} ({hint})")):
        standing.end_sandbox("f", door, (), b"")
    assert os.path.exists(door), "it is still its"
    listening.close()


def test_grants_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    vault = open_vault(inner(tmp_path / "state"), inner(tmp_path / "p"))
    fork = vault.new_fork("f")
    os.mkdir(fork.path + b"/consent.new")
    why = "Permission denied" if sys.platform == "win32" else "Is a directory"
    with pytest.raises(MudroomError, match=whole(f"the grants of the fork f cannot be written: {why}")):
        edit_grants(vault, fork, lambda grants: grants._replace(shows=(ShownPort(8000),)))
    os.rmdir(fork.path + b"/consent.new")
    assert edit_grants(vault, fork, lambda grants: grants._replace(shows=(ShownPort(8000),)))
    vault.close()
