"""The gate's listeners: made inside, held outside, and the only thing that anything inside ever connects to."""

from __future__ import annotations

import os
import select
import shutil
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from box import Box, Conversation
from mudroom.core.confinement.plan import Plan
from mudroom.sandbox.client.launcher_client import LauncherClient, SpawnedLauncher
from mudroom.sandbox.linux.plan import PROXY_PORT

pytestmark = pytest.mark.both_users

KINDS = ("overlay", "overlay prepared", "copy", "copy prepared")
PYTHON = sys.executable
USUAL = (22, 80, 443)
CONNECT = f"""{PYTHON} -c '
import socket, sys
for line in sys.stdin:
    host, port = line.split()
    try:
        print(socket.create_connection((host, int(port)), timeout=60).recv(100).decode() or "closed", flush=True)
    except OSError as error:
        print(type(error).__name__, flush=True)
'"""


@pytest.fixture
def gated(tmp_path: Path) -> Iterator[GatedBox]:
    client = LauncherClient(SpawnedLauncher())
    client.start()
    yield GatedBox(tmp_path, client)
    client.close()


class GatedBox(Box):
    def plan(self, **changes: object) -> Plan:
        return super().plan(network="gate", ports=USUAL, **changes)


class Inside:
    """A command that connects where it is told to, and the listeners, outside."""

    def __init__(self, box: Box, kind: str | Plan) -> None:
        self._talk = Conversation(box, kind, CONNECT, gate=True)
        self.made = self._talk.running.listeners()
        self.sockets: dict[str, list[socket.socket]] = {}
        self.namespaces = [descriptor for name, descriptor in self.made if name in ("user", "net")]
        self.made = [(name, descriptor) for name, descriptor in self.made if name not in ("user", "net")]
        for name, descriptor in self.made:
            self.sockets.setdefault(name, []).append(socket.socket(fileno=descriptor))

    def connect(self, host: str, port: int) -> None:
        self._talk.say(f"{host} {port}")

    def answer(self) -> str:
        return self._talk.hear()

    def accept(self, kind: str) -> socket.socket:
        ready, _, _ = select.select(self.sockets[kind], [], [], 10)
        assert ready, f"nothing came to {kind}"
        return ready[0].accept()[0]

    def close(self) -> None:
        for descriptor in self.namespaces:
            os.close(descriptor)
        for sockets in self.sockets.values():
            for one in sockets:
                one.close()
        self._talk.running.signal(9)
        self._talk.end()


@contextmanager
def inside(box: Box, kind: str | Plan) -> Iterator[Inside]:
    found = Inside(box, kind)
    try:
        yield found
    finally:
        found.close()


def original(accepted: socket.socket) -> tuple[str, int]:
    """Where a redirected connection was meant to go: SO_ORIGINAL_DST, linux/netfilter_ipv4.h and _ipv6/ip6_tables.h."""
    if accepted.getpeername()[0].startswith("::ffff:"):
        port, address = struct.unpack("!2xH4s8x", accepted.getsockopt(0, 80, 16))
        return socket.inet_ntoa(address), port
    port, address = struct.unpack("!2xH4x16s4x", accepted.getsockopt(41, 80, 28))
    return socket.inet_ntop(socket.AF_INET6, address), port


def can_redirect() -> bool:
    script = "nft add table inet x && nft 'add chain inet x c { type nat hook output priority -100; }'"
    user = "" if os.geteuid() == 0 else "-Ur"
    command = ["unshare", *user.split(), "-n", "sh", "-c", script]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


needs_nftables = pytest.mark.skipif(
    not (shutil.which("nft") and can_redirect()), reason="no nft, or no nftables in a user namespace"
)


@needs_nftables
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("host", "port"), [("93.184.216.34", 5432), ("198.18.0.7", 443), ("2001:db8::5", 22), ("10.0.0.1", 1)]
)
def test_every_connection_comes_out_here(gated: GatedBox, kind: str, host: str, port: int) -> None:
    with inside(gated, kind) as command:
        assert [name for name, _ in command.made] == ["proxy", "dns-udp", "dns-tcp", "redirected"]
        command.connect(host, port)
        accepted = command.accept("redirected")
        assert original(accepted) == (host, port)
        accepted.send(b"from outside")
        assert command.answer() == "from outside"
        accepted.close()


def test_the_proxy_is_on_loopback(gated: GatedBox) -> None:
    with inside(gated, "overlay") as command:
        command.connect("127.0.0.1", PROXY_PORT)
        accepted = command.accept("proxy")
        accepted.send(b"proxy")
        assert command.answer() == "proxy"
        accepted.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "127.9.9.9"])
