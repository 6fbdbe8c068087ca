"""Names for addresses that nobody has: what the gate's DNS answers, and what it is asked to connect to afterwards.

Rules of this file: pure. The n-th name of a door gets the n-th address of each range. Addresses come round again only
after all of a range, about 130,000 names; a name that is asked again keeps its own. No more than ``MOST`` names are
known at one time: the one that was asked for longest ago is forgotten, and its address is nobody's then.
"""

from __future__ import annotations

from collections import OrderedDict

from mudroom.core.network.address import SYNTHETIC_IPV4, SYNTHETIC_IPV6

MOST = 16_384
_IPV4, _IPV4_BITS = SYNTHETIC_IPV4
_IPV6, _IPV6_BITS = SYNTHETIC_IPV6
_FIRST, _LAST = 256, (1 << 32 - _IPV4_BITS) - 256
"""Not the first and the last addresses of the range, which some programs take for a network or a broadcast."""


class Synthetic:
    def __init__(self) -> None:
        self._numbers: OrderedDict[str, int] = OrderedDict()
        self._names: dict[int, str] = {}
        self._next = _FIRST

    def addresses(self, name: str) -> tuple[bytes, bytes]:
        """The IPv4 and the IPv6 address that stand for a canonical name."""
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
        """The name that an address stands for; None: for none that is known."""
        number = _number(packed)
        return None if number is None else self._names.get(number)


def is_synthetic(packed: bytes) -> bool:
    """Whether it is of our ranges, known or not."""
    return _number(packed) is not None


def _number(packed: bytes) -> int | None:
    prefix, bits = (_IPV4, _IPV4_BITS) if len(packed) == 4 else (_IPV6, _IPV6_BITS)
    number = int.from_bytes(packed, "big") - int.from_bytes(prefix, "big")
    return number if 0 <= number < 1 << len(packed) * 8 - bits else None
