"""Only the sanitizer's users write a server's words toward a client."""

from __future__ import annotations

from pathlib import Path

import mudroom.net
from writers import writers_in

ALLOWED = {
    "gate/response_writer.py": 3,
    # before there is a server, or where its bytes are opaque
    "gate/relay.py": 1,
    "listeners/socks.py": 4,
    "listeners/accept.py": 6,
    "listeners/tunnel.py": 2,
    "listeners/responder.py": 1,
}


def test_the_places_that_write_toward_a_client_are_known() -> None:
    """A new place has to clean what it writes, and is counted here then."""
    assert writers_in(Path(mudroom.net.__file__).parent) == ALLOWED
