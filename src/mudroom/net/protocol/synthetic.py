"""Synthetic addresses that stand for names: the gate's DNS returns them, and the gate maps them back when a program
connects.

Rules of this file: pure. A guard's n-th name gets the n-th address in each range. Addresses are reused only after the
whole range, about 130,000 names; a name that is looked up again keeps its address. At most ``MOST`` names are stored at
a time: the least recently looked-up is forgotten, and its address stands for no name then.
"""

from __future__ import annotations

from collections import OrderedDict

from mudroom.core.network.address import SYNTHETIC_IPV4, SYNTHETIC_IPV6

MOST = 16_384
_IPV4, _IPV4_BITS = SYNTHETIC_IPV4
_IPV6, _IPV6_BITS = SYNTHETIC_IPV6
_FIRST, _LAST = 256, (1 << 32 - _IPV4_BITS) - 256
"""The range's first and last addresses are left out, because some programs take them for a network or broadcast
address."""


class Synthetic:
    def __init__(self) -> None:
        self._numbers: OrderedDict[str, int] = OrderedDict()
        self._names: dict[int, str] = {}
        self._next = _FIRST

    def addresses(self, name: str) -> tuple[bytes, bytes]:
        """Return the IPv4 and the IPv6 address that stand for a canonical name."""
        number = self._numbers.get(name)
        if number is None:
            number = self._take(name)
        self._numbers.move_to_end(name)
        return (
            (int.from_bytes(_IPV4, "big") + number).to_bytes(4, "big"),
            (int.from_bytes(_IPV6, "big") + number).to_bytes(16, "big"),
        )

    def _take(self, name: str) -> int:
        if len(self._numbers) >= MOST:
            _name, forgotten = self._numbers.popitem(last=False)
            del self._names[forgotten]
        while self._next in self._names:
            self._advance()
        number = self._next
        self._advance()
        self._numbers[name] = number
        self._names[number] = name
        return number

    def _advance(self) -> None:
        self._next = self._next + 1 if self._next < _LAST else _FIRST

    def name(self, packed: bytes) -> str | None:
        """Return the name that an address stands for, or None if it stands for no stored name."""
        number = _number(packed)
        return None if number is None else self._names.get(number)


def is_synthetic(packed: bytes) -> bool:
    """Return whether the address is in the synthetic ranges, assigned or not."""
    return _number(packed) is not None


def _number(packed: bytes) -> int | None:
    prefix, bits = (_IPV4, _IPV4_BITS) if len(packed) == 4 else (_IPV6, _IPV6_BITS)
    number = int.from_bytes(packed, "big") - int.from_bytes(prefix, "big")
    return number if 0 <= number < 1 << len(packed) * 8 - bits else None
