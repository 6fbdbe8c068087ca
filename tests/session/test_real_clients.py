"""Real clients through the gate, with proxies and without: what they do on a host's loopback they do from inside."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import socket
import struct
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from clients import BARE, HELLO, PROXIED, Gated, Site, answering, free_port, gated, running, sshd
from tiers import pairs

pytestmark = pytest.mark.both_users

PYTHON = "/usr/bin/python3"
PATH = os.environ["PATH"] + ":/usr/sbin"
WAYS = ("by the proxy", "captured")


def can_redirect() -> bool:
    """Without it only the usual ports are captured, and these servers are on others."""
    user = "" if os.geteuid() == 0 else "-Ur"
    script = "nft add table inet x && nft 'add chain inet x c { type nat hook output priority -100; }'"
    command = ["unshare", *user.split(), "-n", "sh", "-c", script]
    return bool(shutil.which("nft")) and subprocess.run(command, check=False, capture_output=True).returncode == 0


REDIRECTS = can_redirect()

CLIENTS: dict[str, tuple[tuple[str, ...], str]] = {
    "curl": (("curl",), "curl -sS --max-time 20 http://web.example:{web}/file.txt"),
    "curl with HTTP/1.0": (("curl",), "curl -sS -0 --max-time 20 http://web.example:{web}/file.txt"),
    "curl by SOCKS": (
        ("curl",),
        "curl -sS --max-time 20 ${{ALL_PROXY:+--socks5-hostname ${{ALL_PROXY#http://}}}}"
        " http://web.example:{web}/file.txt",
    ),
    "curl with HTTP/1.1 in TLS": (
        ("curl", "node", "openssl"),
        "curl -sSk --http1.1 --max-time 20 -w ' %{{http_version}}' https://web.example:{tls}/",
    ),
    "curl with HTTP/2": (
        ("curl", "node", "openssl"),
        "curl -sSk --http2 --max-time 20 -w ' HTTP/%{{http_version}}' https://web.example:{tls}/ | grep HTTP/2",
    ),
    "wget": (("wget",), "wget -q -T 20 -O - http://web.example:{web}/file.txt"),
    "git clone over HTTP": (("git",), "git clone -q http://git.example:{web}/repo.git r && cat r/README"),
    "git clone by git's own protocol": (("git",), "git clone -q git://git.example:{git}/repo.git r && cat r/README"),
    "git clone over ssh": (
        ("git", "ssh", "sshd", "ssh-keygen"),
        "export GIT_SSH_COMMAND='ssh -i robot -o UserKnownHostsFile=/tmp/known -o StrictHostKeyChecking=accept-new';"
        " chmod 600 robot; git clone -q ssh://{user}@git.example:{ssh}{site}/repo.git r && cat r/README",
    ),
    "pip": (
        ("pip3",),
        PYTHON + " -m pip --isolated --retries 0 -q install --no-deps --index-url http://pkg.example:{web}/simple"
        " --trusted-host pkg.example --target t tiny && PYTHONPATH=t " + PYTHON + " -c 'import tiny'",
    ),
    "npm": (
        ("npm",),
        "npm install --silent --prefer-online --fetch-retries 0 --no-audit --no-fund --no-update-notifier"
        " --registry http://pkg.example:{web}/npm tiny && node node_modules/tiny/index.js",
    ),
    "node's fetch": (
        ("node",),
        "node -e 'fetch(\"http://web.example:{web}/file.txt\").then(r => r.text()).then(console.log)'",
    ),
    "urllib": (
        (),
        PYTHON + " -c 'from urllib.request import urlopen; print(urlopen(\"http://web.example:{web}/file.txt\").read())'",
    ),
    "http.client": (
        (),
        PYTHON + " -c 'from http.client import HTTPConnection as C; c = C(\"web.example\", {web});"
        " c.request(\"GET\", \"/file.txt\"); print(c.getresponse().read())'",
    ),
    "psql": (("psql",), "psql 'host=db.example port={db} user=x dbname=x connect_timeout=20' 2>&1"),
    "a client of TCP alone": (
        (),
        PYTHON + " -c 'import socket; print(socket.create_connection((\"db.example\", {echo})).recv(99))'",
    ),
    "a websocket": ((), PYTHON + " websocket.py {ws}"),
}  # fmt: skip

WEBSOCKET = r"""
import os, socket, sys
from urllib.parse import urlsplit
port = int(sys.argv[1])
proxy = os.environ.get("http_proxy")
if proxy:
    where = urlsplit(proxy)
    ours = socket.create_connection((where.hostname, where.port), 20)
    ours.sendall(b"CONNECT web.example:%d HTTP/1.1\r\nHost: web.example:%d\r\n\r\n" % (port, port))
    assert ours.recv(4096).startswith(b"HTTP/1.1 200")
else:
    ours = socket.create_connection(("web.example", port), 20)
