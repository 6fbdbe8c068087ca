"""A command reaches a server in another fork if both sides say so: by the policy, or by grants of the user."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from clocks import give_way
from conftest import Place
from mudroom.core.agent.endpoint import AgentEndpoint
from mudroom.core.network.fork_host import parse_link
from mudroom.core.network.fork_rule import ForkIdentity, parse_forks
from mudroom.core.network.host_rules import parse_rule
from mudroom.core.settings import Settings
from mudroom.errors import MudroomError, UsageError
from mudroom.ext.agents.core.card_fields import parse_card
from mudroom.ext.agents.core.fork_consent import ReachedPort, ShownPort
from mudroom.ext.agents.links.agent_door import open_agent
from mudroom.ext.agents.links.fork_connection import Standing
from mudroom.ext.agents.links.fork_dial import ForkDialler, dial_from_worker
from mudroom.ext.agents.links.fork_grants import edit_grants, identity_of
from mudroom.ext.agents.session.run_agent import run_agent
from mudroom.net.gate.fork_dials import MOST_PAIR
from mudroom.session import Session
from mudroom.session.confinement import namespace_program, socket_maker
from mudroom.session.confinement.dialler import DialledFork, ForkRefused
from mudroom.session.confinement.host_approver import HostAnswers
from mudroom.vault.forks.endpoint import register
from whole_text import whole

pytestmark = pytest.mark.both_users

ECHO = """
import socket, sys, threading
def serve(client):
    data = b""
    with client:
        while not data.endswith(b"0\\r\\n\\r\\n" if b"hunked" in data else b"\\r\\n\\r\\n"):
            piece = client.recv(65536)
            if not piece:
                return
            data += piece
            open("got", "w").close()
        if b"/hang" in data:
            threading.Event().wait()
        if b"/.well-known/" in data:
            data = b'{"url": "http://localhost:8000/a2a", "skills": [{"id": "own"}]}'
        client.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: %d\\r\\nConnection: close\\r\\n\\r\\n" % len(data) + data)
servers = []
for port in map(int, sys.argv[1:]):
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(("127.0.0.1", port))
    server.listen(512)
    servers.append(server)
def accept(server):
    while True:
        threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()
open("ready", "w").close()
for server in servers[1:]:
    threading.Thread(target=accept, args=(server,), daemon=True).start()
accept(servers[0])
"""
ASK = """
import json, sys, urllib.request, urllib.error
answers = []
for url in sys.argv[1:]:
    try:
        with urllib.request.urlopen(url, timeout=20) as answer:
            answers.append([answer.status, answer.read().decode()])
    except urllib.error.HTTPError as error:
        answers.append([error.code, error.read().decode()])
    except OSError as error:
        answers.append([0, str(error)])
