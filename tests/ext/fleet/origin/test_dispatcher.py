"""Errands on scripted workers: each runs at most once, each ends, and forks come back."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from origin_fixtures import Follow, archive, follow, session
from scripted_worker import HELLO, ScriptedFleet, ScriptedWorker

from conftest import Place, full_listing
from mudroom import __version__
from mudroom.core.network.host_rules import HostRule
from mudroom.core.settings import Settings
from mudroom.errors import MudroomError, UsageError
from mudroom.ext.fleet.cli import fleet_run, fleet_table
from mudroom.ext.fleet.origin import dispatcher
from mudroom.ext.fleet.origin.errand_log import ErrandLog
from mudroom.ext.fleet.origin.probe import probe
from mudroom.ext.fleet.origin.run import FleetErrand, FrontEnd, RunRequest, begin
from mudroom.ext.fleet.wire import message as wire
from mudroom.session import Session

__all__ = ["archive", "follow", "session"]


def test_errands_come_back_as_forks(place: Place, session: Session, follow: Follow, archive: bytes) -> None:
    fleet = ScriptedFleet(a=lambda: ScriptedWorker(archive), b=lambda: ScriptedWorker(archive))
    before = full_listing(place.project)
    here = follow(fleet, 6)
    assert here.states() == [(f"r1-{number}", 1, "kept", f"r1-{number}") for number in range(1, 7)]
    assert {row.changed for row in here.rows()} == {2}
    assert full_listing(place.project) == before
    assert "+one and" not in here.reasons()
    assert b"".join(session.changes.diff("r1-3")).count(b"+more") == 1
    errands = [
        wire.message_of(frame, wire.Errand) for name in ("a", "b") for frame in fleet.received(name, wire.ERRAND)
    ]
    assert sorted(errand.number for errand in errands) == [1, 2, 3, 4, 5, 6]
    assert len(fleet.received("a", wire.KEPT)) + len(fleet.received("b", wire.KEPT)) == 6


def test_an_errand_without_changes_has_no_fork(session: Session, follow: Follow) -> None:
    here = follow(ScriptedFleet(a=ScriptedWorker), 2)
    assert here.states() == [("r1-1", 1, "kept", ""), ("r1-2", 1, "kept", "")]
    assert session.vault.forks() == []


def test_a_name_that_is_taken_is_left_alone(session: Session, follow: Follow, archive: bytes) -> None:
    session.forks.new("r1-1")
    here = follow(ScriptedFleet(a=lambda: ScriptedWorker(archive)))
    assert here.states() == [("r1-1", 1, "kept", "r1-1-2")]
    assert list(session.changes.diff("r1-1")) == []


def _first(one: Callable[[], ScriptedWorker], others: Callable[[], ScriptedWorker]) -> Callable[[], ScriptedWorker]:
    """Return a maker for workers: the first is another than the rest."""
    makers = itertools.chain([one], itertools.repeat(others))

    def make() -> ScriptedWorker:
        return next(makers)()

    return make


def _hello(**fields: Any) -> Callable[[ScriptedWorker, None], None]:
    return lambda worker, _: worker.send(wire.HELLO, HELLO._replace(**fields))


def _dies(worker: ScriptedWorker, errand: wire.Errand, stream: int) -> None:
    worker.send(wire.ACCEPTED, wire.Accepted(errand.errand, errand.attempt), stream)
    worker.end()


def test_an_errand_whose_worker_is_gone_is_lost_and_not_repeated(follow: Follow) -> None:
    fleet = ScriptedFleet(a=lambda: ScriptedWorker(errand=_dies))
    here = follow(fleet)
    assert here.states() == [("r1-1", 1, "lost", "")]
    assert len(fleet.received("a", wire.ERRAND)) == 1


def test_it_is_repeated_as_often_as_is_allowed(follow: Follow, archive: bytes) -> None:
    fleet = ScriptedFleet(a=_first(lambda: ScriptedWorker(errand=_dies), lambda: ScriptedWorker(archive)))
    here = follow(fleet, retry=1)
    assert here.states() == [("r1-1", 1, "lost", ""), ("r1-1", 2, "kept", "r1-1")]
    attempts = [wire.message_of(frame, wire.Errand).attempt for frame in fleet.received("a", wire.ERRAND)]
    assert attempts == [1, 2]


def test_an_errand_that_was_never_accepted_is_given_to_another(follow: Follow) -> None:
    """The worker says itself that it has not got it."""

    def ignores(worker: ScriptedWorker, _errand: wire.Errand, _stream: int) -> None:
        worker.end()

    fleet = ScriptedFleet(a=_first(lambda: ScriptedWorker(errand=ignores), ScriptedWorker))
    here = follow(fleet, lease=30.0)
    assert here.states() == [("r1-1", 1, "kept", "")]


@pytest.mark.parametrize("is_killed", [True, False])
def test_a_worker_that_is_killed_before_its_hello_is_tried_again(follow: Follow, is_killed: bool) -> None:
    """A program that exits by itself is not: the words that start it are wrong."""

    def dies(worker: ScriptedWorker, _nothing: None) -> None:
        worker.is_killed = is_killed
        worker.end()

    here = follow(ScriptedFleet(a=_first(lambda: ScriptedWorker(hello=dies), ScriptedWorker)))
    assert here.states() == [("r1-1", 1, "kept" if is_killed else "failed", "")]


def test_a_worker_that_comes_back_within_the_lease_goes_on(follow: Follow, archive: bytes) -> None:
    accepted: list[wire.HeldErrand] = []

    def breaks(worker: ScriptedWorker, errand: wire.Errand, stream: int) -> None:
        accepted.append(wire.HeldErrand(errand.errand, errand.attempt, "accepted"))
        _dies(worker, errand, stream)

    def back() -> ScriptedWorker:
        return ScriptedWorker(archive, hello=_hello(held=tuple(accepted)))

    fleet = ScriptedFleet(a=_first(lambda: ScriptedWorker(errand=breaks), back))
    here = follow(fleet, lease=30.0)
    assert here.states() == [("r1-1", 1, "kept", "r1-1")]
    assert len(fleet.received("a", wire.ERRAND)) == 1


def test_a_late_outcome_replaces_nothing(session: Session, follow: Follow, archive: bytes) -> None:
    given: list[wire.HeldErrand] = []

    def breaks(worker: ScriptedWorker, errand: wire.Errand, stream: int) -> None:
        given.append(wire.HeldErrand(errand.errand, errand.attempt, "ended"))
        _dies(worker, errand, stream)

    first = follow(ScriptedFleet(a=lambda: ScriptedWorker(errand=breaks)))
    assert first.states() == [("r1-1", 1, "lost", "")]
    session.forks.new("r1-1")

    def back() -> ScriptedWorker:
        return ScriptedWorker(archive, hello=_hello(held=tuple(given)))

    second = follow(ScriptedFleet(a=back), again="r1")
    assert second.states() == [("r1-1", 1, "kept", "r1-1-late")]
    assert {fork.name for fork in session.vault.forks()} == {"r1-1", "r1-1-late"}


def test_an_errand_of_a_lost_machine_of_an_engine_stays_lost_until_it_is_back(follow: Follow, archive: bytes) -> None:
    """An engine outlives its machines, and tells that one is lost."""
    given: list[wire.HeldErrand] = []

    def tells(worker: ScriptedWorker, errand: wire.Errand, stream: int) -> None:
        given.append(wire.HeldErrand(errand.errand, errand.attempt, "ended"))
        worker.send(wire.OUTCOME, worker.outcome(errand, state="lost", archive=0, reason="the node n2 is gone"), stream)

    first = follow(ScriptedFleet(a=lambda: ScriptedWorker(errand=tells)))
    assert first.states() == [("r1-1", 1, "lost", "")]
    assert "the node n2 is gone" in first.reasons()
    again = follow(ScriptedFleet(a=ScriptedWorker), again="r1")
    assert again.states() == [("r1-1", 1, "lost", "")]

    def back() -> ScriptedWorker:
        return ScriptedWorker(archive, hello=_hello(held=tuple(given)))

    assert follow(ScriptedFleet(a=back), again="r1").states() == [("r1-1", 1, "kept", "r1-1-late")]


def test_an_archive_on_a_lost_machine_of_an_engine_is_fetched_later(follow: Follow, archive: bytes) -> None:
    def gone(worker: ScriptedWorker, _fetch: wire.Fetch, stream: int) -> None:
        worker.send(wire.FAILED, wire.Failed("the node n2 is gone", for_now=True), stream)

    fleet = ScriptedFleet(a=lambda: ScriptedWorker(archive, fetch=gone))
    first = follow(fleet)
    assert first.states() == [("r1-1", 1, "ended", "")]
    assert "the node n2 is gone" in first.reasons()
    assert len(fleet.received("a", wire.FETCH)) == 1 and fleet.received("a", wire.KEPT) == []
    second = follow(ScriptedFleet(a=lambda: ScriptedWorker(archive)), again="r1")
    assert second.states() == [("r1-1", 1, "kept", "r1-1")]
    assert [row.reason for row in second.rows()] == [""]


def test_the_best_is_fetched_and_the_rest_stays_there(follow: Follow, archive: bytes) -> None:
    def judged(worker: ScriptedWorker, errand: wire.Errand, stream: int) -> None:
        worker.send(wire.ACCEPTED, wire.Accepted(errand.errand, errand.attempt), stream)
        outcome = worker.outcome(errand, judged=0 if errand.number in (2, 4) else 1, added=10 - errand.number)
        worker.send(wire.OUTCOME, outcome, stream)

    fleet = ScriptedFleet(a=lambda: ScriptedWorker(archive, errand=judged))
    here = follow(fleet, 5, fetch="best")
    assert [(label, state, fork) for label, _attempt, state, fork in here.states()] == [
        ("r1-1", "ended", ""),
        ("r1-2", "ended", ""),
        ("r1-3", "ended", ""),
        ("r1-4", "kept", "r1-4"),
        ("r1-5", "ended", ""),
    ]
    assert len(fleet.received("a", wire.FETCH)) == len(fleet.received("a", wire.KEPT)) == 1
    none = follow(ScriptedFleet(a=lambda: ScriptedWorker(archive)), 2, fetch="none")
    assert [state for _label, _attempt, state, _fork in none.states()] == ["ended"] * 2


def test_what_stayed_there_is_fetched_by_name(follow: Follow, archive: bytes) -> None:
    def make() -> ScriptedWorker:
        return ScriptedWorker(archive, hello=_hello(held=tuple(held)))

    held: list[wire.HeldErrand] = []
    first = follow(ScriptedFleet(a=make), 3, fetch="none")
    keys = [row.key for row in first.rows()]
    held += [wire.HeldErrand(*key, "ended") for key in keys]
    fleet = ScriptedFleet(a=make)
    second = follow(fleet, again="r1", wanted=frozenset({keys[1]}))
    assert [(state, fork) for _label, _attempt, state, fork in second.states()] == [
        ("ended", ""),
        ("kept", "r1-2"),
        ("ended", ""),
    ]
    assert fleet.received("a", wire.ERRAND) == fleet.received("a", wire.OFFER) == []

    def gone(worker: ScriptedWorker, _fetch: wire.Fetch, stream: int) -> None:
        worker.send(wire.FAILED, wire.Failed("it was discarded"), stream)

    third = follow(ScriptedFleet(a=lambda: ScriptedWorker(fetch=gone)), again="r1", wanted=frozenset({keys[0]}))
    assert [state for _label, _attempt, state, _fork in third.states()] == ["failed", "kept", "ended"]


def test_what_an_earlier_run_left_there_is_discarded(follow: Follow, archive: bytes) -> None:
    first = follow(ScriptedFleet(a=lambda: ScriptedWorker(archive)))
    held = (wire.HeldErrand(*first.rows()[0].key, "ended"), wire.HeldErrand("f" * 16, 1, "ended"))

    def refuses(worker: ScriptedWorker, kept: wire.Kept, stream: int) -> None:
        worker.send(wire.FAILED, wire.Failed("it is gone already"), stream)

    fleet = ScriptedFleet(a=lambda: ScriptedWorker(hello=_hello(held=held), kept=refuses))
    assert [state for _label, _attempt, state, _fork in follow(fleet).states()] == ["kept"]
    told = {wire.message_of(frame, wire.Kept).errand for frame in fleet.received("a", wire.KEPT)}
    assert first.rows()[0].errand in told and "f" * 16 not in told


def test_no_secret_stays_in_the_log(place: Place, session: Session, follow: Follow) -> None:
    token = b"ghp_" + b"a1B2" * 9
    errand = FleetErrand((b"sh", b"-c", b"curl -H 'Authorization: Bearer " + token + b"' x"), "", ((b"TOKEN", token),))
    fleet = ScriptedFleet(a=ScriptedWorker)
    with begin(session, RunRequest((errand,)), fleet.workers, FrontEnd(fleet.start, {})) as run:
        assert [settled.row.state for settled in run.settled()] == ["kept"]
    assert token in fleet.started["a"][0].recorded
    assert run.row.command[0] == b"sh" and token not in b"".join(run.row.command)
    log = ErrandLog(session.vault.path)
    assert log.errands("r1")[0].message.variables == ()
    assert token not in b"".join(log.errands("r1")[0].message.argv)
    log.close()


def test_a_round_is_one_transaction(
    session: Session, follow: Follow, archive: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    commits: list[int] = []
    commit = ErrandLog.commit

    def counted(log: ErrandLog) -> None:
        commits.append(len(log._pending))
        commit(log)

    monkeypatch.setattr(ErrandLog, "commit", counted)
    here = follow(ScriptedFleet(a=lambda: ScriptedWorker(archive)), 40)
    assert {state for _label, _attempt, state, _fork in here.states()} == {"kept"}
    assert sum(1 for count in commits if count) <= 40 * 3


def test_a_broken_fetch_goes_on_where_it_was(follow: Follow, archive: bytes) -> None:
    offsets: list[int] = []
    held: list[wire.HeldErrand] = []

    def half(worker: ScriptedWorker, fetch: wire.Fetch, stream: int) -> None:
        offsets.append(fetch.offset)
        held[:] = [wire.HeldErrand(fetch.errand, fetch.attempt, "ended")]
        end = min(len(archive), fetch.offset + 100)
        worker.send(
            wire.ARCHIVE, wire.ArchivePart(fetch.offset, archive[fetch.offset : end], end == len(archive)), stream
        )
        if end < len(archive):
            worker.end()

    def make() -> ScriptedWorker:
        return ScriptedWorker(archive, fetch=half, hello=_hello(held=tuple(held)))

    here = follow(ScriptedFleet(a=make))
    assert here.states() == [("r1-1", 1, "kept", "r1-1")]
    assert offsets == sorted(set(offsets)) and len(offsets) == -(-len(archive) // 100)


OLDER, NEWER = "pipx upgrade mudroom, there", "pipx upgrade mudroom, here"


@pytest.mark.parametrize(
    ("hello", "said"),
    [
        (
            [1, "0.0.9"],
            f"a: mudroom 0.0.9 there speaks protocol 1, mudroom {__version__} here {wire.PROTOCOL}: {OLDER}",
        ),
        ([9, "9.9"], f"a: mudroom 9.9 there speaks protocol 9, mudroom {__version__} here {wire.PROTOCOL}: {NEWER}"),
        ([9, "9.9", *[{"strange": 1}] * 30], f"speaks protocol 9, mudroom {__version__} here {wire.PROTOCOL}: {NEWER}"),
        (HELLO._replace(mudroom="9.9", vault_format=99), "a: mudroom 9.9 there has vaults of format 99, mudroom"),
    ],
)
def test_a_worker_of_another_version_is_named_with_the_command_that_mends_it(
    follow: Follow, hello: object, said: str
) -> None:
    """Whatever the rest of its hello is: the first two fields are the same in every protocol."""
    fleet = ScriptedFleet(a=lambda: ScriptedWorker(hello=lambda worker, _: worker.send(wire.HELLO, hello)))
    here = follow(fleet)
    (row,) = here.rows()
    assert row.state == "failed" and said in row.reason and "\n" not in row.reason
    asked = probe(fleet.workers, fleet.start, 20.0)
    assert said.removeprefix("a: ") in asked[0].reason and fleet_table.probe_lines(asked)[0].startswith("a  not usable")


@pytest.mark.parametrize(
    ("hello", "reason"),
    [
        ({"protocol": 9}, "speaks protocol 9"),
        ({"vault_format": 99}, "format 99"),
        ({"arch": "riscv64"}, "riscv64 processors"),
        ({"levels": (0,)}, "cannot run commands at level 1"),
        ({"levels": ()}, "cannot run commands at level 1"),
    ],
)
def test_a_worker_that_does_not_fit_gets_nothing(follow: Follow, hello: dict[str, Any], reason: str) -> None:
    def unfit() -> ScriptedWorker:
        return ScriptedWorker(hello=_hello(**hello))

    fleet = ScriptedFleet(a=unfit, b=ScriptedWorker)
    here = follow(fleet, 3)
    assert {state for _label, _attempt, state, _fork in here.states()} == {"kept"}
    assert fleet.received("a", wire.OFFER) == fleet.received("a", wire.ERRAND) == []
    alone = follow(ScriptedFleet(a=unfit), 2)
    assert {state for _label, _attempt, state, _fork in alone.states()} == {"failed"}
    assert all(reason in row.reason for row in alone.rows())


def test_a_worker_that_cannot_serve_says_why(follow: Follow) -> None:
    def refuses(worker: ScriptedWorker, _nothing: None) -> None:
        worker.send(wire.BYE, wire.Bye("its state directory is on NFS\x1b[2J"))

    here = follow(ScriptedFleet(a=lambda: ScriptedWorker(hello=refuses)))
    assert [row.state for row in here.rows()] == ["failed"]
    assert "its state directory is on NFS" in here.reasons() and "\x1b" not in here.reasons()


def test_no_more_errands_than_a_worker_has_processors_for(follow: Follow) -> None:
    running = most = 0

    def slow(worker: ScriptedWorker, errand: wire.Errand, stream: int) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        worker.send(wire.ACCEPTED, wire.Accepted(errand.errand, errand.attempt), stream)
        if running == 3 or errand.number > 9:
            running = 0
            for held, on in [*waiting, (errand, stream)]:
                worker.send(wire.OUTCOME, worker.outcome(held), on)
            waiting.clear()
        else:
            waiting.append((errand, stream))

    waiting: list[tuple[wire.Errand, int]] = []
    fleet = ScriptedFleet(a=lambda: ScriptedWorker(errand=slow, hello=_hello(processors=3)))
    here = follow(fleet, 12)
    assert {state for _label, _attempt, state, _fork in here.states()} == {"kept"}
    assert most == 3


def test_cancelled_errands_end_and_those_that_ended_stay(session: Session, follow: Follow, archive: bytes) -> None:
    def second_waits(worker: ScriptedWorker, errand: wire.Errand, stream: int) -> None:
        worker.send(wire.ACCEPTED, wire.Accepted(errand.errand, errand.attempt), stream)
        if errand.number == 1:
            worker.send(wire.OUTCOME, worker.outcome(errand), stream)
        else:
            log = ErrandLog(session.vault.path)
            log.request_cancel(row.errand for row in log.errands("r1"))
            log.close()

    hello = _hello(processors=1)
    here = follow(ScriptedFleet(a=lambda: ScriptedWorker(archive, errand=second_waits, hello=hello)), 3)
    assert here.states() == [("r1-1", 1, "kept", "r1-1"), ("r1-2", 1, "cancelled", ""), ("r1-3", 1, "cancelled", "")]


def test_one_process_has_the_errands_of_a_project(session: Session, follow: Follow) -> None:
    log = ErrandLog(session.vault.path)
    log.acquire("process 7")
    with pytest.raises(UsageError, match="in the hands of process 7"):
        follow(ScriptedFleet(a=ScriptedWorker))
    log.close()
    assert follow(ScriptedFleet(a=ScriptedWorker)).states() == [("r1-1", 1, "kept", "")]


def test_a_project_that_is_edited_while_it_is_sent_is_sent_anew(place: Place, follow: Follow) -> None:
    offers: list[wire.Base] = []

    def wants(worker: ScriptedWorker, base: wire.Base) -> None:
        from mudroom.ext.fleet.base.manifest import base_id

        offers.append(base)
        if len(offers) == 1:
            place.write("a.txt", "edited meanwhile\n")
            digest = _digest_of_a("one\n")
            worker.send(wire.WANT, wire.Want(base_id(base), (), (digest,)))
        else:
            worker.send(wire.READY, wire.Ready(base_id(base)))

    here = follow(ScriptedFleet(a=lambda: ScriptedWorker(offer=wants)))
    assert here.states() == [("r1-1", 1, "kept", "")]
    assert len(offers) == 2 and offers[0] != offers[1]


def test_a_project_that_never_stands_still_is_not_sent(place: Place, follow: Follow) -> None:
    content = ["one\n"]

    def wants(worker: ScriptedWorker, base: wire.Base) -> None:
        from mudroom.ext.fleet.base.manifest import base_id

        digest = _digest_of_a(content[-1])
        content.append(f"edit {len(content)}\n")
        place.write("a.txt", content[-1])
        worker.send(wire.WANT, wire.Want(base_id(base), (), (digest,)))

    told = r"\Athe project does not stand still while it is sent: a\.txt .* \(run it again\)\Z"
    with pytest.raises(MudroomError, match=told):
        follow(ScriptedFleet(a=lambda: ScriptedWorker(offer=wants)))


def _digest_of_a(content: str) -> bytes:
    from mudroom.ext.fleet.base.manifest import digest_of_content

    return digest_of_content(content.encode())


def test_a_worker_that_answers_and_sends_no_archive_holds_up_nothing(
    follow: Follow, archive: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatcher, "STALL", 0.05)
    silent = ScriptedFleet(a=lambda: ScriptedWorker(archive, fetch=lambda *_nothing: None))
    here = follow(silent)
    assert here.states() == [("r1-1", 1, "ended", "")]
    assert "has sent nothing of an archive" in here.reasons()
    assert len(silent.started["a"]) > 1  # it is tried again, and given up in the end
    here = follow(ScriptedFleet(a=lambda: ScriptedWorker(archive)), again="r1")
    assert here.states() == [("r1-1", 1, "kept", "r1-1")]


def test_an_errand_that_was_killed_with_its_worker_is_no_success(
    session: Session, follow: Follow, archive: bytes
) -> None:
    def killed(worker: ScriptedWorker, errand: wire.Errand, stream: int) -> None:
        worker.send(wire.ACCEPTED, wire.Accepted(errand.errand, errand.attempt), stream)
        worker.send(wire.OUTCOME, worker.outcome(errand, state="lost", reason="the worker ended"), stream)

    for packed in (b"", archive):
        here = follow(ScriptedFleet(a=partial(ScriptedWorker, packed, errand=killed)))
        (row,) = here.rows()
        assert row.state == ("kept" if packed else "lost") and bool(row.fork) == bool(packed)
        assert fleet_table.state_text(row) == "lost"
        assert fleet_run.exit_code(here.run.rows(), "all") == 125
        assert fleet_table.errand_to_json(here.run.rows()[0][0], row).get("exit_code") is None


def test_no_credential_that_the_policy_puts_into_requests_is_sent(place: Place, follow: Follow) -> None:
    headers = (
        ("Authorization", "Bearer planted-1"),
        ("x-api-key", "planted-2"),
        ("Cookie", "a=planted-3"),
        ("x-team", "sk-ant-planted-0123456789abcdef"),
        ("OpenAI-Organization", "org-123"),
    )
    rule = HostRule("allow", "api.example", inspect=True, set_headers=headers)
    fleet = ScriptedFleet(a=ScriptedWorker)
    run = begin(
        place.session(Settings(hosts=(rule,))),
        RunRequest((FleetErrand((b"true",)),)),
        fleet.workers,
        FrontEnd(fleet.start, {}, lease=0.2),
    )
    with run:
        assert [settled.row.state for settled in run.settled()] == ["kept"]
    sent = bytes(fleet.started["a"][0].recorded)
    assert b"planted" not in sent
    assert b"org-123" in sent
