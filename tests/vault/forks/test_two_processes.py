"""Two processes want the same fork: whatever the other does in between, nothing is lost, and one line says what is so.

The other process is a session of its own, which acts at one moment of the first: its locks are those of other open
files, as in another process (flock(2)).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from conftest import Place
from mudroom.core.approval.approval import CommandAnswer
from mudroom.core.command.policy import ClassRule, CommandPolicy
from mudroom.core.settings import Settings
from mudroom.errors import ForkExists, ForkGone, UsageError
from mudroom.session import Session
from mudroom.session.approval import CommandAnswers
from mudroom.stage.layers.union import Union
from mudroom.vault.forks import stacking
from mudroom.vault.forks.open_fork import OpenFork
from mudroom.vault.lock import Lock
from mudroom.vault.store.fork import Fork
from mudroom.vault.store.store import Vault

WRITE = (b"sh", b"-c", b"echo mine > mine")


@contextmanager
def before(owner: object, name: str, act: Callable[[], object]) -> Iterator[list[str]]:
    """Let the other act before the next call of a method; yield a list that has an item once that has happened."""
    method, done = getattr(owner, name), list[str]()

    def late(*words: Any, **options: Any) -> Any:
        if not done:
            done.append(name)
            act()
        return method(*words, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, late)
        yield done
    assert done, f"{name} was never called"


@pytest.fixture
def one(place: Place) -> Session:
    return place.session()


@pytest.fixture
def other(place: Place) -> Session:
    return place.session()


@pytest.mark.parametrize("moment", [(Fork, "lock_if_free"), (Vault, "discard")])
def test_of_two_that_discard_a_fork_one_is_told(one: Session, other: Session, moment: tuple[type, str]) -> None:
    one.forks.new("f")
    method = moment[1]

    def discard() -> None:
        if method == "lock_if_free":
            other.forks.discard("f")
        else:  # the first holds the lock already
            with pytest.raises(UsageError, match="a command is running in the fork f"):
                other.forks.discard("f")

    with pytest.MonkeyPatch.context() as patch, before(*moment, discard):
        patch.setattr("mudroom.session.forks.PATIENCE", 0.0)
        if method == "lock_if_free":
            with pytest.raises(ForkGone, match="no fork named f any more"):
                one.forks.discard("f")
        else:
            one.forks.discard("f")
    assert not one.vault.forks() and os.listdir(one.vault.path + b"/trash") == []


@pytest.mark.parametrize(
    "moment", [(Vault, "add_fork"), (Vault, "find"), (Fork, "lock"), (Fork, "begin")], ids=lambda moment: moment[1]
)
def test_a_command_gets_a_fork_whatever_the_other_makes_and_discards(
    one: Session, other: Session, moment: tuple[type, str]
) -> None:
    """The fork is made or discarded by the other before the command has it: the command makes it anew, or joins it."""
    method = moment[1]
    if method != "add_fork":
        other.forks.new("f")

    def act() -> None:
        if method == "add_fork":
            other.forks.new("f")
        elif method == "begin":  # the command has it
            with pytest.raises(UsageError, match="a command is running in the fork f"):
                other.forks.discard("f")
        else:
            other.forks.discard("f")

    with pytest.MonkeyPatch.context() as patch, before(*moment, act):
        patch.setattr("mudroom.session.forks.PATIENCE", 0.0)
        result = one.run(WRITE, fork="f")
    assert result.ran and result.exit_code == 0
    assert [change.path for change in other.changes.of("f").changes] == [b"mine"]


def test_a_lock_that_was_waited_for_is_not_that_of_the_next_fork_with_the_name(one: Session, other: Session) -> None:
    """The waiter gets the lock of a directory that is in the trash by then."""
    fork = one.forks.new("f")

    def discard_and_make() -> None:
        other.forks.discard("f")
        other.run(WRITE, fork="f")

    opened = Lock._open  # between it and flock(2)
    acted: list[str] = []

    def late(lock: Lock) -> int:
        descriptor = opened(lock)
        if not acted:
            acted.append("")
            discard_and_make()
        return descriptor

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Lock, "_open", late)
        with pytest.raises(ForkGone), fork.lock("mudroom"):
            raise AssertionError("the lock of a discarded fork")
    assert acted
    assert [change.path for change in one.changes.of("f").changes] == [b"mine"]


def test_a_fork_that_is_gone_is_not_busy(one: Session, other: Session) -> None:
    fork = one.forks.new("f")
    other.forks.discard("f")
    with pytest.raises(ForkGone), fork.lock_if_free("mudroom"):
        raise AssertionError("no fork")


def test_a_fork_of_a_fork_is_whole_as_soon_as_it_is_there(one: Session, other: Session) -> None:
    one.run(WRITE, fork="f")
    seen: list[list[bytes]] = []

    def look() -> None:
        seen.append(
            [change.path for change in other.changes.of("g").changes] if other.vault.find("g") is not None else []
        )

    moments: tuple[tuple[object, str], ...] = ((Fork, "save"), (stacking, "_keep_masked"))
    for owner, name in moments:
        with before(owner, name, look):
            one.forks.new("g", parent="f")
        assert [change.path for change in other.changes.of("g").changes] == [b"mine"]
        other.forks.discard("g")
    assert seen == [[], []]


@pytest.mark.parametrize("moment", [(Fork, "save"), (os, "rename")], ids=["save", "rename"])
def test_of_two_that_take_a_name_one_is_told(one: Session, other: Session, moment: tuple[type, str]) -> None:
    one.run(WRITE, fork="f")

    def take() -> None:
        other.run((b"touch", b"theirs"), fork="g")

    with before(*moment, take), pytest.raises(ForkExists, match="there is a fork named g already"):
        one.forks.rename("f", "g")
    assert [change.path for change in one.changes.of("f").changes] == [b"mine"]
    assert [change.path for change in one.changes.of("g").changes] == [b"theirs"]


def test_a_command_that_changed_nothing_leaves_a_fork_that_another_uses(one: Session, other: Session) -> None:
    one.run((b"true",), fork="f")
    other.run(WRITE, fork="f")
    one.forks.discard_unchanged("f")
    assert [change.path for change in one.changes.of("f").changes] == [b"mine"]
    one.forks.new("empty")
    one.forks.discard_unchanged("empty")
    assert [fork.name for fork in one.vault.forks()] == ["f"]


@pytest.mark.parametrize("moment", [(OpenFork, "__init__"), (Union, "__init__")], ids=["state", "layers"])
def test_a_question_about_a_command_whose_fork_goes_meanwhile(
    place: Place, other: Session, moment: tuple[type, str]
) -> None:
    """It is about the present project then, from which the fork is made anew."""
    place.write("make.sh", "echo mine > mine\n")
    asking = Settings(commands=CommandPolicy((ClassRule("unknown", "require_approval", "policy.yaml:1", 1),)))
    agent = place.session(
        asking, agent="coder", commands=CommandAnswers(approver=lambda _question: CommandAnswer(True, by="a test"))
    )
    other.run((b"touch", b"theirs"), fork="f")
    other.forks.checkpoint("f", "sealed")
    with before(*moment, lambda: other.forks.discard("f")):
        result = agent.run((b"sh", b"make.sh"), fork="f")
    assert result.ran
    assert [change.path for change in agent.changes.of("f").changes] == [b"mine"]
