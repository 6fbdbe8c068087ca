"""Errands by what they need: nobody gets more than it has, and no large errand starves."""

from __future__ import annotations

import random
from collections import deque
from typing import Any

import pytest
from origin_fixtures import Follow, archive, follow, session
from scripted_worker import HELLO, ScriptedFleet, ScriptedWorker

from conftest import Place
from mudroom.core.confinement.limit import OFF, Limits
from mudroom.core.settings import Settings
from mudroom.ext.fleet.origin.placement import Capacity, Key, Needs, WorkerRoom, lack, needs_of, place
from mudroom.ext.fleet.origin.worker_registry import FleetWorker
from mudroom.ext.fleet.origin.worker_session import WorkerSession
from mudroom.ext.fleet.wire import message as wire
from tiers import half

__all__ = ["archive", "follow", "session"]
GB = 1 << 30


def room(name: str, slots: int = 4, memory: int = 8, cpus: float = 4, gpus: int = 0) -> WorkerRoom:
    total = Capacity(slots, memory * GB, cpus, gpus)
    return WorkerRoom(name, total, total, is_ready=True)


def placed(waiting: list[Needs], *rooms: WorkerRoom) -> list[tuple[int, str]]:
    keyed = [(("e", number), needs) for number, needs in enumerate(waiting)]
    return [(key[1], name) for key, name in place(keyed, rooms, {})]


def test_an_errand_goes_where_it_fits() -> None:
    rooms = room("small"), room("big", memory=64), room("gpu", gpus=2)
    waiting = [Needs(memory=32 * GB), Needs(gpus=2), Needs(gpus=1), Needs(), Needs(cpus=4), Needs(cpus=0.5)]
    assert placed(waiting, *rooms) == [(0, "big"), (1, "gpu"), (3, "small"), (4, "small"), (5, "big")]


def test_what_a_command_may_use_is_what_it_needs() -> None:
    assert needs_of(Limits(), 0) == Needs()
    assert needs_of(Limits(memory=5, cpus=1.5), 2) == Needs(5, 1.5, 2)
    assert needs_of(Limits(memory=OFF), 0) == Needs()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("needs", "said"),
    [
        (Needs(gpus=2), "no worker has 2 GPUs: a has 0, b has 1"),
        (Needs(gpus=1), ""),
        (Needs(memory=9 * GB), "no worker has 9.7 GB of memory: a has 8.6 GB, b has 4.3 GB"),
        (Needs(cpus=4.5), "no worker has 4.5 processors: a has 4, b has 4"),
        (Needs(memory=8 * GB, gpus=1), "no worker has 1 GPU and 8.6 GB of memory together: a, b"),
    ],
)
def test_what_no_worker_has_is_named_with_what_they_have(needs: Needs, said: str) -> None:
    assert lack(needs, [room("a"), room("b", memory=4, gpus=1)]) == said


class Machines:
    """Workers that run errands for a random time."""

    def __init__(self, dice: random.Random, count: int) -> None:
        self._dice = dice
        self.rooms = {
            f"w{number}": room(f"w{number}", dice.randrange(1, 5), dice.randrange(1, 16), dice.randrange(1, 8), number)
            for number in range(count)
        }
        self.running: dict[str, dict[Key, tuple[Needs, int]]] = {name: {} for name in self.rooms}

    def now(self) -> list[WorkerRoom]:
        found = []
        for name, each in self.rooms.items():
            free = each.free
            for needs, _left in self.running[name].values():
                free = free.without(needs)
            assert min(free) >= 0, "overcommitted"
            found.append(each._replace(free=free, is_ready=self._dice.random() < 0.9))
        return found

    def pass_time(self) -> None:
        for name, errands in self.running.items():
            self.running[name] = {key: (needs, left - 1) for key, (needs, left) in errands.items() if left > 1}


