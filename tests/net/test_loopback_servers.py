"""A server on this machine's loopback that a rule opens: commands reach it at its address, and nothing beside it."""

from __future__ import annotations

import errno
import json
import os
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import origin
from mudroom.cli.command.refusals import refusal_lines
from mudroom.core.network.host_rules import HostRule, parse_rule
from mudroom.core.result import Result
from mudroom.core.settings import Settings
from mudroom.sandbox.host.host import landlock_abi
from mudroom.session import Session, Stdio
from mudroom.session.confinement import command_gate, loopback
from mudroom.session.confinement.host_approver import HostAnswers
from town import Town, echo, read_until

pytestmark = pytest.mark.both_users

MODES = [
    "overlay",
    pytest.param("landlock", marks=pytest.mark.skipif(landlock_abi() < 4, reason="Landlock knows no ports here")),
]
HEAD = """
import http.client, socket, sys, threading
port = int(sys.argv[1])
def talk(data, host="127.0.0.1", family=socket.AF_INET):
    with socket.socket(family) as client:
        client.settimeout(20)
        client.connect((host, port))
        client.sendall(data)
        client.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: client.recv(65536), b""))
def ask(host, path="/", name=None):
    link = http.client.HTTPConnection(host, port, timeout=20)
    link.request("GET", path, headers={"Host": name} if name else {})
    answer = link.getresponse()
    return answer.status, answer.read().decode().strip()
"""


def answer(client: socket.socket) -> None:
    """An HTTP server that answers with the request's path and Host, and keeps the connection."""
    while client.recv(1, socket.MSG_PEEK):
        head = read_until(client, b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:] if ": " in line)
        body = f"{head.split()[1].decode()} {fields['Host']}".encode()
        client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))


class Host:
    """A project on a machine with servers on its loopback."""

    def __init__(self, root: Path, town: Town) -> None:
        self.town, self.rules, self._root = town, tuple[HostRule, ...](), root
        for name in ("project", "home"):
            (root / name).mkdir()

    def allow(self, *texts: str, **fields: Any) -> None:
        self.rules = tuple(parse_rule(text, "allow", "the test")._replace(**fields) for text in texts)

    def session(self, mode: Any = "overlay", level: int = 1) -> Session:
        session = Session.open(
            os.fsencode(self._root / "project"),
            state=os.fsencode(self._root / "state"),
            home=os.fsencode(self._root / "home"),
            environ={b"PATH": os.environb[b"PATH"]},
            settings=Settings(network="gate"),
            hosts=HostAnswers(lambda: self.rules),
            level=level,
        )
        session.machine.confinement.mode = mode
        return session


def ran(session: Session, program: str, port: int, **options: Any) -> Result:
    return session.run([sys.executable.encode(), b"-c", (HEAD + program).encode(), str(port).encode()], **options)


def said(result: Result) -> str:
    assert result.exit_code == 0, result.stderr.decode()
    return result.stdout.decode()


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    (tmp_path / "town").mkdir()
    with Town(tmp_path / "town") as town:
        monkeypatch.setattr(command_gate, "SHARED", command_gate.SharedGates(lambda _upstream: town.gate))
        yield Host(tmp_path, town)


def flows(session: Session) -> list[dict[str, Any]]:
    return [json.loads(event.data) for event in session.vault.journal.events() if event.kind == "flow"]


