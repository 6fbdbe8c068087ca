"""Requests that no client sends. Each is reported, ends its own child, or ends the process that has read it; nothing
runs, and nothing ends by a signal. The same under the address and undefined-behaviour sanitizers, with any request."""

from __future__ import annotations

import errno
import os
import random
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from box import ENVIRONMENT, Box, if_namespaces
from launcher_steps import STEPS
from mudroom.sandbox.client import launcher_client
from mudroom.sandbox.client.capture import CapturedOutput, attend
from mudroom.sandbox.client.held import hold
from mudroom.sandbox.client.invocation import Invocation
from mudroom.sandbox.client.launcher_client import LauncherClient
from native_init import COMPILERS, PROTOCOL, RawLauncher, asked, compile_launcher, message
from tiers import SEED, each, sample

pytestmark = pytest.mark.both_users

NOTHING: dict[str, Any] = {
    "op": "run", "id": 1, "namespaces": 0, "plan": (), "maps": (b"", b"", True), "mediation": None, "terminal": (),
    "held": False, "join": 0, "into": False, "sockets": [], "argv": [b"/bin/true"], "env": {b"A": b"B"},
    "search": [b"/bin"], "after": 0,
}  # fmt: skip
"""A command without any step."""
TEMPLATE: dict[str, Any] = {
    "op": "prepare", "id": 0, "namespaces": 0, "maps": (b"", b"", True), "plan": (("enter",),), "ahead": (("enter",),),
    "last": (), "each": 0, "mounts": (), "rest": 2000,
}  # fmt: skip


@pytest.fixture
def null() -> Iterator[int]:
    opened = os.open(os.devnull, os.O_RDWR)
    yield opened
    os.close(opened)


@pytest.fixture
def launcher() -> Iterator[RawLauncher]:
    launcher = RawLauncher()
    yield launcher
    assert launcher.end() == 0


def goes_on(launcher: RawLauncher) -> bool:
    return launcher.ask({"op": "resume", "id": 99}) == ("done",)


@each(
    "data",
    [
        b"", b"\xff" * 99, b"\x01", b"\x05\0\0\0(\xff\xff\xff\x7f", b"\x01\0\0\0x", b"\x02\0\0\0NN", b"\0\0\0\0",
        b"\x05\0\0\0s\xff\xff\xff\xff", b"\x05\0\0\0{NN", b"\x02\0\0\0{N", b"\x65\0\0\0" + b"(\1\0\0\0" * 20 + b"N",
        b"\x07\0\0\0l\x06\0\0\0\1\0", b"\x07\0\0\0l\x01\0\0\0\xff\xff", b"\xff\xff\xff\x03" + b"N" * 100,
    ],
)  # fmt: skip
def test_what_is_no_message_ends_it(data: bytes) -> None:
    launcher = RawLauncher()
    launcher.say(data)
    assert launcher.end() == 0


@pytest.mark.parametrize("request_", [None, (), {}, 7, b"run", {"op": None}, {1: 2}, {b"op": "run"}, {"id": 1}])
def test_what_is_no_request_is_left(launcher: RawLauncher, request_: Any) -> None:
    assert launcher.ask(request_) in ((), ("failed", -1, "init", errno.EINVAL, "the request of a command"))
    assert goes_on(launcher)


def test_a_command_without_any_step_runs(launcher: RawLauncher, null: int) -> None:
    """What is changed below is the reason of what is said there."""
    assert launcher.ask(NOTHING, [null] * 3)[:2] == ("exited", 0)
    assert goes_on(launcher)


CHANGES: tuple[tuple[dict[str, Any], int], ...] = (
    *(({name: wrong}, 3) for name in ("plan", "argv", "env", "search", "sockets", "terminal") for wrong in (None, 1)),
    *(({"namespaces": flags}, 3) for flags in (-1, 1, 1 << 62, 0x100, 0x400)),
    *(({"join": number}, 3) for number in (-1, 1, 253, 254, 1 << 31, 1 << 62, -(1 << 63))),
    *(({"into": number, "join": join}, 3) for number in (1, 7, -8) for join in (0, 5)),
    *(({"into": number, "join": 1 << 62}, 3) for number in (1 << 62, (1 << 63) - 1, -(1 << 63))),
    *(({"sockets": names}, 4) for names in (["x"], [b"view"], [1], ["view", "view"], [])),
    *(({"argv": argv}, 3) for argv in ([], [b"a\0b"], [1], [None], (), {b"a": b"b"})),
    *(({"env": env}, 3) for env in ({b"a=b": b""}, {1: b""}, {b"a": 1}, {b"a\0": b""}, [b"a"])),
    *(({"terminal": numbers}, 3) for numbers in ((0,), (7,), (-1,), (b"x",))),
    *(({"mediation": wrong}, 3) for wrong in (1, (), (b"", {}, ()), (b"12345678" * 9000, {}, ()), (b"x", {1: ()}, ()))),
    ({"held": True}, 3), ({"held": True, "sockets": ["view"]}, 4),
    *(({}, number) for number in (0, 1, 2, 4, 20, 252)),
)  # fmt: skip


