"""Memory that the bytes of strangers may take: accounts of connections, in shares of commands, within one budget.

Rules of this file:
1. Pure accounting: the holder of bytes says what it holds, and asks for ``room`` before it takes more.
2. A share may hold as much as is left free, and an account as much as its share may still hold: dynamic thresholds
(Choudhury and Hahne, IEEE/ACM Transactions on Networking 6(2), 1998). N commands that take all they can get at the same
time have one part of N+1 each. Of those that come one after the other and give nothing back, each gets half of what the
others left, so what a command needs and has not got, although it has less than its part, is taken back from those that
have more (``reclaim``). Reads leave a part of the budget to new connections.
3. ``room`` can be 0 or less. An account may then still hold ``FLOOR``, for which it is charged from its opening on:
each connection can finish a head or a TLS record, so none waits for itself. All together hold at most ``most`` and one
more floor for each connection.
4. Connections are counted by the same thresholds. Where a command has too many, those of its own that wait for a
request are closed first: the oldest of which none has come, then the oldest that are idle.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from mudroom.typing import NamedTuple

FLOOR = 16 << 10
"""Bytes of an account that are charged from its opening on: a head (``protocol/head.py``), or a TLS record."""
_LEFT = 32
"""The part of a budget that is left to new connections."""
MOST_OF_ACCOUNT = 6 << 20
"""Bytes of one connection, both directions together."""


class MemoryBudget:
    """The limits of one process. ``most`` bytes, ``slots`` connections."""

    def __init__(self, most: int, slots: int = 1 << 30) -> None:
        self.most, self.slots = most, slots
        self.most_read = most - most // _LEFT
        self.easy = most // 8
        """While less is held by all, a reader need not ask for its room."""
        self.held = 0
        self.connections = 0
        self.waiting: dict[Share, None] = {}
        """Shares with accounts that wait for room."""
        self.used: dict[Share, None] = {}
        """Shares that hold something."""

    def reclaim(self, share: Share, length: int) -> list[Account]:
        """Return accounts to cut, so that a share gets ``length`` bytes or a connection: the largest of those that have
        more than their part. None if the share itself has its part."""
        parts = self._parts(share)
        part, slots = self.most // parts, self.slots // parts
        found: list[Account] = []
        if share.held + length <= part:
            length -= self.most_read - self.held
            over = {rich: rich.held - part for rich in self.used if rich.held > part}
            for account in sorted((a for rich in over for a in rich.accounts), key=_held, reverse=True):
                if length <= 0:
                    break
                if over[account.share] > 0:
                    found.append(account)
                    over[account.share] -= account.held
                    length -= account.held
        if not found and share.connections < slots and self.used:
            rich = max(self.used, key=lambda share: share.connections)
            if rich.connections > slots:
                found.append(rich.oldest_waiting() or next(a for a in rich.accounts if not a.is_ended))
        return found

    def entitles(self, share: Share, length: int) -> bool:
        """Return whether a share has less than its part with these bytes, and they are there. A connection that needs
        no more than its floor is let in where others have to leave room for it."""
        left = self.most - self.most_read if length > FLOOR else 0
        return share.held + length + left <= self.most // self._parts(share) and self.held + length + left <= self.most

    def _parts(self, share: Share) -> int:
        """Return the number of parts: one for each command that holds something, and one that is left."""
        return len(self.used) + (share not in self.used) + 1

    def share(self, most_connections: int = 1 << 30) -> Share:
        return Share(self, most_connections)


class _Wish(NamedTuple):
    account: Account
    length: int
    granted: Callable[[], bool]


class Share:
    """The part of one command."""

    def __init__(self, budget: MemoryBudget, most_connections: int) -> None:
        self.budget, self._most_connections = budget, most_connections
        self.accounts: dict[Account, None] = {}
        self.held = 0
        self.connections = 0
        self._fresh: dict[Account, None] = {}
        """Accounts of which no request has come, oldest first."""
        self._idle: dict[Account, None] = {}
        """Accounts that wait for a further request, longest first."""
        self._wishes: deque[_Wish] = deque()

    def room(self) -> int:
        """Return how many bytes this command may hold beyond those that it holds."""
        return self.budget.most - self.budget.held - self.held

    def takes_connection(self) -> bool:
        budget = self.budget
        return self.connections < min(self._most_connections, 2 * (budget.slots - budget.connections)) and (
            self.room() >= FLOOR or budget.entitles(self, FLOOR)
        )

    def open(self, cut: Callable[[], None]) -> Account:
        """Return the account of a new connection. ``cut`` closes the connection."""
        account = Account(self, cut)
        self.connections += 1
        self.budget.connections += 1
        self.accounts[account] = None
        self.charge(FLOOR)
        self._fresh[account] = None
        return account

    def oldest_waiting(self, least: int = 0) -> Account | None:
        """Return the account whose connection is closed first, or None if all have requests. ``least``: only one that
        holds so many bytes."""
        for accounts in (self._fresh, self._idle):
            for account in accounts:
                if account.held >= least:
                    return account
        return None

    def wait(self, account: Account, length: int, granted: Callable[[], bool]) -> None:
        """Call ``granted`` when the account has room for ``length`` bytes. It holds them from then on, unless
        ``granted`` returns False: nobody waits any more. Those of one command are served in turn."""
        self._wishes.append(_Wish(account, length, granted))
        self.budget.waiting[self] = None
        self.grant()

    def give_up(self, account: Account) -> None:
        """Forget what this account waits for."""
        self._wishes = deque(wish for wish in self._wishes if wish.account is not account)
        self.grant()

    def grant(self) -> None:
        while self._wishes:
            account, length, granted = self._wishes[0]
            # twice: each byte is one less that is free, and one more that the share has
            if account.room() < 2 * length and not self.budget.entitles(self, length):
                return
            self._wishes.popleft()
            if granted():
                account.hold(length)
        self.budget.waiting.pop(self, None)

    # --- of its accounts ---

    def charge(self, length: int) -> None:
        if not self.held:
            self.budget.used[self] = None
        self.held += length
        self.budget.held += length

    def refund(self, length: int) -> None:
        self.held -= length
        if not self.held:
            self.budget.used.pop(self, None)
        self.budget.held -= length
        if self.budget.waiting:
            for share in list(self.budget.waiting):
                share.grant()

    def begin_wait(self, account: Account, *, has_served: bool) -> None:
        """Note that an account waits for a request."""
        (self._idle if has_served else self._fresh)[account] = None

    def end_wait(self, account: Account) -> None:
        self._fresh.pop(account, None)
        self._idle.pop(account, None)

    def end_connection(self, account: Account) -> None:
        """Free the connection's place, once. Its bytes stay held until the last end has left the account."""
        if account.is_ended:
            return
        account.is_ended = True
        self.connections -= 1
        self.budget.connections -= 1
        if account.is_waiting:
            self.end_wait(account)


