"""A session's commands at the gate: what they reach, what they are refused, who is asked, what is remembered."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from mudroom.core.network import preset as presets
from mudroom.core.network.flow import Flow, FlowAnswer, FlowQuestion
from mudroom.core.network.host_rules import HostRule
from mudroom.core.network.preset import PRESETS, Preset
from mudroom.core.result import Denial, Result
from mudroom.core.settings import Settings
from mudroom.errors import UsageError
from mudroom.net.listeners.inbound import InboundListener
from mudroom.session import Session
from mudroom.session.confinement import command_gate
from mudroom.session.confinement.host_approver import HostAnswers
from mudroom.session.confinement.namespace_listener import namespaces_at
from mudroom.session.confinement.socket_maker import SocketMaker
from mudroom.session.run import lookup_notes
from town import Town, read_until

pytestmark = pytest.mark.both_users

FETCH = """
import http.client, os, sys, urllib.request
for url in sys.argv[1:]:
    try:
        print(urllib.request.urlopen(url, timeout=20).read().decode())
    except Exception as error:
        print(type(error).__name__, error)
"""


def hello(client: Any) -> None:
    read_until(client, b"\r\n\r\n")
    client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")


class Street:
    """A project, and a town of servers that its commands may want to reach."""

    def __init__(self, root: Path, town: Town) -> None:
        self.town = town
        self.port = town.serve(hello)
        town.names({name: [["127.0.0.1"]] for name in ("shop.example", "bank.example")})
        self.project, self._root = root / "project", root
        self.project.mkdir(exist_ok=True)
        self.remembered: list[HostRule] = []
        self.rules: Sequence[HostRule] = ()

    def session(
        self,
        approver: Callable[[FlowQuestion, int], FlowAnswer] | None = None,
        agent: str | None = None,
        **settings: Any,
    ) -> Session:
        (self._root / "home").mkdir(exist_ok=True)
        return Session.open(
            os.fsencode(self.project),
            state=os.fsencode(self._root / "state"),
            home=os.fsencode(self._root / "home"),
            environ={b"PATH": os.environb[b"PATH"]},
            settings=Settings(network="gate", **settings),
            agent=agent,
            hosts=HostAnswers(lambda: self.rules, self.remembered.append, approver),
        )

    def url(self, name: str) -> str:
        return f"http://{name}:{self.port}/"

    def allow(self, name: str) -> HostRule:
        return HostRule("allow", name, (self.port,), private=True, source="the test")

    def fetch(self, session: Session, *names: str, direct: bool = False) -> Result:
        proxies = ["-u", "http_proxy", "-u", "HTTP_PROXY"] if direct else ["http_proxy=http://127.0.0.1:3128"]
        command = ["env", *proxies, sys.executable, "-c", FETCH, *map(self.url, names)]
        return session.run([word.encode() for word in command])


@pytest.fixture
def street(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Street]:
    (tmp_path / "town").mkdir()
    with Town(tmp_path / "town") as town:
        shared = command_gate.SharedGates(lambda _upstream: town.gate)
        monkeypatch.setattr(command_gate, "SHARED", shared)
        yield Street(tmp_path, town)


def flows(session: Session) -> list[dict[str, Any]]:
    import json

    return [json.loads(event.data) for event in session.vault.journal.events() if event.kind == "flow"]


@pytest.mark.parametrize("direct", [False, True], ids=["by proxy", "proxies unset"])
@pytest.mark.parametrize("view", ["overlay", "copy"])
def test_what_is_allowed_is_reached_and_the_rest_is_refused(street: Street, view: Any, direct: bool) -> None:
    street.rules = [street.allow("shop.example")]
    with street.session(view=view) as session:
        result = street.fetch(session, "shop.example", "bank.example", direct=direct)
        allowed, denied = result.stdout.decode().splitlines()
        assert allowed == "hello"
        assert "Error" in denied
        assert [denial.kind for denial in result.denials] == ["network"]
        assert result.denials[0].target.startswith(b"bank.example:")
        told = {(flow["host"], flow["verdict"]) for flow in flows(session)}
        assert told == {("shop.example", "allow"), ("bank.example", "deny")}
    assert street.town.lookups() == ["shop.example"], "a name that is not allowed is never looked up"


@pytest.mark.parametrize("view", ["overlay", "copy"])
def test_no_variable_names_a_proxy_where_every_connection_reaches_the_gate(street: Street, view: Any) -> None:
    with street.session(view=view) as session:
        said = session.run([b"sh", b"-c", b"env; cat /proc/net/tcp6 /proc/net/tcp"]).stdout.decode()
        if ":0001 " not in said:
            pytest.skip("nothing can be redirected here: no nftables in a user namespace")
        assert not [line for line in said.splitlines() if "_proxy=" in line.lower()]
        assert "PATH=" in said
    with street.session(view=view, environment=(b"HTTP_PROXY=http://127.0.0.1:9",)) as session:
        assert session.run([b"sh", b"-c", b"env | grep -i _proxy="]).stdout == b"HTTP_PROXY=http://127.0.0.1:9\n"


@pytest.mark.parametrize("direct", [False, True], ids=["by proxy", "proxies unset"])
def test_an_allowed_name_that_cannot_be_looked_up_is_a_note(street: Street, direct: bool) -> None:
    street.rules = [street.allow("nowhere.example"), street.allow("shop.example")]
    with street.session() as session:
        result = street.fetch(session, "nowhere.example", "nowhere.example", "shop.example", direct=direct)
    said = [note for note in result.notes if "example" in note]
    assert len(said) == 1, result
    assert said[0].startswith("nowhere.example cannot be looked up: ")


@pytest.mark.parametrize(("end", "expected"), [("", 1), ("; exit 22", 0)], ids=["ends with 0", "fails"])
def test_a_command_that_takes_a_refusal_for_a_page_is_told(street: Street, end: str, expected: int) -> None:
    fetch = "import sys, http.client; c = http.client.HTTPConnection(sys.argv[1]); c.request('GET', '/'); "
    fetch += "print(c.getresponse().read().decode())"
    with street.session() as session:
        script = f'"$0" -c "{fetch}" bank.example{end}'
        result = session.run([b"sh", b"-c", script.encode(), sys.executable.encode()])
    assert result.stdout.decode().startswith("mudroom: bank.example:80 is not allowed: no rule names it")
    assert len([note for note in result.notes if "page with status 403" in note]) == expected, result.notes


def test_few_names_that_cannot_be_looked_up_are_named() -> None:
    def failed(host: str, error: str) -> Flow:
        return Flow(1, "connect", host, 443, "allow", "the test", "", error=error)

    flows = [failed(f"h{number}.example", f"h{number}.example cannot be looked up: no") for number in range(9)]
    flows.append(failed("other.example", "other.example cannot be reached: refused"))
    notes = lookup_notes(flows)
    assert notes == [
        *(f"h{number}.example cannot be looked up: no" for number in range(5)),
        "4 more hosts cannot be looked up",
    ]


def test_a_command_without_a_network_starts_no_gate(street: Street) -> None:
    with street.session() as session:
        result = session.run([b"true"])
        assert (result.exit_code, result.denials) == (0, ())
        assert street.town.gate.pid == 0


FETCHING = [b"git", b"fetch", b"no such remote"]
"""Judged to use the network, and ends before it does."""


@pytest.mark.parametrize(("agent", "command"), [("coder", [b"true"]), (None, FETCHING)])
def test_nothing_is_started_ahead_of_a_command_that_was_not_judged_to_use_the_network(
    street: Street, agent: str | None, command: list[bytes]
) -> None:
    with street.session(agent=agent) as session:
        session.run(command)
        assert street.town.gate.pid == 0


def test_the_gate_starts_beside_a_command_that_was_judged_to_use_the_network(street: Street) -> None:
    with street.session(agent="coder") as session:
        assert "networked" in session.run(FETCHING).verdict.classes
        pid = street.town.gate.pid
        assert pid, "no connection was made"
        street.rules = [street.allow("shop.example")]
        assert street.fetch(session, "shop.example").stdout == b"hello\n"
        assert street.town.gate.pid == pid


def test_the_gate_ends_with_the_last_session_that_used_it(street: Street) -> None:
    street.rules = [street.allow("shop.example")]
    with street.session() as one, street.session() as other:
        street.fetch(one, "shop.example")
        pid = street.town.gate.pid
        assert pid
        street.fetch(other, "shop.example")
        assert street.town.gate.pid == pid, "one gate serves every sandbox of a process"
        one.close()
        assert street.town.gate.pid == pid
    assert street.town.gate.pid == 0


def test_somebody_is_asked_once_and_always_is_remembered(street: Street) -> None:
    asked: list[FlowQuestion] = []

    def approve(question: FlowQuestion, _over: int) -> FlowAnswer:
        asked.append(question)
        return FlowAnswer(False, keep=question.host == "bank.example")

    with street.session(approve) as session:
        result = street.fetch(session, "shop.example", "shop.example", "bank.example", "bank.example")
        assert [(question.host, question.port) for question in asked] == [
            ("shop.example", street.port),
            ("bank.example", street.port),
        ]
        assert street.remembered == [HostRule("deny", "bank.example", (street.port,), source="asked")]
        assert {denial.target for denial in result.denials} == {
            b"shop.example:%d" % street.port,
            b"bank.example:%d" % street.port,
        }
        assert all(denial.times == 2 for denial in result.denials)
    assert street.town.lookups() == []


@pytest.fixture
def preset(street: Street, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A preset with the hosts of the town."""
    hosts = (f"shop.example:{street.port}", f"bank.example:{street.port}")
    monkeypatch.setitem(PRESETS, "town", Preset("tests", hosts, "https://shop.example"))
    presets._offered.cache_clear()
    yield "@town"
    presets._offered.cache_clear()


