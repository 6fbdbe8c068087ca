"""A link: nothing that a worker sends or omits takes memory or makes anybody wait."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest
from scripted_worker import HELLO

from mudroom.errors import MudroomError
from mudroom.ext.fleet.origin import link as link_module
from mudroom.ext.fleet.origin.inbox import SHARE, FeedFailed, LinkEnd, LinkInbox
from mudroom.ext.fleet.origin.link import LIMITS, MOST_UNSENT, SILENCE, OriginLink, explain
from mudroom.ext.fleet.wire import message as wire
from mudroom.ext.fleet.wire.frame import LARGEST, Frame, FrameReader, LinkError, encode

GREETING = wire.OriginHello(1, "0.1.0", "0" * 32, "a", 60.0)


class Ends:
    """Both ends of a link: the test drives the worker's."""

    def __init__(self) -> None:
        self.now = 0.0
        self.reader, self.out = os.pipe()
        self.into, self.writer = os.pipe()
        self.inbox = LinkInbox()
        self.link = OriginLink("a", self, GREETING, self.inbox, lambda: self.now)
        self.words = ""
        self._frames = FrameReader()
        self.has_begun = False

    def close(self) -> None:
        os.close(self.reader)
        os.close(self.writer)

    def exit_reason(self) -> str:
        return self.words

    def was_killed(self) -> bool:
        return False

    def start(self) -> None:
        self.link.start()
        self.has_begun = True

    def greet(self) -> None:
        self.start()
        os.write(self.out, encode(wire.frame_of(wire.HELLO, HELLO)))
        assert [event.kind for event in self.events(1) if isinstance(event, Frame)] == [wire.HELLO]

    def events(self, count: int) -> list[object]:
        """Return the link's next events."""
        found: list[object] = []
        while len(found) < count:
            taken, full = self.inbox.take(5.0)
            assert taken, found
            found += [event for _link, event in taken]
            for link in full:
                link.wake()
        return found

    def received(self, count: int) -> list[Frame]:
        """Return the next frames that the worker gets."""
        found: list[Frame] = []
        while len(found) < count:
            found += self._frames.feed(os.read(self.into, 1 << 16))
        return found

    def end(self) -> LinkEnd:
        (event,) = self.events(1)
        assert isinstance(event, LinkEnd)
        return event


@pytest.fixture
def ends() -> Iterator[Ends]:
    ends = Ends()
    yield ends
    ends.link.end("the test is over")
    if ends.has_begun:
        ends.link.join(60.0)
    for descriptor in (ends.out, ends.into):
        try:
            os.close(descriptor)
        except OSError:
            pass  # the test did


def _until(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.001)


def test_it_does_not_read_on_while_nobody_takes_what_it_read(ends: Ends) -> None:
    ends.greet()
    body = encode(wire.frame_of(wire.OUT, wire.Out(1, 0, bytes(1 << 18)), 1))
    os.set_blocking(ends.out, False)
    sent, pending = 0, b""

    def flood() -> bool:
        nonlocal sent, pending
        try:
            pending = pending or body
            written = os.write(ends.out, pending)
            sent, pending = sent + written, pending[written:]
        except BlockingIOError:
            return not ends.inbox.has_room(ends.link)
        return False

    _until(flood)
    read = ends.link.bytes_read
    assert SHARE <= read < SHARE + (2 << 20)
    assert flood()
    assert ends.link.bytes_read == read
    assert len(ends.events(1)) >= 15
    _until(lambda: not flood() or ends.link.bytes_read > read)


def test_silence_ends_it_and_a_full_inbox_is_no_silence(ends: Ends) -> None:
    ends.greet()
    ends.now = SILENCE - 1
    ends.link.wake()
    assert [frame.kind for frame in ends.received(2)] == [wire.HELLO, wire.PING]
    ends.now = SILENCE + 1
    ends.link.wake()
    assert ends.end()[:2] == ("the worker has said nothing for 30 s", "mudroom fleet ls a asks whether it answers")


def test_a_transport_that_fails(ends: Ends) -> None:
    """As a terminal whose other end is gone: EIO from read(2)."""
    reader, other = os.openpty()
    pipe, ends.reader = ends.reader, reader
    os.close(pipe)
    os.close(other)
    ends.start()
    assert ends.end().reason == "the link broke: Input/output error"