print(json.dumps(answers))
"""
GET = b"GET / HTTP/1.1\r\nHost: coder.mudroom.internal:8000\r\nConnection: close\r\n\r\n"
URL = "http://coder.mudroom.internal:8000/"


@contextmanager
def served(session: Session, *ports: int, fork: str = "coder", agent: bool = False) -> Iterator[None]:
    """Run the echo server in a fork for the block."""
    argv = [sys.executable.encode(), b"-c", ECHO.encode(), *(str(port).encode() for port in ports)]
    card = {"agentId": "codex", "sandboxLevel": 1, "endpoint": f"http://localhost:{ports[0]}/a2a", "name": "Coder"}

    def serve() -> None:
        if agent:
            run_agent(session, parse_card(card), argv, fork=fork, timeout=80)
        else:
            session.run(argv, fork=fork, timeout=80)

    if session.vault.find(fork) is None:
        session.forks.new(fork)
    Path(session.vault.fork(fork).upper.decode(), "ready").unlink(missing_ok=True)
    thread = threading.Thread(target=serve)
    thread.start()
    try:
        while not Path(session.vault.fork(fork).upper.decode(), "ready").exists():
            assert thread.is_alive()
            give_way()
        yield
    finally:
        session.sandboxes.interrupt(fork=fork)
        thread.join()


def asked(session: Session, *urls: str, fork: str = "planner", program: str = ASK) -> list[tuple[int, str]]:
    words = [sys.executable, "-c", program, *urls]
    result = session.run([word.encode() for word in words], fork=fork, timeout=60)
    assert result.stdout, result.stderr
    return [tuple(row) for row in json.loads(result.stdout)]


def raw(session: Session, data: bytes, *, port: int = 8000, fork: str = "planner") -> bytes:
    """Send bytes as a program that knows no proxy does, and return the answer."""
    program = (
        "import socket, sys; c = socket.create_connection(('coder.mudroom.internal', int(sys.argv[1])), 20)\n"
        "c.sendall(bytes.fromhex(sys.argv[2]))\n"
        "try:\n while data := c.recv(65536): sys.stdout.buffer.write(data)\nexcept OSError: pass"
    )
    words = [sys.executable, "-c", program, str(port), data.hex()]
    result = session.run([word.encode() for word in words], fork=fork, timeout=60)
    return result.stdout or b""


def show(session: Session, fork: str, *ports: int, http: bool = False) -> None:
    shown = tuple(ShownPort(port, http) for port in ports)
    edit_grants(session.vault, session.vault.fork(fork), lambda grants: grants._replace(shows=shown))


def reach(session: Session, fork: str, target: str, *ports: int) -> None:
    far = identity_of(session.vault.fork(target))
    reached = tuple(ReachedPort(far, port) for port in ports)
    edit_grants(session.vault, session.vault.fork(fork), lambda grants: grants._replace(reaches=reached))


def policy(reaches: Sequence[str] = (), shows: Sequence[int | str] = ()) -> Settings:
    return Settings(fork_rules=(*parse_forks(list(reaches), "reach"), *parse_forks(list(shows), "show")))


def flows(session: Session) -> list[tuple[str, dict[str, object]]]:
    events = session.vault.journal.events()
    return [(event.fork, json.loads(event.data)) for event in events if event.kind == "flow"]


def test_the_probes(place: Place) -> None:
    with place.session(
        hosts=HostAnswers(lambda: [parse_rule("*:8000", "allow"), parse_rule("*:8000", "allow", private=True)])
    ) as session:
        for name in ("planner", "coder", "stranger"):
            session.forks.new(name)
        with served(session, 8000, 8001):
            ((status, text),) = asked(session, URL)
            assert status == 403, text
            assert "mudroom net reach coder:8000 --fork planner" in text and "net show 8000 --fork coder" in text
            reach(session, "planner", "coder", 8000)
            ((status, text),) = asked(session, URL)
            assert status == 403 and "coder does not show port 8000" in text and "may not reach" not in text, text
            show(session, "coder", 8000)
            there, other, upper, dotted, subdomain, zone = asked(
                session,
                URL,
                "http://coder.mudroom.internal:8001/",
                "http://CODER.Mudroom.INTERNAL:8000/",
                "http://coder.mudroom.internal.:8000/",
                "http://a.coder.mudroom.internal:8000/",
                "http://mudroom.internal:8000/",
            )
            assert there[0] == 200 and "x-mudroom-fork: planner" in there[1], there
            assert other[0] == 403 and "planner may not reach coder:8001" in other[1], other
            assert (upper[0], dotted[0]) == (200, 200), (upper, dotted)
            assert (subdomain[0], zone[0]) == (403, 403), (subdomain, zone)
            assert raw(session, GET).startswith(b"HTTP/1.1 200")
            ((status, text),) = asked(session, URL, fork="stranger")
            assert status == 403 and "stranger may not reach coder:8000" in text, text
        ((status, text),) = asked(session, URL)
        assert status == 502 and "no command with a network of its own is running in the fork coder" in text, text
        told = [
            (fork, flow["verdict"], flow.get("address", "")) for fork, flow in flows(session) if flow["port"] == 8000
        ]
    assert ("planner", "allow", "fork coder") in told and ("stranger", "deny", "fork coder") in told


def test_a_recreated_fork_has_nothing_of_the_old(place: Place) -> None:
    with place.session(policy(["coder:8000"])) as session:
        session.forks.new("planner")
        session.forks.new("coder")
        show(session, "coder", 8000)
        with served(session, 8000):
            assert asked(session, URL)[0][0] == 200
        session.forks.discard("coder")
        session.forks.new("coder")
        with served(session, 8000):
            ((status, text),) = asked(session, URL)
            assert status == 403 and "coder is another fork than the one of that name before" in text, text
            assert "coder does not show port 8000" in text, "what the old one showed"
            reach(session, "planner", "coder", 8000)
            show(session, "coder", 8000)
            assert asked(session, URL)[0][0] == 200


def test_two_forks_that_fold_to_one_name_have_neither(place: Place) -> None:
    with place.session(policy(["cod*:8000"], [8000])) as session, served(session, 8000):
        assert asked(session, URL)[0][0] == 200
        session.forks.new("CODER")
        ((status, text),) = asked(session, URL)
        told = "the forks CODER and coder have the same name coder for each other, so none has it"
        assert status == 403 and told in text, text


def test_an_accomplice_binds_the_port_in_its_own_namespace(place: Place) -> None:
    with place.session(policy(["coder:8000"], [8000])) as session:
        session.forks.new("coder")
        with served(session, 8000, fork="accomplice"):
            ((status, text),) = asked(session, URL)
            assert status == 502 and "running in the fork coder" in text, text


def test_what_a_client_cannot_say(place: Place) -> None:
    """Header smuggling: other spellings, hop-by-hop fields, trailers, and protocols that are no HTTP/1."""
    head = b"POST /x HTTP/1.1\r\nHost: coder.mudroom.internal:8000\r\nConnection: close\r\n"
    liars = [b"X-Mudroom-Fork: admin", b"x_mudroom_fork: admin", b"X-MUDROOM_FORK: admin", b"x.mudroom.fork: admin"]
    with (
        place.session(policy(["coder:8000", "coder:8001"], ["8000/http", 8001])) as session,
        served(session, 8000, 8001),
    ):
        lies = b"".join(line + b"\r\n" for line in liars)
        echo = raw(session, head + lies + b"Connection: x-mudroom-fork, close\r\nContent-Length: 0\r\n\r\n")
        assert echo.count(b"planner") == 1 and b"x-mudroom-fork: planner" in echo and b"admin" not in echo, echo
        chunked = (
            b"Transfer-Encoding: chunked\r\nTrailer: x-mudroom-fork\r\n\r\n1\r\nx\r\n0\r\nX-Mudroom-Fork: admin\r\n\r\n"
        )
        echo = raw(session, head + chunked)
        assert b"x-mudroom-fork: planner" in echo and b"admin" not in echo, echo
        loop = raw(session, head + b"x-mudroom-hops: 8\r\nContent-Length: 0\r\n\r\n")
        assert b"403" in loop[:20] and b"goes round in a circle" in loop, loop
        preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        assert raw(session, preface) == b"", "the port is shown for HTTP/1"
        assert b"PRI * HTTP/2.0" in raw(session, preface, port=8001)
        told = [flow["reason"] for _fork, flow in flows(session) if flow["verdict"] == "deny"]
    assert "the other fork shows this port for plain HTTP/1 only" in told, told


MANY = """
import http.client, json
answers = []
for number in range(20):
    client = http.client.HTTPConnection("coder.mudroom.internal", 8000, timeout=20)
    client.request("GET", "/")
    answers.append([client.getresponse().status, ""])