def test_a_preset_that_is_allowed_answers_for_all_its_hosts(street: Street, preset: str) -> None:
    asked: list[str] = []

    def approve(question: FlowQuestion, _over: int) -> FlowAnswer:
        asked.append(question.host)
        return FlowAnswer(True, keep=True, rule=f"allow {preset}")

    with street.session(approve) as session:
        result = street.fetch(session, "shop.example", "bank.example")
        assert asked == ["shop.example"], "one question for all hosts of the preset"
        assert street.remembered == [HostRule("allow", "@town", source="asked")], "the word is remembered"
        assert {denial.reason for denial in result.denials} == {
            "127.0.0.1 is an address of this machine; @town allows public addresses only"
        }, "they are allowed, and their addresses are vetted as those of any host"
    assert street.town.lookups() == ["shop.example", "bank.example"]


def test_a_deny_beats_a_preset_that_an_answer_allows(street: Street, preset: str) -> None:
    street.rules = [HostRule("deny", "bank.example", source="policy.yaml:3")]
    with street.session(lambda _question, _over: FlowAnswer(True, keep=True, rule=f"allow {preset}")) as session:
        result = street.fetch(session, "shop.example", "bank.example")
        assert "policy.yaml:3: bank.example denies it" in {denial.reason for denial in result.denials}


