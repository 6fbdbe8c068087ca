"""Descriptors that arrive over a socket: the caller's alone, counted, and not a command's."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from mudroom.core.system import rights
from mudroom.session.confinement import socket_maker

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = socket.socketpair()
    yield made
    for end in made:
        end.close()


def test_a_received_descriptor_is_not_inherited(pair: Pair) -> None:
    with open(os.devnull, "rb") as given:
        assert rights.send(pair[0], b"ab", [given.fileno(), given.fileno()]) == 2
    data, descriptors, is_cut = rights.receive(pair[1], 16, 2)
    assert (data, len(descriptors), is_cut) == (b"ab", 2, False)
    for descriptor in descriptors:
        assert not os.get_inheritable(descriptor)
        os.close(descriptor)


def test_the_sockets_of_a_helper_in_a_namespace_are_not_inherited(pair: Pair) -> None:
    maker = socket_maker.SocketMaker.__new__(socket_maker.SocketMaker)
    maker._channel = pair[1]
    with socket.socket() as given:
        rights.send(pair[0], b"0", [given.fileno()])
    with maker._receive() as made:
        assert not made.get_inheritable()


def test_a_cut_message_and_an_end_are_told(pair: Pair) -> None:
    with open(os.devnull, "rb") as given:
        rights.send(pair[0], b"a", [given.fileno()] * 3)
    _data, descriptors, is_cut = rights.receive(pair[1], 16, 1)
    assert is_cut
    for descriptor in descriptors:
        os.close(descriptor)
    rights.send(pair[0], b"abc", ())
    assert rights.receive_exactly(pair[1], 2) == b"ab"
    pair[0].close()
    with pytest.raises(EOFError):
        rights.receive_exactly(pair[1], 2)
    assert rights.receive(pair[1], 16, 1) == (b"", [], False)
