"""The list of forks from which a review begins: a fork that is damaged or closed is a row that says why."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from conftest import Place
from mudroom.core.settings import Settings
from mudroom.errors import MudroomError
from mudroom.ext.tui.app import queue_of
from mudroom.vault.store.fork import Fork
from test_end_states import DAMAGE, FOR_USERS, sh

pytestmark = pytest.mark.both_users


@pytest.mark.parametrize("damage", [*DAMAGE, *FOR_USERS], ids=lambda damage: damage.__name__)
def test_a_damaged_fork_is_one_row_that_says_why(place: Place, damage: Callable[[Fork], None]) -> None:
    if damage in FOR_USERS and not os.geteuid():
        pytest.skip("root reads what is closed to its owner")
    session = place.session()
    for name in ("one", "two", "damaged"):
        sh(session, f"echo {name} > {name}", name)
    broken = session.vault.fork("damaged")
    damage(broken)
    try:
        listed = {row.fork: row for row in queue_of(session)}
        assert set(listed) == {"one", "two", "damaged"}
        assert listed["damaged"].problem and not listed["one"].problem
    finally:
        if os.path.isdir(broken.path):
            os.chmod(broken.path, 0o700)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads what is closed to its owner")
def test_a_fork_that_cannot_be_collected_is_not_damaged(place: Place) -> None:
    place.write("a b/file", "x")
    closed, session = place.project / "a b", place.session(Settings(view="overlay"))
    closed.chmod(0)
    try:
        with pytest.raises(MudroomError):
            sh(session, "chmod 700 'a b'; rm -r 'a b'", "work")
        [listed] = queue_of(session)
        assert (listed.kind, listed.problem) == ("cut off", "")
    finally:
        closed.chmod(0o700)
