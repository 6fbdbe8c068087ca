"""The bridge: its pipe, those who may not use it, and the relay that uses it. Run by ``dev/wine``."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

if sys.platform != "win32":
    pytest.skip("needs Windows, or dev/wine", allow_module_level=True)

from mudroom.errors import Unsupported
from mudroom.ext.windows.sandbox import relay
from mudroom.ext.windows.sandbox.bridge import PIECE, GateBridge, relay_text
from mudroom.ext.windows.sandbox.relay import End
from mudroom.ext.windows.win32.api import CallFailed, Library
from mudroom.ext.windows.win32.owner import own_sid
from mudroom.ext.windows.win32.pipe import CLIENT, PREFIX

LIBRARY = Library()


class Echo:
    """A server that gives back what it gets, and ends a direction as its client does."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listener.getsockname()
        self.ended = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self._serve, args=(self._listener.accept()[0],), daemon=True).start()

    def _serve(self, channel: socket.socket) -> None:
        with channel, contextlib.suppress(OSError):
            while piece := channel.recv(PIECE):
                channel.sendall(piece)
            self.ended += 1

    def close(self) -> None:
        self._listener.close()


class Ground:
    def __init__(self) -> None:
        self.echo = Echo()
        self.name = "mudroom-" + os.urandom(8).hex()
        self.made = list[GateBridge]()
        self.admitted: set[int] = {os.getpid()}

    def bridge(self, admits: Callable[[int], bool] | None = None, most: int = 8) -> GateBridge:
        bridge = GateBridge(LIBRARY, self.name, own_sid(LIBRARY), admits or self.admitted.__contains__, most)
        self.made.append(bridge)
        return bridge

    def serving(self, key: bytes = b"") -> GateBridge:
        bridge = self.bridge()
        bridge.serve(self.echo.address, key)
        return bridge

    def connect(self) -> End:
        return End(PREFIX + self.name)

    def close(self) -> None:
        for bridge in self.made:
            bridge.close()
        self.echo.close()
        assert not [thread.name for thread in threading.enumerate() if thread.name == "mudroom-gate-pipe"]
        with pytest.raises(FileNotFoundError):
            self.connect()


@pytest.fixture
def ground() -> Iterator[Ground]:
    made = Ground()
    yield made
    made.close()


def frame(data: bytes) -> bytes:
    return struct.pack("<I", len(data)) + data


def read_frame(end: End) -> bytes:
    length = int(struct.unpack("<I", end.read(4))[0])
    return end.read(length) if length else b""


def test_a_relay_asks_for_the_rights_that_the_list_gives_and_for_no_more() -> None:
    """GENERIC_WRITE would: it contains the right to make an instance, which the user of this test has."""
    assert relay.WANTED == CLIENT


def test_bytes_pass_in_both_directions_and_each_ends_by_itself(ground: Ground) -> None:
    ground.serving(b"key:")
    end = ground.connect()
    for data in (b"one", os.urandom(PIECE)):
        end.write(frame(data))
    received = b""
    while len(received) < PIECE + 7:
        received += read_frame(end)
    assert received == b"key:one" + data
    end.write(frame(b""))
    assert read_frame(end) == b""
    end.close()


def test_a_name_that_is_taken_is_no_bridge_and_a_bridge_s_name_cannot_be_taken(ground: Ground) -> None:
    ground.serving()
    with pytest.raises(CallFailed) as taken:
        GateBridge(LIBRARY, ground.name, own_sid(LIBRARY), lambda _pid: True)
    assert taken.value.code == 5, taken.value


def test_a_process_that_is_not_the_command_s_is_turned_away(ground: Ground) -> None:
    bridge = ground.serving()
    ground.admitted.clear()
    end = ground.connect()
    with pytest.raises(OSError):
        end.write(frame(b"data"))
        end.read(1)
    end.close()
    ground.admitted.add(os.getpid())
    allowed = ground.connect()
    allowed.write(frame(b"data"))
    assert read_frame(allowed) == b"data"
    allowed.close()
    assert bridge.notes == [f"a process that is not the command's was turned away at the gate's pipe ({os.getpid()})"]