class Account:
    """What one connection holds, in both directions: the client's end and the server's share it."""

    __slots__ = ("_ends", "_has_served", "_is_closed", "cut", "held", "is_ended", "is_waiting", "share")

    def __init__(self, share: Share, cut: Callable[[], None]) -> None:
        self.share = share
        self.cut = cut
        self.held = 0
        self.is_ended = False
        self.is_waiting = True
        self._ends = 0
        self._has_served = False
        self._is_closed = False

    def room(self) -> int:
        """Return how many bytes may be held beyond those that are held; 0 or less: none."""
        share = self.share
        free = share.budget.most_read - share.budget.held - share.held
        return min(MOST_OF_ACCOUNT, free) - self.held

    def hold(self, length: int) -> None:
        before = self.held
        self.held = held = before + length
        if held > FLOOR and not self._is_closed:
            self.share.charge(held - max(before, FLOOR))

    def free(self, length: int) -> None:
        before = self.held
        self.held = held = before - length
        if before > FLOOR and not self._is_closed:
            self.share.refund(before - max(held, FLOOR))

    def recharge(self, before: int, now: int) -> None:
        """Hold ``now`` bytes in place of ``before``."""
        if now > before:
            self.hold(now - before)
        elif now < before:  # a negative amount is no charge: what crosses the floor has to be refunded
            self.free(before - now)

    def enter(self) -> None:
        """An end of the connection uses this account."""
        self._ends += 1

    def leave(self) -> None:
        """An end is gone. With the last one, all that is still held is free."""
        self._ends -= 1
        if not self._ends and not self._is_closed:
            self._is_closed = True
            self.share.accounts.pop(self, None)
            self.share.refund(max(self.held, FLOOR))

    def waits(self) -> None:
        """The connection waits for a request: the first one, or a further one."""
        if not self.is_waiting and not self.is_ended:
            self.is_waiting = True
            self.share.begin_wait(self, has_served=self._has_served)

    def serves(self) -> None:
        """A whole request has come."""
        if self.is_waiting:
            self.is_waiting, self._has_served = False, True
            self.share.end_wait(self)


def _held(account: Account) -> int:
    return account.held


def unlimited() -> Account:
    """Return an account for ends that belong to no command (yet)."""
    return MemoryBudget(1 << 60).share().open(lambda: None)
