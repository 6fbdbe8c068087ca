"""Another user of the machine: told by the kernel, and given nothing but what is public."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from typing import Any

import pytest
from browser import Site, serving

from background_command import SERVER, started
from box import if_namespaces
from conftest import Place, act_as
from mudroom.ext.web.server.sandboxed_peer import sandboxed_pids
from mudroom.net.listeners import peer_user as peer
from mudroom.net.listeners.peer_user import ConnectionEnd, find_end, stranger_of, stranger_uid, table_text
from tiers import each, pairs

pytestmark = [pytest.mark.both_users, pytest.mark.root]

HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
TABLE = HEAD + (
    "   0: 0100007F:223D 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 1 1 0 100 0 0 10 0\n"
    "   1: 0100007F:223D 0100007F:9C40 01 00000000:00000000 00:00000000 00000000  1000        0 2 1 0 20 4 30 10 -1\n"
    "   2: 0100007F:9C40 0100007F:223D 01 00000000:00000000 00:00000000 00000000  1001        0 3 1 0 20 4 30 10 -1\n"
    "   3: 0100007F:9C41 0100007F:223D 06 00000000:00000000 03:00000E2D 00000000     0        0 0 3 0\n"
    "rubbish\n"
)
OURS = ("127.0.0.1", 8765)
UP, GONE, HALF, LEFT, LISTENING = 1, 6, 5, 8, 10


@pytest.mark.skipif(sys.byteorder == "big", reason="addresses are written in the other order")
def test_an_address_as_the_kernel_writes_it() -> None:
    assert table_text(OURS) == "0100007F:223D"
    assert table_text(("::1", 80)) == "00000000000000000000000001000000:0050"
    assert find_end(TABLE, ("127.0.0.1", 40000), OURS) == ConnectionEnd(UP, 1001, 3)
    assert find_end(TABLE, OURS, ("127.0.0.1", 40000)) == ConnectionEnd(UP, 1000, 2)
    assert find_end(TABLE, ("127.0.0.1", 40001), OURS) == ConnectionEnd(GONE, 0)
    assert find_end(TABLE, ("127.0.0.1", 40002), OURS) is None


@each(
    ("other", "own", "found"),
    [
        (ConnectionEnd(UP, 1000), ConnectionEnd(UP, 1000), None),
        (ConnectionEnd(HALF, 1000), ConnectionEnd(LEFT, 1000), None),  # it has said all that it will say
        (ConnectionEnd(UP, 0), ConnectionEnd(UP, 1000), None),  # root may do everything
        (ConnectionEnd(UP, 1001), ConnectionEnd(UP, 1000), 1001),
        (ConnectionEnd(HALF, 0), ConnectionEnd(LEFT, 1000), 0),  # let go of: nobody's, whatever it was
        (ConnectionEnd(GONE, 0), None, 0),
        (None, ConnectionEnd(UP, 1000), None),  # in another network namespace
        (None, ConnectionEnd(LEFT, 1000), 0),
        (None, ConnectionEnd(LISTENING, 1000), 0),  # what netlink finds instead of one that is gone
        (None, None, 0),
    ],
)
def test_who_is_somebody_else(other: ConnectionEnd | None, own: ConnectionEnd | None, found: int | None) -> None:
    assert stranger_of(other, own, 1000) == found


@pytest.mark.skipif(not os.path.exists("/proc/net/tcp"), reason="the kernel does not say whose a socket is")
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_our_own_connections_are_ours(host: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        server = socket.create_server((host, 0), family=family)
    except OSError:
        pytest.skip(f"there is no {host} here")
    with server, socket.socket(family) as client:
        client.connect(server.getsockname()[:2])
        taken, theirs = server.accept()
        with taken:
            ours: tuple[str, int] = taken.getsockname()[:2]
            assert stranger_uid(ours, theirs[:2]) is None
            inodes = [os.fstat(end.fileno()).st_ino for end in (client, taken)]
            both = tuple(ConnectionEnd(UP, os.geteuid(), inode) for inode in inodes)
            assert peer._by_table(ours, theirs[:2]) == both
            assert peer._by_netlink(ours, theirs[:2]) in (both, None)


ASK = """
import http.client, sys
connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]), timeout=20)
for path in sys.argv[3:]:
    connection.request("GET", path, headers={"Authorization": "Bearer " + sys.argv[2]})
    answer = connection.getresponse()
    answer.read()
    print(answer.status)
"""


def asked_by(user: int, site: Site, *paths: str) -> list[str]:
    words = [sys.executable, "-I", "-c", ASK, str(site.port), site.told["token"], *paths]
    others: dict[str, Any] = {"user": user, "group": user, "extra_groups": []} if user != os.geteuid() else {}
    said: str = subprocess.run(words, **others, capture_output=True, text=True, check=True).stdout
    return said.split()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else")
def test_another_user_has_what_is_public_though_he_knows_the_token(place: Place) -> None:
    with serving(place) as site:
        login = site.told["login"].partition(f":{site.port}")[2]
        paths = ["/", "/app.js", "/api/v1/me", "/nothing", "/link", login]
        assert asked_by(65534, site, *paths) == ["200", "200", "403", "403", "403", "403"]
        assert asked_by(0, site, *paths[:4], login) == ["200", "200", "200", "404", "303"]
    with serving(place, "--host-name", "mudroom.localhost") as site:  # no proxy
        assert asked_by(65534, site, "/api/v1/me") == ["403"]
    with serving(place, "--host-name", "box.example") as site:
        assert asked_by(65534, site, "/api/v1/me") == ["200"]


HIDES = """
import ctypes, os
ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE: its descriptors cannot be listed
"""


@if_namespaces
@pytest.mark.parametrize(("where", "before"), pairs([{"level": 0}, {"network": "open"}], ["", HIDES]))
def test_a_command_in_a_sandbox_has_what_is_public_though_it_knows_the_token(
    place: Place, where: dict[str, Any], before: str
) -> None:
    """It shares the host's loopback: with the token it would apply its own fork."""
    session = place.session()
    act_as(
        session,
        level=where.get("level"),
        settings=session.actor.settings._replace(network=where.get("network", "auto")),
    )
    with serving(place) as site:
        words = [sys.executable, "-I", "-c", before + ASK, str(site.port), site.told["token"], "/", "/api/v1/me"]
        result = session.run([os.fsencode(word) for word in words])
        assert (result.stdout.split(), result.stderr) == ([b"200", b"403"], b"")
        assert asked_by(os.geteuid(), site, "/api/v1/me") == ["200"], "while a launcher is there"
        server = started(session, SERVER)
        assert asked_by(os.geteuid(), site, "/api/v1/me") == ["200"], "while a command is there"
        server.end()


def test_a_page_inside_a_sandbox_serves_its_neighbours() -> None:
    """The init above it is not counted: all that it sees is in its own sandbox."""
    table = {1: ("mudroom-init", 0), 2: ("sh", 1), 3: ("python", 2), 5: ("mudroom-init", 3), 6: ("sh", 5)}
    assert sandboxed_pids(table, 3) == {5, 6}
    assert sandboxed_pids(table, 900) == {1, 2, 3, 5, 6}