@pytest.mark.parametrize("mode", MODES)
def test_a_server_of_this_machine_is_reached_at_its_address(host: Host, mode: str) -> None:
    """Plain connections, without any proxy: HTTP by each name of the place, and bytes with a half-close."""
    web, raw = host.town.serve(answer), host.town.serve(echo)
    host.allow(f"127.0.0.1:{web}", f"127.0.0.1:{raw}")
    with host.session(mode) as session:
        shown = ran(session, "print(ask('127.0.0.1', '/v1'), ask('127.0.0.1', '/x', f'localhost:{port}'))", web)
        assert said(shown) == f"(200, '/v1 127.0.0.1:{web}') (200, '/x localhost:{web}')\n"
        shown = ran(session, "print(len(talk(b'x' * 300_000)), talk(b'bye'))", raw)
        assert said(shown) == "300000 b'bye'\n"
        assert shown.denials == ()
        told = [(flow["host"], flow["port"], flow["verdict"], flow["way"]) for flow in flows(session)]
        assert told == [("127.0.0.1", web, "allow", "http")] * 2 + [("127.0.0.1", raw, "allow", "raw")] * 2
        assert [flow["sent"] for flow in flows(session) if flow["port"] == raw] == [300_000, 3]
        assert {flow["rule"] for flow in flows(session)} == {"the test"}


@pytest.mark.parametrize("mode", MODES)
def test_only_that_port_is_open(host: Host, mode: str) -> None:
    """Its neighbours, other addresses of loopback and other families are as closed as before."""
    opened, closed = host.town.serve(echo), host.town.serve(echo)
    host.allow(f"127.0.0.1:{opened}")
    program = (
        "def code(family, where):\n"
        "    with socket.socket(family) as client: return client.connect_ex(where)\n"
        "print(code(socket.AF_INET, ('127.0.0.1', port)), code(socket.AF_INET, ('127.0.0.2', int(sys.argv[1]) )),\n"
        "      code(socket.AF_INET6, ('::1', port)))\n"
    )
    refused = errno.EACCES if mode == "landlock" else errno.ECONNREFUSED
    with host.session(mode) as session:
        result = ran(session, program, closed)
        assert said(result) == f"{refused} {refused} {refused}\n"
        if mode == "landlock":  # the mediator sees them; a kernel with namespaces tells nobody
            where = f"127.0.0.1:{closed}"
            line = f"refused: {where}: no rule names this port of this machine (mudroom net allow {where})"
            assert refusal_lines(result.denials)[0] == line
        assert said(ran(session, program, opened)) == f"0 {refused} {refused}\n"


def test_localhost_is_both_addresses(host: Host) -> None:
    """The server listens on one of them. A client that tries the other first has no second try."""
    four = host.town.serve(echo)
    host.allow(f"localhost:{four}")
    program = "print(talk(b'a', '127.0.0.1'), talk(b'b', '::1', socket.AF_INET6))"
    with host.session() as session:
        assert said(ran(session, program, four)) == "b'a' b'b'\n"
        assert [flow["address"] for flow in flows(session)] == ["127.0.0.1", "127.0.0.1"]


def test_many_connections_at_once(host: Host) -> None:
    port = host.town.serve(echo)
    host.allow(f"127.0.0.1:{port}")
    program = (
        "held = [socket.create_connection(('127.0.0.1', port), 20) for _ in range(60)]\n"
        "for client in held: client.sendall(b'x' * 1000)\n"
        "count = 0\n"
        "for client in held:\n"
        "    client.shutdown(socket.SHUT_WR)\n"
        "    while data := client.recv(65536): count += len(data)\n"
        "print(count)\n"
    )
    with host.session() as session:
        assert said(ran(session, program, port)) == "60000\n"
        assert len(flows(session)) == 60


