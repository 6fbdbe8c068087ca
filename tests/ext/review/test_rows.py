"""The rows of a fork, as the page and the terminal have them."""

from __future__ import annotations

import pytest

from conftest import Place
from mounted_fork import sh
from mudroom.core.settings import Settings, ViewChoice
from mudroom.errors import NotReviewed
from mudroom.ext.review.rows import difference, review_fork
from mudroom.vault.forks import review
from test_looks import landed, storing

pytestmark = pytest.mark.both_users


def test_the_fingerprint_of_a_fork_in_use_is_that_of_a_look(place: Place) -> None:
    session = place.session()
    background = storing(session)
    reviewed = review_fork(session, "f")
    assert reviewed.in_use == session.changes.look("f").in_use
    background.end()
    assert reviewed.fingerprint.startswith(review.LOOK)
    with pytest.raises(NotReviewed):
        session.changes.apply("f", reviewed=reviewed.fingerprint)
    assert landed(place) is None


@pytest.mark.parametrize("view", ["overlay", "copy"])
def test_the_rest_of_an_apply_has_its_texts(place: Place, view: ViewChoice) -> None:
    place.write("a.txt", "one\n")
    session = place.session(Settings(view=view))
    sh(session, "echo theirs > a.txt; echo new > new.txt")
    place.write("a.txt", "mine\n")
    assert session.changes.apply("f").applied.conflicts
    assert difference(session, "f", b"a.txt").texts is not None
