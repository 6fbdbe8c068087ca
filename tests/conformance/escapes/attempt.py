"""One attempt to get out: what it tries, where that is known from, and how its success is told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

Proof = Literal["canary", "secret", "claim"]
"""How success is judged: by a canary outside alone; by the content of a file that only the host can have shown; or by a
system call that must be refused and was not, of which the attempt returns what it was given."""

Control = Literal["anybody", "root", "never"]
"""Who can do it where nothing confines: an ordinary user, only root, or nobody (``why`` says why)."""


class World(NamedTuple):
    """What an attempt is told of the host: all of it. Whoever gets out knows where to go."""

    name: str
    """The attempt's own: canaries listen for it."""
    nonce: str
    """Of this series of attempts: others may go on beside it."""
    outside: str
    """Its own directory of the host, beside the project: ``target``, ``secret``, ``link`` and ``d`` are in it."""
    project: str
    """The path of the real project."""
    home: str
    tmp: str
    """A directory in the host's /tmp, and what is below is of the host as well."""
    victim: int
    """A process of the same user, with a secret in its environment and arguments, and a secret file as descriptor 7."""
    harness: int
    sockets: dict[str, str]
    """Servers by kind: stream, dgram, seqpacket, giver (paths); abstract-stream, abstract-dgram (names without NUL)."""
    ports: dict[str, int]
    """tcp, tcp6, udp."""
    ipc: dict[str, int]
    """Keys and ids of System V objects: shm-key, shm-id, sem-key, sem-id, msg-key, msg-id."""
    queue: str
    """A POSIX message queue, and beside it a shared memory object of the same name."""
    terminal: str
    """A terminal of the host's user."""
    slot: int
    """Its number: where it writes in shared memory."""

    @property
    def mark(self) -> str:
        """What an attempt writes, sends and leaves: the canaries look for it."""
        return f"{self.nonce}:{self.name}:"


Body = Callable[[World], Any]
"""Returns evidence, or None where only a canary can tell. An OSError is a refusal."""


class Attempt(NamedTuple):
    name: str
    group: str
    tries: str
    source: str
    """A CVE, a manual page, a known bug; empty where it is plain."""
    body: Body
    proof: Proof
    control: Control
    why: str
    """Why there is no control."""
    alone: bool
    """It ends what runs beside it: it has a sandbox for itself."""
    limits: bool
    """It is bounded, and would not be held without limits."""


TABLE: dict[str, Attempt] = {}

PID_1 = "process 1 of a machine may be protected from everybody"


def register(
    name: str,
    group: str,
    tries: str,
    body: Body,
    *,
    source: str = "",
    proof: Proof = "canary",
    control: Control = "anybody",
    why: str = "",
    alone: bool = False,
    limits: bool = False,
) -> None:
    """Put a row into the table. Raises ValueError for a name that is taken or a control that is missing unexplained."""
    if name in TABLE:
        raise ValueError(f"two attempts are called {name}")
    if (control == "never") != bool(why):
        raise ValueError(f"{name}: either a control, or the reason why there is none")
    TABLE[name] = Attempt(name, group, tries, source, body, proof, control, why, alone, limits)


def attempt(group: str, tries: str, source: str = "", **options: Any) -> Callable[[Body], Body]:
    """``register`` for a function, under its own name."""

    def decorate(body: Body) -> Body:
        register(body.__name__.strip("_"), group, tries, body, source=source, **options)
        return body

    return decorate
