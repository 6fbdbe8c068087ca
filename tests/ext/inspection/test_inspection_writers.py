"""Only the sanitizer's users write a server's words toward a client, where TLS is inspected."""

from __future__ import annotations

from pathlib import Path

import mudroom.ext.inspection
from writers import writers_in

ALLOWED = {
    # messages of a websocket
    "rewrite.py": 1,
    # two calls of h2 with cleaned values, and one with a cleaned list
    "stream.py": 3,
    # the head of a request to the server, and the end's own loop; the rest goes by ``StreamEnd.send_headers``
    "bridge.py": 4,
}


def test_the_places_that_write_toward_a_client_are_known() -> None:
    """A new place has to clean what it writes, and is counted here then."""
    assert writers_in(Path(mudroom.ext.inspection.__file__).parent) == ALLOWED
