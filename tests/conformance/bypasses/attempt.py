"""What an attempt to pass the gate is told, and the table of all of them."""

from __future__ import annotations

import os
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from ..attempt import Table  # noqa: TID252 - the package has another name inside


class World(NamedTuple):
    """What an attempt is told. ``slot`` is its number, and addresses and names of its own follow from it: whoever sees
    one of them outside knows whose it is."""

    name: str
    nonce: str
    slot: int
    proxy: tuple[str, int]
    """The gate's, as the environment names it."""
    server: str
    """Where names are looked up."""
    captures: bool
    """Whether connections that know of no proxy are seen at all."""
    harness: int
    abstract: str
    """An abstract unix socket of the host, without its NUL."""
    ports: dict[str, int]
    """tcp, udp: servers of the host on all of its addresses."""

    @property
    def mark(self) -> str:
        """What it sends where it may not; nothing that is let through rightly contains it. Fit for a DNS label."""
        return f"{self.nonce}x{self.slot}x"

    @property
    def inner(self) -> str:
        """The same within a body, which may arrive, but never as a request of its own."""
        return f"inner{self.mark}"

    @property
    def good(self) -> str:
        """A host that is allowed, on 80 and 443."""
        return f"s{self.slot}.good.example"

    @property
    def bad(self) -> str:
        """One that is not."""
        return f"s{self.slot}.bad.example"

    @property
    def address(self) -> str:
        """Of ``bad``, on the internet."""
        return f"45.33.{self.slot >> 8}.{self.slot & 255}"

    @property
    def address6(self) -> str:
        return f"2a00:1450::{self.slot:x}"

    @property
    def loopback(self) -> str:
        """Of the host itself."""
        return f"127.99.{self.slot >> 8}.{self.slot & 255}"

    @property
    def lan(self) -> str:
        return f"10.99.{self.slot >> 8}.{self.slot & 255}"

    def tricky(self, kind: str) -> str:
        """A name that is allowed, and whose addresses are of that kind (``phone.py``)."""
        return f"s{self.slot}.{kind}.tricky.example"


TABLE = Table(patience=40, at_once=24)
register, attempt = TABLE.register, TABLE.attempt
ALLOWED = "what is let through"
"""The group of those that must succeed."""


def world(told: dict[str, Any], name: str) -> World:
    slot = sorted(TABLE).index(name) + 1
    where = urlsplit(os.environ.get("http_proxy", "http://127.0.0.1:3128"))
    proxy = (where.hostname or "", where.port or 0)
    return World(name=name, slot=slot, proxy=proxy, captures=proxy[1] == 3128, server="127.0.0.1", **told)
