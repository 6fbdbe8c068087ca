"""An apply that is killed in each state, then recovered and undone: a certification row (``ext/certify/volume.py``).

The apply is a separate process that kills itself with SIGKILL, which leaves what kill -9 and a crash leave: names and
contents that the file system had taken by then. A power loss is not tried. Nothing here starts a command, so no sandbox
is needed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from types import CodeType, FrameType

from mudroom.core.settings import Settings
from mudroom.errors import MudroomError
from mudroom.ext.certify.volume import Volume
from mudroom.sandbox.platform import LINUX, platform_of
from mudroom.session import Session
from mudroom.stage import disk
from mudroom.typing import NamedTuple
from mudroom.vault.apply.plan_state import state_of
from mudroom.vault.apply.rename import exchange, move
from mudroom.vault.store.store import Vault

_PACKAGE = os.path.abspath(__file__).rsplit(os.sep, 4)[0]
_STAGE = os.path.dirname(disk.__file__)
_CALLS = frozenset(
    code.co_filename
    for value in vars(disk).values()
    if isinstance(code := getattr(value, "__code__", None), CodeType) and os.path.dirname(code.co_filename) == _STAGE
)
"""Files with the calls that change the disk; on Windows there are several."""
_SIGKILL = 9
"""signal(7). Windows has no such name, and takes the number as the exit code."""
_FORK = "f"
_FILES = {b"edited": b"one", b"removed": b"two", b"directory/other": b"three"}
PATIENCE = 30.0
"""Seconds for one apply."""
Listing = Mapping[bytes, bytes]
"""Contents by path."""


class KillMoment(NamedTuple):
    """The moment before call ``number`` in ``stage/disk.py`` that is made in one state of the apply."""

    state: str
    """As in ``plan_state.py``; empty: before there is a plan."""
    call: str = ""
    """The function's name; empty: any."""
    number: int = 1


MOMENTS: Sequence[KillMoment] = (
    KillMoment(""),
    KillMoment("prepare"),
    KillMoment("ready"),
    KillMoment("ready", "rename_new", 2),  # after some operations, before the others
    KillMoment("done"),
)
Run = Callable[[Sequence[str]], int]
"""Run an apply's words and return its exit status: minus the signal number if a signal ended it."""


def run_apply(words: Sequence[str]) -> int:
    null = subprocess.DEVNULL
    try:
        return subprocess.run(words, stdin=null, stdout=null, stderr=null, timeout=PATIENCE, check=False).returncode
    except subprocess.TimeoutExpired:
        return 0  # it was not killed at its moment, which shows nothing


def try_killed_apply(
    directory: str, run: Run = run_apply, moments: Sequence[KillMoment] = MOMENTS
) -> tuple[bool | None, str]:
    """Kill an apply at each moment, in ``directory``, which is empty. Return whether the project was whole after each
    recovery and undone by each undo, or None if that was not shown; and the reason."""
    for number, moment in enumerate(moments):
        top = f"{directory}/{number}"
        before = _fill(top)
        with _open(top) as session:
            session.forks.new(_FORK)
            files = session.forks.files(_FORK)
            files.write(b"edited", b"one, edited")
            files.write(b"made", b"four")
            files.write(b"directory/made", b"five")
            files.delete(b"removed")
        after = {**before, b"edited": b"one, edited", b"made": b"four", b"directory/made": b"five"}
        del after[b"removed"]
        words = (moment.state, moment.call, str(moment.number), top)
        ended = run([sys.executable, "-I", "-c", _START, *words])
        where = f"in the state {moment.state or 'before a plan'}"
        if ended not in (-_SIGKILL, _SIGKILL):  # on Windows it is the exit code
            return None, f"the apply was not killed {where}"
        try:
            problem = _recovered(top, before, after)
        except (MudroomError, OSError) as error:
            return None, f"{type(error).__name__} {where}"
        if problem:
            return False, f"{problem} {where}"
    return True, f"whole after {len(moments)} kills, and undone"


_PATHS = [_PACKAGE, *filter(os.path.isabs, sys.path)]
_START = f"import sys; sys.path[:0] = {_PATHS!r}; from mudroom.ext.certify.killed_apply import main; main(sys.argv)"


def volume_here() -> Volume:
    """Return the calls that certification tries."""
    return Volume(try_killed_apply, move, exchange)


def _fill(top: str) -> Listing:
    os.makedirs(f"{top}/project/directory")
    os.mkdir(f"{top}/home")
    os.mkdir(f"{top}/state", 0o700)
    for name, content in _FILES.items():
        with open(f"{top}/project/{os.fsdecode(name)}", "xb") as stream:
            stream.write(content)
    return dict(_FILES)


def _listing(top: str) -> Listing:
    found, root = {}, f"{top}/project"
    for directory, _directories, names in os.walk(root):
        for name in names:
            path = os.path.join(directory, name)
            with open(path, "rb") as stream:
                found[os.fsencode(os.path.relpath(path, root).replace(os.sep, "/"))] = stream.read()
    return found


def _open(top: str) -> Session:
    """Open a session that runs no command, on the platform whether it is certified or not."""
    real = disk.real_path(os.fsencode(top))
    project, state, home = (real + name for name in (b"/project", b"/state", b"/home"))
    platform = platform_of(sys.platform) or LINUX
    return Session.open(project, state=state, home=home, environ={}, settings=Settings(), platform=platform)


def _recovered(top: str, before: Listing, after: Listing) -> str:
    """Recover an apply that was killed, finish it where it did not land, and undo it. Return a problem, or ""."""
    with _open(top) as session:
        session.changes.recover()
        now = _listing(top)
        if now not in (before, after):
            return "the project was neither as before nor as after"
        if now == before and not _does(lambda: session.changes.apply(_FORK), top, after):
            return "changes of the fork were lost"
        return "" if _does(session.changes.undo, top, before) else "it was not undone"


def _does(act: Callable[[], object], top: str, then: Listing) -> bool:
    try:
        act()
    except MudroomError:
        return False
    return _listing(top) == then


def main(words: Sequence[str]) -> None:
    """Apply, and be killed at a moment."""
    state, call, number, top = words[1:]
    with _open(top) as session:
        sys.setprofile(_Killer(session.vault, KillMoment(state, call, int(number))))
        session.changes.apply(_FORK)


class _Killer:
    """A profile function for sys.setprofile(). Owner: the only thread of its process."""

    def __init__(self, vault: Vault, moment: KillMoment) -> None:
        self._vault, self._moment, self._left = vault, moment, moment.number

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if event != "call" or code.co_filename not in _CALLS or self._moment.call not in ("", code.co_name):
            return
        if self._state() != self._moment.state:
            return
        self._left -= 1
        if not self._left:
            os.kill(os.getpid(), _SIGKILL)

    def _state(self) -> str:
        applies = self._vault.applies()
        return (state_of(applies[0]) if applies else None) or ""
