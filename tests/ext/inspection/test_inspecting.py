"""TLS that is looked into, through a real gate process: who is trusted, what is judged, what is told."""

from __future__ import annotations

import base64
import hashlib
import os
import queue
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from town import OpenGuard, Town, read_all, read_until

pytest.importorskip("cryptography", reason="inspection needs the library cryptography")
from mirror import read_head
from seal import Seal, client

from mudroom.core.network.host_rules import HostRule, parse_rule
from mudroom.core.network.inspection import Credential, Inspection
from mudroom.ext.inspection.authority import certificate_of, load_authority
from mudroom.ext.inspection.placeholder import parse_credential, with_value
from mudroom.ext.inspection.rewrite import HIDDEN, keep_headers

HOST = "api.example"


class Place(NamedTuple):
    town: Town
    seal: Seal
    authority: str
    directory: Path

    def inspection(self, **changes: Any) -> Inspection:
        return Inspection(self.authority, roots=self.seal.roots)._replace(**changes)

    def serve(self, talk: Callable[[ssl.SSLSocket], object], context: ssl.SSLContext | None = None) -> int:
        """A server of HOST that talks like that inside of TLS."""
        context = context or self.seal.server(HOST)

        def begin(channel: socket.socket) -> None:
            with context.wrap_socket(channel, server_side=True) as inside:
                talk(inside)

        return self.town.serve(begin)

    def guard(self, port: int, inspection: Inspection | None = None, **rule: Any) -> OpenGuard:
        found = HostRule("allow", HOST, (port,), private=True, inspect=True, source="policy.yaml:1")._replace(**rule)
        return self.town.guard(found, inspection=inspection or self.inspection())

    def tunnel(self, guard: OpenGuard, port: int, context: ssl.SSLContext | None = None) -> ssl.SSLSocket:
        """What a program in the sandbox has: TLS to HOST through the guard."""
        where = b"%s:%d" % (HOST.encode(), port)
        raw = guard.connect(b"CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n" % (where, where))
        assert read_until(raw, b"\r\n\r\n").startswith(b"HTTP/1.1 200 ")
        inside = (context or client(self.authority)).wrap_socket(raw, server_hostname=HOST)
        self.town.closers.append(inside.close)
        return inside


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Seal, str]:
    directory = tmp_path_factory.mktemp("seal")
    return Seal(directory), load_authority(os.fsencode(directory / "vault"), b"/home/ada/project")


@pytest.fixture
def place(tmp_path: Path, shared: tuple[Seal, str]) -> Iterator[Place]:
    with Town(tmp_path) as town:
        town.names({HOST: [["127.0.0.1"]]})
        yield Place(town, *shared, tmp_path)


def hello(channel: ssl.SSLSocket) -> None:
    """Serve requests without bodies; each is told what it was."""
    while head := read_head(channel):
        channel.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nX-Kind: echo\r\n\r\n" % len(head) + head)