print(json.dumps(answers))
"""


def test_one_process_makes_all_sockets_of_a_namespace(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    starts: list[str] = []
    start = namespace_program.start

    def counted(name: str, words: Sequence[str], namespaces: Sequence[int]) -> object:
        starts.append(name)
        return start(name, words, namespaces)

    monkeypatch.setattr(socket_maker, "start", counted)
    with place.session(policy(["coder:8000"], [8000])) as session:
        with served(session, 8000):
            assert [status for status, _text in asked(session, program=MANY)] == [200] * 20
            assert [status for status, _text in asked(session, program=MANY)] == [200] * 20
            assert len(starts) == 1
        with served(session, 8000):
            assert asked(session, URL)[0][0] == 200
        assert len(starts) == 2, "the first has ended with its command"


FLOOD = """
import json, socket
clients, refused = [], 0
for number in range(%d):
    client = socket.create_connection(("coder.mudroom.internal", 8000), 20)
    clients.append(client)
    client.sendall(b"x")
for client in clients:
    client.settimeout(0.2 if refused >= 8 else 20)
    try:
        refused += client.recv(1) == b""
    except TimeoutError:
        if refused >= 8: break
    except OSError:
        refused += 1
    if refused >= 8: break
print(json.dumps([[refused, ""]]))
"""


def test_connections_of_a_pair_are_bounded_and_refusals_counted(place: Place) -> None:
    program = FLOOD.replace("for client in clients:", "for client in clients[::-1]:", 1) % (MOST_PAIR + 8)
    with place.session(policy(["coder:8000"], [8000])) as session, served(session, 8000):
        assert asked(session, program=program) == [(8, "")]
        assert asked(session, URL)[0][0] == 200, "the next command has its own"
        reason = f"{MOST_PAIR} connections lead there already"
        refusals = [flow for _fork, flow in flows(session) if flow["reason"] == reason]
    assert len(refusals) == 1 and refusals[0]["repeats"] == 7, refusals


HALF = """
import json, socket
client = socket.create_connection(("coder.mudroom.internal", 8000), 20)
client.sendall(b"POST /hang HTTP/1.1\\r\\nHost: coder.mudroom.internal:8000\\r\\nContent-Length: 9\\r\\n\\r\\nx")
print(json.dumps([[int(client.recv(999)[9:12]), ""]]))
"""


def test_a_command_that_ends_in_the_middle(place: Place) -> None:
    """The other fork's command ends while it has half of a request: the client is told."""
    with place.session(policy(["coder:8000"], [8000])) as session:
        answers: list[tuple[int, str]] = []
        thread = threading.Thread(target=lambda: answers.extend(asked(session, program=HALF)))
        with served(session, 8000):
            thread.start()
            while not Path(session.vault.fork("coder").upper.decode(), "got").exists():
                assert thread.is_alive()
                give_way()
        thread.join()
        assert answers == [(502, "")]


