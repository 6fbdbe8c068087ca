"""The first screen of the review in a terminal: the queue of decisions, and answers to questions from it."""

from __future__ import annotations

import pytest
from driving import Driver, drive

from conftest import Place
from mudroom.core.approval_queue import QueueRow
from test_vault_verb import Cli

pytestmark = pytest.mark.both_users


@pytest.fixture
def asked(place: Place) -> Cli:
    place.write(".mudroom/policy.yaml", "commands: {classes: {destructive: require_approval}}\n")
    cli = Cli(place)
    cli("exec", "--fork", "done", "--", "touch", "new")
    cli("exec", "--fork", "asks", "--agent", "bot", "--", "rm", "-rf", "src")
    return cli


def only(place: Place) -> QueueRow:
    (row,) = place.session().vault.approvals.rows()
    return row


def answered(asked: Cli, *keys: str) -> str:
    """What the dialog of the only question says; then keys are pressed in it."""
    said = []

    async def story(driver: Driver) -> None:
        await driver.until(lambda: "which fork?" in driver.dialog())
        first, second = driver.dialog().splitlines()[1:3]
        assert "question" in first and "rm -rf src" in first
        assert "finished" in second and "done" in second
        await driver.press("enter")
        await driver.until(lambda: "not now" in driver.dialog())
        said.append(driver.dialog())
        await driver.press(*keys)
        await driver.until(lambda: "which fork?" in driver.dialog())
        await driver.press("escape")

    drive(asked.place, None, story, session=asked.place.session())
    return said[0]


def test_a_question_says_what_is_allowed_afterwards_and_takes_an_answer(asked: Cli) -> None:
    said = answered(asked, "j", "enter")
    assert "rm -rf src" in said and "destructive" in said
    for words in (
        "allow once",
        "for an hour: allow the same command in the fork asks",
        "always, writes: allow",
        "deny",
    ):
        assert words in said
    row = only(asked.place)
    assert row.decision is not None and (row.state, row.decision.by) == ("allowed", "terminal")


def test_an_answer_for_an_hour(asked: Cli) -> None:
    answered(asked, "j", "j", "enter")
    row = only(asked.place)
    assert row.decision is not None and row.decision.hour


def test_a_key_pressed_twice_answers_nothing(asked: Cli) -> None:
    answered(asked, "enter")
    assert only(asked.place).state == "waiting"