@pytest.mark.parametrize("answer", ["allow @npm", "allow @nowhere", "allow shop.example", "@town", "hold shop.example"])
def test_a_preset_that_was_not_offered_opens_nothing(street: Street, preset: str, answer: str) -> None:
    """Whatever a queue's file says."""
    with street.session(lambda _question, _over: FlowAnswer(True, keep=True, rule=answer)) as session:
        result = street.fetch(session, "shop.example", "bank.example")
        told = f"the answer about shop.example names a rule that was not offered: {answer}"
        assert any(note.endswith(told) for note in result.notes), result.notes
        assert b"hello" not in result.stdout
    assert (street.remembered, street.town.lookups()) == ([], [])


@pytest.mark.parametrize("why", ["", "and nobody has answered in 55 s"])
def test_a_question_that_nobody_answers_is_told_as_that(street: Street, why: str) -> None:
    with street.session(lambda _question, _over: FlowAnswer(False, why=why)) as session:
        result = street.fetch(session, "shop.example")
        assert [denial.reason for denial in result.denials] == [f"asked, {why or 'and refused'}"], result


def test_a_yes_lets_the_waiting_connection_on(street: Street) -> None:
    """It is let through as far as the vetting: a yes in a terminal does not open the machine's own network."""
    with street.session(lambda _question, _over: FlowAnswer(True)) as session:
        result = street.fetch(session, "shop.example")
        assert [flow["verdict"] for flow in flows(session)] == ["deny"]
        assert [denial.reason for denial in result.denials] == ["127.0.0.1 is an address of this machine"]
        assert street.town.lookups() == ["shop.example"]


