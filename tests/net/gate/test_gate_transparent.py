"""Programs that know of no proxy, in a network namespace of their own: captured by address, judged by name."""

from __future__ import annotations

import shutil
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from island import Island
from mudroom.core.network.host_rules import HostRule
from mudroom.net.protocol import dns
from origin import Web, client_context, tls
from settlement import Site, answers, question
from town import Town, echo, read_all, read_exactly, read_until

pytestmark = pytest.mark.both_users


@pytest.fixture
def town(tmp_path: Path) -> Iterator[Town]:
    with Town(tmp_path) as town:
        yield town


@pytest.fixture
def island() -> Iterator[Island]:
    with Island() as island:
        if not island.is_there:
            pytest.skip("this machine gives no user and network namespaces")
        yield island


def allow(name: str, *ports: int) -> HostRule:
    return HostRule("allow", name, ports, private=True)


def test_a_name_stands_for_an_address_and_the_address_for_the_name(town: Town, island: Island) -> None:
    port = town.serve(echo)
    town.names({"db.example": [["127.0.0.1"]]})
    site = Site(town, island, (port,), allow("db.example", port))
    for kind, prefix in ((dns.A, "198.18."), (dns.AAAA, "fd6d:7564:726f:6f6d:")):
        address = site.look_up("DB.example", kind)
        assert address.startswith(prefix)
        client = island.connect(address, port)
        client.sendall(b"?hello")
        assert read_until(client, b"?hello") == b"?hello"
        client.close()
    site.guard.wait(flows=2)
    assert {(flow.way, flow.host, flow.verdict) for flow in site.guard.flows} == {("raw", "db.example", "allow")}
    assert town.lookups() == ["db.example"] * 2


@pytest.mark.parametrize("server", ["192.0.2.53", "2001:db8::53", "127.0.0.53"])
def test_lookups_are_answered_whatever_server_is_asked(town: Town, island: Island, server: str) -> None:
    site = Site(town, island, (), allow("good.example"))
    assert answers(site.ask(question("good.example"), server))[0] == dns.NO_ERROR


def test_one_socket_for_both_families_answers_from_the_address_that_was_asked(town: Town, island: Island) -> None:
    both = island.made(socket.AF_INET6, socket.SOCK_DGRAM)
    both.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO, 1)
    both.bind(("::", 53))
    town.guard_at([("dns-udp", both)], allow("good.example"))
    for server in ("192.0.2.53", "127.0.0.1", "2001:db8::53", "::1"):
        client = island.made(socket.AF_INET6 if ":" in server else socket.AF_INET, socket.SOCK_DGRAM)
        client.connect((server, 53))
        client.send(question("good.example"))
        assert answers(client.recv(4096))[0] == dns.NO_ERROR, server


def test_names_that_are_denied_are_unknown_and_nothing_is_looked_up_in_earnest(town: Town, island: Island) -> None:
    site = Site(town, island, (), HostRule("allow", "*.good.example"), HostRule("deny", "bad.good.example"))
    for name in ("evil.example", "bad.good.example", "good.example", "c2VjcmV0.tunnel.example", "0x7f.1"):
        for kind in (dns.A, dns.AAAA, 16, 65, 255):
            assert answers(site.ask(question(name, kind))) == (dns.NO_NAME, []), name
    site.guard.wait(flows=5)
    assert [flow.way for flow in site.guard.flows] == ["dns"] * 5
    assert [flow.host for flow in site.guard.flows][:2] == ["evil.example", "bad.good.example"]
    for kind in (16, 65, 255, 12):
        assert answers(site.ask(question("a.good.example", kind))) == (dns.NO_ERROR, [])
    assert town.lookups() == []


def redirecting(town: Town, island: Island, *ports_and_rules: int | HostRule) -> Site:
    """A guard of a sandbox that redirects; these ports are reached without nftables."""
    ports = tuple(item for item in ports_and_rules if isinstance(item, int))
    rules = [item for item in ports_and_rules if isinstance(item, HostRule)]
    return Site(town, island, ports, *rules, redirected=7777)


