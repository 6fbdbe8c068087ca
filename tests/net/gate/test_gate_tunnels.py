"""Tunnels by CONNECT and SOCKS5 through a real gate process: for one host, and for nobody else."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from mudroom.core.network.host_rules import HostRule
from origin import Web, certificate, client_context, tls
from tiers import half
from town import OpenGuard, Town, echo, read_all, read_exactly, read_until

pytestmark = pytest.mark.both_users


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Town]:
    with Town(tmp_path) as town:
        yield town


HERE = f"127.3.{os.getpid() >> 8 & 255}.{os.getpid() & 255}"
"""For servers on port 443: tests run side by side."""


def allow(name: str, *ports: int) -> HostRule:
    return HostRule("allow", name, ports, private=True, source="policy.yaml:3")


def tunnel(guard: OpenGuard, host: str, port: int) -> socket.socket:
    where = f"{host}:{port}".encode()
    client = guard.connect(b"CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n" % (where, where))
    established = b"HTTP/1.1 200 Connection established\r\n\r\n"
    assert read_exactly(client, len(established)) == established, "what comes after it is the server's"
    return client


def socks_request(host: bytes, port: int, command: int = 1, kind: int = 3) -> bytes:
    length = bytes((len(host),)) if kind == 3 else b""
    return bytes((5, 1, 0, 5, command, 0, kind)) + length + host + port.to_bytes(2, "big")


def socks(guard: OpenGuard, request: bytes) -> tuple[int, socket.socket]:
    """The gate's code, and the connection."""
    client = guard.connect(request)
    reply = read_exactly(client, 12)
    assert reply[:3] == b"\x05\x00\x05"
    return reply[3], client


# --- TLS ---


def test_tls_to_the_host_of_the_tunnel(town: Town) -> None:
    port = town.serve(tls("good.example", Web()))
    town.names({"good.example": [["127.0.0.1"]]})
    guard = town.guard(allow("good.example", port))
    with client_context("good.example").wrap_socket(
        tunnel(guard, "good.example", port), server_hostname="good.example"
    ) as secure:
        secure.sendall(b"GET / HTTP/1.1\r\nHost: good.example\r\n\r\n")
        assert b"hello\n" in read_until(secure, b"hello\n")
    flow = guard.flow()
    assert (flow.way, flow.host, flow.port, flow.verdict) == ("connect", "good.example", port, "allow")
    assert (flow.rule, flow.address, flow.sent > 300, flow.received > 500) == ("policy.yaml:3", "127.0.0.1", True, True)
    assert not flow.error
    assert town.lookups() == ["good.example"]


def test_what_no_rule_names_is_denied_and_never_looked_up(town: Town) -> None:
    guard = town.guard(HostRule("allow", "good.example"))
    said = read_all(guard.connect(b"CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\n\r\n"))
    assert said.startswith(b"HTTP/1.1 403 ")
    assert b"evil.example:443 is not allowed" in said and b"mudroom net allow evil.example" in said
    flow = guard.flow()
    assert (flow.host, flow.verdict, flow.address) == ("evil.example", "deny", "")
    assert town.lookups() == []


@pytest.mark.parametrize("name", ["evil.example", "sub.good.example", "ood.example", None])
def test_another_name_in_tls_is_no_way_round(town: Town, name: str | None) -> None:
    """Domain fronting; and no name at all, which leaves it to the server."""
    reached = []
    port = town.serve(lambda client: reached.append(client.recv(10)))
    town.names({"good.example": [["127.0.0.1"]]})
    guard = town.guard(allow("good.example", port))
    context = client_context("good.example")
    context.check_hostname = False
    with pytest.raises(ssl.SSLError, match="ACCESS_DENIED"):
        context.wrap_socket(tunnel(guard, "good.example", port), server_hostname=name)
    flow = guard.flow()
    assert (flow.verdict, flow.reason.startswith("TLS: ")) == ("deny", True)
    assert reached in ([], [b""])


