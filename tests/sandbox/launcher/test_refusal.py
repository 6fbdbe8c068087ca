"""Calls that the filter refuses are in the result: which call, why, how often. The kernel reports them; they are not
guessed from output."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import pytest

from box import Box, if_namespaces
from conftest import Place
from mudroom.core.result import Denial
from mudroom.core.settings import Settings
from mudroom.sandbox.client.launcher_client import LauncherClient
from mudroom.sandbox.host.denials import denials, rules_for
from mudroom.sandbox.linux.syscall import DENY, ENOSYS, NUMBERS

pytestmark = pytest.mark.both_users

ATTEMPTS = """
import ctypes, errno, os, platform, socket
libc = ctypes.CDLL(None, use_errno=True)
def attempt(number, *arguments):
    ctypes.set_errno(0)
    libc.syscall(ctypes.c_long(number), *(ctypes.c_ulong(one) for one in arguments))
    return errno.errorcode.get(ctypes.get_errno(), "0")
"""


def python(place: Place, program: str, settings: Settings | None = None) -> tuple[list[str], tuple[Denial, ...]]:
    session = place.session(settings)
    result = session.run([os.fsencode(sys.executable), b"-I", b"-S", b"-c", (ATTEMPTS + program).encode()])
    assert result.exit_code == 0, result.stderr
    return result.stdout.decode().split(), result.denials


def number(name: str) -> int:
    found = NUMBERS[name][{"x86_64": 0, "aarch64": 1}[os.uname().machine]]
    assert found is not None
    return found


@if_namespaces
@pytest.mark.parametrize("view", ["overlay", "copy"])
def test_refused_calls_are_told(place: Place, view: str) -> None:
    program = f"""
print(attempt({number("ptrace")}, 0), attempt({number("unshare")}, 0x10000000), attempt({number("ptrace")}, 0))
try:
    socket.socket(40, 1)
except OSError as error:
    print(errno.errorcode[error.errno])
"""
    settings = Settings(view="overlay") if view == "overlay" else Settings(view="copy")
    said, refused = python(place, program, settings)
    assert said == ["EPERM", "EPERM", "EPERM", "EAFNOSUPPORT"]
    assert [(one.kind, one.target, one.times) for one in refused] == [
        ("system call", b"ptrace", 2),
        ("system call", b"unshare", 1),
        ("system call", b"socket", 1),
    ]
    assert "capabilities" in refused[1].reason and "vsock" in refused[2].reason


@if_namespaces
def test_of_many_rules_for_a_call_the_one_that_applied_is_told(place: Place) -> None:
    _said, refused = python(place, f"attempt({number('ioctl')}, 0, 0x5412, 0); attempt({number('ioctl')}, 0, 0x541C)")
    assert [one.reason.partition(";")[0] for one in refused] == [
        "types into the user's shell",
        "pastes into a virtual console",
    ]


@if_namespaces
def test_bits_above_the_argument_are_not_compared(place: Place) -> None:
    said, refused = python(place, f"print(attempt({number('ioctl')}, 0, 0x7700005412, 0))")
    assert said == ["EPERM"] and refused[0].reason.startswith("types into")


def test_what_is_said_not_to_exist_is_not_told(place: Place) -> None:
    said, refused = python(place, f"print(attempt({number('io_uring_setup')}, 1, 0), attempt({number('clone3')}))")
    assert (said, refused) == (["ENOSYS", "ENOSYS"], ())


@if_namespaces
def test_every_refusal_answers_as_the_filter_alone_would(place: Place) -> None:
    """All rules without conditions, in one process, which lives on."""
    rules = [rule for rule in DENY if not rule.conditions and NUMBERS[rule.syscall][0] is not None]
    calls = ", ".join(f"attempt({number(rule.syscall)})" for rule in rules)
    said, refused = python(place, f"print({calls})")
    names = {1: "EPERM", 13: "EACCES", 38: "ENOSYS", 97: "EAFNOSUPPORT"}
    assert said == [names[rule.action] for rule in rules]
    assert {one.target.decode() for one in refused} == {rule.syscall for rule in rules if rule.action != ENOSYS}


@if_namespaces
def test_children_are_reaped_and_refusals_of_many_are_told(place: Place) -> None:
    program = f"""
import time
for _ in range(20):
    if not os.fork():
        if not os.fork():  # an orphan, which init inherits
            attempt({number("ptrace")}, 0)
            os._exit(0)
        os._exit(0)
for _ in range(20):
    os.wait()
while any(name.isdigit() and int(name) > 1 and int(name) != os.getpid() for name in os.listdir("/proc")):
    pass
print("alone")
"""
    said, refused = python(place, program)
    assert said == ["alone"]
    assert [(one.target, one.times) for one in refused] == [(b"ptrace", 20)]


@if_namespaces
def test_a_signal_for_somebody_who_waits_for_the_answer(place: Place) -> None:
    program = f"""
import signal
count = 0
def caught(*_):
    global count
    count += 1
signal.signal(signal.SIGALRM, caught)
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
answers = {{attempt({number("ptrace")}, 0) for _ in range(2000)}}
signal.setitimer(signal.ITIMER_REAL, 0)
print(*sorted(answers - {{"EINTR"}}))
"""
    said, refused = python(place, program)
    assert said == ["EPERM"]
    assert refused[0].target == b"ptrace" and refused[0].times >= 1000


@if_namespaces
def test_many_commands_in_one_session(place: Place) -> None:
    """From the second on they start from a template."""
    session = place.session()
    for _ in range(4):
        program = ATTEMPTS + f"attempt({number('ptrace')}, 0)"
        result = session.run([os.fsencode(sys.executable), b"-I", b"-S", b"-c", program.encode()])
        assert [one.target for one in result.denials] == [b"ptrace"]


def test_where_somebody_listens_already_the_filter_refuses_alone(tmp_path: Path, client: LauncherClient) -> None:
    """As in a container whose own filter has a listener: EBUSY. Shown by a plan with two listeners."""
    box = Box(tmp_path, client)
    plan = box.plan()
    twice = plan._replace(steps=(*plan.steps, plan.steps[-1]))
    assert twice.steps[-1][0] == "seccomp"
    program = shlex.quote(ATTEMPTS + f"print(attempt({number('ptrace')}, 0))")
    ended, out = box.run(f"{shlex.quote(sys.executable)} -I -S -c {program}", twice)
    assert (ended.status, out, ended.refused) == (0, "EPERM\n", ())


def test_reports_as_denials() -> None:
    assert denials([b"chmod /etc/a b"]) == (
        Denial("metadata", b"/etc/a b", "chmod outside the command's own directories"),
    )
    assert denials([b"call 0 7"]) == (Denial("system call", DENY[0].syscall.encode(), DENY[0].reason, 7),)
    assert denials([b"call -1 1"])[0].target == b"?"
    assert rules_for("read") == () and rules_for("ptrace")[0].syscall == "ptrace"