@pytest.mark.parametrize("seed", half(range(40)))
def test_no_worker_is_overcommitted_and_a_large_errand_comes_in_its_time(seed: int) -> None:
    """A stream of small errands does not end before the large one is placed."""
    dice = random.Random(seed)
    machines = Machines(dice, dice.randrange(1, 4))
    largest = dice.choice(list(machines.rooms.values())).total
    kept: dict[Key, str] = {}
    waiting: deque[tuple[Key, Needs]] = deque()
    large = ("large", 1)
    came = 0
    for number in range(400):
        waiting.extend(((f"small{number}-{each}", 1), small(dice)) for each in range(3))
        if number == 5:
            waiting.append((large, Needs(largest.memory, largest.cpus, largest.gpus)))
        for key, name in list(place(waiting, machines.now(), kept)):
            needs = dict(waiting)[key]
            waiting.remove((key, needs))
            machines.running[name][key] = needs, dice.randrange(1, 6)
            came = number if key == large else came
        while len(waiting) > 60:  # a bounded test: the newest small errands are withdrawn
            key, _needs = waiting.pop()
            kept.pop(key, None)
        machines.pass_time()
        if came:
            break
    assert came and large not in kept


def small(dice: random.Random) -> Needs:
    return Needs(dice.randrange(0, GB), dice.choice((0.0, 0.25, 1.0)), 0)


# --- a worker's word ---


def hello(**fields: Any) -> wire.WorkerHello:
    return HELLO._replace(**fields)


def test_memory_that_others_use_is_not_given() -> None:
    worker = WorkerSession(FleetWorker("w", (b"x",)))
    assert worker.room(lambda _key: Needs()) is None
    worker.greeted(hello(memory=16 * GB, free_memory=10 * GB, gpus=1))
    needs = Needs(memory=4 * GB)

    def free() -> int:
        found = worker.room(lambda _key: needs)
        assert found is not None and found.total.memory == 16 * GB
        return found.free.memory // GB

    assert free() == 10
    worker.running.add(("e", 1))
    assert free() == 6
    worker.heard(wire.Pong(1, 1, 0.0, 0, 9 * GB), 4 * GB)  # it may be the errand's own
    assert free() == 6
    worker.heard(wire.Pong(2, 1, 0.0, 0, 2 * GB), 4 * GB)  # others use 10 at least
    assert free() == 2
    worker.running.clear()
    worker.heard(wire.Pong(3, 0, 0.0, 0, 15 * GB), 0)
    assert free() == 15


def test_an_errand_that_no_worker_can_have_fails_in_one_line_and_is_never_sent(follow: Follow) -> None:
    fleet = ScriptedFleet(a=ScriptedWorker, b=lambda: ScriptedWorker(hello=_greets(gpus=1)))
    here = follow(fleet, 2, gpus=2)
    assert {row.reason for row in here.rows()} == {"no worker has 2 GPUs: a has 0, b has 1"}
    assert [row.state for row in here.rows()] == ["failed", "failed"]
    assert not fleet.received("a", wire.ERRAND) and not fleet.received("b", wire.ERRAND)


def test_errands_with_gpus_wait_for_the_worker_that_has_them(follow: Follow) -> None:
    fleet = ScriptedFleet(a=ScriptedWorker, b=lambda: ScriptedWorker(hello=_greets(gpus=1)))
    here = follow(fleet, 3, gpus=1)
    assert [(row.state, row.worker) for row in here.rows()] == [("kept", "b")] * 3
    errands = [wire.message_of(frame, wire.Errand) for frame in fleet.received("b", wire.ERRAND)]
    assert [errand.gpus for errand in errands] == [1, 1, 1]


def test_the_limits_of_the_policy_are_needs(place: Place, follow: Follow) -> None:
    limited = place.session(settings=Settings(limits=Limits(memory=64 * GB)))
    here = follow(ScriptedFleet(a=ScriptedWorker), of=limited)
    assert [row.reason for row in here.rows()] == ["no worker has 68.7 GB of memory: a has 8.6 GB"]


def _greets(**fields: Any) -> Any:
    return lambda worker, _nothing: worker.send(wire.HELLO, hello(**fields))
