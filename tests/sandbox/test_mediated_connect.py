"""Without a network namespace: connect(2) performed by the mediator, to the gate alone."""

from __future__ import annotations

import os
import shlex
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from box import Box
from mudroom.core.confinement.spec import Copy
from mudroom.sandbox.client.capture import CapturedOutput, attend
from mudroom.sandbox.client.launcher_client import LauncherClient, SpawnedLauncher
from mudroom.sandbox.host.denials import denials
from mudroom.sandbox.host.host import landlock_abi, without

pytestmark = [
    pytest.mark.both_users,
    pytest.mark.skipif(landlock_abi() < 4, reason="Landlock knows no ports here: there is no network"),
]

PYTHON = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable


class GatedBox(Box):
    """A box whose gate is a server of the test."""

    def __init__(self, root: Path, client: LauncherClient) -> None:
        super().__init__(root, client)
        self.server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.server.getsockname()[1]

    def told(self, program: str, *places: tuple[str, int, int]) -> tuple[str, list[str]]:
        """Run a program with the port as its argument. Return its output and the refused calls."""
        work, scratch = os.fsencode(self.copy), os.fsencode(self.scratch)
        binds = (*without(self.host.system, self.host.masks), *self.host.home)
        plan = self.plan(
            view=Copy(work), cwd=work, namespaces=False, masks=(), binds=binds, scratch=scratch, network="gate",
            proxy=self.port, loopback=places,
        )  # fmt: skip
        with CapturedOutput(None, None, None, 1 << 20) as output:
            running = self.start(f"exec {PYTHON} -I -S -c {shlex.quote(program)} {self.port}", output, plan)
            ended, _timed_out = attend(running, output, None, lambda: None)
            running.wait_gone()
            said = "".join(stream.data.decode() for stream in output.streams)
        return said, [os.fsdecode(one.target) for one in denials(ended.refused)]


@pytest.fixture
def gated(tmp_path: Path) -> Iterator[GatedBox]:
    client = LauncherClient(SpawnedLauncher())
    client.start()
    box = GatedBox(tmp_path, client)
    yield box
    box.server.close()
    client.close()


_HEAD = "import errno, fcntl, os, select, socket, sys\nport = int(sys.argv[1])\n"


def test_the_gate_is_reached_by_a_socket_that_is_like_its_own(gated: GatedBox) -> None:
    program = _HEAD + (
        "for blocking, cloexec in ((True, True), (False, False)):\n"
        "    s = socket.socket(); s.setblocking(blocking); s.set_inheritable(not cloexec); number = s.fileno()\n"
        "    print(s.connect_ex(('127.0.0.1', port)), s.fileno() == number, s.getpeername() == ('127.0.0.1', port),\n"
        "          os.get_blocking(number) == blocking, os.get_inheritable(number) != cloexec, s.send(b'hello'))\n"
    )
    said, refused = gated.told(program)
    assert said.splitlines() == ["0 True True True True 5"] * 2
    assert refused == []
    gated.server.settimeout(60)
    for _number in range(2):
        accepted, _where = gated.server.accept()
        with accepted:
            assert accepted.recv(10) == b"hello"


def test_nothing_else_is(gated: GatedBox) -> None:
    program = _HEAD + (
        "def tried(family, where):\n"
        "    with socket.socket(family) as s: print(errno.errorcode[s.connect_ex(where)])\n"
        "for where in ('127.0.0.2', '127.0.0.1', '192.0.2.1'):\n"
        "    tried(socket.AF_INET, (where, port if where != '127.0.0.1' else port ^ 1))\n"
        "for where in ('::1', '2001:db8::1', '::ffff:127.0.0.2'): tried(socket.AF_INET6, (where, port))\n"
    )
    said, refused = gated.told(program)
    assert said.split() == ["EACCES"] * 6
    assert refused == [
        f"127.0.0.2:{gated.port}", f"127.0.0.1:{gated.port ^ 1}", f"192.0.2.1:{gated.port}", f"[::1]:{gated.port}",
        f"[2001:db8::1]:{gated.port}", f"127.0.0.2:{gated.port}",
    ]  # fmt: skip


