"""Only the sanitizer's users write a server's words toward a client."""

from __future__ import annotations

import re
from pathlib import Path

import mudroom.net

ROOM = Path(mudroom.net.__file__).parent
WRITES = re.compile(r"client\w*\.(?:write|transport\.write)\(|\.(?:send_headers|send_data)\(|\.pass_to\(client")
ALLOWED = {
    "gate/response_writer.py": 3,
    "gate/message_relay.py": 1,
    # two calls of h2 with cleaned values, and one with a cleaned list
    "net/stream.py": 3,
    # the head of a request to the server, and the end's own loop; the rest goes by ``StreamEnd.send_headers``
    "net/bridge.py": 4,
    # before there is a server, or where its bytes are opaque
    "gate/relay.py": 1,
    "entrances/socks.py": 4,
    "entrances/accept.py": 1,
    "entrances/loopback.py": 1,
    "entrances/tunnel.py": 2,
    "entrances/connect.py": 3,
    "entrances/responder.py": 1,
}


def test_the_places_that_write_toward_a_client_are_known() -> None:
    """A new place has to clean what it writes, and is counted here then."""
    found = {}
    for path in sorted(ROOM.rglob("*.py")):
        number = len(WRITES.findall(path.read_text()))
        if number:
            found[str(path.relative_to(ROOM))] = number
    assert found == ALLOWED