def test_each_wrong_request_is_reported(launcher: RawLauncher, null: int) -> None:
    for change, count in CHANGES:
        report = launcher.ask({**NOTHING, **change}, [null] * count)
        assert report[:1] == ("failed",), (change, count, report)
        assert goes_on(launcher)
    whole = message(NOTHING)[4:]
    for wrong in (b"", b"junk", whole[:-1], whole + b"N", b"N"):
        report = launcher.ask({"op": "run", "id": 1, "whole": wrong}, [null] * 3)
        assert report[:3] == ("failed", -1, "init"), wrong
    assert goes_on(launcher)


OTHERS: tuple[Any, ...] = (
    *({"op": "signal", "id": identity, "signal": 9} for identity in (0, -1, 5, "x", None, 1 << 62)),
    {"op": "signal"}, {"op": "clear"},
    *({"op": "clear", "works": works} for works in (1, (1,), ((b"a",),), ((b"a\0", b"b"),), ((b"", b""),))),
)  # fmt: skip


def test_others_are_not_answered(launcher: RawLauncher, null: int) -> None:
    for request in OTHERS:
        launcher.say(message(request), [null])
    for op in ("pause", "resume"):
        launcher.say(message({"op": op}))
        assert launcher.ask({"op": op, "id": "x"}) == ("done",)
        assert launcher.ask({"op": op, "id": 1}, [null]) == ()
    assert goes_on(launcher)


def test_each_step_looks_at_its_arguments(launcher: RawLauncher, null: int) -> None:
    """Nothing is done with too few, too many, or those of another kind."""
    values: dict[str, Any] = {"p": b"a", "b": b"a", "i": 1, "s": ()}
    for name, shape in STEPS.items():
        usual = [values[letter] for letter in shape if letter != "?"]
        wrongs = [(*usual, 1), *([usual[: len(shape.partition("?")[0]) - 1]] if shape.partition("?")[0] else [])]
        for index, letter in enumerate(shape.replace("?", "")):
            others: tuple[Any, ...] = (None, {1: 2}, *({"p": (b"a\0b",), "b": (1,)}.get(letter, (b"a",))))
            wrongs += [(*usual[:index], other, *usual[index + 1 :]) for other in others]
        for wrong in wrongs:
            report = launcher.ask({**NOTHING, "plan": (("umask", 0o22), (name, *wrong))}, [null] * 3)
            assert report[:4] == ("failed", 1, name, errno.EINVAL), (name, wrong, report)
    for plan, op, number in (
        ((("nothing",),), "nothing", errno.ENOSYS),
        ((b"umask",), "init", errno.EINVAL),
        (((),), "init", errno.EINVAL),
        (((b"umask", 1),), "umask", errno.ENOSYS),
        ((("umask\0x", 1),), "init", errno.ENOSYS),
    ):
        assert launcher.ask({**NOTHING, "plan": plan}, [null] * 3)[:4] == ("failed", 0, op, number)
    assert goes_on(launcher)


def test_wrong_templates_are_reported(launcher: RawLauncher, null: int) -> None:
    wrongs: tuple[tuple[str, Any], ...] = (
        *((name, wrong) for name in ("plan", "ahead", "last", "mounts") for wrong in (None, 1, b"", {1: 2})),
        *(("each", flags) for flags in (-1, 1, 1 << 62)),
        ("mounts", (b"/nowhere",)),  # without a door
        ("plan", ()),  # without a root
        ("plan", (("nothing",),)),
    )
    for name, wrong in wrongs:
        assert launcher.ask({**TEMPLATE, name: wrong}, [null])[:1] == ("failed",), (name, wrong)
    assert launcher.ask(TEMPLATE)[:1] == ("failed",), "without a socket"
    assert goes_on(launcher)