def test_the_case_and_the_dot_of_a_name_are_nothing(town: Town) -> None:
    port = town.serve(tls("good.example", echo))
    town.names({"good.example": [["127.0.0.1"]]})
    guard = town.guard(allow("good.example", port))
    context = client_context("good.example")
    context.check_hostname = False
    with context.wrap_socket(tunnel(guard, "Good.Example.", port), server_hostname="GOOD.example") as secure:
        secure.sendall(b"x")
        assert secure.recv(1) == b"x"


def test_a_hello_that_comes_byte_by_byte_is_read_all_the_same(town: Town) -> None:
    port = town.serve(tls("good.example", echo))
    town.names({"good.example": [["127.0.0.1"]]})
    guard = town.guard(allow("good.example", port))
    client = tunnel(guard, "good.example", port)
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    inside, outside = ssl.MemoryBIO(), ssl.MemoryBIO()
    hidden = client_context("good.example").wrap_bio(inside, outside, server_hostname="good.example")
    with pytest.raises(ssl.SSLWantReadError):
        hidden.do_handshake()
    hello = outside.read()
    half = len(hello) // 2
    records = b"".join(
        hello[:3] + len(part).to_bytes(2, "big") + part for part in (hello[5:half], hello[half:])
    )  # in two records, too
    for at in range(len(records)):
        client.sendall(records[at : at + 1])
    assert client.recv(1) == b"\x16"


@pytest.mark.root
@pytest.mark.parametrize(
    "words",
    [b"SSH-2.0-x\r\n", b"GET / HTTP/1.1\r\nHost: good.example\r\n\r\n", b"\x16\x03\x01\0\x05garba", b"\x16\x02\0\0\0"],
)
def test_port_443_is_tls_and_nothing_else(town: Town, words: bytes) -> None:
    guard = town.guard(HostRule("allow", "good.example", private=True))
    reached: list[bytes] = []
    try:
        town.serve(lambda client: reached.append(client.recv(10)), HERE, 443)
    except PermissionError:
        pytest.skip("port 443 is for root alone")
    town.names({"good.example": [[HERE]]})
    client = tunnel(guard, "good.example", 443)
    client.sendall(words)
    said = read_all(client)
    assert said == (b"" if words[:1] != b"\x16" else b"\x15\x03\x03\x00\x02\x02\x31")
    assert guard.flow().verdict == "deny"
    assert b"".join(reached) == b""


@pytest.mark.root
@pytest.mark.parametrize(("ports", "said"), [((443,), b"SSH-2.0-server\r\n"), ((), b"")])
def test_another_protocol_on_port_443_needs_a_rule_that_names_it(
    town: Town, ports: tuple[int, ...], said: bytes
) -> None:
    def ssh(client: socket.socket) -> None:
        client.sendall(b"SSH-2.0-server\r\n")
        client.recv(10)

    try:
        town.serve(ssh, HERE, 443)
    except PermissionError:
        pytest.skip("port 443 is for root alone")
    town.names({"git.example": [[HERE]]})
    guard = town.guard(allow("git.example", *ports))
    client = tunnel(guard, "git.example", 443)
    if said:
        assert read_until(client, b"\n") == said  # the server is first
    client.sendall(b"SSH-2.0-client\r\n")
    assert read_all(client) == b""
    assert guard.flow().verdict == ("allow" if ports else "deny")


@pytest.mark.root
def test_tls_is_held_to_its_name_on_a_port_that_is_named_too(town: Town) -> None:
    try:
        port = town.serve(tls("good.example", echo), HERE, 443)
    except PermissionError:
        pytest.skip("port 443 is for root alone")
    town.names({"good.example": [[HERE]]})
    guard = town.guard(allow("good.example", 443))
    context = client_context("good.example")
    context.check_hostname = False
    with pytest.raises(ssl.SSLError, match="ACCESS_DENIED"):
        context.wrap_socket(tunnel(guard, "good.example", port), server_hostname="evil.example")


