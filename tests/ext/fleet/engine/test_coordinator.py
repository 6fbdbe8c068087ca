"""A coordinator: many nodes as one worker, each errand on one node, and no node that harms another's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from base_transfer import make, scanned
from cluster_nodes import Origin, ScriptedNode, coordinated, outcome, until

from mudroom.ext.fleet.base.manifest import base_id
from mudroom.ext.fleet.base.scan import Scanned
from mudroom.ext.fleet.engine.child import WorkerChild, worker_command
from mudroom.ext.fleet.wire import message as wire
from mudroom.ext.fleet.wire.frame import Frame, encode
from mudroom.ext.fleet.wire.message import frame_of, message_of


@pytest.fixture
def base(tmp_path: Path) -> Scanned:
    return scanned(make(tmp_path / "p", {"a.py": b"a\n", "src/b.py": b"b\n"}))


def two() -> tuple[ScriptedNode, ScriptedNode]:
    return ScriptedNode("one"), ScriptedNode("two")


def started(origin: Origin, base: Scanned) -> bytes:
    """Read the hello and send the base. Return its id."""
    origin.wait_for(wire.HELLO)
    origin.send_base(base)
    return base_id(base.base)


def state_of(frame: Frame) -> str:
    return message_of(frame, wire.ErrandOutcome).state


def test_the_nodes_are_one_worker_to_the_origin(tmp_path: Path) -> None:
    one, other = ScriptedNode("one", 2, (1, 2)), ScriptedNode("two", 3, (0, 1))
    with coordinated(tmp_path, one, other) as origin:
        hello = message_of(origin.wait_for(wire.HELLO), wire.WorkerHello)
        assert (hello.engine, set(hello.nodes), hello.levels) == ("test", {"one", "two"}, (0, 1, 2))
        assert (hello.processors, hello.memory, hello.free_disk) == (5, 200, 1000)
        names = [message_of(node.wait_for(wire.HELLO), wire.OriginHello).node for node in (one, other)]
        assert names == ["lab/one", "lab/two"]
        origin.send(wire.PING, wire.Ping(7))
        assert message_of(origin.wait_for(wire.PONG), wire.Pong).number == 7
        for node in (one, other):
            node.wait_for(wire.PING)  # both nodes' leases go on
    assert one.is_ended and other.is_ended


def test_the_base_is_sent_once_and_the_nodes_get_it_from_the_coordinator(tmp_path: Path, base: Scanned) -> None:
    one, other = two()
    one.wants = other.wants = tuple(base.files)
    with coordinated(tmp_path, one, other) as origin:
        origin.wait_for(wire.HELLO)
        assert origin.send_base(base) > 0
        assert origin.send_base(base) == 0
        for number in range(4):
            origin.run(base_id(base.base), f"e{number}")
        for _number in range(4):
            origin.wait_for(wire.ACCEPTED)
        assert len(one.errands) == len(other.errands) == 2
        assert one.objects == other.objects > 0


def test_an_errand_goes_where_its_base_lies(tmp_path: Path, base: Scanned) -> None:
    one, other = ScriptedNode("one", 4), ScriptedNode("two", 4)
    with coordinated(tmp_path, one, other) as origin:
        identity = started(origin, base)
        for number in range(3):
            origin.run(identity, f"e{number}")
            origin.wait_for(wire.ACCEPTED)
        assert sorted(map(len, (one.errands, other.errands))) == [0, 3]


def test_an_errand_waits_for_a_slot_and_its_frames_are_passed_on_as_they_came(tmp_path: Path, base: Scanned) -> None:
    one, other = ScriptedNode("one", 1), ScriptedNode("two", 1)
    with coordinated(tmp_path, one, other) as origin:
        identity = started(origin, base)
        streams = [origin.run(identity, f"e{number}") for number in range(3)]
        accepted = {origin.wait_for(wire.ACCEPTED).stream for _number in range(2)}
        assert accepted == set(streams[:2])
        one.reply(wire.OUT, wire.Out(1, 0, b"text"), next(iter(one.errands.values())))
        assert message_of(origin.wait_for(wire.OUT), wire.Out).data == b"text"
        one.finish(next(iter(one.errands)))
        assert state_of(origin.wait_for(wire.OUTCOME)) == "ended"
        assert origin.wait_for(wire.ACCEPTED).stream == streams[2]


def test_an_errand_is_placed_by_its_level(tmp_path: Path, base: Scanned) -> None:
    one, other = ScriptedNode("one", 8, (1,)), ScriptedNode("two", 1, (1, 2))
    with coordinated(tmp_path, one, other) as origin:
        identity = started(origin, base)
        origin.run(identity, "high", level=2)
        origin.wait_for(wire.ACCEPTED)
        assert "high" in other.errands
        stream = origin.run(identity, "none", level=0)
        failed = message_of(origin.wait_for(wire.FAILED, stream), wire.Failed)
        assert failed.reason == "no node of the cluster can run it at level 0"


def test_requests_about_an_errand_reach_its_node(tmp_path: Path, base: Scanned) -> None:
    one, other = two()
    with coordinated(tmp_path, one, other) as origin:
        identity = started(origin, base)
        stream = origin.run(identity, "e0")
        origin.wait_for(wire.ACCEPTED)
        node, idle = (one, other) if one.errands else (other, one)
        origin.send(wire.CANCEL, wire.CancelErrand("e0", 1, 15), stream)
        node.wait_for(wire.CANCEL)
        node.finish("e0", state="cancelled")
        assert state_of(origin.wait_for(wire.OUTCOME)) == "cancelled"
        origin.send(wire.FETCH, wire.Fetch("e0", 1, 0), 77)
        assert node.wait_for(wire.FETCH).stream == 77
        node.reply(wire.ARCHIVE, wire.ArchivePart(0, b"tar", True), 77)
        assert message_of(origin.wait_for(wire.ARCHIVE, 77), wire.ArchivePart).data == b"tar"
        origin.send(wire.KEPT, wire.Kept("e0", 1), 78)
        node.wait_for(wire.KEPT)
        origin.send(wire.FETCH, wire.Fetch("e0", 1, 0), 79)
        origin.wait_for(wire.FAILED, 79)
        assert all(frame.kind in (wire.HELLO, wire.PING) for frame in list(idle.received.queue))


def test_questions_of_two_nodes_have_numbers_of_their_own(tmp_path: Path, base: Scanned) -> None:
    one, other = ScriptedNode("one", 1), ScriptedNode("two", 1)
    with coordinated(tmp_path, one, other) as origin:
        identity = started(origin, base)
        for number in range(2):
            origin.run(identity, f"e{number}")
            origin.wait_for(wire.ACCEPTED)
        for node in (one, other):
            node.reply(wire.ASK, wire.Ask(1, "host", node.name.encode()), next(iter(node.errands.values())))
        asked = [origin.wait_for(wire.ASK) for _number in range(2)]
        numbers = {message_of(frame, wire.Ask).question: message_of(frame, wire.Ask).number for frame in asked}
        assert len(set(numbers.values())) == 2
        origin.send(wire.ANSWER, wire.Answer(numbers[b"two"], b"yes"), 1)
        answer = message_of(other.wait_for(wire.ANSWER), wire.Answer)
        assert answer == wire.Answer(1, b"yes")
        origin.send(wire.ANSWER, wire.Answer(999, b"yes"), 1)  # nobody's: ignored
        origin.send(wire.PING, wire.Ping(1))
        origin.wait_for(wire.PONG)


def test_connections_of_two_nodes_have_numbers_of_their_own(tmp_path: Path, base: Scanned) -> None:
    one, other = ScriptedNode("one", 1), ScriptedNode("two", 1)
    with coordinated(tmp_path, one, other) as origin:
        identity = started(origin, base)
        for number in range(2):
            origin.run(identity, f"e{number}")
            origin.wait_for(wire.ACCEPTED)
        for node in (one, other):
            node.reply(wire.DIAL, wire.Dial(1, node.name, 80, b""), next(iter(node.errands.values())))
        dials = [message_of(origin.wait_for(wire.DIAL), wire.Dial) for _number in range(2)]
        numbers = {dial.host: dial.number for dial in dials}
        assert len(set(numbers.values())) == 2
        origin.send(wire.DIALLED, wire.Dialled(numbers["two"], ""), 1)
        assert message_of(other.wait_for(wire.DIALLED), wire.Dialled) == wire.Dialled(1, "")
        origin.send_frame(Frame(wire.DATA, numbers["two"], b"to the node"))
        assert other.wait_for(wire.DATA) == Frame(wire.DATA, 1, b"to the node")
        other.reply_bytes(encode(Frame(wire.DATA, 1, b"to the origin")) + encode(Frame(wire.SHUT, 1)))
        assert origin.wait_for(wire.DATA) == Frame(wire.DATA, numbers["two"], b"to the origin")
        origin.wait_for(wire.SHUT)
        origin.send_frame(Frame(wire.SHUT, numbers["two"]))
        other.wait_for(wire.SHUT)
        other.reply_bytes(encode(Frame(wire.DATA, 1, b"late")))
        origin.send(wire.DIALLED, wire.Dialled(numbers["one"], "not allowed", True), 1)
        assert message_of(one.wait_for(wire.DIALLED), wire.Dialled) == wire.Dialled(1, "not allowed", True)
        one.reply(wire.DIAL, wire.Dial(1, "again", 80, b""), next(iter(one.errands.values())))
        again = message_of(origin.wait_for(wire.DIAL), wire.Dial).number
        one.disconnect()
        assert origin.wait_for(wire.SHUT) == Frame(wire.SHUT, again, b"\x01")


# --- nodes that are lost ---


def test_a_lost_node_ends_its_errands_alone(tmp_path: Path, base: Scanned) -> None:
    one, other = ScriptedNode("one", 1), ScriptedNode("two", 1)
    with coordinated(tmp_path, one, other) as origin:
        identity = started(origin, base)
        streams = {f"e{number}": origin.run(identity, f"e{number}") for number in range(3)}
        for _number in range(2):
            origin.wait_for(wire.ACCEPTED)
        lost = next(iter(one.errands))
        one.disconnect()
        frame = origin.wait_for(wire.OUTCOME)
        told = message_of(frame, wire.ErrandOutcome)
        assert (frame.stream, told.errand, told.state) == (streams[lost], lost, "lost")
        assert told.reason == "the node one is gone: the node was switched off"
        until(lambda: one.is_closed)
        origin.send(wire.FETCH, wire.Fetch(lost, 1, 0), 77)
        origin.wait_for(wire.FAILED, 77)
        other.finish(next(iter(other.errands)))
        assert state_of(origin.wait_for(wire.OUTCOME)) == "ended"
        assert origin.wait_for(wire.ACCEPTED).stream == streams["e2"]  # the one that waited goes to the other
    assert other.is_ended


def test_an_errand_that_was_not_sent_goes_to_another_node(tmp_path: Path, base: Scanned) -> None:
    one, other = two()
    one.wants = (b"\0" * 32,)  # in no base: the coordinator ends the node that asks for it
    other.refuses_bases = True
    third = ScriptedNode("three", 1)
    with coordinated(tmp_path, one, other, third) as origin:
        identity = started(origin, base)
        for number in range(2):
            origin.run(identity, f"e{number}")
        origin.wait_for(wire.ACCEPTED)
        third.finish(next(iter(third.errands)))
        origin.wait_for(wire.OUTCOME)
        origin.wait_for(wire.ACCEPTED)
        assert len(third.errands) == 2 and one.is_closed


def test_an_errand_waits_for_a_node_that_is_still_coming(
    tmp_path: Path, base: Scanned, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mudroom.ext.fleet.engine.coordinator.GREETING", 0.2)
    one, late = ScriptedNode("one", 1), ScriptedNode("late", 1)
    late.stall()
    with coordinated(tmp_path, one, late) as origin:
        identity = started(origin, base)
        one.disconnect()
        stream = origin.run(identity, "e0")
        origin.send(wire.PING, wire.Ping(1))
        assert origin.next().kind == wire.PONG  # it neither failed nor began
        late.resume()
        assert origin.wait_for(wire.ACCEPTED).stream == stream


def test_a_node_that_takes_nothing_is_lost_and_nobody_waits_for_it(
    tmp_path: Path, base: Scanned, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mudroom.ext.fleet.engine.cluster_node.MOST_UNSENT", 2000)
    one, other = ScriptedNode("one", 1), ScriptedNode("two", 1)
    with coordinated(tmp_path, one, other) as origin:
        identity = started(origin, base)
        for number in range(2):
            origin.run(identity, f"e{number}")
            origin.wait_for(wire.ACCEPTED)
        one.stall()
        for number in range(400):
            origin.send(wire.PING, wire.Ping(number))
            while other.received.get(timeout=60).kind != wire.PING:  # so that it is never the one which is behind
                pass
        told = message_of(origin.wait_for(wire.OUTCOME), wire.ErrandOutcome)
        assert (told.state, told.errand) == ("lost", next(iter(one.errands)))
        other.finish(next(iter(other.errands)))
        assert state_of(origin.wait_for(wire.OUTCOME)) == "ended"


def test_the_end_of_all_nodes_is_the_end_of_the_link(tmp_path: Path, base: Scanned) -> None:
    one, other = two()
    with coordinated(tmp_path, one, other) as origin:
        started(origin, base)
        one.disconnect()
        other.disconnect()
        assert "no node of the cluster is left" in message_of(origin.wait_for(wire.BYE), wire.Bye).reason


def test_a_cluster_without_a_worker_that_answers_says_so(tmp_path: Path) -> None:
    old = ScriptedNode("old", protocol=99)
    with coordinated(tmp_path, old) as origin:
        assert "no node" in message_of(origin.wait_for(wire.BYE), wire.Bye).reason
        assert old.is_closed


@pytest.mark.parametrize("moment", ["waiting", "before its base"])
def test_an_errand_that_was_not_sent_is_cancelled_here(tmp_path: Path, base: Scanned, moment: str) -> None:
    one = ScriptedNode("one", 1)
    with coordinated(tmp_path, one) as origin:
        identity = started(origin, base)
        if moment == "waiting":
            origin.run(identity, "first")
            origin.wait_for(wire.ACCEPTED)
        else:
            one.stall()
        stream = origin.run(identity, "e")
        origin.send(wire.CANCEL, wire.CancelErrand("e", 1, 15), stream)
        assert state_of(origin.wait_for(wire.OUTCOME, stream)) == "cancelled"
        one.close()
        assert "e" not in one.errands


# --- hostile nodes ---

OFFENCES: dict[str, Callable[[ScriptedNode, int, int], object]] = {
    "another's outcome": lambda node, _own, stream: node.reply(wire.OUTCOME, outcome("e1"), stream),
    "another's output": lambda node, _own, stream: node.reply(wire.OUT, wire.Out(1, 0, b"x"), stream),
    "another's question": lambda node, _own, stream: node.reply(wire.ASK, wire.Ask(1, "host", b""), stream),
    "another's connection": lambda node, _own, stream: node.reply(wire.DIAL, wire.Dial(1, "h", 80, b""), stream),
    "another errand on its stream": lambda node, own, _stream: node.reply(wire.OUTCOME, outcome("e1"), own),
    "another accepted": lambda node, own, _stream: node.reply(wire.ACCEPTED, wire.Accepted("e1", 1), own),
    "a frame for workers": lambda node, own, _stream: node.reply(wire.ERRAND, (), own),
    "an unknown kind": lambda node, own, _stream: node.reply(99, (), own),
    "an unreadable outcome": lambda node, own, _stream: node.reply(wire.OUTCOME, (1, 2), own),
    "a long frame": lambda node, own, _stream: node.reply_bytes(encode(Frame(wire.ACCEPTED, own, bytes(1 << 17)))),
    "2^32 bytes": lambda node, _own, _stream: node.reply_bytes(b"\xff\xff\xff\xff\x16\0\0\0\1"),
    "a base that was not offered": lambda node, _own, _stream: node.reply(wire.READY, wire.Ready(b"x" * 32)),
    "objects of nobody": lambda node, _own, _stream: node.reply(wire.WANT, wire.Want(b"", (b"x" * 32,), ())),
    "an unreadable hello": lambda node, _own, _stream: node.reply(wire.HELLO, ("x",)),
}


@pytest.mark.parametrize("offence", OFFENCES)
def test_a_node_that_breaks_the_protocol_ends_alone(tmp_path: Path, base: Scanned, offence: str) -> None:
    one, other = ScriptedNode("one", 1), ScriptedNode("two", 1)
    with coordinated(tmp_path, one, other) as origin:
        identity = started(origin, base)
        streams = [origin.run(identity, f"e{number}") for number in range(2)]
        for _number in range(2):
            origin.wait_for(wire.ACCEPTED)
        bad, good = (one, other) if "e0" in one.errands else (other, one)
        OFFENCES[offence](bad, streams[0], streams[1])
        frame = origin.wait_for(wire.OUTCOME)
        assert (frame.stream, state_of(frame)) == (streams[0], "lost")
        until(lambda: bad.is_closed)
        good.finish("e1")
        assert origin.wait_for(wire.OUTCOME).stream == streams[1]


def test_a_late_frame_is_dropped(tmp_path: Path, base: Scanned) -> None:
    one = ScriptedNode("one", 1)
    with coordinated(tmp_path, one) as origin:
        identity = started(origin, base)
        stream = origin.run(identity, "e0")
        origin.wait_for(wire.ACCEPTED)
        one.finish("e0")
        one.finish("e0", state="cancelled")
        origin.wait_for(wire.OUTCOME)
        origin.send(wire.PING, wire.Ping(1))
        assert origin.next().kind == wire.PONG
        assert stream == 1


def test_frames_of_the_origin_that_make_no_sense_end_the_link(tmp_path: Path) -> None:
    one = ScriptedNode("one", 1)
    with coordinated(tmp_path, one) as origin:
        origin.wait_for(wire.HELLO)
        origin.send_frame(Frame(wire.OBJECTS, 0, b"\0"))
        assert "before it offered" in message_of(origin.wait_for(wire.BYE), wire.Bye).reason


def test_an_errand_of_an_unknown_base_and_a_repeated_one_are_refused(tmp_path: Path, base: Scanned) -> None:
    one = ScriptedNode("one", 2)
    with coordinated(tmp_path, one) as origin:
        identity = started(origin, base)
        origin.wait_for(wire.FAILED, origin.run(b"x" * 32, "e0"))
        origin.run(identity, "e1")
        origin.wait_for(wire.ACCEPTED)
        again = message_of(origin.wait_for(wire.FAILED, origin.run(identity, "e1")), wire.Failed)
        assert "accepted already" in again.reason
        assert frame_of(wire.BYE, wire.Bye("")).kind == wire.BYE


def test_a_worker_of_a_node_loads_no_module_of_the_directory_it_starts_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster starts it in a job's directory."""
    job, ran = tmp_path / "job", tmp_path / "ran"
    job.mkdir()
    for name in ("json", "mudroom", "signal"):
        (job / f"{name}.py").write_text(f"open({str(ran)!r}, 'a').write(__name__)\n")
    monkeypatch.chdir(job)
    monkeypatch.setenv("MUDROOM_STATE", str(tmp_path / "state"))
    with WorkerChild(worker_command(1)) as worker:
        worker.end()
        while worker.read(60):
            pass
    assert not ran.exists(), ran.read_text()