def test_a_template_goes_on(launcher: RawLauncher, null: int) -> None:
    """And so does its spare: one that was sent a wrong request ends."""
    ours, theirs = socket.socketpair()
    assert launcher.ask(TEMPLATE, [theirs.fileno()]) == ("prepared",)
    theirs.close()
    with ours:
        for change, count in CHANGES:
            if change.get("namespaces", 0) == 0:
                request = {**NOTHING, **change}
                head = {"op": "run", "id": 1, "into": request["into"], "whole": message(request)[4:]}
                report = asked(ours, head, [null] * count)
                assert report[:1] in (("failed",), ()), (change, count, report)
        for wrong in (b"", b"junk", message(NOTHING)[4:-1]):
            assert asked(ours, {"op": "run", "id": 1, "whole": wrong}, [null] * 3)[:1] in (("failed",), ())
        head = {"op": "run", "id": 1, "into": False, "whole": message(NOTHING)[4:]}
        assert asked(ours, {**head, "refresh": True}, [null] * 3)[:2] == ("exited", 0)
    assert goes_on(launcher)


@if_namespaces
def test_a_held_door_goes_on(tmp_path: Path, client: LauncherClient, null: int) -> None:
    box = Box(tmp_path, client)
    sandbox = hold(client, box.plan())
    where = os.fsencode(box.project)
    usual: dict[str, Any] = {
        "op": "command", "id": 1, "cwd": where, "argv": [b"true"], "env": {}, "search": [b"/bin"], "terminal": ()
    }  # fmt: skip
    door = socket.socket(fileno=os.dup(sandbox.door._socket.fileno()))
    changes: tuple[tuple[dict[str, Any], int], ...] = (
        *(({name: wrong}, 3) for name in ("cwd", "argv", "env", "search", "terminal") for wrong in (None, 1)),
        ({"cwd": b"a\0b"}, 3), ({"cwd": b"/nowhere"}, 3), ({"argv": [b"/nowhere"]}, 3), ({"terminal": (0,)}, 3),
        *(({}, number) for number in (0, 1, 2, 4, 30)),
    )  # fmt: skip
    for change, count in changes:
        assert asked(door, {**usual, **change}, [null] * count)[:1] in (("failed",), ()), (change, count)
    for request in (None, {}, {"op": "x"}, {"op": "signal"}, {"op": "signal", "id": 1, "signal": 9}):
        assert asked(door, request, [null]) == ()
    with CapturedOutput(None, None, None, 1 << 20) as output:
        running = sandbox.run(Invocation([b"echo", b"on"], ENVIRONMENT, output.descriptors), where)
        for stream in output.streams:
            stream.close_theirs()
        assert attend(running, output, None, lambda: None)[0].status == 0
    door.send(b"\xff" * 4)
    door.close()
    sandbox.end()
    assert sandbox.fileno() < 0


# --- any request ---

SANITIZERS = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")
DENIED = 77
"""Exit code of the sanitizers here."""
HARMLESS = sorted(STEPS.keys() - {"drop_capabilities", "seccomp", "landlock", "no_new_privs", "pivot", "rlimit"})


def any_value(choice: random.Random, depth: int = 0) -> Any:
    kind = choice.randrange(9 if depth < 5 else 6)
    if kind == 0:
        return choice.choice([None, True, False])
    if kind == 1:
        return choice.choice([0, 1, -1, 7, 1 << 30, 1 << 31, 1 << 62, -(1 << 63), 1 << 70])
    if kind in (2, 3):
        return choice.choice([b"", b"dev/x", b"a\0b", b"/", b"x" * 5000, b"\xff\xfe", b"a//b/"])
    if kind in (4, 5):
        return choice.choice(["", "proxy", "view", *HARMLESS, "é"])
    if kind == 8:
        return {any_value(choice, 9): any_value(choice, depth + 1) for _item in range(choice.randrange(4))}
    return tuple(any_value(choice, depth + 1) for _item in range(choice.randrange(5)))


