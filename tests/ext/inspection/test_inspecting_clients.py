"""Programs that others wrote, inspected: gRPC, WebSocket, Python's own client, Java."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from tiers import half
from town import OpenGuard, Town

pytest.importorskip("cryptography", reason="inspection needs the library cryptography")
from seal import Seal

from mudroom.core.network.host_rules import HostRule
from mudroom.core.network.inspection import Inspection
from mudroom.ext.inspection.authority import load_authority
from mudroom.ext.inspection.roots import prepare

HOST = "api.example"


class World:
    """A town with an authority, and programs that trust it."""

    def __init__(self, directory: Path, town: Town) -> None:
        self.town = town
        self.seal = Seal(directory)
        self.directory = directory
        self.authority = load_authority(os.fsencode(directory / "vault"), b"/home/ada/project")
        self.pem = self.seal.pem(HOST)
        town.names({HOST: [["127.0.0.1"]]})

    def guard(self, port: int) -> OpenGuard:
        rule = HostRule("allow", HOST, (port,), private=True, inspect=True, source="policy.yaml:1")
        return self.town.guard(rule, inspection=Inspection(self.authority, roots=self.seal.roots))

    def run(self, program: str, port: int, guard: OpenGuard) -> str:
        return self.command([sys.executable, "-c", program, f"{HOST}:{port}"], guard)

    def command(
        self, command: list[str], guard: OpenGuard, environment: Mapping[str, str] = MappingProxyType({})
    ) -> str:
        """As in a sandbox: with what ``roots.prepare`` gives, and the gate as its proxy."""
        trust = prepare(os.fsencode(self.directory / "vault"), self.authority, os.environb, mounts=False)
        where = f"http://{guard.where[0]}:{guard.where[1]}"
        given = {os.fsdecode(name): os.fsdecode(value) for name, value in trust.environment}
        given |= {"PATH": os.environ["PATH"], "HOME": str(self.directory), "PYTHONPATH": os.pathsep.join(sys.path)}
        given |= {"http_proxy": where, "https_proxy": where, **environment}
        done = subprocess.run(command, env=given, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def serve(self, program: str) -> Iterator[int]:
        """A server in a process of its own, which says its port."""
        command = [sys.executable, "-c", program, str(self.pem)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            try:
                yield int(server.stdout.readline())
            finally:
                server.kill()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with Town(tmp_path) as town:
        yield World(tmp_path, town)


def needs(library: str) -> pytest.MarkDecorator:
    missing = importlib.util.find_spec(library) is None
    return pytest.mark.skipif(missing, reason=f"the library {library} is not installed")


GRPC_SERVER = """
import grpc, sys, time
from concurrent import futures
def unary(request, context):
    if request == b"fail":
        context.set_trailing_metadata((("x-detail", "yes"),))
        context.abort(grpc.StatusCode.NOT_FOUND, "no such thing")
    return request[::-1]
def many(request, context):
    for i in range(int(request)): yield b"%d" % i
def collect(requests, context):
    return b"%d" % sum(map(len, requests))
def both(requests, context):
    for one in requests: yield one.upper()
def wait(request, context):
    time.sleep(int(request)); return b""
class Handlers(grpc.GenericRpcHandler):
    def service(self, details):
        return {"/t.T/Unary": grpc.unary_unary_rpc_method_handler(unary),
                "/t.T/Many": grpc.unary_stream_rpc_method_handler(many),
                "/t.T/Collect": grpc.stream_unary_rpc_method_handler(collect),
                "/t.T/Wait": grpc.unary_unary_rpc_method_handler(wait),
                "/t.T/Both": grpc.stream_stream_rpc_method_handler(both)}.get(details.method)
server = grpc.server(futures.ThreadPoolExecutor(8))
server.add_generic_rpc_handlers((Handlers(),))
pem = open(sys.argv[1], "rb").read()
port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials([(pem, pem)]))
server.start(); print(port, flush=True); server.wait_for_termination()
"""
GRPC_CLIENT = """
import grpc, sys, queue
with grpc.secure_channel(sys.argv[1], grpc.ssl_channel_credentials()) as channel:
    print(channel.unary_unary("/t.T/Unary")(b"hello", timeout=20))
    print(len(channel.unary_unary("/t.T/Unary")(b"x" * 3_000_000, timeout=20)))
    print(b",".join(channel.unary_stream("/t.T/Many")(b"500", timeout=20)).count(b","))
    print(channel.stream_unary("/t.T/Collect")((b"y" * 1000 for _ in range(2000)), timeout=20))
    asked = queue.Queue()
    answers = channel.stream_stream("/t.T/Both")(iter(asked.get, None), timeout=20)
    for word in (b"ping", b"pong", b"end"):  # each is answered before the next is said
        asked.put(word)
        print(next(answers))
    asked.put(None)
    print(list(answers))
    try:
        channel.unary_unary("/t.T/Unary")(b"fail", timeout=20)
    except grpc.RpcError as error:
        print(error.code().name, error.details(), dict(error.trailing_metadata())["x-detail"])
    try:
        channel.unary_unary("/t.T/Wait")(b"5", timeout=0.3)
    except grpc.RpcError as error:
        print(error.code().name)