def test_a_machine_without_memory(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(_descriptor: int, _count: int) -> bytes:
        raise MemoryError

    ends.greet()
    monkeypatch.setattr(link_module, "os", SimpleNamespace(**{**vars(os), "read": none}))
    ends.link.wake()
    assert ends.end().reason == "the link needs more memory than there is"


def test_a_program_that_never_says_hello_is_not_waited_for(ends: Ends) -> None:
    ends.start()
    ends.now = 61.0
    ends.link.wake()
    end = ends.end()
    assert "no answer within 60 s" in end.reason and "mudroom worker --stdio" in end.hint and not end.said_hello


def test_a_worker_that_does_not_read_is_let_go(ends: Ends) -> None:
    ends.greet()
    ends.link.send(Frame(wire.ERRAND, 1, bytes(1 << 20)))
    _until(lambda: 1 not in ends.link.unsent())
    for number in range(2, 40):
        ends.link.send(Frame(wire.ERRAND, number, bytes(1 << 20)))
    end = ends.end()
    assert end.reason == "the worker does not read what it is sent"
    unsent = ends.link.unsent()
    assert {38, 39} <= unsent and 1 not in unsent
    assert MOST_UNSENT < 39 << 20


def test_parts_of_a_base_are_made_as_they_are_taken_and_yield_to_messages(ends: Ends) -> None:
    ends.greet()
    made = []

    def parts() -> Iterator[Frame]:
        for number in range(20):
            made.append(number)
            yield Frame(wire.OBJECTS, 0, bytes(1 << 20))

    ends.link.feed(parts())
    _until(lambda: bool(made))
    ends.link.send(wire.frame_of(wire.CANCEL, wire.CancelErrand("e", 1, 15), 3))
    kinds = [frame.kind for frame in ends.received(4)]
    assert kinds[0] == wire.HELLO and wire.CANCEL in kinds[1:4]
    assert len(made) < 10
    assert len(ends.received(15)) >= 15


def test_a_base_that_changes_is_told_and_the_link_goes_on(ends: Ends) -> None:
    ends.greet()

    def parts() -> Iterator[Frame]:
        yield Frame(wire.OBJECTS, 0, b"x")
        raise MudroomError("a.txt was changed while it was being sent")

    ends.link.feed(parts())
    (event,) = ends.events(1)
    assert isinstance(event, FeedFailed) and "a.txt" in str(event.error)
    ends.link.send(wire.frame_of(wire.BYE, wire.Bye("")))
    assert [frame.kind for frame in ends.received(3)] == [wire.HELLO, wire.OBJECTS, wire.BYE]


def test_each_kind_has_its_own_bound(ends: Ends) -> None:
    assert max(LIMITS.values()) == 4 << 20 < LARGEST
    reader = FrameReader(LIMITS, 1 << 16)
    for kind in (*LIMITS, wire.ACCEPTED, 200):
        limit = LIMITS.get(kind, 1 << 16)
        head = encode(Frame(kind, 0, b""))
        assert list(FrameReader(LIMITS, 1 << 16).feed(limit.to_bytes(4, "big") + head[4:])) == []
        with pytest.raises(LinkError, match="announced a frame"):
            list(reader.feed((limit + 1).to_bytes(4, "big") + head[4:]))


def test_what_was_written_before_the_end_is_read(ends: Ends) -> None:
    """A worker that writes its last frames and goes: they count, although nothing can be written to it any more."""
    ends.greet()
    os.close(ends.into)
    os.write(ends.out, encode(wire.frame_of(wire.PONG, wire.Pong(1, 0, 0.0, 5))))
    ends.link.send(wire.frame_of(wire.BYE, wire.Bye("")))
    os.close(ends.out)
    events = ends.events(2)
    assert isinstance(events[0], Frame) and events[0].kind == wire.PONG
    assert isinstance(events[1], LinkEnd) and "ended the link" in events[1].reason
    ends.into = ends.out = -1


def test_a_frame_that_is_cut_off_is_told(ends: Ends) -> None:
    ends.greet()
    os.write(ends.out, encode(wire.frame_of(wire.PONG, wire.Pong(1, 0, 0.0, 5)))[:-1])
    os.close(ends.out)
    assert "within a frame" in ends.end().reason
    ends.out = -1


def test_reasons_say_what_to_do() -> None:
    ended = MudroomError("the worker ended the link")
    for words, reason, hint in (
        ("ssh: Could not resolve hostname x: Name or service not known", "Could not resolve", "~/.ssh/config"),
        ("bash: line 1: mudroom: command not found", "command not found", "install mudroom there"),
        ("sh: 1: mudroom: not found", "not found", "install mudroom there"),
        ("Host key verification failed.", "Host key", "connect once by hand"),
        ("me@x: Permission denied (publickey,password).", "Permission denied", "ssh-copy-id"),
        ("connect to host x port 22: Connection refused", "refused", "is the machine up"),
        ("mudroom: there is no verb 'worker' (did you mean…)", "no verb", "upgrade"),
        ("\x1b[31mbad\x07", "bad", ""),
        ("", "the worker ended the link", ""),
    ):
        shown, todo = explain(ended, words, said_hello=False)
        assert reason in shown and hint in todo and "\x1b" not in shown and "\x07" not in shown, words
    assert explain(ended, "Killed", said_hello=True)[0] == "the worker ended the link; it said: Killed"
