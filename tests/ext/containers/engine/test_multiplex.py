"""Many connections over one pair of pipes, with both ends in this process."""

from __future__ import annotations

import os
import select
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import NamedTuple

import pytest

from mudroom.ext.containers.engine.multiplex import DATA, HEAD, MOST, OPEN, RESET, WINDOW, Mux

pytestmark = pytest.mark.both_users

LONG = os.urandom(3 * WINDOW + 17)


class Pair(NamedTuple):
    port: int
    """Where one connects."""
    server: socket.socket
    """The server that connections of the other end reach."""
    close: Callable[[], None]


def started(target: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=target)
    thread.start()
    return thread


@pytest.fixture
def pair() -> Iterator[Pair]:
    listener, server = (socket.create_server(("127.0.0.1", 0)) for _ in range(2))
    listener.setblocking(False)
    (in_read, out_write), (out_read, in_write) = os.pipe(), os.pipe()
    inside = Mux(in_read, in_write, accept=listener)
    outside = Mux(out_read, out_write, port=server.getsockname()[1])
    threads = [started(inside.run), started(outside.run)]
    ends = [out_write]

    def close() -> None:
        while ends:
            os.close(ends.pop())

    yield Pair(listener.getsockname()[1], server, close)
    close()
    threads[0].join(20)
    os.close(in_write)
    threads[1].join(20)
    assert not any(thread.is_alive() for thread in threads)
    for one in (in_read, out_read):
        os.close(one)
    listener.close()
    server.close()


def connected(pair: Pair) -> tuple[socket.socket, socket.socket]:
    client = socket.create_connection(("127.0.0.1", pair.port), timeout=20)
    served, _address = pair.server.accept()
    served.settimeout(20)
    return client, served


def send(sock: socket.socket, data: bytes) -> None:
    sock.sendall(data)
    sock.shutdown(socket.SHUT_WR)


def everything(sock: socket.socket) -> bytes:
    found = bytearray()
    while data := sock.recv(65536):
        found += data
    return bytes(found)


def test_both_ways_and_each_end_by_itself(pair: Pair) -> None:
    client, served = connected(pair)
    with closing(client), closing(served):
        client.sendall(b"ask")
        client.shutdown(socket.SHUT_WR)
        assert everything(served) == b"ask"
        served.sendall(b"answer")
        served.close()
        assert everything(client) == b"answer"


def test_more_than_the_window(pair: Pair) -> None:
    client, served = connected(pair)
    with closing(client), closing(served):
        sender = started(lambda: send(client, LONG))
        back = started(lambda: send(served, LONG[::-1]))
        got = everything(served)
        assert got == LONG
        assert everything(client) == LONG[::-1]
        sender.join(20)
        back.join(20)


def test_one_that_is_not_read_holds_up_no_other(pair: Pair) -> None:
    stuck, _unread = connected(pair)
    stuck.setblocking(False)
    sent = 0
    try:
        while sent < 100 * WINDOW:
            sent += stuck.send(LONG)
    except BlockingIOError:
        pass
    assert sent < 100 * WINDOW  # the test has asked to stop
    client, served = connected(pair)
    with closing(client), closing(served), closing(stuck), closing(_unread):
        client.sendall(b"through")
        assert served.recv(7) == b"through"


def test_many_at_once(pair: Pair) -> None:
    pairs = [connected(pair) for _ in range(100)]
    for number, (client, _served) in enumerate(pairs):
        client.sendall(b"%d\n" % number)
    said = {served.recv(16) for _client, served in pairs}
    assert said == {b"%d\n" % number for number in range(100)}
    for one in pairs:
        one[0].close()
        one[1].close()


def test_nobody_there_is_the_end_of_the_connection(pair: Pair) -> None:
    pair.server.close()
    with socket.create_connection(("127.0.0.1", pair.port), timeout=20) as client:
        try:
            assert client.recv(1) == b""
        except ConnectionResetError:
            pass


def test_what_no_honest_end_says_opens_nothing() -> None:
    """An end in a container is not trusted: without a port no connection is made."""
    (there, ours_write), (ours_read, back) = os.pipe(), os.pipe()
    os.write(back, HEAD.pack(OPEN, 7, 0) + HEAD.pack(DATA, 9, 2) + b"xx" + HEAD.pack(77, 1, 0) + b"\xff\xff")
    os.close(back)
    Mux(ours_read, ours_write).run()
    os.close(ours_write)
    assert os.read(there, 100) in (b"", HEAD.pack(RESET, 7, 0))
    os.close(there)
    os.close(ours_read)


def test_who_takes_no_answers_is_not_listened_to_for_ever() -> None:
    """A peer that opens connections without end and reads no data: the data kept for it is bounded."""
    (ours_read, back), (there, ours_write) = os.pipe(), os.pipe()
    os.set_blocking(back, False)
    mux = Mux(ours_read, ours_write)
    thread = started(mux.run)
    asked, sent, got = HEAD.pack(OPEN, 7, 0) * 4096, 0, 0
    waits = select.poll()
    waits.register(back, select.POLLOUT)
    while sent < 100 * WINDOW and waits.poll(2000):
        sent += os.write(back, asked[sent % HEAD.size :])
    assert 2 * WINDOW < sent < 4 * WINDOW
    while got < sent - sent % HEAD.size:
        got += len(os.read(there, WINDOW))
    assert waits.poll(20000)
    assert os.write(back, asked[sent % HEAD.size :]) >= 2 * HEAD.size  # it goes on
    assert os.read(there, HEAD.size) == HEAD.pack(RESET, 7, 0)
    os.close(back)
    thread.join(20)
    assert not thread.is_alive()
    for one in (ours_read, ours_write, there):
        os.close(one)


def test_the_end_is_seen_by_who_does_not_listen() -> None:
    (ours_read, back), (there, ours_write) = os.pipe(), os.pipe()
    mux = Mux(ours_read, ours_write)
    mux.say(DATA, 1, bytes(MOST))
    while len(mux._outgoing) < 3 * WINDOW:
        mux.say(DATA, 1, bytes(MOST))
    os.close(back)
    thread = started(mux.run)
    thread.join(20)
    assert not thread.is_alive()
    for one in (ours_read, ours_write, there):
        os.close(one)
