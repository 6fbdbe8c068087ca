"""The owner of an agent's staged store: the user of root's containers, who is not root."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mudroom.core.agent.card import AgentStore, StagedStore, StorePlace
from mudroom.core.confinement.spec import Bind
from mudroom.ext.agents.home.agent_home import AgentHome

pytestmark = [pytest.mark.both_users, pytest.mark.root]


@pytest.fixture
def home(tmp_path: Path) -> AgentHome:
    if os.geteuid():
        pytest.skip("only root can give a file away")
    source = tmp_path / "home/.x"
    (source / "deep/er").mkdir(parents=True)
    (source / "deep/er/settings").write_text("1\n")
    (tmp_path / "outside").write_text("mine\n")
    (source / "link").symlink_to(tmp_path / "outside")
    (tmp_path / "home/.x.json").write_text("{}\n")
    places = (
        StorePlace(b".x", os.fsencode(source), True),
        StorePlace(b".x.json", os.fsencode(tmp_path / "home/.x.json"), False),
    )
    staged = StagedStore(AgentStore("x", (b".x",), (b".x.json",), (b".x/deep/login",)), places)
    fork = SimpleNamespace(path=os.fsencode(tmp_path / "state/vaults/v/forks/f"))
    return AgentHome(cast(Any, fork), os.fsencode(tmp_path / "home"), staged)


def owners(root: Path) -> set[int]:
    return {os.lstat(path).st_uid for path in (root, *root.rglob("*"))}


def test_the_copy_is_that_users_and_roots_again(home: AgentHome, tmp_path: Path) -> None:
    home.prepare((), owner=(65532, 65532))
    copy = tmp_path / "state/vaults/v/forks/f/home/x"
    assert owners(copy / "0") | owners(copy / "1") == {65532}
    assert (copy / "0/deep/er/settings").read_text() == "1\n"
    assert os.stat(tmp_path / "outside").st_uid == 0
    assert owners(tmp_path / "home") == {0}
    home.prepare(())
    assert owners(copy / "0") | owners(copy / "1") == {0}
    assert home.changes() == []


def test_a_login_is_theirs_inside_and_the_user_s_on_the_host(home: AgentHome, tmp_path: Path) -> None:
    login = tmp_path / "home/.x/deep/login"
    login.write_text("old")
    login.chmod(0o640)
    os.chown(login, 1234, 4321)
    home.prepare((Bind(os.fsencode(login), os.fsencode(login), writable=True),), owner=(65532, 65532))
    copy = tmp_path / "state/vaults/v/forks/f/home/x/0/deep/login"
    assert (copy.stat().st_uid, copy.stat().st_gid, copy.stat().st_mode & 0o777) == (65532, 65532, 0o600)
    copy.write_text("new")
    assert home.keeper is not None
    home.keeper.close()
    info = login.stat()
    assert (login.read_text(), info.st_uid, info.st_gid, info.st_mode & 0o777) == ("new", 1234, 4321, 0o640)
    assert not copy.exists() and home.keeper.notes == []