@pytest.mark.parametrize(
    ("sent", "says"),
    [
        (struct.pack("<I", 10) + b"half", "a frame was cut off"),
        (b"\x01\x00", "a frame was cut off"),
        (struct.pack("<I", PIECE + 1) + b"x", f"a frame of {PIECE + 1} bytes"),
    ],
)
def test_a_frame_that_is_cut_off_or_too_long_ends_its_connection_alone(ground: Ground, sent: bytes, says: str) -> None:
    bridge = ground.serving()
    other, end = ground.connect(), ground.connect()
    end.write(frame(b"first"))
    assert read_frame(end) == b"first"
    end.write(sent)
    if "cut" in says:
        end.close()
    else:
        with pytest.raises(OSError):
            end.read(1)
        end.close()
    limit = time.monotonic() + 30
    while not bridge.notes and time.monotonic() < limit:
        other.write(frame(b"data"))
        assert read_frame(other) == b"data"
    other.close()
    assert bridge.notes == [f"a connection through the gate's pipe was cut: {says}"]


def test_a_flood_is_closed_and_told_in_one_line(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    bridge = ground.serving()
    ends = list[End]()
    for _connection in range(8):
        ends.append(ground.connect())
        ends[-1].write(frame(b"x"))
        assert read_frame(ends[-1]) == b"x"
    waiting = ground.connect()
    monkeypatch.setattr(relay, "PATIENCE", 0.1)
    for _connection in range(3):
        with pytest.raises(OSError, match="231"):
            ground.connect()
    waiting.write(frame(b"y"))
    ends.pop(0).close()
    assert read_frame(waiting) == b"y"
    ends[0].write(frame(b"still"))
    assert read_frame(ends[0]) == b"still"
    bridge.close()
    for end in (*ends, waiting):
        with pytest.raises(OSError):
            end.read(1)
        end.close()
    assert len(bridge.notes) == 1
    assert bridge.notes[0].startswith("more than 8 connections through the gate's pipe: further ones have to wait")


def test_the_relay_listens_and_passes_connections_on_until_the_bridge_ends(ground: Ground) -> None:
    bridge = ground.bridge(lambda _pid: True)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    words = [sys.executable, "-I", "-S", "-c", relay_text(), PREFIX + ground.name]
    with subprocess.Popen([*words, str(port)]) as process:
        bridge.await_relay()
        with pytest.raises(TimeoutError), socket.create_connection(("127.0.0.1", port), timeout=0.2) as early:
            early.sendall(b"early")
            early.recv(1)
        bridge.serve(ground.echo.address)
        data = os.urandom(300_000)
        with socket.create_connection(("127.0.0.1", port), timeout=30) as channel:
            sender = threading.Thread(target=channel.sendall, args=(data,))
            sender.start()
            received = b""
            while len(received) < len(data):
                received += channel.recv(PIECE)
            sender.join()
            channel.shutdown(socket.SHUT_WR)
            assert (received, channel.recv(1)) == (data, b"")
        bridge.close()
        assert process.wait(30) == 0


def test_a_relay_that_cannot_listen_or_says_nothing_is_no_gate(ground: Ground) -> None:
    bridge = ground.bridge(lambda _pid: True)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        words = [sys.executable, "-I", "-S", "-c", relay_text(), PREFIX + ground.name]
        with subprocess.Popen([*words, str(taken.getsockname()[1])]) as process:
            with pytest.raises(Unsupported, match=r"the gate needs a relay in the container; found: .*10048"):
                bridge.await_relay()
            bridge.close()
            assert process.wait(30) == 0
    silent = ground.bridge()
    with pytest.raises(Unsupported) as raised:
        silent.await_relay(0.05)
    said = "the gate needs a relay in the container; found: it says nothing (--net none, or run it again)"
    assert str(raised.value) == said


def test_the_bridge_ends_though_nobody_reads_what_is_sent(ground: Ground) -> None:
    """A gate that waits for a slow server reads nothing meanwhile: a thread of the bridge is within send()."""
    bridge = ground.bridge()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        bridge.serve(silent.getsockname())
        end = ground.connect()
        count = 0

        def send() -> None:
            nonlocal count
            with contextlib.suppress(OSError):
                while True:
                    end.write(frame(bytes(PIECE)))
                    count += 1

        sender = threading.Thread(target=send, daemon=True)
        sender.start()
        before = -1
        while before != count or not count:
            before = count
            sender.join(0.2)
        closer = threading.Thread(target=bridge.close, daemon=True)
        closer.start()
        closer.join(30)
        assert not closer.is_alive()
        sender.join(30)
        assert not sender.is_alive()
        end.close()


def test_the_end_of_the_bridge_ends_a_connection_that_waits(ground: Ground) -> None:
    bridge = ground.serving()
    end = ground.connect()
    end.write(frame(b"x"))
    assert read_frame(end) == b"x"
    bridge.close()
    with pytest.raises(OSError):
        end.read(1)
    end.close()
