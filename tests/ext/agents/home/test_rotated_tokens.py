"""Two forks share a login whose vendor takes each refresh token once: each renews with the other's last token."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from conftest import Place, act_as
from mudroom.core.agent.card import AgentCard, Requirements
from mudroom.core.network.host_rules import parse_rule
from mudroom.core.settings import Settings
from mudroom.ext.agents.catalog import Catalog
from mudroom.session import Session
from mudroom.session.confinement.host_approver import HostAnswers
from test_logins import log_in, meanwhile, python

pytestmark = pytest.mark.both_users

TURNS = 3


class Vendor:
    """``used``: the tokens of all requests, in order; a token is good once."""

    def __init__(self) -> None:
        self.used: list[str] = []
        vendor = self

        class Handler(BaseHTTPRequestHandler):
            timeout = 5

            def log_message(self, *_words: object) -> None:
                """Print no line for each request."""

            def do_POST(self) -> None:
                vendor.used.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
                is_good = vendor.used[-1] == f"refresh-{len(vendor.used) - 1}"
                self.send_response(200 if is_good else 401)
                self.end_headers()
                self.wfile.write(b"refresh-%d" % len(vendor.used))

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def vendor() -> Iterator[Vendor]:
    vendor = Vendor()
    yield vendor
    vendor.close()


AGENT = """
import json, time, urllib.request
for turn in range({turns}):
    while int(json.load(open(path))["token"].split("-")[1]) % 2 != {mine}:
        time.sleep(0.01)
    token = json.load(open(path))["token"].encode()
    answer = urllib.request.urlopen("http://127.0.0.1:{port}/", token).read().decode()
    open(path + ".tmp", "w").write(json.dumps({{"token": answer}})); os.rename(path + ".tmp", path)
"""
CARDS = {
    ".codex/auth.json": Catalog().profile("codex").card(1),
    ".npmrc": AgentCard("agent", 1, Requirements(keychain=("npm",))),
}


@pytest.mark.parametrize("file", CARDS)
def test_two_forks_renew_in_turn(place: Place, vendor: Vendor, file: str) -> None:
    host = log_in(place, file, '{"token": "refresh-0"}')

    def opened() -> Session:
        rules = [parse_rule(f"127.0.0.1:{vendor.port}", "allow", private=True)]
        session = place.session(Settings(network="gate"), hosts=HostAnswers(lambda: rules))
        act_as(session, card=CARDS[file])
        return session

    sessions = [opened(), opened()]

    def renew(number: int) -> None:
        python(sessions[number], file, AGENT.format(turns=TURNS, mine=number, port=vendor.port), f"f{number}")

    def other(_over: threading.Event) -> None:
        renew(1)

    meanwhile(lambda: renew(0), other)  # type: ignore[arg-type, return-value]
    assert vendor.used == [f"refresh-{number}" for number in range(2 * TURNS)]
    assert json.loads(host.read_text()) == {"token": f"refresh-{2 * TURNS}"}
