"""``mudroom exec --background``: a process of its own holds the sandbox, for as long as something runs in it.

The keeper is a fork of this process, so that whoever sits there is still asked what there is to ask; when the command
is on its way it leaves the terminal, the session and the directory, and says so over a pipe. Until then it ends with
whoever asked for it: nothing is started of which nobody was told. SIGTERM ends it with all that runs in it; SIGKILL
does, too, and the fork is settled by the next who comes.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

from mudroom.cli.terminal.context import Context
from mudroom.cli.terminal.signals import waking
from mudroom.core.background import to_json
from mudroom.core.result import Result
from mudroom.core.tree.path import show
from mudroom.errors import MudroomError
from mudroom.session import Background, Client, Session


class Keeper(NamedTuple):
    """What is done in the keeper: the session is opened, the command started, a refusal told (its exit code)."""

    opened: Callable[[Client], Session]
    started: Callable[[Session], Background]
    refused: Callable[[Result], int]


class _KeeperError(MudroomError):
    """What the keeper could not do, as it said it."""


def start(keeper: Keeper, context: Context) -> int:
    """Returns the exit code, as soon as the command is on its way."""
    read, write = os.pipe()
    ours = os.getpid()
    child = os.fork()
    if child == 0:
        os.close(read)
        _keep(write, keeper, ours)
    os.close(write)
    with open(read, "rb") as stream:
        said = stream.read()
    if not said:
        os.waitpid(child, 0)
        raise MudroomError("the process that was to hold the command has died", "try again")
    outcome: dict[str, Any] = json.loads(said)
    if "error" in outcome:
        error = _KeeperError(outcome["error"], outcome["hint"])
        error.exit_code = outcome["code"]
        raise error
    if "refused" in outcome:
        return int(outcome["refused"])
    _tell(outcome["started"], context)
    return 0


def _tell(started: dict[str, Any], context: Context) -> None:
    if context.as_json:
        context.terminal.out(json.dumps(started))
        return
    context.terminal.out(started["id"])
    context.terminal.say(
        f"{show(' '.join(started['command']).encode())} runs in the background of {started['fork']}: "
        f"mudroom ps, mudroom ps --output {started['id']}, mudroom ps --end {started['id']}"
    )


def _keep(write: int, keeper: Keeper, parent: int) -> NoReturn:
    """The keeper, from its fork to its end."""
    code = 125
    try:
        signal.signal(signal.SIGTERM, _interrupt)
        signal.signal(signal.SIGINT, _interrupt)
        _die_with(signal.SIGTERM)
        _require(parent)
        os.closerange(3, write)  # what our caller has left open is not to stay open as long as we live
        os.closerange(write + 1, os.sysconf("SC_OPEN_MAX"))
        client = Client(apart=True)
        client.start()
        with waking(), keeper.opened(client) as session:
            background = keeper.started(session)
            if background.refused is not None:
                _say(write, {"refused": keeper.refused(background.refused)})
            elif _say(write, {"started": to_json(background.started, None)}):
                _detach(write, parent)
                session.sandboxes.keep()
        code = 0
    except MudroomError as error:
        _say(write, {"error": error.message, "hint": error.hint, "code": error.exit_code})
    except OSError as error:
        _say(write, {"error": error.strerror or str(error), "hint": os.fsdecode(error.filename or ""), "code": 125})
    except KeyboardInterrupt:
        code = 130
        _say(write, {"error": "interrupted", "hint": "", "code": code})
    except SystemExit:
        code = 0  # SIGTERM: the session has been closed
    except BaseException:  # noqa: BLE001 - nothing of it may go on as the process that was forked
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)


def _say(write: int, outcome: dict[str, Any]) -> bool:
    """False: nobody is there to hear it. It is heard when the pipe is closed."""
    try:
        os.write(write, json.dumps(outcome).encode())
    except OSError:
        return False
    return True


def _detach(write: int, parent: int) -> None:
    """Nothing of who started us is ours any more; that is when it goes on, for it waits for the end of the pipe."""
    os.setsid()
    os.chdir("/")
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, _not_heeded)
    signal.signal(signal.SIGTERM, _end)
    _die_with(0)
    _require(parent)
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2, write):  # not closed: another file could have its number when there is more to say
        os.dup2(null, descriptor)
    os.close(null)


def _die_with(number: int) -> None:
    """This signal comes when the thread that forked us ends; 0: none. prctl(2), PR_SET_PDEATHSIG."""
    import ctypes

    ctypes.CDLL(None).prctl(1, ctypes.c_ulong(number), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0))


def _require(parent: int) -> None:
    if os.getppid() != parent:
        raise SystemExit


def _interrupt(_number: int, _frame: object) -> NoReturn:
    """Before the command is on its way: as Ctrl-C, by which a question is withdrawn."""
    _once()
    raise KeyboardInterrupt


def _end(_number: int, _frame: object) -> NoReturn:
    _once()
    raise SystemExit


def _once() -> None:
    """What is closed from here on is not left in the middle."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _not_heeded)


def _not_heeded(_number: int, _frame: object) -> None:
    """Not SIG_IGN: the interpreter complains of a signal that has come before it is ignored, and has no handler to be
    run any more (CPython, _PyErr_CheckSignalsTstate)."""
