"""The pool's rules, with containers that are none and a clock of our own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import cast

import pytest

from mudroom.errors import MudroomError
from mudroom.ext.containers.core.container import Container, ContainerMount
from mudroom.ext.containers.engine.box import Box
from mudroom.ext.containers.engine.pool import Pool, Rules, covers, serves

WANTED = Container("", "image", (), (1000, 1000), (ContainerMount(b"/v/layers", b"/v/layers", True),))

pytestmark = pytest.mark.both_users


class Fake:
    def __init__(self, container: Container, changed: threading.Condition) -> None:
        self.container, self.healthy, self.closed, self._changed = container, True, 0, changed

    def is_healthy(self) -> bool:
        return self.healthy

    def close(self) -> None:
        with self._changed:
            self.closed += 1
            self._changed.notify_all()


class Maker:
    """Starts them; ``fails`` while that is so, ``gate`` if it is to wait."""

    def __init__(self) -> None:
        self.made: list[Fake] = []
        self.fails = False
        self.gate: threading.Event | None = None
        self.now = 0.0
        self.changed = threading.Condition()
        self.pools: list[Pool] = []

    def __call__(self, container: Container) -> Box:
        if self.gate is not None:
            assert self.gate.wait(20)
        if self.fails:
            raise MudroomError("the engine is gone")
        with self.changed:
            self.made.append(Fake(container, self.changed))
            self.changed.notify_all()
            return cast(Box, self.made[-1])

    def pool(self, rules: Rules | None = None, clock: Callable[[], float] | None = None) -> Pool:
        self.pools.append(Pool(self, rules or Rules(), clock or (lambda: self.now)))
        return self.pools[-1]

    def comes(self, what: Callable[[], bool]) -> bool:
        with self.changed:
            return self.changed.wait_for(what, 20)

    @property
    def open(self) -> list[Fake]:
        return [one for one in self.made if not one.closed]


@pytest.fixture
def maker() -> Iterator[Maker]:
    made = Maker()
    yield made
    for pool in made.pools:
        pool.close()
    assert made.open == []


def test_what_was_given_back_is_lent_again(maker: Maker) -> None:
    pool = maker.pool()
    first = pool.acquire(WANTED, "f")
    pool.release(first)
    assert pool.acquire(WANTED, "f") is first
    assert len(maker.made) == 1


def test_a_container_is_lent_to_one_at_a_time(maker: Maker) -> None:
    pool = maker.pool()
    assert pool.acquire(WANTED, "f") is not pool.acquire(WANTED, "f")


def test_eight_threads_have_eight_containers_and_share_them_afterwards(maker: Maker) -> None:
    pool = maker.pool(Rules(most_idle=8))
    all_there = threading.Barrier(8)
    lent: list[Box] = []

    def use() -> None:
        box = pool.acquire(WANTED, "f")
        lent.append(box)
        all_there.wait(20)
        pool.release(box)

    for _round in range(3):
        threads = [threading.Thread(target=use) for _number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(set(lent)) == 8
        lent.clear()
    assert len(maker.made) == 8
    pool.close()
    assert maker.open == []


@pytest.mark.parametrize(
    "other",
    [
        WANTED._replace(image="another"),
        WANTED._replace(memory=1),
        WANTED._replace(nested=False),
        WANTED._replace(user=(1, 1)),
        WANTED._replace(mounts=(ContainerMount(b"/v/layers", b"/v/layers", False),)),
        WANTED._replace(mounts=(ContainerMount(b"/v/other", b"/v/layers", True),)),
    ],
)
def test_a_container_is_lent_only_for_what_it_was_made_for(maker: Maker, other: Container) -> None:
    pool = maker.pool()
    pool.release(pool.acquire(WANTED, "f"))
    assert not serves(WANTED, other)
    pool.acquire(other, "f")
    assert len(maker.made) == 2


def test_what_lies_in_a_mount_is_seen_with_it() -> None:
    have = (ContainerMount(b"/a", b"/a"), ContainerMount(b"/a/b", b"/a/b", True))
    assert covers(have, [ContainerMount(b"/a/x", b"/a/x"), ContainerMount(b"/a/b/c", b"/a/b/c", True)])
    assert not covers(have, [ContainerMount(b"/a/b/c", b"/a/b/c")]), "it could be written to"
    assert not covers(have, [ContainerMount(b"/ab", b"/ab")])
    assert not covers(have, [ContainerMount(b"/other/x", b"/a/x")])


@pytest.mark.parametrize("rules", [Rules(uses=2), Rules(age=10), Rules(idle=10)], ids=["uses", "age", "idle"])
def test_a_container_is_recycled_until_it_is_worn(maker: Maker, rules: Rules) -> None:
    pool = maker.pool(rules)
    pool.release(pool.acquire(WANTED, "f"))
    maker.now = 9
    pool.release(pool.acquire(WANTED, "f"))
    maker.now = 20
    pool.release(pool.acquire(WANTED, "f"))
    assert [one.closed for one in maker.made] == [1, 0]
    pool.close()


def test_an_idle_one_is_closed_though_nobody_comes(maker: Maker) -> None:
    pool = maker.pool(Rules(idle=0.05), time.monotonic)
    pool.release(pool.acquire(WANTED, "f"))
    assert maker.comes(lambda: maker.open == [])
    pool.release(pool.acquire(WANTED, "f"))
    assert maker.comes(lambda: len(maker.made) == 2 and maker.open == [])


def test_so_many_are_kept_idle_the_last_used_ones(maker: Maker) -> None:
    pool = maker.pool(Rules(most_idle=2))
    boxes = [pool.acquire(WANTED, "f") for _number in range(4)]
    for box in boxes:
        pool.release(box)
    assert [one.closed for one in maker.made] == [1, 1, 0, 0]


def test_a_container_of_one_fork_is_never_anothers(maker: Maker) -> None:
    pool = maker.pool()
    first = pool.acquire(WANTED, "a")
    pool.release(first)
    second = pool.acquire(WANTED, "b")
    pool.release(second)
    assert second is not first
    assert pool.acquire(WANTED, "a") is first
    assert pool.acquire(WANTED, "a") not in (first, second)
    pool.forget("b")
    assert maker.made[1].closed == 1


def test_a_spare_is_for_whoever_comes(maker: Maker) -> None:
    pool = maker.pool(Rules(warm=1))
    pool.release(pool.acquire(WANTED, "a"))
    assert maker.comes(lambda: len(maker.made) == 2)
    with pool._changed:
        assert pool._changed.wait_for(lambda: not pool._starting, 20)
    assert pool.acquire(WANTED, "b") is cast(Box, maker.made[1])


def test_one_that_is_not_fit_is_not_lent_again(maker: Maker) -> None:
    pool = maker.pool()
    pool.release(pool.acquire(WANTED, "f"), fit=False)
    assert maker.open == []
    pool.release(pool.acquire(WANTED, "f"))
    maker.made[-1].healthy = False  # its launcher has ended while idle
    assert pool.acquire(WANTED, "f") is cast(Box, maker.made[2])
    assert maker.made[1].closed == 1


def test_one_whose_commands_have_no_namespaces_is_used_once(maker: Maker) -> None:
    pool, plain = maker.pool(), WANTED._replace(nested=False)
    pool.release(pool.acquire(plain, "f"))
    assert maker.open == []


def test_spares_are_started_while_a_command_runs(maker: Maker) -> None:
    pool = maker.pool(Rules(warm=2))
    first = pool.acquire(WANTED, "f")
    assert maker.comes(lambda: len(maker.made) == 3)
    assert pool.acquire(WANTED, "f") is not first
    pool.close()
    assert maker.open == []


def test_a_spare_that_comes_when_the_pool_is_closed_is_closed_too(maker: Maker) -> None:
    pool = maker.pool(Rules(warm=1))
    pool.release(pool.acquire(WANTED, "f"))
    assert maker.comes(lambda: len(maker.made) == 2)
    maker.gate = threading.Event()
    maker.made[0].healthy = maker.made[1].healthy = False
    pool._start_ahead(WANTED._replace(image="another"))
    closing = threading.Thread(target=pool.close)
    closing.start()
    with pool._changed:
        assert pool._changed.wait_for(lambda: pool._is_closed, 20)
    maker.gate.set()
    closing.join(20)
    assert len(maker.made) == 3
    assert maker.open == []


def test_one_that_is_given_back_after_the_end_is_closed(maker: Maker) -> None:
    pool = maker.pool()
    box = pool.acquire(WANTED, "f")
    pool.close()
    pool.release(box)
    assert maker.open == []


def test_nothing_is_started_ahead_where_that_fails_until_somebody_has_got_one(maker: Maker) -> None:
    pool = maker.pool(Rules(warm=1))
    maker.fails = True
    pool._start_ahead(WANTED)
    with pool._changed:
        assert pool._changed.wait_for(lambda: not pool._starting, 20)
    with pytest.raises(MudroomError, match="the engine is gone"):
        pool.acquire(WANTED, "f")
    maker.fails = False
    pool._start_ahead(WANTED)
    assert maker.made == []
    pool.acquire(WANTED, "f")
    assert maker.comes(lambda: len(maker.made) == 2)