def test_the_list_of_running_agents(place: Place) -> None:
    base = "http://agents.mudroom.internal"
    card = f"{base}/coder/.well-known/agent-card.json"
    with place.session(policy(["coder:8000"], [8000])) as session:
        session.forks.new("coder")
        assert [status for status, _text in asked(session, f"{base}/", card)] == [200, 404]
        with served(session, 8000, agent=True):
            listed, shown, old, nothing, elsewhere = asked(
                session, f"{base}/", card, card.replace("agent-card", "agent"), f"{base}/x", f"{base}:81/"
            )
            assert json.loads(listed[1]) == {
                "linkset": [
                    {"anchor": f"{base}/", "item": [{"href": card, "type": "application/json", "title": "Coder"}]}
                ]
            }
            (interface,) = json.loads(shown[1])["supportedInterfaces"]
            assert interface["url"] == "http://coder.mudroom.internal:8000/a2a"
            assert json.loads(old[1])["url"] == interface["url"]
            assert asked(session, interface["url"])[0][0] == 200
            assert (nothing[0], elsewhere[0]) == (404, 403)
    linked = Settings(agent_links=(parse_link("planner -> coder"),))
    with place.session(linked) as session, served(session, 8000, agent=True):
        (shown,) = asked(session, card)
        assert json.loads(shown[1])["supportedInterfaces"][0]["url"] == "http://coder.mudroom.internal/a2a"
        assert json.loads(asked(session, f"{base}/", fork="stranger")[0][1])["linkset"][0]["item"] == []


def test_a_card_at_an_agents_own_address_names_that_address(place: Place) -> None:
    with place.session(policy(["coder:8000"], [8000])) as session, served(session, 8000, agent=True):
        base = "http://coder.mudroom.internal:8000"
        for path in ("/.well-known/agent-card.json", "/.well-known/agent.json?x"):
            ((status, card),) = asked(session, base + path)
            assert (status, json.loads(card)) == (200, {"url": f"{base}/a2a", "skills": [{"id": "own"}]})
        found = raw(session, GET.replace(b"GET /", b"GET /.well-known/agent.json"))
        assert f'"{base}/a2a"'.encode() in found
    with place.session(Settings(agent_links=(parse_link("planner -> coder"),))) as session:
        with served(session, 8000, agent=True):
            ((_status, card),) = asked(session, "http://coder.mudroom.internal/.well-known/agent-card.json")
        assert json.loads(card)["url"] == "http://coder.mudroom.internal/a2a"