def any_step(choice: random.Random) -> tuple[Any, ...]:
    """Return a step, more often one with arguments of its kinds than not."""
    name = choice.choice(HARMLESS)
    if choice.randrange(4) == 0:
        return (name, *(any_value(choice, 3) for _argument in range(choice.randrange(6))))
    kinds: dict[str, tuple[Any, ...]] = {
        "p": (b"a", b"dev/x", b"", b"a/../b", b"x" * 5000, b"/proc/self/fd"), "i": (0, 1, -1, 0o755, 1 << 31, 1 << 62),
        "b": (b"", b"x" * 64, bytes(100)),
        "s": ((), ((b"a", b"b"),), (("127.0.0.1", 1),), ((b"mode", b"755"),), (b"a",), (1, 2), ((b"max_x", 1, True),)),
    }  # fmt: skip
    return (name, *(choice.choice(kinds[letter]) for letter in STEPS[name] if letter != "?"))


def any_plan(choice: random.Random) -> Any:
    if choice.randrange(8) == 0:
        return any_value(choice)
    return tuple(
        any_value(choice, 3) if choice.randrange(6) == 0 else any_step(choice) for _ in range(choice.randrange(4))
    )


def any_request(choice: random.Random, user: tuple[int, int]) -> Any:
    """Return a request, more often one that is served than not."""
    maps = tuple(b"%d %d 1" % (number, number) for number in user)
    request = {
        **(TEMPLATE if choice.randrange(3) == 0 else NOTHING), "maps": (*maps, True), "plan": any_plan(choice),
        "namespaces": choice.choice([0, 0x30020000, 0x7A020000, 0x10000000]),
    }  # fmt: skip
    for _change in range(choice.randrange(2)):
        request[choice.choice(sorted(request))] = any_value(choice)
    if choice.randrange(4) == 0:
        request = {"op": "run", "id": 1, "whole": damaged(choice, message(request)[4:])}
    return request if choice.randrange(8) else any_value(choice)


def damaged(choice: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _change in range(choice.randrange(4)):
        if changed:
            changed[choice.randrange(len(changed))] = choice.randrange(256)
    return bytes(changed[: choice.choice([len(changed), choice.randrange(len(changed) + 1)])])


@pytest.mark.deep
@pytest.mark.skipif(not COMPILERS, reason="no C compiler")
@pytest.mark.limit(400)
def test_any_request(tmp_path: Path, null: int) -> None:
    """What the steps make is made by another user, in a scratch directory."""
    try:
        content = Path(os.fsdecode(compile_launcher(tmp_path, *SANITIZERS))).read_bytes()
    except subprocess.CalledProcessError:
        pytest.skip("no sanitizers")
    program = launcher_client._sealed(content)
    choice = random.Random(SEED)
    scratch, log = tmp_path / "scratch", tmp_path / "log"
    for directory in (scratch, log):
        directory.mkdir()
        directory.chmod(0o777)
    for above in (tmp_path, *tmp_path.parents[:2]):
        above.chmod(above.stat().st_mode | 0o711)
    user = (65534, 65534) if os.geteuid() == 0 else (os.geteuid(), os.getegid())
    run = f'cd "$1" && exec -a {PROTOCOL} /proc/self/fd/9 3'
    if os.geteuid() == 0:  # its modes and mounts would be the machine's
        run = 'cd "$1" && exec setpriv --reuid 65534 --regid 65534 --clear-groups /proc/self/fd/9 3'
    environment = {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "ASAN_OPTIONS": f"exitcode={DENIED}:detect_leaks=0:log_path={log}/asan",
        "UBSAN_OPTIONS": f"exitcode={DENIED}:log_path={log}/ubsan",
    }
    ends: set[int] = set()
    told = 0
    for _round in range(sample(60) * 2):
        ours, theirs = socket.socketpair()
        ours.settimeout(60)
        dup2 = os.POSIX_SPAWN_DUP2
        actions = [(dup2, program, 9), (dup2, theirs.fileno(), 3)]
        words = ["bash", "-c", run, "bash", str(scratch)]
        child = os.posix_spawn("/bin/bash", words, environment, file_actions=actions)
        theirs.close()
        with ours:
            for _request in range(10):
                passed = [null] * choice.choice([3, 3, 3, 4, 0])
                told += len(asked(ours, any_request(choice, user), passed)) > 0
            if choice.randrange(2):
                try:
                    ours.send(damaged(choice, message(any_request(choice, user))))
                except OSError:
                    pass  # it has ended
        ends.add(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    os.close(program)
    assert ends == {0}
    assert [path.read_text() for path in log.iterdir()] == []
    assert told > 0
