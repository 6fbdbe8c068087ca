"""The copy of an agent's store in the weaker modes, and beside a command in the background."""

from __future__ import annotations

import os

import pytest

from background_command import heard
from conftest import Place, act_as
from mudroom.core.agent.card import AgentStore, StagedStore, StorePlace
from mudroom.core.result import Result
from mudroom.core.settings import Settings
from mudroom.ext.agents.catalog import Catalog
from mudroom.ext.agents.home.agent_home import AgentHome
from mudroom.ext.agents.home.agent_settings import agent_settings
from mudroom.sandbox.host.host import landlock_abi
from mudroom.session import Session

pytestmark = pytest.mark.both_users

PLANT = "echo planted > ~/.claude/settings.json; echo more >> ~/.claude/.credentials.json; cat ~/.claude/settings.json"


def claude(place: Place, level: int = 1) -> Session:
    store = place.home / ".claude"
    store.mkdir()
    (store / "settings.json").write_text("mine\n")
    (store / ".credentials.json").write_text("token\n")
    session = place.session(Settings(network="none"))
    act_as(session, card=Catalog().profile("claude").card(level))
    return session


def run(session: Session, script: str) -> Result:
    result = session.run([b"sh", b"-c", script.encode()], fork="f")
    assert result.exit_code == 0, result.stderr
    return result


@pytest.mark.skipif(not landlock_abi(), reason="this kernel has no Landlock")
def test_without_namespaces_the_copy_is_behind_links(place: Place) -> None:
    session = claude(place)
    session.machine.confinement.mode = "landlock"
    assert run(session, PLANT).stdout == b"planted\n"
    assert (place.home / ".claude/settings.json").read_text() == "mine\n"
    assert (place.home / ".claude/.credentials.json").read_text() == "token\nmore\n"
    assert run(session, "cat ~/.claude/settings.json ~/.claude/.credentials.json").stdout == b"planted\ntoken\nmore\n"
    ((_home, changes),) = agent_settings(session, "f")
    assert [change.path for change in changes] == [b".claude/settings.json"]
    session.machine.confinement.mode = "overlay"  # the login's link makes room for a mount, and back
    assert run(session, "cat ~/.claude/settings.json ~/.claude/.credentials.json").stdout == b"planted\ntoken\nmore\n"
    session.machine.confinement.mode = "landlock"
    assert run(session, "cat ~/.claude/.credentials.json").stdout == b"token\nmore\n"


def test_a_directory_in_the_place_of_a_file_of_the_store_makes_room(place: Place) -> None:
    session = claude(place)
    login, settings = place.home / ".claude/.credentials.json", place.home / ".claude/settings.json"
    login.unlink()
    settings.unlink()
    run(session, "mkdir -p ~/.claude/.credentials.json/x")
    login.write_text("token\n")
    assert run(session, "cat ~/.claude/.credentials.json").stdout == b"token\n"


@pytest.mark.skipif(not landlock_abi(), reason="this kernel has no Landlock")
def test_the_copy_can_be_changed_in_mode_and_time_without_namespaces(place: Place) -> None:
    session = claude(place)
    session.machine.confinement.mode = "landlock"
    run(session, "chmod 600 ~/.claude/settings.json && touch -d @1 ~/.claude/settings.json")
    assert (place.home / ".claude/settings.json").stat().st_mtime > 1


@pytest.mark.skipif(not landlock_abi(), reason="this kernel has no Landlock")
def test_at_level_0_without_namespaces_the_store_is_read_only(place: Place) -> None:
    session = claude(place, level=0)
    session.machine.confinement.mode = "landlock"
    result = session.run([b"sh", b"-c", b"echo planted > ~/.claude/settings.json"], fork="f")
    assert result.exit_code != 0
    assert any("cannot be staged" in note for note in result.notes), result.notes
    assert (place.home / ".claude/settings.json").read_text() == "mine\n"


def test_a_command_beside_one_in_the_background_sees_the_same_copy(place: Place) -> None:
    session = claude(place)
    started = session.start([b"sh", b"-c", PLANT.encode() + b"; echo up; sleep 60"], fork="f")
    heard(started, b"up")
    assert run(session, "cat ~/.claude/settings.json").stdout == b"planted\n"
    started.end()
    assert (place.home / ".claude/settings.json").read_text() == "mine\n"


def test_every_review_shows_the_settings_and_no_apply_takes_them(place: Place) -> None:
    """The section of the terminal review and of the page; the command line's is in tests/cli/command."""
    from pageside import PageSide

    from mudroom.cli.change.agent_settings import TITLE
    from mudroom.ext.tui.choice import choice_of, first_choice
    from mudroom.ext.tui.review_model import ReviewModel
    from mudroom.ext.tui.summary import before_apply

    session = claude(place)
    run(session, PLANT + "; echo 1 > new")
    seen = ReviewModel(session, "f").see()
    assert seen.settings == ("  ~/.claude/settings.json  changed",)
    choice = choice_of(seen.items, first_choice(seen.items))
    assert choice is not None
    rows = ["".join(text for text, _style in row) for row in before_apply(seen, choice, (), {}, ())]
    assert f"{TITLE}: mudroom agent settings f" in rows and seen.settings[0] in rows
    page = PageSide(place)
    answer = page.get(f"{page.project}/forks/f/changes")
    assert answer["settings"] == ["~/.claude/settings.json  changed"]
    page.apply("f")
    assert (place.project / "new").read_text() == "1\n"
    assert (place.home / ".claude/settings.json").read_text() == "mine\n"


def test_a_store_that_has_fewer_places_than_it_had(place: Place) -> None:
    """After an upgrade, what was copied of the old place was listed as removed by the fork, and could not be landed."""
    for name in ("a", "b"):
        (place.home / name).mkdir()
        (place.home / name / "settings").write_text("mine\n")
    session = place.session()
    session.forks.new("f")
    places = tuple(StorePlace(name, os.fsencode(place.home) + b"/" + name, True) for name in (b"a", b"b"))
    fork, home = session.vault.fork("f"), os.fsencode(place.home)
    before = AgentHome(fork, home, StagedStore(AgentStore("x", (b"a", b"b")), places))
    before.prepare(())
    now = AgentHome(fork, home, StagedStore(AgentStore("x", (b"a",)), places[:1]))
    assert now.changes() == []
    now.prepare(())
    assert now.changes() == before.changes() == []
