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
    for _round in range(sample(400)):
        steps = tuple(any_step(choice) for _step in range(choice.randrange(4)))
        begin = {
            "protocol": PROTOCOL,
            "each": choice.choice([0x30020000, 0x7A020000, 1, "x"]),
            "ahead": steps,
            "last": (),
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
                    ours.recv(4)
            except OSError:
                pass  # it has ended
            ours.close()
            ends.add(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    os.close(opened)
    assert ends <= set(ENDS)
