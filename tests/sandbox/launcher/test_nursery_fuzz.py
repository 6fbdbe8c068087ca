"""The native init under the address and undefined-behaviour sanitizers: any first message on its socket, any request of
a command. It decides nothing about what it reads, and reads nothing past its end."""

from __future__ import annotations

import marshal
import os
import random
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from mudroom.sandbox.launcher.wire import NATIVE_STEPS, PLAIN, PROTOCOL, send
from native_init import COMPILERS, compile_init
from tiers import SEED, sample

SANITIZERS = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")
DENIED = 77
"""Exit code of the sanitizers here."""
ENDS = (0, 125)


def any_value(choice: random.Random, depth: int = 0) -> Any:
    kind = choice.randrange(9 if depth < 5 else 6)
    if kind == 0:
        return choice.choice([None, True, False])
    if kind == 1:
        return choice.choice([0, 1, -1, 7, 1 << 30, 1 << 31, 1 << 62, -(1 << 63), 1 << 70])
    if kind in (2, 3):
        return choice.choice([b"", b"dev/x", b"a\0b", b"/", b"x" * 5000, b"\xff\xfe", b"a//b/"])
    if kind in (4, 5):
        return choice.choice(["", "proxy", *sorted(NATIVE_STEPS), "é"])
    if kind == 8:
        return {any_value(choice, 9): any_value(choice, depth + 1) for _item in range(choice.randrange(4))}
    return tuple(any_value(choice, depth + 1) for _item in range(choice.randrange(5)))


def any_plan(choice: random.Random) -> Any:
    """Return a plan, more often one of steps than not."""
    if choice.randrange(8) == 0:
        return any_value(choice)
    return tuple(
        any_value(choice, 3) if choice.randrange(6) == 0 else any_step(choice) for _ in range(choice.randrange(4))
    )


def any_request(choice: random.Random) -> Any:
    """Return the request of a command, more often one that is served than not."""
    served: dict[str, Any] = {
        "mediation": None, "terminal": (), "held": False, "join": 0, "into": 0, "sockets": (), "plan": any_plan(choice),
        "argv": [b"/bin/true"], "env": {b"A": b"B"}, "search": [b"/bin"], "after": 0,
    }  # fmt: skip
    if choice.randrange(3) == 0:
        served[choice.choice(sorted(served))] = any_value(choice)
    return served if choice.randrange(8) else any_value(choice)


def any_step(choice: random.Random) -> tuple[Any, ...]:
    name = choice.choice(sorted(NATIVE_STEPS - {"drop_capabilities", "seccomp", "landlock", "no_new_privs", "pivot"}))
    return (name, *(any_value(choice, 3) for _argument in range(choice.randrange(6))))


def damaged(choice: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _change in range(choice.randrange(4)):
        if changed:
            changed[choice.randrange(len(changed))] = choice.randrange(256)
    return bytes(changed[: choice.choice([len(changed), choice.randrange(len(changed) + 1)])])


@pytest.mark.both_users
@pytest.mark.deep
@pytest.mark.limit(400)
def test_any_message(tmp_path: Path) -> None:
    if not COMPILERS:
        pytest.skip("no C compiler")
    try:
        program = compile_init(tmp_path, *SANITIZERS)
    except subprocess.CalledProcessError:
        pytest.skip("no sanitizers")
    choice = random.Random(SEED)
    scratch = tmp_path / "scratch"  # what the steps make is made there, in a user and a mount namespace
    scratch.mkdir()
    scratch.chmod(0o777)
    run = 'cd "$1" && exec /proc/self/fd/9'
    if os.geteuid() == 0:  # its modes and mounts would be the machine's
        run = run.replace("exec", "exec setpriv --reuid 65534 --regid 65534 --clear-groups")
    opened = os.open(program, os.O_RDONLY)
    environment = {"ASAN_OPTIONS": f"exitcode={DENIED}:detect_leaks=0", "UBSAN_OPTIONS": f"exitcode={DENIED}"}
    ends: set[int] = set()
    inits = 0
    for _round in range(sample(400)):
        begin = {
            "protocol": PROTOCOL,
            "each": choice.choice([0x30020000, 0x7A020000, 1, "x"]),
            "ahead": any_plan(choice) if choice.randrange(2) else (),
            "last": any_plan(choice) if choice.randrange(2) else (),
        }
        message = marshal.dumps(choice.choice([begin, begin, any_value(choice)]), PLAIN)
        ours, theirs = socket.socketpair()
        with ours, theirs:
            dup2 = os.POSIX_SPAWN_DUP2
            actions = [(dup2, opened, 9), (dup2, theirs.fileno(), 3)]
            child = os.posix_spawn("/bin/sh", ["sh", "-c", run, "sh", str(scratch)], environment, file_actions=actions)
            theirs.close()
            try:
                send(ours, damaged(choice, message) if choice.randrange(2) else message, [])
                ask, end = socket.socketpair()
                with ask, end:
                    send(ours, marshal.dumps(None, PLAIN), [end.fileno()])
                    ours.shutdown(socket.SHUT_WR)
                    answer = ours.recv(4)
                    init = int.from_bytes(answer, "little", signed=True) if len(answer) == 4 else -1
                    end.close()
                    if init > 0:
                        ends.add(end_of_init(choice, init, ask))
                        inits += 1
            except OSError:
                pass  # it has ended
            ours.close()
            ends.add(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    os.close(opened)
    assert ends <= set(ENDS)
    assert inits > sample(400) // 10


def end_of_init(choice: random.Random, init: int, channel: socket.socket) -> int:
    """Send any request to an init, and return its exit code. It is this process's child (CLONE_PARENT)."""
    null = os.open(os.devnull, os.O_RDWR)
    try:
        request = marshal.dumps(any_request(choice), PLAIN)
        send(
            channel,
            damaged(choice, request) if choice.randrange(3) == 0 else request,
            [null] * choice.choice([4, 4, 4, 1]),
        )
        channel.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # it has ended
    finally:
        os.close(null)
    return os.waitstatus_to_exitcode(os.waitpid(init, 0)[1])
