"""Memory for untrusted bytes: one account for each connection, in one share for each command, within one budget.

Rules:

1. Pure accounting: the holder says how many bytes it holds, and asks for ``room`` before it takes more.
2. A share may hold as much as is left free, and an account as much as its share may still hold: dynamic thresholds
   (Choudhury and Hahne, IEEE/ACM Transactions on Networking 6(2), 1998). If N commands take all they can get at the
   same time, each has 1/(N+1). If they come one after the other and give nothing back, each gets half of the memory
   that the others left. So if a command needs more and still has less than its part, the missing bytes are taken back
   from commands that have more (``reclaim``). Reads leave a part of the budget to new connections.
3. ``room`` can be 0 or less. An account may then still hold ``FLOOR``, which it is charged when it is opened: each
   connection can finish a head or a TLS record, so no connection waits for itself. All together hold at most ``most``,
   and one more floor for each connection.
4. Connections are counted by the same thresholds. If a command has too many, its own connections that wait for a
   request are closed first: the oldest without any request yet, then the oldest that are idle.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from mudroom.typing import NamedTuple

FLOOR = 16 << 10
"""Bytes charged when an account is opened: a head (``protocol/head.py``), or a TLS record."""
_LEFT = 32
"""This fraction (1/32) of a budget stays reserved for new connections."""
MOST_OF_ACCOUNT = 6 << 20
"""Bytes for one connection, both directions together."""


class MemoryBudget:
    """The limits for one process: ``most`` bytes, ``slots`` connections."""

    def __init__(self, most: int, slots: int = 1 << 30) -> None:
        self.most, self.slots = most, slots
        self.most_read = most - most // _LEFT
        self.easy = most // 8
        """While all shares together hold less, a reader need not ask for room."""
        self.held = 0
        self.connections = 0
        self.waiting: dict[Share, None] = {}
        """Shares with accounts that wait for room."""
        self.used: dict[Share, None] = {}
        """Shares that hold bytes."""

    def reclaim(self, share: Share, length: int) -> list[Account]:
        """Return accounts to cut, so that a share gets ``length`` bytes or a connection: the largest accounts in shares
        that have more than their part. Empty if the share itself has its part."""
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
        """Return whether a share stays within its part with these bytes, and they are free. A connection that needs no
        more than its floor is let in even if only the reserve for new connections is left."""
        left = self.most - self.most_read if length > FLOOR else 0
        return share.held + length + left <= self.most // self._parts(share) and self.held + length + left <= self.most

    def _parts(self, share: Share) -> int:
        """Return the number of parts: one for each command that holds bytes, and a free part."""
        return len(self.used) + (share not in self.used) + 1

    def share(self, most_connections: int = 1 << 30) -> Share:
        return Share(self, most_connections)


class _Wish(NamedTuple):
    account: Account
    length: int
    granted: Callable[[], bool]


class Share:
    """A command's part of the budget."""

    def __init__(self, budget: MemoryBudget, most_connections: int) -> None:
        self.budget, self._most_connections = budget, most_connections
        self.accounts: dict[Account, None] = {}
        self.held = 0
        self.connections = 0
        self._fresh: dict[Account, None] = {}
        """Accounts without any request yet, oldest first."""
        self._idle: dict[Account, None] = {}
        """Accounts that wait for a further request, longest first."""
        self._wishes: deque[_Wish] = deque()

    def room(self) -> int:
        """Return how many more bytes this command may hold."""
        return self.budget.most - self.budget.held - self.held

    def takes_connection(self) -> bool:
        budget = self.budget
        return self.connections < min(self._most_connections, 2 * (budget.slots - budget.connections)) and (
            self.room() >= FLOOR or budget.entitles(self, FLOOR)
        )

    def open(self, cut: Callable[[], None]) -> Account:
        """Return a new connection's account. ``cut`` closes the connection."""
        account = Account(self, cut)
        self.connections += 1
        self.budget.connections += 1
        self.accounts[account] = None
        self.charge(FLOOR)
        self._fresh[account] = None
        return account

    def oldest_waiting(self, least: int = 0) -> Account | None:
        """Return the account whose connection is closed first, or None if all have requests. ``least``: bytes that it
        must hold at least."""
        for accounts in (self._fresh, self._idle):
            for account in accounts:
                if account.held >= least:
                    return account
        return None

    def wait(self, account: Account, length: int, granted: Callable[[], bool]) -> None:
        """Call ``granted`` when the account has room for ``length`` bytes. It holds them from then on, unless
        ``granted`` returns False because its caller has stopped waiting. A command's wishes are served in turn."""
        self._wishes.append(_Wish(account, length, granted))
        self.budget.waiting[self] = None
        self.grant()

    def give_up(self, account: Account) -> None:
        """Forget this account's wishes."""
        self._wishes = deque(wish for wish in self._wishes if wish.account is not account)
        self.grant()

    def grant(self) -> None:
        while self._wishes:
            account, length, granted = self._wishes[0]
            # twice: each byte reduces the free memory by one and raises the share's own use by one
            if account.room() < 2 * length and not self.budget.entitles(self, length):
                return
            self._wishes.popleft()
            if granted():
                account.hold(length)
        self.budget.waiting.pop(self, None)

    # --- for its accounts ---

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
        """Free the connection's slot, once. Its bytes stay held until the last end has left the account."""
        if account.is_ended:
            return
        account.is_ended = True
        self.connections -= 1
        self.budget.connections -= 1
        if account.is_waiting:
            self.end_wait(account)


class Account:
    """The bytes that one connection holds in both directions: the client's end and the server's share the account."""

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
        """Return how many more bytes may be held; 0 or less: none."""
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
        """Hold ``now`` bytes instead of ``before``."""
        if now > before:
            self.hold(now - before)
        elif now < before:  # not a negative hold: bytes above the floor have to be refunded
            self.free(before - now)

    def enter(self) -> None:
        """Add an end of the connection to this account."""
        self._ends += 1

    def leave(self) -> None:
        """Remove an end. With the last end, all bytes that are still held are freed."""
        self._ends -= 1
        if not self._ends and not self._is_closed:
            self._is_closed = True
            self.share.accounts.pop(self, None)
            self.share.refund(max(self.held, FLOOR))

    def waits(self) -> None:
        """Note that the connection waits for a request: the first or a further one."""
        if not self.is_waiting and not self.is_ended:
            self.is_waiting = True
            self.share.begin_wait(self, has_served=self._has_served)

    def serves(self) -> None:
        """Note that a whole request has come."""
        if self.is_waiting:
            self.is_waiting, self._has_served = False, True
            self.share.end_wait(self)


def _held(account: Account) -> int:
    return account.held


def unlimited() -> Account:
    """Return an account for ends that do not belong to a command (yet)."""
    return MemoryBudget(1 << 60).share().open(lambda: None)