def test_refused_names_have_addresses_where_every_connection_is_redirected(town: Town, island: Island) -> None:
    site = redirecting(town, island, HostRule("deny", "bad.example"))
    for name in ("evil.example", "bad.example", "nobody.mudroom.internal"):
        assert site.look_up(name).startswith("198.18."), name
    for name in ("evil.invalid", "app.localhost", "0x7f.1"):
        assert answers(site.ask(question(name))) == (dns.NO_NAME, []), name
    site.guard.wait(flows=3)
    assert [flow.host for flow in site.guard.flows] == ["evil.invalid", "app.localhost", "0x7f.1"]
    assert town.lookups() == []


@pytest.mark.parametrize("port", [80, 8080])
def test_a_refused_http_client_gets_the_reason(town: Town, island: Island, port: int) -> None:
    name, site = "evil.example", redirecting(town, island, port)
    client = island.connect(site.look_up(name), port)
    client.sendall(f"GET /p HTTP/1.1\r\nHost: {name}:{port}\r\n\r\n".encode())
    head, _, body = read_all(client).decode().partition("\r\n\r\n")
    assert head.startswith("HTTP/1.1 403 Forbidden (mudroom: ")
    assert body.startswith(f"mudroom: {name}:{port} is not allowed: ")
    assert (site.guard.flow().host, site.guard.flow().verdict) == (name, "deny")


@pytest.mark.parametrize("port", [443, 8443])
def test_a_refused_tls_client_gets_an_alert(town: Town, island: Island, port: int) -> None:
    site = redirecting(town, island, port)
    with pytest.raises(ssl.SSLError, match="ACCESS_DENIED"):
        client_context("evil.example").wrap_socket(
            island.connect(site.look_up("evil.example"), port), server_hostname="evil.example"
        )
    assert (site.guard.flow().way, site.guard.flow().port) == ("tls" if port == 443 else "raw", port)


@pytest.mark.parametrize("words", [b"SSH-2.0-x\r\n", b""], ids=["the client begins", "the server would begin"])
def test_any_other_refused_client_is_reset(town: Town, island: Island, words: bytes) -> None:
    site = redirecting(town, island, 2222)
    client = island.connect(site.look_up("evil.example"), 2222)
    client.sendall(words)
    with pytest.raises(ConnectionResetError):
        client.recv(1)
    assert site.guard.flow().reason.startswith("no rule names it")


@pytest.mark.parametrize(
    "rules",
    [[{"methods": ("GET",)}], [{}, {"action": "deny", "methods": ("DELETE",)}]],
    ids=["allowed by its method", "denied by its method"],
)
def test_requests_to_any_port_are_judged_one_by_one(town: Town, island: Island, rules: list[dict[str, Any]]) -> None:
    web = Web()
    port = town.serve(web)
    town.names({"web.example": [["127.0.0.1"]]})
    site = redirecting(town, island, port, *(allow("web.example", port)._replace(**fields) for fields in rules))
    for method, status in (("GET", b"200"), ("DELETE", b"403")):
        client = island.connect(site.look_up("web.example"), port)
        client.sendall(f"{method} /p HTTP/1.1\r\nHost: web.example:{port}\r\nConnection: close\r\n\r\n".encode())
        assert read_all(client).split(b" ", 2)[1] == status, method
    client = island.connect(site.look_up("web.example"), port)
    client.sendall(b"SSH-2.0-x\r\n")
    with pytest.raises(ConnectionResetError):
        client.recv(1)
    assert len(web.requests) == 1


