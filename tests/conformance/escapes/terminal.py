"""Terminals: of the host's user, and what types into one."""

from __future__ import annotations

import os
import struct

from .attempt import World, attempt
from .call import HIGH, ioctl
from .namespaces import in_child

TIOCSTI, TIOCLINUX, TIOCSETD, TIOCSCTTY, TIOCCONS, TIOCSWINSZ = 0x5412, 0x541C, 0x5423, 0x540E, 0x541D, 0x5414


def _on_own(request: int, argument: bytes | int) -> str:
    """In a session of its own, with a terminal of its own."""

    def action() -> int:
        os.setsid()
        _ours, theirs = os.openpty()
        ioctl(theirs, TIOCSCTTY, 0)
        return ioctl(theirs, request, argument)

    return in_child(action)


@attempt("terminal", "a character is typed into the terminal", "TIOCSTI; CVE-2017-5226, CVE-2023-28339", proof="claim")
def terminal_sti(world: World) -> str:
    return _on_own(TIOCSTI, b"x")


@attempt("terminal", "the same with a bit above 32", "CVE-2019-10063", proof="claim")
def terminal_sti_high(world: World) -> str:
    return _on_own(HIGH | TIOCSTI, b"x")


@attempt("terminal", "something is pasted into a virtual console", "TIOCLINUX; CVE-2023-28100", proof="claim",
         control="root")  # fmt: skip
def terminal_linux(world: World) -> str | None:
    for path in ("/dev/tty1", "/dev/tty0", "/dev/console"):
        try:
            return f"{ioctl(os.open(path, os.O_RDWR | os.O_NOCTTY), TIOCLINUX, struct.pack('<B', 6))}"
        except OSError:
            continue
    return None


@attempt("terminal", "another line discipline is loaded", "TIOCSETD; CVE-2017-2636, CVE-2023-6546", proof="claim")
def terminal_discipline(world: World) -> str:
    return _on_own(TIOCSETD, struct.pack("<i", 0))


@attempt("terminal", "the machine's messages are led here", "TIOCCONS", proof="claim", control="never",
         why="they would go nowhere")  # fmt: skip
def terminal_console(world: World) -> str:
    return _on_own(TIOCCONS, 0)


@attempt("terminal", "a terminal of the user is written to", "escape sequences: CVE-2019-9535")
def terminal_write(world: World) -> None:
    with open(world.terminal, "w") as stream:
        stream.write(world.mark)


@attempt("terminal", "a terminal of the user is opened for reading what is typed", "pts(4)", proof="claim")
def terminal_read(world: World) -> str:
    return f"opened {os.open(world.terminal, os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK)}"


@attempt("terminal", "another size is given to a terminal of the user", "TIOCSWINSZ", proof="claim")
def terminal_size(world: World) -> str:
    descriptor = os.open(world.terminal, os.O_RDONLY | os.O_NOCTTY)
    return f"set {ioctl(descriptor, TIOCSWINSZ, struct.pack('<4H', 25, 80, 0, 0))}"


@attempt("terminal", "a terminal of the user is taken over", "TIOCSCTTY", proof="claim", control="root")
def terminal_steal(world: World) -> str:
    def action() -> int:
        os.setsid()
        return ioctl(os.open(world.terminal, os.O_RDWR | os.O_NOCTTY), TIOCSCTTY, 1)

    return in_child(action)


@attempt("terminal", "the terminal hangs up for all who have it", "vhangup(2)", proof="claim", control="never",
         why="it would be the harness's")  # fmt: skip
def terminal_hangup(world: World) -> str:
    from .call import call

    return f"{call('vhangup')}"
