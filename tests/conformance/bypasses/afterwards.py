"""What goes on when the command is over: connections that were kept, processes that stayed, the next command."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

from .attempt import World, attempt
from .words import captured, request, tunnel

_GROUP = "afterwards"
LATER = 1.5
"""Seconds after the attempts of a command are over; by then the command is."""


def _stay(world: World, act: Callable[[], None]) -> None:
    """A process of its own that waits until nobody is there who began it."""
    if os.fork():
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    signal.alarm(60)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    top = int(os.environ["MUDROOM_ATTEMPTS"])
    try:
        null = os.open("/dev/null", os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(null, descriptor)
        os.closerange(3, 64) if act.__name__ == "_new" else None
        while os.path.exists(f"/proc/{top}"):
            time.sleep(0.05)
        time.sleep(LATER)
        act()
    finally:
        os._exit(0)


@attempt(_GROUP, "a tunnel is kept, and used when the command is over", control=False)
def tunnel_kept(world: World) -> None:
    channel = tunnel(world, f"{world.good}:80".encode())
    _stay(world, lambda: channel.sendall(request(world.good.encode(), world.mark)))


@attempt(_GROUP, "a captured connection is kept, and used when the command is over", control=False)
def captured_kept(world: World) -> None:
    channel = captured(world, world.good, 80)
    _stay(world, lambda: channel.sendall(request(world.good.encode(), world.mark)))


@attempt(_GROUP, "a process stays, and goes through the gate when the command is over", control=False)
def new_tunnel(world: World) -> None:
    def act() -> None:
        with tunnel(world, f"{world.good}:80".encode()) as channel:
            channel.sendall(request(world.good.encode(), world.mark))

    _stay(world, act)


@attempt(_GROUP, "a process stays, and goes through the listeners of the next command", control=False)
def next_listeners(world: World) -> None:
    def act() -> None:
        for _number in range(40):
            try:
                with tunnel(world, f"{world.good}:80".encode()) as channel:
                    channel.sendall(request(world.good.encode(), world.mark))
            except OSError:
                time.sleep(0.1)

    _stay(world, act)
