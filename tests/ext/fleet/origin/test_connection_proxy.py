"""Connections that commands on workers ask the origin for."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from conftest import Place
from mudroom.core.network.flow import Flow
from mudroom.core.network.host_rules import HostRule
from mudroom.core.settings import Settings
from mudroom.errors import MudroomError
from mudroom.ext.fleet.engine.process import start
from mudroom.ext.fleet.origin.connection_proxy import ConnectionProxy
from mudroom.ext.fleet.origin.link import OriginLink
from mudroom.ext.fleet.origin.run import FleetErrand, FrontEnd, RunRequest, begin
from mudroom.ext.fleet.origin.worker_registry import FleetWorker
from mudroom.ext.fleet.wire import message as wire
from mudroom.ext.fleet.wire.frame import Frame, LinkError
from mudroom.ext.fleet.wire.tunnel import CLOSED
from mudroom.session.confinement.dialler import DialledFork, ForkRefused
from mudroom.session.confinement.host_approver import HostAnswers


@pytest.fixture
def server() -> Iterator[int]:
    """A server on this machine's loopback that answers each connection with a greeting; its port."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _address = listener.accept()
            except OSError:
                return
            with connection:
                connection.sendall(b"hello from home\n")

    thread = threading.Thread(target=serve)
    thread.start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


