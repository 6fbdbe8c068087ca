"""Pages of a fork whose sandbox stands between commands."""

from __future__ import annotations

import pytest

from conftest import Place
from mudroom.ext.web.state.server_state import require_at_rest
from standing_fork import stand, stands


@pytest.mark.both_users
def test_pages_leave_it(place: Place) -> None:
    session = place.session()
    stand(session)
    session.sandboxes.foreground()
    require_at_rest(session, "f")
    assert stands(session)
