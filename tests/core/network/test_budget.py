"""Accounts, shares and budgets: nothing is lost, nobody starves, and too many connections close the right ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudroom.core.network.budget import FLOOR, MOST_OF_ACCOUNT, Account, MemoryBudget, Share

MOST = 64 << 20
PIECE = 64 << 10


def opened(share: Share, cut: list[Account] | None = None) -> Account:
    """An account with one end, which leaves when it is cut."""
    account: Account

    def end() -> None:
        share.end_connection(account)
        account.leave()
        if cut is not None:
            cut.append(account)

    account = share.open(end)
    account.enter()
    return account


def noting(granted: list[int], number: int) -> Callable[[], bool]:
    def note() -> bool:
        granted.append(number)
        return True

    return note


def fill(account: Account) -> None:
    """Hold as much as there is room for, as reads do: in pieces."""
    while (room := account.room()) > 0:
        account.hold(min(room, PIECE))


def greedy(share: Share, connections: int) -> None:
    accounts = [opened(share) for _ in range(connections) if share.takes_connection()]
    for _ in range(3):
        for account in accounts:
            fill(account)


def flood(budget: MemoryBudget, commands: int, connections: int) -> list[Share]:
    """Commands that come one after the other, take all that they can get, and give nothing back."""
    shares = [budget.share(4_096) for _ in range(commands)]
    for share in shares:
        greedy(share, connections)
    return shares


@pytest.mark.parametrize("commands", [1, 2, 5, 10])
@pytest.mark.parametrize("connections", [1, 40, 4_096])
def test_greedy_commands_leave_a_part_for_the_next_one(commands: int, connections: int) -> None:
    """At the same time: they hold one part of N+1 each."""
    budget = MemoryBudget(MOST)
    shares = [budget.share(4_096) for _ in range(commands)]
    accounts = [opened(share) for _ in range(connections) for share in shares if share.takes_connection()]
    for _round in range(MOST // PIECE):
        takers = [account for account in accounts if account.room() > 0]
        if not takers:
            break
        for account in takers:
            account.hold(max(0, min(account.room(), PIECE // 8)))
    assert budget.held <= MOST
    late = budget.share(4_096)
    fill(opened(late))
    assert late.held >= min((MOST // (commands + 1) - MOST // 32) // 3, MOST_OF_ACCOUNT) - PIECE


@pytest.mark.parametrize("commands", [1, 5, 20])
@pytest.mark.parametrize("connections", [1, 40, 4_096])
def test_what_a_late_command_needs_is_taken_back_from_those_that_have_more(commands: int, connections: int) -> None:
    budget = MemoryBudget(MOST)
    shares = flood(budget, commands, connections)
    late, need = budget.share(4_096), 512 << 10
    for _ in range(3):
        account = opened(late)
        granted: list[int] = []
        late.wait(account, need, noting(granted, 1))
        part = MOST // (commands + 2)
        if not granted:
            cut = budget.reclaim(late, need)
            assert cut
            assert all(share.held > part for share in {account.share for account in cut})
            assert sum(account.held for account in cut[:-1]) < need, "no more of them than it takes"
            for account in cut:
                account.cut()
        assert granted == [1]
    assert budget.held <= MOST
    assert budget.reclaim(shares[0], MOST // 2) == [], "who has its part gets no more by force"


def test_one_connection_leaves_room_for_others_of_its_command() -> None:
    share = MemoryBudget(MOST).share()
    fill(opened(share))
    assert opened(share).room() >= MOST_OF_ACCOUNT - FLOOR
    crowd = [opened(share) for _ in range(200)]
    for account in crowd:
        fill(account)
    assert share.held <= MOST // 2
    assert share.takes_connection()


STEPS = st.lists(
    st.tuples(st.integers(0, 4), st.sampled_from(["open", "hold", "free", "serve", "wait", "end", "leave"])),
    max_size=80,
)


@given(STEPS)
def test_what_is_held_is_the_sum_of_the_accounts(steps: list[tuple[int, str]]) -> None:
    """Whatever order ends come in: bytes of a lost connection that are freed late are not freed twice."""
    budget = MemoryBudget(MOST)
    shares = [budget.share(), budget.share()]
    alive: list[tuple[Share, Account]] = []
    for number, step in steps:
        if step == "open" or not alive:
            share = shares[number % 2]
            alive.append((share, share.open(lambda: None)))
            alive[-1][1].enter()
            continue
        share, account = alive[number % len(alive)]
        if step == "hold":
            account.hold(number * 10_000)
        elif step == "free":
            account.free(min(account.held, number * 10_000))
        elif step == "serve":
            account.serves()
        elif step == "wait":
            account.waits()
        elif step == "end":
            share.end_connection(account)
        elif step == "leave":
            share.end_connection(account)
            account.leave()
            account.hold(1)
            account.free(1)
            alive.remove((share, account))
        assert budget.held == sum(max(account.held, FLOOR) for _share, account in alive)
        assert budget.held == sum(share.held for share in shares)
        assert budget.connections == sum(not account.is_ended for _share, account in alive)
    for share, account in alive:
        share.end_connection(account)
        account.leave()
    assert (budget.held, budget.connections) == (0, 0)
    assert [share.oldest_waiting() for share in shares] == [None, None]


def test_the_oldest_without_a_request_is_closed_first_and_one_with_a_request_never() -> None:
    cut: list[Account] = []
    share = MemoryBudget(MOST).share(4)
    served, idle, first, second = (opened(share, cut) for _ in range(4))
    served.serves()
    idle.serves()
    idle.waits()
    first.waits()  # begins to wait once more: its place is kept
    assert not share.takes_connection()
    order = []
    while (oldest := share.oldest_waiting()) is not None:
        order.append(oldest)
        oldest.cut()
    assert order == cut == [first, second, idle]
    assert share.takes_connection()
    idle.waits()
    assert share.oldest_waiting() is None, "a connection that has ended is not waited for"


def test_connections_of_one_command_do_not_use_up_those_of_another() -> None:
    """Half requests take no memory to speak of, but descriptors."""
    budget, cut = MemoryBudget(1 << 40, slots=300), list[Account]()
    for _ in range(5):
        share = budget.share(4_096)
        while share.takes_connection():
            opened(share, cut)
    late = budget.share(4_096)
    for _ in range(20):
        if not late.takes_connection():
            (account,) = budget.reclaim(late, FLOOR)
            account.cut()
        opened(late)
    assert budget.connections <= 300
    assert len({account.share for account in cut}) == 1, "of the command with the most"


def test_who_waits_for_much_is_served_in_turn_and_keeps_others_of_the_command_in() -> None:
    budget = MemoryBudget(MOST)
    share, other = budget.share(), budget.share()
    large = 1 << 20
    granted: list[int] = []
    accounts = [opened(share) for _ in range(50)]
    for number, account in enumerate(accounts):
        share.wait(account, large, noting(granted, number))
    first = len(granted)
    assert 15 <= first < 50
    assert share.takes_connection(), "for connections that need no more than their floor"
    share.give_up(accounts[first])
    for account in accounts[:2]:
        account.leave()
    assert granted == [*range(first), first + 1, first + 2][: len(granted)]
    assert first < len(granted)
    at_once: list[int] = []
    other.wait(opened(other), large, noting(at_once, 1))
    assert at_once == [1], "the queue of one command is not that of another"


def test_who_waits_no_more_holds_nothing() -> None:
    share = MemoryBudget(MOST).share()
    account = opened(share)
    share.wait(account, PIECE, lambda: False)
    assert account.held == 0