def test_rules_that_change_hold_at_once(street: Street) -> None:
    """The command tells by a file of its view that it has been refused once."""
    script = (
        "import sys, time, urllib.request\n"
        "def get():\n"
        "    try: return urllib.request.urlopen(sys.argv[1], timeout=20).read().decode()\n"
        "    except Exception as error: return 'no'\n"
        "print(get(), flush=True)\n"
        "while (answer := get()) == 'no': pass\n"
        "print(answer)\n"
    )
    read, write = os.pipe()

    def change() -> None:
        assert os.read(read, 16) == b"no\n"
        street.rules = [street.allow("shop.example")]

    with street.session() as session:
        thread = threading.Thread(target=change)
        thread.start()
        from mudroom.session import Stdio

        result = session.run(
            [sys.executable.encode(), b"-c", script.encode(), street.url("shop.example").encode()],
            stdio=Stdio(stdout=write),
            timeout=60,
        )
        thread.join()
        assert result.exit_code == 0
        assert os.read(read, 16) == b"hello\n"
    os.close(read)
    os.close(write)


def test_rules_that_cannot_be_read_cut_the_network(street: Street) -> None:

    def broken() -> Sequence[HostRule]:
        raise UsageError("permissions.yaml:3: this is not YAML")

    with street.session() as session:
        session.machine.host_answers = session.machine.host_answers._replace(rules=broken)
        result = street.fetch(session, "shop.example")
        assert result.exit_code == 0, "the command runs, without a network"
        assert any("permissions.yaml:3" in note for note in result.notes)
    assert street.town.lookups() == []


def test_a_gate_that_is_killed_is_replaced(street: Street) -> None:
    street.rules = [street.allow("shop.example")]
    with street.session() as session:
        assert street.fetch(session, "shop.example").stdout == b"hello\n"
        os.kill(street.town.gate.pid, 9)
        assert street.fetch(session, "shop.example").stdout == b"hello\n"


def test_what_a_command_leaves_running_has_no_network(street: Street) -> None:
    street.rules = [street.allow("shop.example")]
    with street.session() as session:
        background = f"({sys.executable} -c 'import time; time.sleep(1000)' &) ; true"
        assert session.run([b"sh", b"-c", background.encode()]).exit_code == 0
        assert street.fetch(session, "shop.example").stdout == b"hello\n"


def test_a_server_inside_is_reached_on_the_hosts_loopback(street: Street) -> None:
    script = (
        "import socket\n"
        "server = socket.create_server(('127.0.0.1', 3000))\n"
        "print('up', flush=True)\n"
        "for _ in range(3):\n"
        "    client, _ = server.accept()\n"
        "    client.sendall(client.recv(100).upper())\n"
        "    client.close()\n"
    )
    up, says = os.pipe()
    ports: list[int] = []
    from mudroom.session import Stdio

    def visit() -> None:
        import socket

        for _ in range(3):
            with socket.create_connection(("127.0.0.1", ports[0]), timeout=20) as client:
                client.sendall(b"dev server")
                assert client.recv(100) == b"DEV SERVER"

    def serve() -> None:
        assert os.read(up, 8) == b"up\n"
        gone, namespaces = namespaces_at(session.vault.fork("dev").namespace_listener)
        maker = SocketMaker(gone, namespaces, 20)
        for descriptor in namespaces:
            os.close(descriptor)

        def opened(port: int) -> None:
            ports.append(port)
            threading.Thread(target=visit).start()

        InboundListener(maker.make, 3000, (0,)).run(gone, opened)
        maker.close()
        os.close(gone)

    with street.session() as session:
        thread = threading.Thread(target=serve)
        thread.start()
        result = session.run([sys.executable.encode(), b"-c", script.encode()], fork="dev", stdio=Stdio(stdout=says))
        thread.join()
        assert result.exit_code == 0
        assert not os.path.exists(session.vault.fork("dev").namespace_listener)
    for descriptor in (up, says):
        os.close(descriptor)