def test_lookups_by_tcp(town: Town, island: Island) -> None:
    Site(town, island, (), allow("good.example"))
    client = island.connect("192.0.2.53", 53)
    for identity in (1, 2):
        data = question("good.example", dns.AAAA, identity)
        client.sendall(len(data).to_bytes(2, "big") + data)
        length = int.from_bytes(read_exactly(client, 2), "big")
        assert answers(read_exactly(client, length))[0] == dns.NO_ERROR


def test_plain_http_is_judged_by_name_and_request(town: Town, island: Island) -> None:
    """To port 80 of a server on loopback that is somewhere else: the one place where root is needed is left out."""
    web = Web()
    port = town.serve(web)
    town.names({"web.example": [["127.0.0.1"]]})
    site = Site(town, island, (port,), allow("web.example", port))
    address = site.look_up("web.example")
    for host, ok in (("web.example", True), ("evil.example", False), (address, False), ("127.0.0.1", False)):
        client = island.connect(address, port)
        client.sendall(f"GET /p HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n".encode())
        assert read_all(client).startswith(b"HTTP/1.1 200 " if ok else b"HTTP/1.1 403 "), host
    site.guard.wait(flows=4)
    assert [(flow.way, flow.host, flow.verdict) for flow in site.guard.flows] == [
        ("http", "web.example", "allow"),
        *[("http", "web.example", "deny")] * 3,
    ]
    assert len(web.requests) == 1


def test_port_80_is_http_that_is_denied_with_a_reason(town: Town, island: Island) -> None:
    site = Site(town, island, (80,), allow("web.example"), ask=True)
    client = island.connect(site.look_up("other.example"), 80)
    client.sendall(b"GET / HTTP/1.1\r\nHost: other.example\r\n\r\n")
    site.guard.wait(questions=1)
    assert (site.guard.questions[0].host, site.guard.questions[0].port) == ("other.example", 80)
    site.guard.guard.answer(site.guard.questions[0].identity, False, None)
    assert b"mudroom net allow other.example" in read_all(client)


def test_tls_names_the_host_or_is_refused_with_an_alert(town: Town, island: Island) -> None:
    port = town.serve(tls("good.example", echo))
    town.names({"good.example": [["127.0.0.1"]]})
    site = Site(town, island, (port,), allow("good.example", port))
    address = site.look_up("good.example")
    secure = client_context("good.example").wrap_socket(island.connect(address, port), server_hostname="good.example")
    secure.sendall(b"hello")
    assert secure.recv(100) == b"hello"
    secure.close()
    context = client_context("good.example")
    context.check_hostname = False
    for name in ("evil.example", "sub.good.example", "good.example.evil.example", None):
        with pytest.raises(ssl.SSLError, match="ACCESS_DENIED"):
            context.wrap_socket(island.connect(address, port), server_hostname=name)
    site.guard.wait(flows=5)
    flows = site.guard.flows  # in the order in which they ended
    assert sorted((flow.way, flow.verdict) for flow in flows) == [("tls", "allow")] + [("tls", "deny")] * 4
    assert sum("no SNI" in flow.reason for flow in flows) == 1


def test_the_usual_ports_carry_nothing_else(town: Town, island: Island) -> None:
    site = Site(town, island, (80, 443), allow("good.example"))
    address = site.look_up("good.example")
    page = b"mudroom: good.example:443 is not allowed: traffic to port 443 must be TLS\n"
    for port, words, told in (
        (443, b"SSH-2.0-x\r\n", b""),
        (443, b"GET / HTTP/1.1\r\nHost: good.example\r\n\r\n", page),
        (443, b"\x80\x2e\x01\x03\x01", b""),
        (80, b"SSH-2.0-x\r\n", b""),
        (80, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b""),
    ):
        client = island.connect(address, port)
        client.sendall(words)
        assert read_all(client).endswith(told) if told else not read_all(client), words
    site.guard.wait(flows=5)
    assert {flow.verdict for flow in site.guard.flows} == {"deny"}
    assert town.lookups() == []