@pytest.mark.parametrize("mode", MODES)
def test_without_a_server_a_client_is_told(host: Host, mode: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    host.allow(f"127.0.0.1:{port}")
    program = "print(ask('127.0.0.1'))\ntry: print(talk(b'hello\\n'))\nexcept OSError: print('an error')\n"
    with host.session(mode) as session:
        assert said(ran(session, program, port)).splitlines() == [
            "(504, 'mudroom: 127.0.0.1 cannot be reached: connection refused')",
            "an error",
        ]


def test_http_for_another_host_does_not_go_through(host: Host) -> None:
    """A proxy on that port would otherwise be a way out for HTTP."""
    port = host.town.serve(answer)
    host.allow(f"127.0.0.1:{port}")
    program = (
        "print(ask('127.0.0.1', '/', 'evil.example')[0], ask('127.0.0.1', 'http://evil.example/')[0],\n"
        "      talk(b'CONNECT evil.example:443 HTTP/1.1\\r\\n\\r\\n').split()[1].decode(),\n"
        "      ask('127.0.0.1', '/', f'localhost:{port ^ 1}')[0])\n"
    )
    with host.session() as session:
        result = ran(session, program, port)
        assert said(result) == "403 403 400 403\n"
        assert {denial.target for denial in result.denials} == {f"127.0.0.1:{port}".encode()}


def test_a_name_that_resolves_there_is_no_way_in(host: Host) -> None:
    port = host.town.serve(echo)
    host.town.names({"devbox.example": [["127.0.0.1"]]})
    host.allow(f"127.0.0.1:{port}")
    # reset before its end is sent, a connection is none for shutdown(2): ENOTCONN
    name = "errno.errorcode.get(error.errno, type(error).__name__)"
    program = f"import errno\ntry: print(talk(b'x', 'devbox.example'))\nexcept OSError as error: print({name})"
    with host.session() as session:
        result = ran(session, program, port)
        assert said(result) in ("gaierror\n", "ECONNRESET\n", "ENOTCONN\n"), "without nftables, and with it"
        assert [denial.target.rpartition(b":")[0] for denial in result.denials] == [b"devbox.example"]
        host.rules = (*host.rules, parse_rule(f"devbox.example:{port}", "allow"))
        result = ran(session, program, port)
        assert said(result) in ("b''\n", "ECONNRESET\n", "ENOTCONN\n")
        assert "127.0.0.1 is an address of this machine" in result.denials[-1].reason


def test_tls_is_for_the_place(host: Host) -> None:
    """Without a name, as for an address, or for ``localhost``; a name of another host would be for a proxy of TLS."""
    port = host.town.serve(origin.tls("localhost", echo))
    host.allow(f"127.0.0.1:{port}")
    program = (
        "import ssl\n"
        "context = ssl.create_default_context(); context.check_hostname = False; context.verify_mode = ssl.CERT_NONE\n"
        "for name in ('localhost', None, '127.0.0.1', 'evil.example'):\n"
        "    try:\n"
        "        with socket.create_connection(('127.0.0.1', port), 20) as raw:\n"
        "            with context.wrap_socket(raw, server_hostname=name) as client:\n"
        "                client.sendall(b'x'); print(client.recv(9).decode())\n"
        "    except OSError as error: print(type(error).__name__)\n"
    )
    with host.session() as session:
        result = ran(session, program, port)
        assert said(result).split() == ["x", "x", "x", "SSLError"]
        assert [denial.reason for denial in result.denials] == ["TLS: the client wants evil.example, and not 127.0.0.1"]


def test_a_rule_for_some_requests(host: Host) -> None:
    port = host.town.serve(answer)
    host.allow(f"127.0.0.1:{port}", paths=("/api",))
    program = "print(ask('127.0.0.1', '/api/chat')[0], ask('127.0.0.1', '/admin')[0])"
    with host.session() as session:
        assert said(ran(session, program, port)) == "200 403\n"
        verdicts = [(flow["path"], flow["verdict"]) for flow in flows(session)]
        assert verdicts == [("/api/chat", "allow"), ("/admin", "deny")]
        result = ran(session, "try: print(talk(b'raw\\n'))\nexcept OSError: print('reset')", port)
        assert said(result) == "reset\n"


def test_a_server_of_the_command_cannot_have_the_port(host: Host) -> None:
    """As on the host, where the other server has it. Without the rule the port is free."""
    port = host.town.serve(echo)
    program = (
        "def bound(family, host):\n"
        "    with socket.socket(family) as server:\n"
        "        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)\n"
        "        try: server.bind((host, port)); server.listen()\n"
        "        except OSError as error: return error.errno\n"
        "    return 0\n"
        "print(bound(socket.AF_INET, '127.0.0.1'), bound(socket.AF_INET, ''), bound(socket.AF_INET6, '::'),\n"
        "      bound(socket.AF_INET, '127.0.0.2'))\n"
    )
    with host.session() as session:
        assert said(ran(session, program, port)) == "0 0 0 0\n"
        host.allow(f"127.0.0.1:{port}")
        assert said(ran(session, program, port)) == f"{errno.EADDRINUSE} {errno.EADDRINUSE} {errno.EADDRINUSE} 0\n"


def test_only_a_command_with_such_a_rule_has_a_step_for_it(host: Host) -> None:
    host.rules = (parse_rule("shop.example", "allow"), parse_rule("127.0.0.0/8:9", "allow"))
    with host.session() as session:
        assert not any("this machine's" in line for line in session.explain(os.fsencode("/")))
        assert said(ran(session, "print(1)", 1)) == "1\n"
        host.allow("localhost:9")
        (line,) = [line for line in session.explain(os.fsencode("/")) if "this machine's" in line]
        assert line.endswith("listeners of the gate for this machine's 127.0.0.1:9, [::1]:9")


WAITS = """
import time
end = time.monotonic() + 20
def until(wanted):
    while time.monotonic() < end:
        with socket.socket() as client:
            if (client.connect_ex(("127.0.0.1", port)) == 0) == wanted: return
    raise SystemExit("the listener did not follow the rules")
"""


@pytest.mark.parametrize("used", [False, True], ids=["no gate yet", "a gate"])
def test_rules_that_change_open_and_close_it(host: Host, used: bool) -> None:
    """While the command runs: it says so when it has seen each."""
    port, other = host.town.serve(echo), host.town.serve(echo)
    host.allow(*([f"127.0.0.1:{other}"] if used else ["shop.example"]))
    program = WAITS + (
        f"if {used}:\n    with socket.create_connection(('127.0.0.1', {other})): pass\n"
        "print('closed', flush=True); until(True)\n"
        "print(talk(b'open').decode(), flush=True); until(False)\n"
        "server = socket.create_server(('127.0.0.1', port)); print('closed', flush=True)\n"
    )
    read, write = os.pipe()
    heard: list[bytes] = []

    def change() -> None:
        with os.fdopen(read, "rb") as stream:
            heard.append(stream.readline())
            host.allow(f"127.0.0.1:{port}", f"127.0.0.1:{other}")
            heard.append(stream.readline())
            host.allow(f"127.0.0.1:{other}")
            heard.append(stream.readline())

    with host.session() as session:
        thread = threading.Thread(target=change)
        thread.start()
        result = ran(session, program, port, stdio=Stdio(stdout=write), timeout=60)
        os.close(write)
        thread.join()
    assert (result.exit_code, heard) == (0, [b"closed\n", b"open\n", b"closed\n"]), result.stderr


def test_a_port_that_the_command_has_taken_is_not_opened(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    port = host.town.serve(echo)
    program = (
        "server = socket.create_server(('127.0.0.1', port)); print('taken', flush=True); sys.stdin.read()\n"
        "print(server.getsockname()[1] == port)\n"
    )
    (read, write), (stdin, go) = os.pipe(), os.pipe()
    noted, before = threading.Event(), loopback.make_listeners

    def make(*args: Any) -> Any:
        try:
            return before(*args)
        finally:
            noted.set()

    def change() -> None:
        with os.fdopen(read, "rb") as stream:
            stream.readline()
            host.allow(f"127.0.0.1:{port}")
            noted.wait(20)
            os.close(go)
            stream.read()

    monkeypatch.setattr(loopback, "make_listeners", make)
    with host.session() as session:
        thread = threading.Thread(target=change)
        thread.start()
        result = ran(session, program, port, stdio=Stdio(stdin=stdin, stdout=write), timeout=60)
        os.close(write)
        os.close(stdin)
        thread.join()
    assert result.exit_code == 0, result.stderr
    note = f"127.0.0.1:{port} is open to the next command; not to this one: a server of its own listens there"
    assert note in result.notes
