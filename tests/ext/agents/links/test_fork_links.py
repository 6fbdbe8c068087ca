"""A command reaches a server in another fork if the policy links the two forks, and not otherwise."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from clocks import give_way
from conftest import Place
from mudroom.core.network.fork_host import parse_link
from mudroom.core.settings import Settings
from mudroom.ext.agents.core.card_fields import parse_card
from mudroom.ext.agents.session.run_agent import run_agent
from mudroom.session import Session
from mudroom.session.confinement.namespace_listener import NamespaceListener
from mudroom.vault.forks.fork_summary import ForkSummaries

pytestmark = pytest.mark.both_users

SERVER = """
import http.server, socketserver, sys
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"from the other fork: " + self.path.encode())
    def log_message(self, *_words): pass
server = http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Answer)
open("ready", "w").close()
server.serve_forever()
"""
CLIENT = """
import sys, urllib.request, urllib.error
try:
    print(urllib.request.urlopen(sys.argv[1], timeout=20).read().decode())
except urllib.error.HTTPError as error:
    print(error.code, error.read().decode())
except OSError as error:
    print("failed", error)
"""
CARD = {"agentId": "coder", "sandboxLevel": 1, "endpoint": "http://localhost:9123/a2a"}


@contextmanager
def served(session: Session, port: int, *, as_agent: bool = False, program: str = SERVER) -> Iterator[None]:
    """Serve in the fork ``coder`` for the block."""
    argv = [sys.executable.encode(), b"-c", program.encode(), str(port).encode()]

    def serve() -> None:
        if as_agent:
            run_agent(session, parse_card(CARD), argv, timeout=80)
        else:
            session.run(argv, fork="coder", timeout=80)

    if not as_agent:
        session.forks.new("coder")
    thread = threading.Thread(target=serve)
    thread.start()
    try:
        while not _is_ready(session):
            assert thread.is_alive()
            give_way()
        yield
    finally:
        session.sandboxes.interrupt(fork="coder")
        thread.join()


def _is_ready(session: Session) -> bool:
    fork = session.vault.find("coder")
    return fork is not None and Path(fork.upper.decode(), "ready").exists()


def asked(session: Session, url: str, fork: str = "planner") -> str:
    result = session.run([sys.executable.encode(), b"-c", CLIENT.encode(), url.encode()], fork=fork)
    return (result.stdout or b"").decode().strip()


def linked(*texts: str) -> Settings:
    return Settings(agent_links=tuple(map(parse_link, texts)))


def test_a_linked_port(place: Place) -> None:
    with place.session(linked("planner -> coder:9123")) as session, served(session, 9123):
        assert asked(session, "http://coder.mudroom.internal:9123/a") == "from the other fork: /a"
        refused = asked(session, "http://coder.mudroom.internal:9124/")
        assert refused.startswith(("403", "failed")), refused
        assert "from the other fork" not in asked(session, "http://coder.mudroom.internal:9123/", "stranger")
        events = [(event.kind, event.fork, json.loads(event.data)) for event in session.vault.journal.events()]
    reached = [event for event in events if event[0] == "flow" and event[2]["host"] == "coder.mudroom.internal"]
    assert [(fork, flow["port"], flow["verdict"]) for _kind, fork, flow in reached] == [
        ("planner", 9123, "allow"),
        ("planner", 9124, "deny"),
        ("stranger", 9123, "deny"),
    ]
    assert reached[0][2]["address"] == "fork coder" and "network.agents" in reached[0][2]["rule"], reached[0]
    assert "stranger may not reach coder:9123 (mudroom net reach coder:9123 --fork stranger)" in json.dumps(reached)


def test_the_endpoint_of_an_agent(place: Place) -> None:
    with place.session(linked("planner -> coder")) as session:
        with served(session, 9123, as_agent=True):
            (row,) = [row for row in ForkSummaries().all(session.vault) if row.name == "coder"]
            assert (row.endpoint, row.level, row.state) == ("http://coder.mudroom.internal/a2a", 1, "running")
            assert asked(session, "http://coder.mudroom.internal/b") == "from the other fork: /b"
        assert not any(row.endpoint for row in ForkSummaries().all(session.vault))
        answer = asked(session, "http://coder.mudroom.internal/b")
        assert answer.startswith("502") and "no agent in the fork coder has registered an endpoint" in answer, answer


@pytest.mark.parametrize(
    ("port", "reason"),
    [
        (9123, "no command with a network of its own is running in the fork coder"),
        (9999, "coder:9999: connection refused"),
    ],
)
def test_why_there_is_no_connection(place: Place, port: int, reason: str) -> None:
    with place.session(linked(f"planner -> coder:{port}")) as session:
        if port == 9999:
            with served(session, 9123):
                answer = asked(session, f"http://coder.mudroom.internal:{port}/")
        else:
            session.forks.new("coder")
            answer = asked(session, f"http://coder.mudroom.internal:{port}/")
    assert answer.startswith("502") and reason in answer, answer


def test_no_link_counts_where_the_proxy_is_on_the_hosts_loopback(place: Place) -> None:
    """Other users of the machine can connect to that proxy."""
    settings = linked("planner -> coder:9123")._replace(network="gate")
    with place.session(settings, level=0) as session:
        session.forks.new("coder")
        answer = asked(session, "http://coder.mudroom.internal:9123/")
    assert answer.startswith("403") and "no network namespace of its own" in answer, answer


SILENT = """
import socket, sys, time
server = socket.socket()
server.bind(("127.0.0.1", 9123))
server.listen(0)
full = []
for _number in range(8):
    client = socket.socket()
    client.setblocking(False)
    client.connect_ex(("127.0.0.1", 9123))
    full.append(client)
open("ready", "w").close()
time.sleep(80)
"""
FLOOD = """
import socket, sys, time
clients = []
for _number in range(40):
    client = socket.create_connection(("coder.mudroom.internal", 9123))
    client.setblocking(False)
    clients.append(client)
print("asked", flush=True)
time.sleep(80)
"""


def test_a_server_that_accepts_nothing_holds_up_its_own_clients_alone(place: Place) -> None:
    """Accomplices: one floods, the other lets it wait. The time limit of the first holds all the same."""
    with place.session(linked("planner -> coder:9123")) as session, served(session, 9123, program=SILENT):
        began = time.monotonic()
        result = session.run([sys.executable.encode(), b"-c", FLOOD.encode()], fork="planner", timeout=3)
        assert result.timed_out and result.stdout == b"asked\n", (result.stdout, result.stderr)
        assert time.monotonic() - began < 60
    children = Path(f"/proc/{os.getpid()}/task/{threading.get_native_id()}/children").read_text().split()
    assert not [pid for pid in children if b"late_socket" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def test_a_namespace_listener_forgets_visitors_that_have_gone(tmp_path: Path) -> None:
    """A long command is asked for its namespaces by many others."""
    listener = NamespaceListener(os.fsencode(tmp_path / "entrance"))
    listener.open()
    try:
        with open("/dev/null") as null:
            for _visit in range(5):
                visitor = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                visitor.connect(os.fspath(tmp_path / "entrance"))
                listener.admit([null.fileno(), null.fileno()])
                descriptors = socket.recv_fds(visitor, 64, 2)[1]
                visitor.close()
                for descriptor in descriptors:
                    os.close(descriptor)
        assert len(listener._visitors) == 1
    finally:
        listener.close()
