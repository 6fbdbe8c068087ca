"""An agent whose home is staged (``run.home``): its login and its store are the fork's copies as ever; all else that it
writes in the home is a part of the fork."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from box import if_namespaces
from conftest import Place, act_as, listing
from mudroom.core.settings import Settings
from mudroom.errors import Unsupported, UsageError
from mudroom.ext.agents.catalog import Catalog
from mudroom.ext.agents.home.agent_settings import agent_settings
from mudroom.session import Session

pytestmark = if_namespaces


@pytest.fixture
def home(place: Place) -> Path:
    store = place.home / ".claude"
    store.mkdir()
    (store / "settings.json").write_text("mine\n")
    (store / ".credentials.json").write_text("token\n")
    (place.home / ".claude.json").write_text('{"oauthAccount": 1}\n')
    (place.home / ".gitconfig").write_text("[user]\n\tname = Me\n")
    (place.home / ".ssh").mkdir()
    (place.home / ".ssh/id_rsa").write_text("sesame\n")
    return place.home


def staged(place: Place, agent: str = "claude", level: int = 1) -> Session:
    session = place.session(Settings(network="none", home="staged"))
    act_as(session, card=Catalog().profile(agent).card(level))
    return session


def sh(session: Session, script: str) -> str:
    result = session.run([b"sh", b"-ec", script.encode()], fork="f")
    assert result.exit_code == 0, result.stderr
    return result.stdout.decode()


def test_the_login_goes_back_the_store_stays_the_rest_is_a_part(place: Place, home: Path) -> None:
    session = staged(place)
    script = "cat ~/.claude/settings.json ~/.claude/.credentials.json; ! cat ~/.ssh/id_rsa"
    assert sh(session, script) == "mine\ntoken\n"
    sh(session, "echo planted > ~/.claude/settings.json; echo more >> ~/.claude/.credentials.json")
    sh(
        session,
        "echo '{\"x\": 2}' > ~/.claude.json; git config --global user.email a@b; mkdir ~/.tool; echo t > ~/.tool/t",
    )
    assert (home / ".claude/.credentials.json").read_text() == "token\nmore\n"
    assert (home / ".claude/settings.json").read_text() == "mine\n"
    assert sh(session, "cat ~/.claude/settings.json ~/.tool/t ~/.claude.json") == 'planted\nt\n{"x": 2}\n'
    ((tied, there),) = session.changes.parts("f")
    changed = {change.path for change in there.forks.changeset(tied.name).changes}
    assert changed == {b".gitconfig", b".tool", b".tool/t"}
    ((_home, changes),) = agent_settings(session, "f")
    assert b".claude/settings.json" in [change.path for change in changes]
    before = listing(home)
    session.changes.review("f")
    session.changes.apply("f")
    assert (home / ".tool/t").read_text() == "t\n"
    assert "a@b" in (home / ".gitconfig").read_text()
    assert (home / ".claude/settings.json").read_text() == "mine\n"
    session.changes.undo()
    assert listing(home) == before


@pytest.mark.parametrize("agent", ["codex", "aider"])
def test_no_place_of_a_store_that_the_home_lacks_is_a_change(place: Place, home: Path, agent: str) -> None:
    session = staged(place, agent)
    sh(session, "ls -A ~")
    ((tied, there),) = session.changes.parts("f")
    assert there.forks.changeset(tied.name).changes == ()


def test_a_policy_that_keeps_the_home_private_closes_a_part_of_it(place: Place, home: Path) -> None:
    session = place.session(Settings(home="staged"))
    sh(session, "echo x > ~/.made")
    act_as(session, settings=Settings(home="private"))
    with pytest.raises(UsageError) as refused:
        session.run([b"true"], fork="f")
    assert refused.value.message == "the policy's run.home is private, and your home is a part of the fork"
    assert refused.value.hint == "mudroom exec --home --fork f -- COMMAND"


def test_level_0_says_how_to_go_on(place: Place, home: Path) -> None:
    session = place.session(Settings(home="staged"), level=0)
    with pytest.raises(Unsupported, match="found: level 0") as refused:
        session.run([b"true"])
    assert "--level 1, or the policy's run.home: private" in refused.value.hint


def test_a_verification_does_not_stage_the_home(place: Place, home: Path) -> None:
    settings = Settings(home="staged", verify=(b"sh", b"-c", b"! test -e ~/.made"), verify_when="always")
    session = place.session(settings)
    sh(session, "echo x > ~/.made; echo y > y")
    landed = session.changes.apply("f")
    assert landed.verified is not None
    assert landed.verified.passed
    assert (home / ".made").exists()
    assert os.listdir(os.fsdecode(session.vault.path) + "/forks") == ["f"]
