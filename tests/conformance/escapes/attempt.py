"""What an attempt to get out is told, and the table of all of them."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..attempt import Proof as Proof  # noqa: TID252 - the package has another name inside
from ..attempt import Table  # noqa: TID252


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


TABLE = Table(patience=10)
register, attempt = TABLE.register, TABLE.attempt

PID_1 = "process 1 of a machine may be protected from everybody"


def world(told: dict[str, Any], name: str) -> World:
    victim = told["victims"].get(name, told["victims"][""])
    slot = sorted(TABLE).index(name)
    return World(name=name, victim=victim, slot=slot, **{**told["world"], "outside": f"{told['outside']}/{name}"})