def test_loopback_stays_the_commands_own(gated: GatedBox, host: str) -> None:
    with inside(gated, "overlay") as command:
        command.connect(host, 5432)
        assert command.answer() == "ConnectionRefusedError"


def test_without_nftables_the_usual_ports_lead_to_the_gate(gated: GatedBox) -> None:
    plan = gated.plan()
    steps = tuple((*step[:2], 0, *step[3:]) if step[0] == "listen" else step for step in plan.steps)
    with inside(gated, plan._replace(steps=steps)) as command:
        assert [name for name, _ in command.made] == ["proxy", "dns-udp", "dns-tcp", *["transparent"] * len(USUAL)]
        command.connect("93.184.216.34", 443)
        accepted = command.accept("transparent")
        assert accepted.getsockname()[:2] == ("::ffff:93.184.216.34", 443)
        accepted.send(b"transparent")
        assert command.answer() == "transparent"
        accepted.close()
        command.connect("93.184.216.34", 5432)
        assert command.answer() == "ConnectionRefusedError"


@pytest.mark.parametrize("kind", ["overlay", "overlay prepared", "copy prepared"])
def test_a_place_of_the_hosts_loopback_has_a_listener(gated: GatedBox, kind: str) -> None:
    places = (("127.0.0.1", 8377, 0), ("127.0.0.53", 53053, 0), ("::1", 8377, 0))
    gated.prepared(kind)
    plan = gated.plan(loopback=places)
    with inside(gated, plan) as command:
        names = [name for name, _ in command.made][-3:]
        assert names == ["loopback=127.0.0.1:8377", "loopback=127.0.0.53:53053", "loopback=[::1]:8377"]
        for name, (host, port, _outside) in zip(names, places, strict=True):
            command.connect(host, port)
            accepted = command.accept(name)
            accepted.send(name.encode())
            assert command.answer() == name
            accepted.close()
        command.connect("127.0.0.2", 8377)
        assert command.answer() == "ConnectionRefusedError"


def test_a_place_at_a_port_that_leads_to_the_gate_anyway(gated: GatedBox) -> None:
    """Without nftables its listeners have the usual ports at every address."""
    plan = gated.plan(loopback=(("127.0.0.1", 443, 0), ("127.0.0.1", 8377, 0)))
    steps = tuple((*step[:2], 0, *step[3:]) if step[0] == "listen" else step for step in plan.steps)
    with inside(gated, plan._replace(steps=steps)) as command:
        assert [name for name, _ in command.made][3:] == ["transparent"] * len(USUAL) + ["loopback=127.0.0.1:8377"]
        command.connect("127.0.0.1", 443)
        accepted = command.accept("transparent")
        assert accepted.getsockname()[:2] == ("::ffff:127.0.0.1", 443)
        accepted.close()


def test_a_name_is_looked_up_here(gated: GatedBox) -> None:
    """A datagram to any address comes with the address that was asked."""
    with inside(gated, "overlay") as command:
        (udp,) = command.sockets["dns-udp"]
        command.connect("registry.example", 443)
        udp.settimeout(60)
        query, ancillary, _flags, sender = udp.recvmsg(512, 256)
        assert b"\x08registry\x07example\x00" in query
        assert [(level, kind) for level, kind, _data in ancillary] == [(41, 50)], "IPV6_PKTINFO"
        refused = query[:2] + b"\x81\x85" + query[4:6] + bytes(6) + query[12:]
        udp.sendmsg([refused], ancillary, 0, sender)
        while select.select([udp], [], [], 0.1)[0]:  # the other family, the other servers
            query, ancillary, _flags, sender = udp.recvmsg(512, 256)
            udp.sendmsg([query[:2] + b"\x81\x85" + query[4:6] + bytes(6) + query[12:]], ancillary, 0, sender)
        assert command.answer() == "gaierror"


def test_nothing_is_sent_by_a_socket_without_a_listener(gated: GatedBox) -> None:
    script = (
        f'{PYTHON} -c \'import socket; s = socket.socket(type=socket.SOCK_DGRAM); s.connect(("8.8.8.8", 443)); '
        's.send(b"x"); s.settimeout(60); s.recv(1)\' 2>&1 | tail -n 1'
    )
    ended, output = gated.run(script)
    assert (ended.status, output.split(":")[0]) == (0, "ConnectionRefusedError")


def test_the_command_has_none_of_them(gated: GatedBox) -> None:
    """Without a request for listeners, no process listens at all."""
    with inside(gated, "overlay prepared"):
        pass
    ended, output = gated.run("ls /proc/self/fd; cat /proc/self/net/tcp6 | wc -l")
    assert ended.status == 0
    assert output.split() == ["0", "1", "2", "3", "1"], "ls reads the directory by one of its own; a heading"