def test_a_place_of_the_hosts_loopback_leads_to_its_listener(gated: GatedBox) -> None:
    """By each spelling of the address; its listener's own port is no way there."""
    program = _HEAD + (
        "def tried(family, where):\n"
        "    with socket.socket(family) as s: print(errno.errorcode.get(s.connect_ex(where), 'ok'))\n"
        "for where in (('127.0.0.1', 9), ('127.0.0.1', 10), ('127.0.0.2', 9), ('127.0.0.1', int(sys.argv[1]))):\n"
        "    tried(socket.AF_INET, where)\n"
        "for where in (('::ffff:127.0.0.1', 9), ('::1', 11), ('::1', 9)): tried(socket.AF_INET6, where)\n"
    )
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)
        port = server.getsockname()[1]
        said, refused = gated.told(program, ("127.0.0.1", 9, port), ("::1", 11, port))
        assert said.split() == ["ok", "EACCES", "EACCES", "ok", "ok", "ok", "EACCES"]
        assert refused == ["127.0.0.1:10", "127.0.0.2:9", "[::1]:9"]
        for _number in range(3):
            server.accept()[0].close()
        gated.server.settimeout(60)
        gated.server.accept()[0].close()
        said, refused = gated.told(
            _HEAD + f"print(socket.socket().connect_ex(('127.0.0.1', {port})))", ("::1", 11, port)
        )
        assert (said.split(), refused) == (["13"], [f"127.0.0.1:{port}"])


def test_only_a_socket_is_replaced(gated: GatedBox) -> None:
    program = _HEAD + (
        "import ctypes\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "where = b'\\2\\0' + port.to_bytes(2, 'big') + bytes((127, 0, 0, 1)) + bytes(8)\n"
        "for number in (1, 99):\n"
        "    print(libc.connect(number, where, 16), errno.errorcode[ctypes.get_errno()], flush=True)\n"
        "with socket.socket() as s:\n"
        "    print(libc.connect(s.fileno(), where, 4), errno.errorcode[ctypes.get_errno()])\n"
        "    print(libc.connect(s.fileno(), None, 16), errno.errorcode[ctypes.get_errno()])\n"
    )
    said, _refused = gated.told(program)
    assert said.splitlines() == ["-1 ENOTSOCK", "-1 EBADF", "-1 EACCES", "-1 EFAULT"]


def test_processes_that_end_do_not_interrupt_it(gated: GatedBox) -> None:
    """Init is told of each by a signal, in the middle of its work for another."""
    program = _HEAD + (
        "for _number in range(300):\n"
        "    if not os.fork():\n"
        "        if not os.fork(): os._exit(0)\n"
        "        os._exit(0)\n"
        "    os.wait()\n"
        "    with socket.socket() as s:\n"
        "        s.setblocking(False); s.connect(('127.0.0.1', port)); s.getpeername()\n"
        "print('all')\n"
    )
    gated.server.listen(4096)
    said, refused = gated.told(program)
    assert (said.split(), refused) == (["all"], [])


ADDRESSES = [
    (b"\2\0\0\x50\x7f\0\0\1" + bytes(8), "127.0.0.1:80"),
    (b"\2\0\0\x50\x7f\0\0\1" + b"garbage!", "127.0.0.1:80"),
    (b"\x0a\0\0\x50" + bytes(4) + bytes(10) + b"\xff\xff\x7f\0\0\1" + bytes(4), "127.0.0.1:80"),
    (b"\x0a\0\0\x50" + bytes(4) + bytes(15) + b"\1" + bytes(4), "[::1]:80"),
    (b"\2\0\0\x50\x7f\0\0", "?:0"),
    (b"\0\0" + bytes(14), "?:0"),
    (b"\1\0/run/docker.sock", "?:0"),
    (b"", "?:0"),
]


def test_addresses_are_read_as_the_kernel_reads_them(gated: GatedBox) -> None:
    """None of them is the gate's: each is refused by name."""
    program = _HEAD + (
        "import ctypes\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "s = socket.socket()\n"
        f"for raw in {[raw for raw, _found in ADDRESSES]!r}:\n"
        "    print(libc.connect(s.fileno(), raw, len(raw)), ctypes.get_errno() == errno.EACCES)\n"
    )
    said, refused = gated.told(program)
    assert said.splitlines() == ["-1 True"] * len(ADDRESSES)
    assert refused == [found for _raw, found in ADDRESSES]