def test_what_starts_a_worker_is_no_program_of_the_project(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = place.root / "ran"
    place.write("no-such-ssh", f"#!/bin/sh\necho > {ran}\n", 0o755)
    monkeypatch.chdir(place.project)
    with pytest.raises(MudroomError, match=r"^no-such-ssh: No such file or directory \(install it"):
        start([b"no-such-ssh", b"host"], "far", {b"PATH": b".::/usr/bin:/bin"})
    assert not ran.exists()


def test_a_command_on_a_worker_reaches_a_host_through_the_origin(place: Place, server: int, tmp_path: Path) -> None:
    rules = (HostRule("allow", "127.0.0.1", (server,), private=True, source="test"),)
    place.write("a.txt", "one\n")
    session = place.session(Settings(hosts=rules), hosts=HostAnswers(lambda: rules))
    worker = FleetWorker("far", (os.fsencode(sys.executable), b"-m", b"mudroom", b"worker", b"--stdio"))
    (tmp_path / "far-home").mkdir()
    # Without a container engine: its trial would leave files in the home that only other users can remove.
    there = {
        **os.environb,
        b"HOME": os.fsencode(tmp_path / "far-home"),
        b"MUDROOM_KEEPER": b"0",
        b"PATH": b"/nobody/is/here",
    }
    there.pop(b"XDG_STATE_HOME", None)
    printed = list[str]()
    front_end = FrontEnd(
        lambda chosen: start(chosen.argv, chosen.name, there), {}, line=lambda _printed, text: printed.append(text)
    )
    script = f"import socket; print(socket.create_connection(('127.0.0.1', {server})).recv(100).decode())"
    errand = FleetErrand((b"/usr/bin/python3", b"-c", script.encode()))
    with begin(session, RunRequest((errand,), through_origin=True), [worker], front_end) as run:
        (settled,) = run.settled()
    assert settled.row.outcome is not None and settled.row.outcome.exit_code == 0
    assert "hello from home" in printed
    (event,) = [event for event in session.vault.journal.events() if event.kind == "flow"]
    assert f'"port":{server}' in event.data.replace(" ", "") and "asked for by a worker" in event.data


# --- the gate by itself ---


class FakeLink:
    """A link whose frames come here."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self._received = threading.Condition()

    def send(self, frame: Frame) -> None:
        with self._received:
            self.frames.append(frame)
            self._received.notify_all()

    def wait_for(self, kind: int) -> Frame:
        def found() -> Frame | None:
            return next((frame for frame in self.frames if frame.kind == kind), None)

        with self._received:
            assert self._received.wait_for(lambda: found() is not None, 60)
        frame = found()
        assert frame is not None
        return frame

    def wait_for_number(self, number: int) -> None:
        def has_come() -> bool:
            return any(
                wire.message_of(frame, wire.Dialled).number == number
                for frame in self.frames
                if frame.kind == wire.DIALLED
            )

        with self._received:
            assert self._received.wait_for(has_come, 60)

    def answer(self) -> wire.Dialled:
        return wire.message_of(self.wait_for(wire.DIALLED), wire.Dialled)


MakeProxy = Callable[..., tuple[ConnectionProxy, OriginLink, list[Flow]]]


@pytest.fixture
def make_proxy() -> Iterator[MakeProxy]:
    proxies = list[ConnectionProxy]()

    def make(*rules: HostRule, answered: bool = False, **more: Any) -> tuple[ConnectionProxy, OriginLink, list[Flow]]:
        flows = list[Flow]()
        proxy = ConnectionProxy(lambda: rules, lambda *_call: answered, lambda _fork, flow: flows.append(flow), **more)
        proxies.append(proxy)
        return proxy, cast("OriginLink", FakeLink()), flows

    yield make
    for proxy in proxies:
        proxy.close()


def fake(link: OriginLink) -> FakeLink:
    return cast("FakeLink", link)


PUBLIC = [socket.inet_aton("93.184.216.34")]
REFUSED: dict[str, tuple[list[HostRule], dict[str, Any], str]] = {
    "no rule": ([], {}, "no rule"),
    "a denied host": ([HostRule("deny", "a.example"), HostRule("allow", "a.example")], {}, ""),
    "one that is asked about, and was not": ([HostRule("ask", "a.example")], {}, ""),
    "only some requests": ([HostRule("allow", "a.example", methods=("GET",))], {}, ""),
    "only some paths": ([HostRule("allow", "a.example", paths=("/x",))], {}, ""),
    "inspected": ([HostRule("allow", "a.example", inspect=True)], {}, ""),
    "inspected, with an answer": ([HostRule("ask", "a.example", inspect=True)], {"answered": True}, ""),
    "held, and allowed by another rule": (
        [HostRule("allow", "a.example"), HostRule("allow", "*.example", inspect=True, hold=True)], {}, "",
    ),
    "with a header": ([HostRule("allow", "a.example", set_headers=(("a", "b"),))], {}, ""),
    "bound by another rule": (
        [HostRule("allow", "a.example"), HostRule("allow", "a.example", inspect=True, only=True)], {}, "only some",
    ),
    "a private address": ([HostRule("allow", "a.example")], {"look_up": lambda _host: [b"\x7f\0\0\1"]}, "127.0.0.1"),
    "a denied address": (
        [HostRule("allow", "a.example"), HostRule("deny", "93.184.216.34")],
        {"look_up": lambda _host: PUBLIC},
        "denied",
    ),
    "a proxy": ([HostRule("allow", "a.example")], {"upstream": "http://proxy:3128"}, "through a proxy"),
}  # fmt: skip


def test_what_the_origin_s_rules_do_not_open_is_refused_and_journalled(make_proxy: MakeProxy) -> None:
    for name, (rules, more, reason) in REFUSED.items():
        proxy, link, flows = make_proxy(*rules, **more)
        proxy.dial(link, 3, wire.Dial(1, "a.example", 80, b""), "f", "e")
        answer = fake(link).answer()
        assert answer.is_refused and reason in answer.reason, name
        assert [flow.verdict for flow in flows] == ["deny"], name


class PendingFork:
    """A connection to a fork that stands at once."""

    def __init__(self, http: bool = False) -> None:
        self.near, self._far = socket.socketpair()
        self._http = http

    def fileno(self) -> int:
        return -1

    def result(self) -> DialledFork:
        return DialledFork(self._far.detach(), "network.forks", self._http)

    def close(self) -> None:
        """Nothing is being made."""


FORK = "b.mudroom.internal"


def test_a_fork_here_is_reached_if_both_consent(make_proxy: MakeProxy) -> None:
    pending, calls = PendingFork(), list[tuple[str, str, str, int]]()

    def dial_fork(*call: Any) -> PendingFork:
        calls.append(call)
        return pending

    proxy, link, flows = make_proxy(dial_fork=dial_fork)
    proxy.dial(link, 3, wire.Dial(1, FORK, 8000, b"", "a-worker-s-word"), "f", "e")
    assert fake(link).answer() == wire.Dialled(1, "")
    pending.near.sendall(b"hi")
    assert fake(link).wait_for(wire.DATA).body == b"hi"
    assert calls == [("f", "e", FORK, 8000)]  # its own name for the caller, not the worker's
    assert [(flow.verdict, flow.address) for flow in flows] == [("allow", "fork b")]
    pending.near.close()


def test_a_fork_that_does_not_consent_is_refused(make_proxy: MakeProxy) -> None:
    def dial_fork(*_call: Any) -> PendingFork:
        raise ForkRefused("the fork b shows no port")

    with_http = PendingFork(http=True)
    for more in ({}, {"dial_fork": dial_fork}, {"dial_fork": lambda *_call: with_http}):
        proxy, link, flows = make_proxy(HostRule("allow", FORK, private=True), **more)
        proxy.dial(link, 3, wire.Dial(1, FORK, 80, b""), "f", "e")
        assert fake(link).answer().is_refused and [flow.verdict for flow in flows] == ["deny"]
    with_http.near.close()


def test_a_denied_fork_is_not_even_looked_for(make_proxy: MakeProxy) -> None:
    def dial_fork(*_call: Any) -> PendingFork:
        raise AssertionError

    proxy, link, flows = make_proxy(HostRule("deny", FORK), dial_fork=dial_fork)
    for host in (FORK, "mudroom.internal", "a.b.mudroom.internal"):
        proxy.dial(link, 3, wire.Dial(1, host, 80, b""), "f", "e")
    assert [flow.verdict for flow in flows] == ["deny"] * 3
    assert all(wire.message_of(frame, wire.Dialled).is_refused for frame in fake(link).frames)


@pytest.mark.parametrize(("host", "port"), [("A.example", 80), ("a b", 80), ("é", 80), ("", 80), ("a.example", 0)])
def test_a_host_that_is_none_breaks_the_protocol(make_proxy: MakeProxy, host: str, port: int) -> None:
    proxy, link, _flows = make_proxy()
    with pytest.raises(LinkError):
        proxy.dial(link, 3, wire.Dial(1, host, port, b""), "f", "e")


def test_an_answered_question_opens_its_host_and_bytes_go_both_ways(make_proxy: MakeProxy, server: int) -> None:
    rule = HostRule("ask", "a.example", (server,), private=True)
    proxy, link, flows = make_proxy(rule, answered=True, look_up=lambda _host: [b"\x7f\0\0\1"])
    proxy.dial(link, 3, wire.Dial(1, "a.example", server, b""), "f", "e")
    assert fake(link).answer() == wire.Dialled(1, "")
    assert fake(link).wait_for(wire.DATA) == Frame(wire.DATA, 1, b"hello from home\n")
    assert fake(link).wait_for(wire.SHUT).body in (b"", CLOSED)
    assert [(flow.verdict, flow.address) for flow in flows] == [("allow", "127.0.0.1")]


def test_a_worker_that_answers_at_once_loses_no_byte(make_proxy: MakeProxy) -> None:
    """Its first bytes may come before the thread that made the connection goes on."""
    received = list[bytes]()
    has_heard = threading.Event()

    def listen(listener: socket.socket) -> None:
        client, _address = listener.accept()
        with client:
            received.append(client.recv(100))
            has_heard.set()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=listen, args=(listener,), daemon=True).start()
        port = listener.getsockname()[1]
        proxy, link, _flows = make_proxy(HostRule("allow", "127.0.0.1", (port,), private=True))

        def send(frame: Frame) -> None:
            if frame.kind == wire.DIALLED:
                answer = threading.Thread(target=proxy.take, args=(link, Frame(wire.DATA, 1, b"at once")), daemon=True)
                answer.start()
                answer.join(0.2)

        fake(link).send = send  # type: ignore[method-assign]
        proxy.dial(link, 3, wire.Dial(1, "127.0.0.1", port, b""), "f", "e")
        assert has_heard.wait(20)
    assert received == [b"at once"]


def test_a_server_that_is_not_there_is_told(make_proxy: MakeProxy) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    proxy, link, flows = make_proxy(HostRule("allow", "127.0.0.1", (port,), private=True))
    proxy.dial(link, 3, wire.Dial(1, "127.0.0.1", port, b""), "f", "e")
    answer = fake(link).answer()
    assert not answer.is_refused and answer.reason == "connection refused"
    assert [flow.error for flow in flows] == ["connection refused"]


def test_many_refusals_cost_neither_descriptors_nor_a_row_each(make_proxy: MakeProxy) -> None:
    proxy, link, flows = make_proxy(HostRule("allow", "a.example"), look_up=lambda _host: [b"\x7f\0\0\1"])
    proxy.dial(link, 3, wire.Dial(1, "a.example", 80, b""), "f", "e")
    assert fake(link).answer().is_refused
    before = len(os.listdir("/proc/self/fd"))
    for number in range(2, 302):
        proxy.dial(link, 3, wire.Dial(number, "a.example", 80, b""), "f", "e")
        proxy.dial(link, 3, wire.Dial(number + 1000, "other.example", 80, b""), "f", "e")
        fake(link).wait_for_number(number)
    assert len(os.listdir("/proc/self/fd")) <= before + 2
    assert [flow.host for flow in flows] == ["a.example", "other.example"]
    proxy.close()
    assert [(flow.host, flow.repeats) for flow in flows[2:]] == [("a.example", 299), ("other.example", 298)]