def test_an_address_that_is_listed_may_go_without_a_name(town: Town) -> None:
    port = town.serve(tls("good.example", echo))
    guard = town.guard(allow("127.0.0.1", port))
    with ssl._create_unverified_context().wrap_socket(tunnel(guard, "127.0.0.1", port)) as secure:
        secure.sendall(b"x")
        assert secure.recv(1) == b"x"


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
@pytest.mark.parametrize("scheme", ["http", "socks5h"])
def test_curl_by_https(town: Town, scheme: str) -> None:
    port = town.serve(tls("good.example", Web()))
    town.names({"good.example": [["127.0.0.1"]]})
    guard = town.guard(allow("good.example", port))
    proxy = f"{scheme}://{guard.where[0]}:{guard.where[1]}"
    command = ["curl", "-sS", "-x", proxy, "--cacert", str(certificate("good.example"))]
    done = subprocess.run([*command, f"https://good.example:{port}/"], capture_output=True, timeout=30, check=True)
    assert done.stdout == b"hello\n"
    done = subprocess.run([*command, "https://evil.example/"], capture_output=True, timeout=30, check=False)
    assert done.returncode in (56, 97)
    assert "evil.example" not in town.lookups()


# --- who is meant ---


TARGETS = {
    "an inet_aton address": b"127.1",
    "an address in hex": b"0x7f000001",
    "an address as a number": b"2130706433",
    "an address in octal": b"0177.0.0.1",
    "digits of Unicode": "①②⑦.0.0.1".encode(),
    "a NUL": b"evil.example\0.good.example",
    "two dots at the end": b"good.example..",
    "a dot in front": b".good.example",
    "double brackets": b"[[::1]]",
    "a zone": b"[fe80::1%25lo]",
    "a user": b"good.example@evil.example",
    "a percent": b"good%2eexample",
    "a slash": b"good.example/",
    "a star": b"*.example",
    "nothing": b"",
}


@pytest.mark.parametrize("name", half(TARGETS))
def test_what_is_no_host_is_refused_before_anything_else(town: Town, name: str) -> None:
    host = TARGETS[name]
    guard = town.guard(HostRule("allow", "*", (443,)), HostRule("allow", "**.good.example", (443,)))
    client = guard.connect(b"CONNECT %s:443 HTTP/1.1\r\nHost: good.example:443\r\n\r\n" % host)
    assert read_all(client).startswith(b"HTTP/1.1 400 ")
    assert guard.flow().verdict == "deny"
    if b":" not in host:
        code, _client = socks(guard, socks_request(host, 443))
        assert code == 1
    assert town.lookups() == []


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "[::1]", "[::ffff:127.0.0.1]", "169.254.169.254", "[64:ff9b::7f00:1]", "10.0.0.1", "0.0.0.0"]
)
def test_addresses_are_no_way_round_a_rule_for_names(town: Town, host: str) -> None:
    guard = town.guard(HostRule("allow", "*"), HostRule("allow", "**.example"), ask=True)
    client = guard.connect(f"CONNECT {host}:443 HTTP/1.1\r\nHost: {host}:443\r\n\r\n".encode())
    assert read_all(client).startswith(b"HTTP/1.1 403 ")
    assert guard.flow().verdict == "deny"
    assert guard.questions == []  # such a thing is not even asked


@pytest.mark.parametrize(
    "fields", [b"Host: evil.example:443\r\n", b"Content-Length: 5\r\n", b"Host: good.example:444\r\n"]
)
def test_games_with_the_head_of_a_connect(town: Town, fields: bytes) -> None:
    guard = town.guard(HostRule("allow", "*"))
    host = b"" if fields.startswith(b"Host") else b"Host: good.example:443\r\n"
    client = guard.connect(b"CONNECT good.example:443 HTTP/1.1\r\n%s%s\r\n" % (host, fields))
    assert read_all(client).startswith(b"HTTP/1.1 400 ")
    assert town.lookups() == []