"""


@pytest.mark.slow
@needs("grpc")
def test_grpc_works_streaming_both_ways_with_trailers_and_deadlines(world: World) -> None:
    for port in world.serve(GRPC_SERVER):
        guard = world.guard(port)
        said = world.run(GRPC_CLIENT, port, guard).splitlines()
        assert said == ["b'olleh'", "3000000", "499", "b'2000000'", "b'PING'", "b'PONG'", "b'END'", "[]",
                        "NOT_FOUND no such thing yes", "DEADLINE_EXCEEDED"]  # fmt: skip
        guard.wait(flows=7)
        paths = [flow.path for flow in guard.flows]
        assert paths == [f"/t.T/{name}" for name in ("Unary", "Unary", "Many", "Collect", "Both", "Unary", "Wait")]
        assert {(flow.way, flow.version, flow.method) for flow in guard.flows} == {("https", "HTTP/2", "POST")}
        assert not any(flow.error for flow in guard.flows[:6])  # who ends the last one, client or server, is a race


WEBSOCKET_SERVER = """
import asyncio, ssl, sys, websockets
async def echo(socket):
    async for message in socket: await socket.send(message)
async def main():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER); context.load_cert_chain(sys.argv[1])
    async with websockets.serve(echo, "127.0.0.1", 0, ssl=context) as server:
        print(server.sockets[0].getsockname()[1], flush=True)
        await asyncio.Future()
asyncio.run(main())
"""
WEBSOCKET_CLIENT = """
import sys, websockets.sync.client
with websockets.sync.client.connect(f"wss://{sys.argv[1]}/chat", open_timeout=20, compression=None) as socket:
    for word in ("one", "x" * 100_000):
        socket.send(word)
        print(len(socket.recv(timeout=20)))
"""


@needs("websockets")
def test_a_websocket_is_judged_as_its_get_and_then_relayed(world: World) -> None:
    for port in world.serve(WEBSOCKET_SERVER):
        guard = world.guard(port)
        assert world.run(WEBSOCKET_CLIENT, port, guard).split() == ["3", "100000"]
        flow = guard.flow()
        assert (flow.way, flow.method, flow.path, flow.status, flow.error) == ("https", "GET", "/chat", 101, "")
        assert flow.sent > 100_000 < flow.received


PAGES = """
import http.server, ssl, sys
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        body = f"{self.path} {self.headers['User-Agent']}\\n".encode()
        self.send_response(200); self.send_header("Content-Length", str(len(body))); self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_): pass
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER); context.load_cert_chain(sys.argv[1])
server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_port, flush=True)
server.serve_forever()
"""
NODE = """
const http = require("node:http"), tls = require("node:tls");
const proxy = new URL(process.env.https_proxy), where = process.argv[1];
const how = {host: proxy.hostname, port: proxy.port, method: "CONNECT", path: where, headers: {Host: where}};
http.request(how).on("connect", (_, socket) => {
  const inside = tls.connect({socket, servername: where.split(":")[0]}, () => inside.end(
    `GET /page HTTP/1.1\\r\\nHost: ${where}\\r\\nConnection: close\\r\\n\\r\\n`));
  inside.pipe(process.stdout);
}).end();
"""
JAVA = """
import java.net.*;
public class Page {
    public static void main(String[] arguments) throws Exception {
        URI proxy = new URI(System.getenv("https_proxy"));
        var through = new Proxy(Proxy.Type.HTTP, new InetSocketAddress(proxy.getHost(), proxy.getPort()));
        System.out.write(new URL(arguments[0]).openConnection(through).getInputStream().readAllBytes());
    }
}
"""
PYTHON = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=20).read().decode())"


@pytest.mark.slow
@pytest.mark.parametrize("client", half(["curl", "wget", "python", "node", "java", "git"]))
def test_programs_trust_the_authority_by_what_the_sandbox_is_given(world: World, client: str) -> None:
    if shutil.which(client) is None and client != "python":
        pytest.skip(f"{client} is not installed")
    for port in world.serve(PAGES):
        guard, url = world.guard(port), f"https://{HOST}:{port}/page"
        page = world.directory / "Page.java"
        page.write_text(JAVA)
        bundle = next(world.directory.glob("vault/trust-*/bundle.pem"), None)
        commands = {
            "curl": ["curl", "-sS", url],
            "wget": ["wget", "-qO-", url],
            "python": [sys.executable, "-c", PYTHON, url],
            "node": ["node", "-e", NODE, f"{HOST}:{port}"],
            "java": ["java", str(page), url],
            "git": ["git", "-c", "http.followRedirects=false", "ls-remote", url],
        }
        assert bundle is None, "the files are made at the first need"
        if client == "git":  # what it gets is no repository; that it gets it is what counts
            with pytest.raises(AssertionError, match=r"not valid|not found"):
                world.command(commands[client], guard)
        elif client == "wget":  # knows of no variable: it reads the system's file, which is shown to it inside
            prepare(os.fsencode(world.directory / "vault"), world.authority, os.environb, mounts=False)
            bundle = next(world.directory.glob("vault/trust-*/bundle.pem"))
            assert "/page" in world.command([*commands[client], "--ca-certificate", str(bundle)], guard)
        else:
            assert "/page" in world.command(commands[client], guard)
        flow = guard.flow()
        assert (flow.way, flow.method, flow.status, flow.error) == ("https", "GET", 200, "")
