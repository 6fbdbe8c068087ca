"""Lists and pages of a fork leave the sandbox that stands for it."""

from __future__ import annotations

import pytest

from conftest import Place
from mudroom.ext.web.state.server_state import require_at_rest
from standing_fork import stand, stands


@pytest.mark.both_users
def test_lists_and_pages_leave_it(place: Place) -> None:
    session = place.session()
    stand(session)
    session.sandboxes.foreground()
    assert session.forks.is_at_rest("f")
    require_at_rest(session, "f")
    assert stands(session)