def test_grants_that_cannot_be_read_grant_nothing(place: Place) -> None:
    with place.session() as session:
        session.forks.new("planner")
        session.forks.new("coder")
        reach(session, "planner", "coder", 8000)
        show(session, "coder", 8000)
        for content in (b"", b"[", b"[[[80,false]],[]]x", b'[[["8",0]],[],[]]', b"\0" * 100):
            Path(session.vault.fork("coder").path.decode(), "consent").write_bytes(content)
            ((status, text),) = asked(session, URL)
            assert status == 403 and "coder does not show port 8000" in text, (content, text)


def test_a_card_asks_and_grants_nothing(place: Place) -> None:
    wish = {"show": [8000], "reach": ["coder:8000", "db-*:5432"]}
    card = parse_card({"agentId": "a", "sandboxLevel": 1, "sandboxRequirements": {"needsForks": wish}})
    with place.session(policy(["db-*:5432"])) as session, served(session, 8000):
        show(session, "coder", 8000)
        argv = [sys.executable.encode(), b"-c", ASK.encode(), URL.encode()]
        result = run_agent(session, card, argv, fork="planner")
        assert json.loads(result.result.stdout or b"")[0][0] == 403
        assert result.notes == (
            "a asks to show 8000, which is not granted (mudroom net show 8000 --fork planner)",
            "a asks to reach coder:8000, which is not granted (mudroom net reach coder:8000 --fork planner)",
        )


class FarEnd:
    """Answers every connection from another machine, as a link to it would."""

    all_hosts = True

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []
        self._ends: list[socket.socket] = []

    def begin(self, host: str, port: int, path: str) -> Standing:
        self.asked.append((host, port))
        if host == "refused.example":
            raise ForkRefused(f"the origin does not allow {path or host}")
        ours, theirs = socket.socketpair()
        self._ends.append(ours)
        ours.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nfar")
        return Standing(DialledFork(theirs.detach(), "the origin"))

    def close(self) -> None:
        while self._ends:
            self._ends.pop().close()


def test_a_dialler_of_all_hosts_makes_every_connection(place: Place) -> None:
    """No name is looked up here: neither host exists."""
    far = FarEnd()
    rules = [parse_rule("*.example", "allow")]
    with place.session(hosts=HostAnswers(lambda: rules, dialler=lambda _fork, _order: far)) as session:
        answers = asked(session, "http://a.example/", "http://refused.example/x", "http://other.test/", URL)
        told = [(flow["host"], flow["verdict"], flow.get("address", "")) for _fork, flow in flows(session)]
    assert [status for status, _text in answers] == [200, 403, 403, 200], answers
    assert "the origin does not allow /x" in answers[1][1]
    assert far.asked == [("a.example", 80), ("refused.example", 80), ("coder.mudroom.internal", 8000)]
    assert ("a.example", "allow", "through the origin") in told, told


def test_a_command_of_another_machine_reaches_a_fork_here_as_the_policy_says(place: Place) -> None:
    settings = policy(["coder:8000"], [8000])
    caller = ForkIdentity("planner", "errand e1")
    with place.session(settings) as session, served(session, 8000, 8001):
        pool, vault = session.machine.gate.inner_sockets, session.vault
        pending = dial_from_worker(vault, pool, caller, "coder.mudroom.internal", 8000, settings)
        with socket.socket(fileno=pending.result().descriptor) as connection:
            connection.setblocking(True)
            connection.settimeout(20)
            connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
            assert connection.recv(99).startswith(b"HTTP/1.1 200")
        for who, host, port, reason in (
            (caller, "coder.mudroom.internal", 8001, "planner may not reach coder:8001"),
            (caller, "nobody.mudroom.internal", 8000, "there is no fork named nobody"),
            (caller._replace(label=""), "coder.mudroom.internal", 8000, "not known here"),
        ):
            with pytest.raises(ForkRefused, match=reason):
                dial_from_worker(vault, pool, who, host, port, settings)