@pytest.mark.parametrize("address", ["93.184.216.34", "127.0.0.1", "169.254.169.254", "2606:2800:220:1::1", "::1"])
def test_addresses_that_stand_for_no_name_are_judged_as_addresses(town: Town, island: Island, address: str) -> None:
    site = Site(town, island, (443, 8443), HostRule("allow", "*"), HostRule("allow", "*", (8443,)))
    for port in (443, 8443):
        with pytest.raises((ssl.SSLError, ConnectionError)):
            ssl._create_unverified_context().wrap_socket(island.connect(address, port), server_hostname="good.example")
    site.guard.wait(flows=2)
    assert {(flow.host, flow.verdict) for flow in site.guard.flows} == {(address, "deny")}


def test_a_synthetic_address_that_was_never_given_is_refused(town: Town, island: Island) -> None:
    site = Site(town, island, (9000,), HostRule("allow", "198.18.77.77", (9000,)), HostRule("allow", "*", (9000,)))
    assert read_all(island.connect("198.18.77.77", 9000)) == b""
    assert "no longer stands for a name" in site.guard.flow().reason


def test_an_address_that_is_listed_needs_no_name(town: Town, island: Island) -> None:
    port = town.serve(tls("good.example", echo))
    site = Site(town, island, (port,), allow("127.0.0.1", port))
    secure = ssl._create_unverified_context().wrap_socket(island.connect("127.0.0.1", port))
    secure.sendall(b"hello")
    assert secure.recv(100) == b"hello"
    secure.close()
    assert site.guard.flow().verdict == "allow"


def test_a_server_that_speaks_first_is_heard(town: Town, island: Island) -> None:
    def ssh(client: socket.socket) -> None:
        client.sendall(b"SSH-2.0-server\r\n")
        echo(client)

    port = town.serve(ssh)
    town.names({"git.example": [["127.0.0.1"]]})
    site = Site(town, island, (port,), allow("git.example", port))
    client = island.connect(site.look_up("git.example"), port)
    assert read_until(client, b"\n") == b"SSH-2.0-server\r\n"
    client.sendall(b"SSH-2.0-client\r\n")
    assert read_until(client, b"client\r\n") == b"SSH-2.0-client\r\n"


REDIRECT = "table inet t { chain out { type nat hook output priority -100; meta l4proto tcp redirect to :7777; }; }"


@pytest.mark.skipif(shutil.which("nft") is None, reason="nft(8) is not installed")
@pytest.mark.parametrize("kind", [dns.A, dns.AAAA])
def test_ports_that_are_redirected_are_known_by_their_original_destination(
    town: Town, island: Island, kind: int
) -> None:
    code, _, why = island.run("nft", REDIRECT)
    if code:
        pytest.skip(f"nftables cannot redirect here: {why}")
    port = town.serve(echo)
    town.names({"db.example": [["127.0.0.1"]]})
    site = Site(town, island, (), allow("db.example", port), redirected=7777)
    client = island.connect(site.look_up("db.example", kind), port)
    client.sendall(b"?hello")
    assert read_until(client, b"?hello") == b"?hello"
    client.close()
    assert (site.guard.flow().host, site.guard.flow().port) == ("db.example", port)


def test_a_connection_that_nothing_redirected_is_refused(town: Town, island: Island) -> None:
    """Its destination is the listener itself, or cannot be told."""
    guard = town.guard_at([("redirected", island.listener("::", 7777))], HostRule("allow", "*", (7777,)))
    assert read_all(island.connect("127.0.0.1", 7777)) == b""
    assert guard.flow().verdict == "deny"


def test_a_connection_that_is_reset_at_once_has_its_destination_in_the_flow(town: Town) -> None:
    guard = town.guard(kind="transparent")
    for _ in range(20):
        client = guard.connect()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        client.close()
    guard.wait(flows=20)
    assert {(flow.host, flow.port, flow.verdict) for flow in guard.flows} == {("127.0.0.1", guard.where[1], "deny")}