@pytest.mark.parametrize(
    ("environ", "upstream"),
    [
        ({}, ""),
        ({b"https_proxy": b"http://proxy.corp.example:8080"}, "http://proxy.corp.example:8080"),
        ({b"HTTPS_PROXY": b"http://u:p@proxy:1"}, "http://u:p@proxy:1"),
        ({b"https_proxy": b"socks5h://proxy:1", b"http_proxy": b"http://other:2"}, "http://other:2"),
    ],
)
def test_the_proxy_of_the_machine(environ: dict[bytes, bytes], upstream: str) -> None:
    assert command_gate.upstream_of(environ) == upstream


def test_a_proxy_that_cannot_be_one_is_said_so(street: Street, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_gate, "SHARED", command_gate.SharedGates())
    with street.session() as session:
        session.machine.confinement.variables = {**session.machine.confinement.variables, b"https_proxy": b"http://a b"}
        result = street.fetch(session, "shop.example")
        assert [note for note in result.notes if "the proxy of this machine cannot be used" in note], result.notes


HAMMER = """
import socket, sys
for _ in range(int(sys.argv[2])):
    with socket.create_connection(("127.0.0.1", int(sys.argv[1].rpartition(":")[2]))) as client:
        client.sendall(b"CONNECT bank.example:443 HTTP/1.1\\r\\nHost: bank.example:443\\r\\n\\r\\n")
        assert client.recv(4096).startswith(b"HTTP/1.1 403 ")
"""


def test_a_command_that_is_refused_again_and_again_is_one_event(street: Street) -> None:
    script = f"import os, sys; sys.argv[1:] = ['http://127.0.0.1:3128', '300']{HAMMER}"
    with street.session() as session:
        result = session.run([sys.executable.encode(), b"-c", script.encode()])
        assert (result.exit_code, [denial.times for denial in result.denials]) == (0, [300]), result
        (flow,) = flows(session)
        assert (flow["host"], flow["verdict"], flow["repeats"]) == ("bank.example", "deny", 299)
        assert session.vault.journal.verify() is None


def test_flows_as_denials() -> None:
    from mudroom.session.run import refused_hosts

    def flow(host: str, port: int, verdict: Any) -> Flow:
        return Flow(0, "connect", host, port, verdict, "", "no rule names it")

    twice = [flow("a", 443, "deny"), flow("b", 443, "allow"), flow("a", 443, "deny")]
    found = refused_hosts([*twice, flow("a", 443, "deny")._replace(repeats=5), flow("c", 0, "deny")])
    assert found == [Denial("network", b"a:443", "no rule names it", 8), Denial("network", b"c", "no rule names it")]


def test_a_deny_of_an_address_holds_for_names_that_lead_there(street: Street) -> None:
    street.rules = [street.allow("shop.example"), HostRule("deny", "127.0.0.0/8", source="the test")]
    with street.session() as session:
        result = street.fetch(session, "shop.example")
        assert [denial.reason for denial in result.denials] == ["127.0.0.1 is denied: the test: 127.0.0.0/8"]


def test_an_answer_that_cannot_be_kept_holds_for_the_command(street: Street, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_rule: HostRule) -> None:
        raise UsageError("permissions.yaml: No space left on device")

    with street.session(lambda _question, _over: FlowAnswer(False, keep=True)) as session:
        monkeypatch.setattr(session.machine, "host_answers", session.machine.host_answers._replace(remember=full))
        result = street.fetch(session, "shop.example", "shop.example")
        assert [(denial.kind, denial.times) for denial in result.denials] == [("network", 2)]
        assert any("could not be kept" in note for note in result.notes)


def test_without_a_way_in_there_is_still_a_way_out(street: Street) -> None:
    street.rules = [street.allow("shop.example")]
    with street.session() as session:
        fork = session.forks.new("one")
        os.mkdir(fork.namespace_listener)  # nothing can be bound there, nor unlinked
        command = [sys.executable, "-c", FETCH, street.url("shop.example")]
        result = session.run([word.encode() for word in command], fork="one")
        assert result.stdout == b"hello\n"
        assert any("net open" in note for note in result.notes)