def test_a_fork_that_is_not_here_is_dialled_through_a_link(place: Place) -> None:
    far = FarEnd()

    def remote(caller: str, label: str, port: int) -> Standing | None:
        return far.begin(f"{caller} {label}", port, "") if label == "elsewhere" else None

    with place.session(policy(["coder:8000"], [8000])) as session:
        fork = session.forks.new("planner")
        pool = session.machine.gate.inner_sockets
        dialler = ForkDialler(session.vault, fork, pool, session.actor.settings.fork_rules, (), remote)
        made = dialler.begin("elsewhere.mudroom.internal", 8000, "").result()
        with socket.socket(fileno=made.descriptor) as connection:
            assert connection.recv(12) == b"HTTP/1.1 200"
        assert far.asked == [("planner elsewhere", 8000)]
        with pytest.raises(ForkRefused, match="there is no fork named nobody"):
            dialler.begin("nobody.mudroom.internal", 8000, "")
        dialler.close()
    far.close()


def test_the_door_to_an_agent_of_this_machine(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    silent = "import socket, threading; s = socket.socket(); s.bind(('127.0.0.1', 8000)); s.listen(0); f = []\n" + (
        "for _n in range(8):\n"
        " c = socket.socket(); c.setblocking(False); c.connect_ex(('127.0.0.1', 8000)); f.append(c)\n"
        "open('ready', 'w').close(); threading.Event().wait()"
    )
    monkeypatch.setattr("mudroom.ext.agents.links.agent_door.PATIENCE", 0.05)
    monkeypatch.setitem(globals(), "ECHO", silent)
    with place.session() as session:
        session.forks.new("coder")
        told = "codex has ended in the fork coder (mudroom agent run starts it)"
        with pytest.raises(MudroomError, match=whole(told)):
            open_agent(session, "codex", "coder")
        with served(session, 8000, agent=True):
            told = "the fork coder does not show the port of its agent (mudroom net show 8000 --fork coder)"
            with pytest.raises(UsageError, match=whole(told)):
                open_agent(session, "codex", "coder")
            show(session, "coder", 8000)
            before = len(os.listdir("/proc/self/fd"))
            told = "coder:8000 does not accept connections (mudroom ps shows what runs)"
            for _time in range(2):
                with pytest.raises(MudroomError, match=whole(told)):
                    open_agent(session, "codex", "coder")
            assert len(os.listdir("/proc/self/fd")) <= before + 3, "the maker of sockets inside stays"
            fork, pool = session.vault.fork("coder"), session.machine.gate.inner_sockets
            with pytest.raises(MudroomError, match=whole("the fork was replaced meanwhile")):
                pool.make(fork.namespace_listener, "another", lambda: identity_of(fork), b"4")


def test_a_list_of_agents_beyond_the_buffer_of_a_socket(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's smallest buffer holds fewer than the names of these."""

    def pair(*kinds: int) -> tuple[socket.socket, socket.socket]:
        ours, theirs = real(*kinds)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 0)
        return ours, theirs

    with place.session(policy(["a-*:8000"], [8000])) as session:
        for number in range(20):
            fork = session.forks.new(f"a-{number}")
            register(fork, AgentEndpoint("x", 1, 8000, name="\U0001f600" * 128))
            Path(os.fsdecode(fork.namespace_listener)).touch()
        pool, rules = session.machine.gate.inner_sockets, session.actor.settings.fork_rules
        dialler = ForkDialler(session.vault, session.forks.new("planner"), pool, rules, ())
        real, before = socket.socketpair, len(os.listdir("/proc/self/fd"))
        with monkeypatch.context() as patch:
            patch.setattr(socket, "socketpair", pair)
            with pytest.raises(MudroomError, match=whole("the list of agents is too long")):
                dialler.begin("agents.mudroom.internal", 80, "/")
        assert len(os.listdir("/proc/self/fd")) == before
        os.close(dialler.begin("agents.mudroom.internal", 80, "/").result().descriptor)
        dialler.close()