ours.sendall(b"GET /chat HTTP/1.1\r\nHost: web.example:%d\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
             b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n" % port)
head = b""
while b"\r\n\r\n" not in head:
    head += ours.recv(1)
assert b" 101 " in head and b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in head, head
ours.sendall(b"\x81\x85\0\0\0\0hello")
print(ours.recv(100))
"""

HTTP2 = r"""
const http2 = require("http2"), fs = require("fs");
const [, key, certificate] = process.argv;
const files = { key: fs.readFileSync(key), cert: fs.readFileSync(certificate) };
const server = http2.createSecureServer({ ...files, allowHTTP1: true });
server.on("request", (request, response) => response.end(process.env.HELLO));
server.listen(Number(process.env.PORT), "127.0.0.1", () => console.log("ready"));
"""


def upgrade(client: socket.socket) -> None:
    """A websocket's server: what it is told in one frame it says in one (RFC 6455)."""
    head = b""
    while b"\r\n\r\n" not in head:
        head += client.recv(4096)
    key = next(line[19:] for line in head.split(b"\r\n") if line.lower().startswith(b"sec-websocket-key: "))
    answer = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
    client.sendall(
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: " + answer + b"\r\n\r\n"
    )
    assert client.recv(100).endswith(b"hello")
    text = HELLO.encode()
    client.sendall(bytes((0x81, len(text))) + text)


def database(client: socket.socket) -> None:
    """PostgreSQL's first words: no TLS, and then an error that says hello."""
    while client.recv(8)[4:] in (struct.pack("!I", 80877103), struct.pack("!I", 80877104)):
        client.sendall(b"N")
    client.recv(4096)
    fields = b"SFATAL\0C28000\0M" + HELLO.encode() + b"\0\0"
    client.sendall(b"E" + struct.pack("!I", 4 + len(fields)) + fields)


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str | int]]:
    """The servers, by what a script calls them."""
    root = tmp_path_factory.mktemp("town")
    with ExitStack() as stack:
        found: dict[str, str | int] = {}
        site = Site(root / "site")
        found["site"], found["root"], found["user"] = str(site.directory), str(root), os.environ.get("USER", "root")
        found["web"] = stack.enter_context(site.served())
        site.wheel()
        site.package("pkg.example", int(found["web"]))
        found["db"] = stack.enter_context(answering(database))
        found["echo"] = stack.enter_context(answering(lambda client: client.sendall(HELLO.encode())))
        found["ws"] = stack.enter_context(answering(upgrade))
        found["git"], found["ssh"], found["tls"] = free_port(), free_port(), free_port()
        if shutil.which("git"):
            site.repository()
            argv = ["git", "daemon", "--verbose", f"--base-path={site.directory}", "--listen=127.0.0.1"]
            stack.enter_context(running([*argv, f"--port={found['git']}"], "Ready to rumble"))
        if shutil.which("sshd", path=PATH) and shutil.which("ssh-keygen"):
            stack.enter_context(running(sshd(root, int(found["ssh"])), "Server listening"))
        if shutil.which("node") and shutil.which("openssl"):
            names = [str(root / "tls.key"), str(root / "tls.crt")]
            subprocess.run(
                ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
                 "-subj", "/CN=web.example", "-keyout", names[0], "-out", names[1]],
                check=True, capture_output=True,
            )  # fmt: skip
            environment = {**os.environ, "PORT": str(found["tls"]), "HELLO": HELLO}
            stack.enter_context(running(["node", "-e", HTTP2, *names], "ready", env=environment))
        yield found


@pytest.fixture(scope="module")
def gate(town: dict[str, str | int], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gated]:
    root = tmp_path_factory.mktemp("gated")
    project = root / "project"
    for path in (project, root / "home"):
        path.mkdir()
    (project / "websocket.py").write_text(WEBSOCKET)
    key = Path(str(town["root"])) / "robot"
    if key.exists():
        shutil.copy(key, project / "robot")
    ports = [port for port in town.values() if isinstance(port, int)]
    with gated(root, ports, project) as found:
        yield found


@pytest.mark.slow
@pytest.mark.parametrize(("name", "way"), pairs(list(CLIENTS), WAYS))
def test_a_client_reaches_its_server(town: dict[str, str | int], gate: Gated, name: str, way: str) -> None:
    needs, script = CLIENTS[name]
    missing = [program for program in needs if shutil.which(program, path=PATH) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} is not installed")
    if not REDIRECTS:
        pytest.skip("no nftables in a user namespace: only the usual ports are captured")
    before = len(gate.flows())
    result = gate.run((BARE if way == "captured" else PROXIED) + script.format_map(town))
    said = (result.stdout + result.stderr).decode()
    assert HELLO in said, said
    assert result.denials == (), result.denials
    flows = gate.flows()[before:]
    assert flows
    assert {(flow.verdict, flow.rule, flow.address, flow.error) for flow in flows} == {
        ("allow", "the test", "127.0.0.1", "")
    }


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_a_client_is_told_what_is_refused(town: dict[str, str | int], gate: Gated, way: str) -> None:
    result = gate.run((BARE if way == "captured" else PROXIED) + "curl -sS --max-time 20 http://elsewhere.test/ 2>&1")
    assert "mudroom: elsewhere.test" in result.stdout.decode()
    assert [one.target for one in result.denials] == [b"elsewhere.test:80"]


@pytest.mark.slow
def test_the_name_of_the_sandbox_is_its_own(gate: Gated) -> None:
    result = gate.run(PYTHON + " -c 'import socket; print(socket.gethostbyname(socket.gethostname()))'")
    assert (result.stdout, result.denials) == (b"127.0.0.1\n", ())
