"""The queue of decisions: the same rows for the page, the terminal and notifications, in one order."""

from __future__ import annotations

import re
import shutil
import time
from typing import NoReturn

import pytest
from msgspec import structs

from conftest import Place
from mudroom.errors import FileError
from mudroom.ext.decisions import queue
from mudroom.ext.decisions.cli import cells_of
from mudroom.ext.decisions.queue import RANKS, Decision, decisions, whole_forks
from mudroom.ext.remarks.core.value import SentRemark
from mudroom.ext.remarks.session import Remarks
from mudroom.ext.remarks.store import RemarkStore
from mudroom.session.upkeep import ForkSummaries
from mudroom.vault.store.fork import Fork
from mudroom.vault.store.store import Vault
from test_vault_verb import Cli

pytestmark = pytest.mark.both_users
POLICY = "commands: {classes: {destructive: require_approval}}\nverify: {command: [test, '!', -e, bad], when: always}\n"


@pytest.fixture
def three(place: Place) -> Cli:
    """A question in ``asks``, a conflict, a failed verification, and work that is only finished."""
    cli = Cli(place)
    cli.place.write(".mudroom/policy.yaml", POLICY)
    cli.place.write("a", "1\n")
    cli("exec", "--fork", "done", "--", "touch", "new")
    cli("exec", "--fork", "fails", "--", "touch", "bad")
    cli("apply", "--yes", "fails")
    cli("exec", "--fork", "clash", "--", "sh", "-c", "echo theirs > a")
    cli("exec", "--fork", "asks", "--agent", "bot", "--", "sudo", "rm", "-rf", "/")
    cli.place.write("a", "ours\n")
    return cli


def test_rows_come_in_the_order_in_which_they_cost_time(three: Cli) -> None:
    session = three.place.session()
    rows = decisions(session.vault, whole_forks(session.vault, ForkSummaries()))
    assert [(row.kind, row.fork) for row in rows] == [
        ("question", "asks"),
        ("conflict", "clash"),
        ("unverified", "fails"),
        ("finished", "done"),
    ]
    assert [row.action for row in rows] == ["Answer", "Decide", "Look", "Review"]
    assert rows[0].command == "sudo rm -rf /" and rows[0].words == "has asked for:"
    assert rows[3].words == "1 changed file"


def test_mudroom_alone_and_ls_begin_with_the_same_rows(three: Cli) -> None:
    told, listed = three().stdout.splitlines(), three("ls").stdout.splitlines()
    at = next(number for number, line in enumerate(told) if line.startswith("waits"))
    kinds = [line[9:].split()[0] for line in told[at : at + 4]]
    assert kinds == ["question", "conflict", "unverified", "finished"]
    assert [line.split()[0] for line in listed[:3]] == kinds[:3], "ls tells what is finished by itself"
    (name,) = [row["id"] for row in three.json("approve")["approvals"]]
    assert name in told[at] and name in listed[0], "mudroom approve takes it"


def test_remarks_that_the_agent_has_dealt_with_wait_for_a_look(place: Place) -> None:
    session, result = place.sh("echo 1 > a")
    remarks = Remarks(session, result.fork)
    name = remarks.add(b"a", 1, 1, "why?")

    def only() -> Decision:
        (row,) = decisions(session.vault, whole_forks(session.vault, ForkSummaries()))
        return row

    assert only().kind == "finished", "it was not sent"
    store = RemarkStore(session.vault.fork(result.fork))
    with store.locked() as stored:
        store.save(name, structs.replace(stored.remarks[name], sent=SentRemark(1, 1, "sent")))
    assert (only().kind, only().words) == ("answered", "the agent is done with 1 remark")
    remarks.settle(name)
    assert only().kind == "finished"


def test_a_question_that_a_command_waits_for_comes_before_one_that_nobody_waits_for() -> None:
    rows = [
        Decision("question", "a", question="1", since=1),
        Decision("question", "b", question="2", since=5, has_waiter=True),
    ]
    assert [row.fork for row in sorted(rows, key=lambda row: row.order)] == ["b", "a"]


def test_each_kind_has_words_and_ages_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(re.fullmatch(r"[^\x00-\x1f]+", Decision(kind, "f").words) for kind in RANKS)
    monkeypatch.setattr(time, "time_ns", lambda: 10**18)
    rows = [Decision("running", "f", since=10**12 - age) for age in (-1, 59_999, 60_000, 3_600_000, 86_400_000)]
    assert [cells_of(row)[0][10:].strip() for row in rows] == ["0 s", "59 s", "1 min", "1 h", "1 d"]


def test_a_command_with_control_characters_steers_no_terminal(place: Place) -> None:
    session = place.session()
    session.run([b"sh", b"-c", b"echo 1 > a # \x1b[2J\n"], fork="f")
    (row,) = decisions(session.vault, whole_forks(session.vault, ForkSummaries()))
    assert row.command.isprintable() and row.fork == "f"


def test_a_fork_whose_conflicts_cannot_be_read_is_damaged_and_one_that_is_gone_has_no_row(
    three: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = three.place.session()
    forks = whole_forks(session.vault, ForkSummaries())

    def fails(vault: Vault, fork: Fork) -> NoReturn:
        if fork.name == "done":
            shutil.rmtree(fork.path)
        raise FileError(5, "Input/output error", "record")

    monkeypatch.setattr(queue, "find_drift", fails)
    rows = decisions(session.vault, forks)
    assert [(row.kind, row.fork) for row in rows] == [("question", "asks"), ("damaged", "fails"), ("damaged", "clash")]
    assert rows[1].problem == "record: Input/output error"


def test_a_fork_with_more_files_than_are_compared_says_so() -> None:
    assert Decision("finished", "f", size=1000).words == "1,000 changed files"
    assert Decision("finished", "f", size=1001).words == "1,001 changed files, not compared with the project"