# --- where a name leads ---


PRIVATE = ["127.0.0.1", "10.0.0.1", "192.168.1.1", "169.254.169.254", "100.100.100.200", "0.0.0.0", "::1", "fe80::1",
           "fd00::1", "::ffff:10.0.0.1", "64:ff9b::a00:1", "2002:7f00:1::", "198.18.0.1", "224.0.0.1"]  # fmt: skip


@pytest.mark.parametrize("address", half(PRIVATE))
def test_a_name_that_leads_inside_is_not_dialled(town: Town, address: str) -> None:
    guard = town.guard(HostRule("allow", "rebound.example", (443, 9999)))
    town.names({"rebound.example": [[address]]})
    client = guard.connect(b"CONNECT rebound.example:9999 HTTP/1.1\r\nHost: rebound.example:9999\r\n\r\n")
    assert read_all(client).startswith(b"HTTP/1.1 403 ")
    flow = guard.flow()
    assert (flow.verdict, flow.address) == ("deny", "")


def test_one_bad_address_spoils_the_answer(town: Town) -> None:
    port = town.serve(echo)
    town.names({"mixed.example": [["127.0.0.1", "169.254.169.254"]]})
    guard = town.guard(allow("mixed.example", port))
    client = guard.connect(b"CONNECT mixed.example:%d HTTP/1.1\r\nHost: mixed.example:%d\r\n\r\n" % (port, port))
    assert read_all(client).startswith(b"HTTP/1.1 403 ")


def test_what_is_dialled_is_the_answer_that_was_vetted(town: Town) -> None:
    """A second lookup would be another answer, and is another's: each connection looks up once."""
    port = town.serve(echo)
    town.names({"rebound.example": [["127.0.0.1"], ["169.254.169.254"]]})
    guard = town.guard(allow("rebound.example", port))
    client = tunnel(guard, "rebound.example", port)
    client.sendall(b"?")
    assert client.recv(1) == b"?"
    assert town.lookups() == ["rebound.example"]
    client.close()
    client = guard.connect(b"CONNECT rebound.example:%d HTTP/1.1\r\nHost: rebound.example:%d\r\n\r\n" % (port, port))
    assert read_all(client).startswith(b"HTTP/1.1 403 ")
    assert town.lookups() == ["rebound.example"] * 2


def test_the_next_address_is_tried_and_a_closed_port_is_said(town: Town) -> None:
    port = town.serve(echo)
    town.names({"two.example": [["127.0.0.9", "127.0.0.1"]], "none.example": [["127.0.0.9"]]})
    guard = town.guard(allow("two.example", port), allow("none.example", port))
    tunnel(guard, "two.example", port).close()
    assert guard.flow().address == "127.0.0.1"
    client = guard.connect(b"CONNECT none.example:%d HTTP/1.1\r\nHost: none.example:%d\r\n\r\n" % (port, port))
    said = read_all(client)
    assert said.startswith(b"HTTP/1.1 504 ")
    assert b"refused" in said
    client = guard.connect(b"CONNECT none.example:%d HTTP/1.1\r\nHost: none.example:%d\r\n\r\n" % (port, port))
    guard.wait(flows=3)
    assert {(flow.verdict, flow.error != "") for flow in guard.flows[1:]} == {("allow", True)}