def test_curl_gets_a_page_through_the_gate_and_trusts_the_vault_only(place: Place) -> None:
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("curl is not installed")
    port = place.serve(hello)
    guard = place.guard(port)
    bundle = place.directory / "authority.pem"
    bundle.write_text(certificate_of(place.authority))
    where, url = f"http://{guard.where[0]}:{guard.where[1]}", f"https://{HOST}:{port}/some/path?query=1"
    command = [curl, "-sS", "--max-time", "20", "--proxy", where, url]
    done = subprocess.run([*command, "--cacert", str(bundle)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "GET /some/path?query=1 HTTP/1.1" in done.stdout
    flow = guard.flow()
    assert (flow.way, flow.method, flow.path, flow.status) == ("https", "GET", "/some/path", 200)
    assert (flow.rule, flow.address, flow.error) == ("policy.yaml:1", "127.0.0.1", "")
    assert ("x-kind", HIDDEN) in flow.response and ("user-agent", HIDDEN) not in flow.request
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 60, "the authority is not known outside"
    guard.wait(flows=2)
    assert "refuses mudroom's certificate (tlsv1 alert unknown ca)" in guard.flows[1].error
    assert "network.never_inspect" in guard.flows[1].error


def test_requests_are_judged_by_method_and_path_one_by_one(place: Place) -> None:
    port = place.serve(hello)
    guard = place.guard(port, methods=("GET",), paths=("/repos",))
    inside = place.tunnel(guard, port)
    inside.sendall(b"GET /repos/one HTTP/1.1\r\nHost: %s:%d\r\n\r\n" % (HOST.encode(), port))
    assert read_until(inside, b"GET /repos/one HTTP/1.1").startswith(b"HTTP/1.1 200 ")
    inside.sendall(b"DELETE /repos/one HTTP/1.1\r\nHost: %s:%d\r\n\r\n" % (HOST.encode(), port))
    assert b" 403 " in read_all(inside)
    guard.wait(flows=2)
    assert [(flow.method, flow.verdict) for flow in guard.flows] == [("GET", "allow"), ("DELETE", "deny")]


def test_of_secrets_only_the_name_is_kept() -> None:
    secret = (
        b"Authorization Proxy-Authorization Cookie Set-Cookie X-Api-Key PRIVATE-TOKEN X-Amz-Signature X-Any".split()
    )
    secret += b"X-Auth-User Etag If-None-Match Sec-WebSocket-Key Sec-WebSocket-Protocol Content-MD5 Signature".split()
    found = keep_headers([*((name, b"s3cret") for name in secret), (b"Accept", b"\xe4" + b"x" * 5000)])
    assert [value for _name, value in found[:-1]] == [HIDDEN] * len(secret)
    assert found[-1] == ("accept", ("\xe4" + "x" * 5000)[:1024])
    assert len(keep_headers([(b"a", b"b")] * 1000)) == 64


NODE = """
const http2 = require("node:http2"), fs = require("node:fs");
const pem = fs.readFileSync(process.argv[1]);
const server = http2.createSecureServer({key: pem, cert: pem});
server.on("stream", (stream, headers) => {
  if (headers[":path"] === "/away") { stream.session.goaway(0); }
  stream.respond({":status": 200, "x-kind": "echo"}, {waitForTrailers: true});
  stream.on("wantTrailers", () => stream.sendTrailers({"x-end": "yes"}));
  stream.write(headers[":method"] + " " + headers[":path"] + " " + headers["user-agent"] + "\\n");
  stream.pipe(stream);
});
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
"""


@pytest.fixture
def node(place: Place) -> Iterator[int]:
    """The port of a server of HTTP/2 that is not ours."""
    program = shutil.which("node")
    if program is None:
        pytest.skip("node is not installed")
    pem = place.seal.pem(HOST)
    with subprocess.Popen([program, "-e", NODE, str(pem)], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield int(server.stdout.readline())
        server.kill()


def curl_http2(place: Place, guard: OpenGuard, *arguments: str) -> subprocess.CompletedProcess[str]:
    curl = shutil.which("curl")
    if curl is None:
        pytest.skip("curl is not installed")
    bundle = place.directory / "authority.pem"
    bundle.write_text(certificate_of(place.authority))
    command = [curl, "-sS", "--http2", "--max-time", "20", "--proxy", f"http://{guard.where[0]}:{guard.where[1]}"]
    command += ["-w", "%{http_version} %{http_code}\n", "--cacert", str(bundle), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_http2_is_spoken_both_ways(place: Place, node: int) -> None:
    guard = place.guard(node, set_headers=(("User-Agent", "mudroom"),))
    done = curl_http2(place, guard, "-d", "body" * 10, f"https://{HOST}:{node}/one?two", f"https://{HOST}:{node}/three")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "".join(f"POST {path} mudroom\n{'body' * 10}2 200\n" for path in ("/one?two", "/three"))
    guard.wait(flows=2)
    first, second = guard.flows
    assert (first.way, first.version, first.method, first.path, first.status) == (
        "https",
        "HTTP/2",
        "POST",
        "/one",
        200,
    )
    assert (first.sent, first.received, first.error) == (40, 62, "")
    assert second.path == "/three"


# --- servers that are not who they should be ---


@pytest.mark.parametrize(
    ("context", "why"),
    [
        (lambda seal: seal.server(HOST, age=3), "certificate has expired"),
        (lambda seal: seal.server("other.example"), "Hostname mismatch"),
        (lambda seal: seal.server(HOST, self_signed=True), "self-signed certificate"),
    ],
    ids=["expired", "another name", "self-signed"],
)
def test_a_server_that_does_not_prove_who_it_is_is_refused_with_the_reason(
    place: Place, context: Callable[[Seal], ssl.SSLContext], why: str
) -> None:
    port = place.serve(hello, context(place.seal))
    guard = place.guard(port)
    inside = place.tunnel(guard, port)
    inside.sendall(b"GET / HTTP/1.1\r\nHost: %s:%d\r\n\r\n" % (HOST.encode(), port))
    said = read_all(inside)
    assert said.startswith(b"HTTP/1.1 502 ")
    assert why.encode() in said
    assert why in guard.flow().error


def test_a_server_that_speaks_no_tls_is_told_of_too(place: Place) -> None:
    def answer(channel: socket.socket) -> None:
        channel.recv(65536)
        channel.sendall(b"220 welcome\r\n")

    port = place.town.serve(answer)
    guard = place.guard(port)
    inside = place.tunnel(guard, port)
    inside.sendall(b"GET / HTTP/1.1\r\nHost: %s:%d\r\n\r\n" % (HOST.encode(), port))
    assert read_all(inside).startswith(b"HTTP/1.1 502 ")
    assert f"no TLS with {HOST}: " in guard.flow().error


def test_a_response_that_is_cut_off_does_not_look_whole(place: Place) -> None:
    def cut(channel: ssl.SSLSocket) -> None:
        channel.recv(65536)
        channel.sendall(b"HTTP/1.1 200 OK\r\n\r\nhalf of it")
        channel.shutdown(socket.SHUT_RDWR)  # of TCP: TLS was not closed

    port = place.serve(cut)
    guard = place.guard(port)
    inside = place.tunnel(guard, port)
    inside.sendall(b"GET / HTTP/1.1\r\nHost: %s:%d\r\n\r\n" % (HOST.encode(), port))
    said = read_all(inside)
    assert b"half of it" in said
    assert b"chunked" in said
    assert not said.endswith(b"0\r\n\r\n")
    assert "TLS was cut off" in guard.flow().error


def test_a_response_that_ends_with_its_connection_is_passed_on_whole(place: Place) -> None:
    def old(channel: ssl.SSLSocket) -> None:
        channel.recv(65536)
        channel.sendall(b"HTTP/1.0 200 OK\r\n\r\nall of it")
        channel.unwrap().close()

    port = place.serve(old)
    guard = place.guard(port)
    inside = place.tunnel(guard, port)
    inside.sendall(b"GET / HTTP/1.1\r\nHost: %s:%d\r\n\r\n" % (HOST.encode(), port))
    assert b"all of it" in read_until(inside, b"\r\n0\r\n\r\n")
    assert not guard.flow().error


# --- what is not inspected ---


def test_excluded_hosts_are_tunnels_and_keep_their_own_certificate(place: Place) -> None:
    port = place.serve(hello)
    guard = place.guard(port, place.inspection(never=(parse_rule("**.api.example", "deny"),)))
    inside = place.tunnel(guard, port, client(place.seal.roots))
    inside.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert read_until(inside, b"GET / HTTP/1.1").startswith(b"HTTP/1.1 200 ")
    inside.close()
    flow = guard.flow()
    assert (flow.way, flow.method, flow.verdict) == ("connect", "", "allow")


def test_an_excluded_host_whose_rule_is_for_some_requests_is_not_opened(place: Place) -> None:
    port = place.serve(hello)
    guard = place.guard(port, place.inspection(never=(parse_rule(HOST, "deny"),)), methods=("GET",))
    raw = guard.connect(b"CONNECT %s:%d HTTP/1.1\r\nHost: %s:%d\r\n\r\n" % ((HOST.encode(), port) * 2))
    assert b" 403 " in read_all(raw)
    assert guard.flow().verdict == "deny"


def test_a_client_that_pins_is_told_of_with_what_to_do(place: Place) -> None:
    port = place.serve(hello)
    guard = place.guard(port)
    place.tunnel(guard, port).close()  # it looks at the certificate, and goes
    flow = guard.flow()
    assert "sent no request" in flow.error
    assert "network.never_inspect" in flow.error


def test_without_an_authority_what_should_be_inspected_is_refused(place: Place) -> None:
    port = place.serve(hello)
    guard = place.town.guard(HostRule("allow", HOST, (port,), private=True, inspect=True))
    raw = guard.connect(b"CONNECT %s:%d HTTP/1.1\r\nHost: %s:%d\r\n\r\n" % ((HOST.encode(), port) * 2))
    read_until(raw, b"\r\n\r\n")
    with pytest.raises(OSError, match=r"(?i)denied|eof|reset"):
        client(place.authority).wrap_socket(raw, server_hostname=HOST)
    flow = guard.flow()
    assert (flow.verdict, flow.reason) == (
        "deny",
        "its rule requires inspection, but this gate has no certificate authority",
    )


@pytest.mark.parametrize("words", [b"SSH-2.0-client\r\n", b"\0\0\0\x08\x04\xd2\x16\x2f"], ids=["ssh", "postgresql"])
def test_what_is_neither_tls_nor_http_is_refused_where_it_should_be_inspected(place: Place, words: bytes) -> None:
    reached: list[bytes] = []
    port = place.town.serve(lambda channel: reached.append(channel.recv(100)))
    guard = place.guard(port)
    raw = guard.connect(b"CONNECT %s:%d HTTP/1.1\r\nHost: %s:%d\r\n\r\n" % ((HOST.encode(), port) * 2) + words)
    read_all(raw)
    assert guard.flow().reason == "its rule requires inspection, but it is neither TLS nor HTTP"
    assert b"".join(reached) == b""


def test_a_refused_client_that_trusts_the_authority_reads_the_reason(place: Place) -> None:
    guard = place.town.guard(kind="transparent", inspection=place.inspection())
    name = f"127.0.0.1:{guard.where[1]}"
    for protocols in ((), ("h2", "http/1.1")):
        context = client(place.authority)
        context.set_alpn_protocols(list(protocols))
        with context.wrap_socket(guard.connect(), server_hostname="127.0.0.1") as inside:
            inside.sendall(f"POST / HTTP/1.1\r\nHost: {name}\r\nContent-Length: 6\r\n\r\nsecret".encode())
            answer = read_all(inside).decode()
        assert answer.startswith("HTTP/1.1 403 Forbidden (mudroom: "), answer
        assert f"mudroom: {name} is not allowed: " in answer
    guard.wait(flows=2)
    assert {(flow.host, flow.verdict) for flow in guard.flows} == {("127.0.0.1", "deny")}


def test_a_refused_client_without_http_in_its_tls_gets_an_alert(place: Place) -> None:
    context = client(place.authority)
    context.set_alpn_protocols(["h2"])
    for inspection in (place.inspection(), None):
        guard = place.town.guard(kind="transparent", inspection=inspection)
        with pytest.raises(ssl.SSLError, match="ACCESS_DENIED"):
            context.wrap_socket(guard.connect(), server_hostname="127.0.0.1")


def test_another_protocol_in_tls_is_refused(place: Place) -> None:
    port = place.serve(hello)
    guard = place.guard(port)
    with pytest.raises(OSError, match=r"(?i)denied|eof|reset"):
        place.tunnel(guard, port, client(place.authority, ("imap",)))
    assert "speaks imap, which is not HTTP" in guard.flow().reason


# --- requests ---


def test_headers_are_set_and_removed_and_hop_headers_are_left_out(place: Place) -> None:
    port = place.serve(hello)
    guard = place.guard(port, set_headers=(("X-Team", "blue"),), remove_headers=("X-Trace",))
    inside = place.tunnel(guard, port)
    head = f"GET / HTTP/1.1\r\nHost: {HOST}:{port}\r\n"
    inside.sendall(head.encode() + b"x-team: red\r\nX-TRACE: 1\r\nConnection: X-Hop\r\nX-Hop: 1\r\nX-Own: 1\r\n\r\n")
    inside.settimeout(60)
    said = b""
    while said.count(b"\r\n\r\n") < 2:
        said += inside.recv(65536).lower()
    assert b"x-team: blue" in said
    assert b"x-own: 1" in said
    assert b"red" not in said
    assert b"x-trace" not in said
    assert b"x-hop" not in said


@pytest.mark.parametrize(
    ("head", "why"),
    [
        ("GET / HTTP/1.1\r\nHost: other.example\r\n\r\n", "for other.example"),
        ("GET https://{0}:{1}/ HTTP/1.1\r\nHost: {0}:{1}\r\n\r\n", "no path"),
        ("CONNECT other.example:443 HTTP/1.1\r\nHost: other.example:443\r\n\r\n", "no path"),
        ("POST / HTTP/1.1\r\nHost: {0}:{1}\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", "not alone"),
        ("POST / HTTP/1.1\r\nHost: {0}:{1}\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", "more than one"),
        ("GET / HTTP/1.1\r\nHost: {0}:{1}\r\nX-A: 1\r\n Folded: 2\r\n\r\n", "not what headers are"),
        ("GET / HTTP/1.1\r\nHost: {0}:{1}\r\nX-Long: " + "x" * 20_000 + "\r\n\r\n", "longer than"),
        ("GET /\0 HTTP/1.1\r\nHost: {0}:{1}\r\n\r\n", "no request"),
    ],
)
def test_what_can_be_read_in_two_ways_is_refused_inside_of_tls(place: Place, head: str, why: str) -> None:
    port = place.serve(hello)
    guard = place.guard(port)
    inside = place.tunnel(guard, port)
    inside.sendall(head.format(HOST, port).encode())
    assert read_all(inside).startswith(b"HTTP/1.1 4")
    flow = guard.flow()
    assert (flow.way, flow.verdict) == ("https", "deny")
    assert why in flow.reason


def test_a_path_is_judged_to_its_end_however_long_it_is(place: Place) -> None:
    port = place.serve(hello)
    guard = place.guard(port, paths=("/open",))
    inside = place.tunnel(guard, port)
    inside.sendall(f"GET /open/{'x' * 2000}/../../closed HTTP/1.1\r\nHost: {HOST}:{port}\r\n\r\n".encode())
    assert b" 403 " in read_all(inside)
    assert guard.flow().verdict == "deny"


# --- credentials ---

REAL = "ghp_" + "R" * 36


@pytest.fixture
def credential(place: Place) -> Credential:
    return with_value(parse_credential("GITHUB_TOKEN", f"{HOST}:1"), REAL, bytes(range(32)))


def with_credential(place: Place, credential: Credential, port: int) -> tuple[OpenGuard, Credential]:
    credential = credential._replace(port=port)
    guard = place.guard(port, place.inspection(credentials=(credential,)), inspect=False)
    return guard, credential


def request(place: Place, guard: OpenGuard, port: int, head: str, body: str = "") -> bytes:
    inside = place.tunnel(guard, port)
    lines = f"{head}\r\nHost: {HOST}:{port}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}"
    inside.sendall(lines.encode())
    return read_all(inside)


def listening(heard: list[bytes]) -> Callable[[ssl.SSLSocket], object]:
    """A server that keeps what it is asked, and says nothing of it."""

    def talk(channel: ssl.SSLSocket) -> None:
        heard.append(channel.recv(65536))
        channel.sendall(b"HTTP/1.1 204 Fine\r\n\r\n")

    return talk


@pytest.mark.parametrize("form", ["Bearer {}", "token {}", "{}"])
def test_a_credential_is_put_in_for_its_own_host_and_header(place: Place, credential: Credential, form: str) -> None:
    heard: list[bytes] = []
    port = place.serve(listening(heard))
    guard, credential = with_credential(place, credential, port)
    request(place, guard, port, f"GET / HTTP/1.1\r\nAuthorization: {form.format(credential.placeholder)}")
    assert f"Authorization: {form.format(REAL)}\r\n".encode() in heard[0]
    assert REAL not in repr(guard.flow())
    assert credential.placeholder not in repr(guard.flow()), "what is secret by its kind is not kept at all"


def test_a_credential_is_put_into_a_password(place: Place, credential: Credential) -> None:
    heard: list[bytes] = []
    credential = credential._replace(user="ada")
    port = place.serve(listening(heard))
    guard, credential = with_credential(place, credential, port)
    for user in ("ada", "git"):
        sent = base64.b64encode(f"{user}:{credential.placeholder}".encode()).decode()
        request(place, guard, port, f"GET / HTTP/1.1\r\nAuthorization: Basic {sent}")
        assert base64.b64encode(f"{user}:{REAL}".encode()) in heard[-1]
    sent = base64.b64encode(f"stranger:{credential.placeholder}".encode()).decode()
    answer = request(place, guard, port, f"GET / HTTP/1.1\r\nAuthorization: Basic {sent}")
    assert b" 403 " in answer and sent.encode() not in b"".join(heard) and len(list(filter(None, heard))) == 2


@pytest.mark.parametrize(
    ("head", "body", "why"),
    [
        ("GET / HTTP/1.1\r\nX-Other: {}", "", "is for the header authorization, not x-other"),
        ("GET /{} HTTP/1.1", "", "is in the path"),
        ("GET /?token={} HTTP/1.1", "", "is in the path"),
        ("POST / HTTP/1.1", "token={}", "is in the body"),
    ],
)
def test_a_placeholder_anywhere_else_is_refused(
    place: Place, credential: Credential, head: str, body: str, why: str
) -> None:
    heard: list[bytes] = []
    port = place.serve(lambda channel: heard.append(channel.recv(65536)))
    guard, credential = with_credential(place, credential, port)
    said = request(place, guard, port, head.format(credential.placeholder), body.format(credential.placeholder))
    assert said.startswith(b"HTTP/1.1 403 ")
    flow = guard.flow()
    assert (flow.verdict, why in flow.reason) == ("deny", True), flow.reason
    assert not any(one.encode() in b"".join(heard) for one in (credential.placeholder, REAL))


def test_a_placeholder_for_another_host_is_refused_over_tls_and_plainly(place: Place, credential: Credential) -> None:
    port = place.serve(hello)
    credential = credential._replace(host="elsewhere.example", port=443)
    guard = place.guard(port, place.inspection(credentials=(credential,)))
    said = request(place, guard, port, f"GET / HTTP/1.1\r\nAuthorization: Bearer {credential.placeholder}")
    assert said.startswith(b"HTTP/1.1 403 ")
    assert b"is for elsewhere.example only" in said
    raw = guard.connect(
        f"GET http://{HOST}:{port}/ HTTP/1.1\r\nHost: {HOST}:{port}\r\n"
        f"Authorization: {credential.placeholder}\r\n\r\n".encode()
    )
    assert read_all(raw).startswith(b"HTTP/1.1 403 ")
    guard.wait(flows=2)
    assert [flow.verdict for flow in guard.flows] == ["deny", "deny"]


def test_a_credential_that_a_server_sends_back_in_a_header_is_a_placeholder_again(
    place: Place, credential: Credential
) -> None:
    def mirror(channel: ssl.SSLSocket) -> None:
        channel.recv(65536)
        channel.sendall(f"HTTP/1.1 200 OK\r\nX-You-Are: {REAL}\r\nContent-Length: 0\r\n\r\n".encode())

    port = place.serve(mirror)
    guard, credential = with_credential(place, credential, port)
    said = request(place, guard, port, f"GET / HTTP/1.1\r\nAuthorization: {credential.placeholder}")
    assert credential.placeholder.encode() in said
    assert REAL.encode() not in said
    assert REAL not in repr(guard.flow())


# --- bounds ---

PATIENCE = 2.0
"""Seconds without progress, after which a sender is held to be held up."""


def pour(channel: ssl.SSLSocket, head: bytes, most: int) -> int:
    """Send for as long as it is taken; returns how much was."""
    channel.settimeout(PATIENCE)
    part, sent = b"x" * 65536, 0
    try:
        channel.sendall(head)
        while sent < most:
            channel.sendall(part)
            sent += len(part)
    except OSError:
        pass  # nobody takes it any more
    return sent


def resident(town: Town) -> int:
    with open(f"/proc/{town.gate.pid}/statm") as stream:
        return int(stream.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def test_a_client_that_does_not_read_holds_up_its_server_and_fills_nothing(place: Place) -> None:
    found: queue.Queue[int] = queue.Queue()

    def send(channel: ssl.SSLSocket) -> None:
        channel.recv(65536)
        found.put(pour(channel, b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % (1 << 40), 1 << 28))

    port = place.serve(send)
    guard = place.guard(port)
    inside = place.tunnel(guard, port)
    inside.sendall(b"GET / HTTP/1.1\r\nHost: %s:%d\r\n\r\n" % (HOST.encode(), port))
    assert found.get(timeout=30) < 64 << 20
    assert resident(place.town) < 128 << 20


def test_a_server_that_does_not_read_holds_up_its_client_and_fills_nothing(place: Place) -> None:
    over = threading.Event()
    port = place.serve(lambda _channel: over.wait(30))
    guard = place.guard(port)
    inside = place.tunnel(guard, port)
    head = b"POST / HTTP/1.1\r\nHost: %s:%d\r\nContent-Length: %d\r\n\r\n" % (HOST.encode(), port, 1 << 40)
    assert pour(inside, head, 1 << 28) < 64 << 20
    assert resident(place.town) < 128 << 20
    over.set()


@pytest.mark.slow
def test_what_is_long_comes_through_whole_both_ways(place: Place) -> None:
    size = 128 << 20

    def mirror(channel: ssl.SSLSocket) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            head += channel.recv(65536)
        digest, left = hashlib.sha256(rest := head.partition(b"\r\n\r\n")[2]), size - len(rest)
        while left:
            digest.update(part := channel.recv(min(left, 65536)))
            left -= len(part)
        said = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (size + 64, digest.hexdigest().encode())
        channel.sendall(said)
        for number in range(size >> 16):
            channel.sendall(number.to_bytes(4, "big") * (1 << 14))

    port = place.serve(mirror)
    guard = place.guard(port)
    inside = place.tunnel(guard, port)
    inside.sendall(b"PUT / HTTP/1.1\r\nHost: %s:%d\r\nContent-Length: %d\r\n\r\n" % (HOST.encode(), port, size))
    digest = hashlib.sha256()
    for number in range(size >> 16):
        part = number.to_bytes(4, "big") * (1 << 14)
        digest.update(part)
        inside.sendall(part)
    said = read_until(inside, b"\r\n\r\n")
    body = said.partition(b"\r\n\r\n")[2]
    while len(body) < 64:
        body += inside.recv(65536)
    back, got = hashlib.sha256(body[64:]), len(body)
    first = body[:64]
    while got < size + 64:
        part = inside.recv(65536)
        back.update(part)
        got += len(part)
    assert first == digest.hexdigest().encode()
    assert back.hexdigest() == digest.hexdigest()
    assert guard.flow().sent > size < guard.flow().received
    assert resident(place.town) < 100 << 20


# --- other ways in ---


def test_what_comes_by_socks_is_inspected_as_well(place: Place) -> None:
    port = place.serve(hello)
    guard = place.guard(port)
    raw = guard.connect(b"\5\1\0" + b"\5\1\0\3" + bytes((len(HOST),)) + HOST.encode() + port.to_bytes(2, "big"))
    said = b""
    while len(said) < 12:
        said += raw.recv(12 - len(said))
    inside = client(place.authority).wrap_socket(raw, server_hostname=HOST)
    place.town.closers.append(inside.close)
    inside.sendall(b"GET /socks HTTP/1.1\r\nHost: %s:%d\r\n\r\n" % (HOST.encode(), port))
    assert read_until(inside, b"GET /socks HTTP/1.1").startswith(b"HTTP/1.1 200 ")
    assert (guard.flow().way, guard.flow().path) == ("https", "/socks")


def test_who_is_asked_is_asked_for_the_connection_and_then_its_requests_go(place: Place) -> None:
    port = place.serve(hello)
    rule = HostRule("ask", HOST, (port,), private=True, inspect=True)
    guard = place.town.guard(rule, ask=True, inspection=place.inspection())
    raw = guard.connect(b"CONNECT %s:%d HTTP/1.1\r\nHost: %s:%d\r\n\r\n" % ((HOST.encode(), port) * 2))
    guard.wait(questions=1)
    guard.guard.answer(guard.questions[0].identity, True, None)
    assert read_until(raw, b"\r\n\r\n").startswith(b"HTTP/1.1 200 ")
    inside = client(place.authority).wrap_socket(raw, server_hostname=HOST)
    place.town.closers.append(inside.close)
    for path in ("one", "two"):
        inside.sendall(f"GET /{path} HTTP/1.1\r\nHost: {HOST}:{port}\r\n\r\n".encode())
        read_until(inside, f"GET /{path} HTTP/1.1".encode())
    guard.wait(flows=2)
    assert [flow.path for flow in guard.flows] == ["/one", "/two"]
    assert len(guard.questions) == 1


def test_rules_that_change_hold_for_the_next_request_of_an_open_connection(place: Place) -> None:
    port = place.serve(hello)
    guard = place.guard(port)
    inside = place.tunnel(guard, port)
    inside.sendall(b"GET /one HTTP/1.1\r\nHost: %s:%d\r\n\r\n" % (HOST.encode(), port))
    read_until(inside, b"GET /one HTTP/1.1")
    guard.wait(flows=1)
    guard.guard.update([HostRule("deny", HOST)])
    while not (said := again(inside, port)).startswith(b"HTTP/1.1 403 "):
        assert said.startswith(b"HTTP/1.1 200 ")  # it had not heard of it yet
    guard.wait(flows=2)
    assert guard.flows[-1].verdict == "deny"


def again(inside: ssl.SSLSocket, port: int) -> bytes:
    inside.sendall(b"GET /two HTTP/1.1\r\nHost: %s:%d\r\n\r\n" % (HOST.encode(), port))
    said = b""
    while said.count(b"\r\n\r\n") < 2 and b" 403 " not in said:
        said += inside.recv(65536)
    return said
