"""One attempt to pass the gate: what it tries, where that is known from, and what it is told of the world."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

Proof = Literal["mark", "claim"]
"""How success is judged: by what came out, or was looked up, alone; or by what must be refused and was not, of which
the attempt returns what it was given."""


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


Body = Callable[[World], Any]
"""Returns evidence, or None where only the outside can tell. An OSError is a refusal."""


class Attempt(NamedTuple):
    name: str
    group: str
    tries: str
    source: str
    """A CVE, an RFC, a manual page, a known bug; empty where it is plain."""
    body: Body
    proof: Proof
    control: bool
    """Whether it gets through where a proxy lets everything pass, and nothing confines."""
    root: bool
    """There, only root can do it."""


TABLE: dict[str, Attempt] = {}
ALLOWED = "what is let through"
"""The group of those that must succeed."""


def register(
    name: str,
    group: str,
    tries: str,
    body: Body,
    source: str = "",
    *,
    proof: Proof = "mark",
    control: bool = True,
    root: bool = False,
) -> None:
    """Put a row into the table. Raises ValueError for a name that is taken."""
    if name in TABLE:
        raise ValueError(f"two attempts are called {name}")
    TABLE[name] = Attempt(name, group, tries, source, body, proof, control, root)


def attempt(group: str, tries: str, source: str = "", **options: Any) -> Callable[[Body], Body]:
    """``register`` for a function, under its own name."""

    def decorate(body: Body) -> Body:
        register(body.__name__.strip("_"), group, tries, body, source, **options)
        return body

    return decorate