def test_an_address_that_does_not_answer_holds_up_the_next_for_a_moment_only(tmp_path: Path) -> None:
    with Town(tmp_path, constants={"gate.dial.FIRST": 0.05, "gate.dial.LAST": 0.1}) as town:
        port = town.serve(echo)
        with socket.create_server(("127.0.0.9", port), backlog=0) as deaf:
            crowd = [socket.socket() for _ in range(3)]  # more than its queue takes: what comes then is not answered
            for one in crowd:
                one.setblocking(False)
                one.connect_ex(deaf.getsockname())
            town.names({"two.example": [["127.0.0.9", "127.0.0.1"]], "none.example": [["127.0.0.9"]]})
            guard = town.guard(allow("two.example", port), allow("none.example", port))
            for _ in range(20):
                client = tunnel(guard, "two.example", port)
                client.sendall(b"?")
                assert client.recv(1) == b"?"
                client.close()
            client = guard.connect(b"CONNECT none.example:%d HTTP/1.1\r\nHost: none.example:%d\r\n\r\n" % (port, port))
            assert b"timed out" in read_all(client)
            for one in crowd:
                one.close()
        guard.wait(flows=21)
        assert {flow.address for flow in guard.flows} == {"127.0.0.1", ""}


def test_a_name_that_does_not_exist(town: Town) -> None:
    guard = town.guard(HostRule("allow", "nowhere.example"))
    client = guard.connect(b"CONNECT nowhere.example:443 HTTP/1.1\r\nHost: nowhere.example:443\r\n\r\n")
    assert read_all(client).startswith(b"HTTP/1.1 502 ")
    assert "cannot be looked up" in guard.flow().error


# --- SOCKS ---


def test_socks_by_name_and_by_address(town: Town) -> None:
    port = town.serve(echo)
    town.names({"db.example": [["127.0.0.1"]]})
    guard = town.guard(allow("db.example", port), allow("127.0.0.1", port))
    mapped = socket.inet_pton(socket.AF_INET6, "::ffff:127.0.0.1")
    for host, kind in ((b"db.example", 3), (b"127.0.0.1", 3), (bytes((127, 0, 0, 1)), 1), (mapped, 4)):
        code, client = socks(guard, socks_request(host, port, kind=kind))
        assert code == 0
        client.sendall(b"?")
        assert client.recv(1) == b"?"
        client.close()
    guard.wait(flows=4)
    assert {(flow.way, flow.verdict) for flow in guard.flows} == {("socks", "allow")}


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (socks_request(b"evil.example", 443), 2),
        (socks_request(b"good.example", 25), 2),
        (socks_request(b"good.example", 443, command=2), 7),
        (socks_request(b"good.example", 443, command=3), 7),
        (socks_request(b"abcd", 443, kind=5), 8),
        (socks_request(b"good.example", 0), 1),
        (socks_request(b"nowhere.example", 443), 4),
    ],
    ids=["denied", "port", "bind", "udp", "kind", "port 0", "unreachable"],
)
def test_socks_says_why_not(town: Town, request_: bytes, code: int) -> None:
    guard = town.guard(HostRule("allow", "good.example"), HostRule("allow", "nowhere.example"))
    said, client = socks(guard, request_)
    assert said == code
    assert read_all(client) == b""
    assert guard.flow().verdict == ("allow" if code == 4 else "deny")


@pytest.mark.parametrize("greeting", [b"\x05\x01\x02", b"\x04\x01\x00\x50\x7f\x00\x00\x01\x00", b"\x05\x00"])
def test_socks_of_other_kinds_is_refused(town: Town, greeting: bytes) -> None:
    guard = town.guard(HostRule("allow", "*"))
    assert read_all(guard.connect(greeting)) == b"\x05\x01\x00\x01\0\0\0\0\0\0"
    assert guard.flow().verdict == "deny"


# --- the end ---


def test_half_closes_go_through(town: Town) -> None:
    def count(client: socket.socket) -> None:
        client.sendall(b"%d bytes" % len(read_all(client)))

    port = town.serve(count)
    town.names({"db.example": [["127.0.0.1"]]})
    guard = town.guard(allow("db.example", port))
    client = tunnel(guard, "db.example", port)
    client.sendall(b"?" * 100_000)
    client.shutdown(socket.SHUT_WR)
    assert read_all(client) == b"100000 bytes"
    assert guard.flow().sent == 100_000
