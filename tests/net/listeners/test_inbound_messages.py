"""Messages about a command's network that cannot be entered, or no longer, and about a port that is taken."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator

import pytest

from box import NAMESPACES
from mudroom.errors import MudroomError
from mudroom.net.listeners.inbound import InboundListener
from mudroom.session.confinement.namespace_listener import show_inside
from mudroom.session.confinement.socket_maker import SocketMaker

pytestmark = pytest.mark.both_users

ANY_MORE = "the command's network cannot be entered any more (run the line again)"


def test_what_is_no_namespace() -> None:
    before = set(os.listdir("/proc/self/fd"))
    with open(os.devnull, "rb") as null, pytest.raises(MudroomError) as raised:
        show_inside([null.fileno(), null.fileno()], null.fileno(), 3000, (0,), lambda _port: None, None)
    assert str(raised.value) == (
        "the command's network cannot be entered: Invalid argument (mudroom ps shows whether it runs)"
    )
    assert set(os.listdir("/proc/self/fd")) == before


@pytest.fixture
def maker() -> Iterator[SocketMaker]:
    if not NAMESPACES or shutil.which("unshare") is None:
        pytest.skip("user namespaces are not permitted here")
    words = ["unshare", "--map-root-user", "--net", "sh", "-c", "echo; exec sleep 1000"]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as inside:
        assert inside.stdout is not None
        inside.stdout.read(1)
        namespaces = [os.open(f"/proc/{inside.pid}/ns/{kind}", os.O_RDONLY) for kind in ("user", "net")]
        gone, end = os.pipe()
        made = SocketMaker(gone, namespaces, 20)
        for descriptor in (gone, *namespaces):
            os.close(descriptor)
        yield made
        made.close()
        os.close(end)
        inside.kill()


def test_the_process_that_makes_sockets_is_killed(maker: SocketMaker) -> None:
    """Each connection was an unhandled exception of asyncio, and the port stayed open without a server."""
    maker.make(b"6").close()
    ended, end = os.pipe()
    answers: list[bytes] = []

    def visit(port: int) -> None:
        with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
            answers.append(client.recv(100))

    def opened(port: int) -> None:
        os.kill(maker._pid, signal.SIGKILL)
        os.waitid(os.P_PID, maker._pid, os.WEXITED | os.WNOWAIT)
        visiting.append(threading.Thread(target=visit, args=(port,)))
        visiting[0].start()

    visiting: list[threading.Thread] = []
    with pytest.raises(MudroomError) as raised:
        InboundListener(maker.make, 3000, (0,), None).run(ended, opened)
    visiting[0].join()
    assert str(raised.value) == ANY_MORE
    assert answers == [b""]
    os.close(end)
    os.close(ended)


def test_a_port_that_is_taken(maker: SocketMaker) -> None:
    ended, end = os.pipe()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(MudroomError) as raised:
            InboundListener(maker.make, 3000, (port,)).run(ended, lambda _port: None)
    assert str(raised.value) == (
        f"port {port} of this machine is taken (mudroom net open 3000 --as 0 takes any that is free)"
    )
    os.close(end)
    os.close(ended)


def test_of_several_ports_the_first_free_one_is_taken(maker: SocketMaker) -> None:
    ended, end = os.pipe()
    found: list[int] = []

    def opened(port: int) -> None:
        found.append(port)
        os.close(end)

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        InboundListener(maker.make, 3000, (port, port, 0)).run(ended, opened)
    assert found not in ([], [port])
    os.close(ended)
