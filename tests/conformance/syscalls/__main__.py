"""``python -m tests.conformance.syscalls > docs/evidence/SYSCALLS.md``: the filters side by side."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

_HERE = Path(__file__).parent
sys.path[:0] = [str(_HERE.parent.parent), str(_HERE.parent.parent.parent / "src")]

from conformance.syscalls.decision import ALLOWED, OWN, Profile, decide, is_conditional, load  # noqa: E402
from conformance.syscalls.left_open import LEFT_OPEN  # noqa: E402
from mudroom.sandbox.linux.syscall import DENY  # noqa: E402


class Question(NamedTuple):
    text: str
    call: str
    arguments: tuple[int, ...]


QUESTIONS = (
    Question("a new process", "clone", (0x01200011,)),
    Question("… in a new user namespace", "clone", (0x10000011,)),
    Question("… in a new network namespace", "clone", (0x40000011,)),
    Question("its own table of open files", "unshare", (0x400,)),
    Question("a new user namespace", "unshare", (0x10000000,)),
    Question("addresses that are not random (gdb, setarch -R)", "personality", (0x40000,)),
    Question("what can be read can be executed", "personality", (0x400000,)),
    Question("uname as of a 32-bit machine", "personality", (0x8,)),
    Question("type into the terminal (TIOCSTI)", "ioctl", (0, 0x5412)),
    Question("paste into the console (TIOCLINUX)", "ioctl", (0, 0x541C)),
    Question("load a line discipline (TIOCSETD)", "ioctl", (0, 0x5423)),
    Question("a fifo", "mknodat", (0, 0, 0o010600)),
    Question("a character device", "mknodat", (0, 0, 0o020600)),
    Question("the same, by the older call", "mknod", (0, 0o020600)),
    Question("unix socket, stream", "socket", (1, 1, 0)),
    Question("unix socket, datagrams", "socket", (1, 2, 0)),
    Question("TCP", "socket", (2, 1, 0)),
    Question("TCP over IPv6", "socket", (10, 1, 6)),
    Question("UDP", "socket", (2, 2, 17)),
    Question("ping", "socket", (2, 2, 1)),
    Question("raw IP", "socket", (2, 3, 1)),
    Question("packets under an old name (SOCK_PACKET)", "socket", (2, 10, 768)),
    Question("SCTP", "socket", (2, 1, 132)),
    Question("SCTP over IPv6", "socket", (10, 1, 132)),
    Question("SCTP, as SOCK_SEQPACKET of protocol 0", "socket", (2, 5, 0)),
    Question("DCCP", "socket", (2, 6, 33)),
    Question("SMC, by protocol", "socket", (2, 1, 256)),
    Question("MPTCP", "socket", (2, 1, 262)),
    Question("L2TP", "socket", (2, 2, 115)),
    Question("UDP-Lite", "socket", (2, 2, 136)),
    Question("netlink: routes", "socket", (16, 3, 0)),
    Question("netlink: netfilter", "socket", (16, 3, 12)),
    Question("AX.25", "socket", (3, 5, 0)),
    Question("keys of IPsec", "socket", (15, 3, 2)),
    Question("packets", "socket", (17, 3, 0)),
    Question("RDS", "socket", (21, 5, 0)),
    Question("CAN", "socket", (29, 3, 1)),
    Question("TIPC", "socket", (30, 1, 0)),
    Question("Bluetooth", "socket", (31, 3, 1)),
    Question("ciphers of the kernel (AF_ALG)", "socket", (38, 5, 0)),
    Question("the VM's host (vsock)", "socket", (40, 1, 0)),
    Question("SMC", "socket", (43, 1, 0)),
    Question("XDP", "socket", (44, 3, 0)),
    Question("a pair of unix sockets, stream", "socketpair", (1, 1, 0)),
    Question("a pair of unix sockets, datagrams", "socketpair", (1, 2, 0)),
    Question("a pair of SCTP: the module is loaded first", "socketpair", (2, 1, 132)),
    Question("slow down the caller", "setpriority", (0, 0)),
    Question("slow down all processes of the user", "setpriority", (2, 0)),
    Question("an IO priority of its own", "ioprio_set", (1, 0)),
    Question("an IO priority of the user", "ioprio_set", (3, 0)),
    Question("of the sandbox's first process", "prlimit64", (1,)),
    *(
        Question(text, call, (number,))
        for call in ("sched_setaffinity", "sched_setscheduler", "sched_setparam", "sched_setattr", "prlimit64")
        for text, number in (("of the caller", 0), ("of another process", 77))
    ),
)  # fmt: skip
"""One or more for every call whose answer depends on its arguments."""

INTRODUCTION = """\
# System calls: what each filter lets through

`python -m tests.conformance.syscalls > docs/evidence/SYSCALLS.md` writes this; a test compares the two. Our columns
are computed from the tables in `sandbox/linux/syscall.py`, the others from `tests/conformance/syscalls/profiles.json`,
which says what the published source of each refuses. Nothing was run: a kernel, a capability or a mount may refuse
more. All columns are for x86-64. **yes**: the filter lets the call through; otherwise its error.
"""
AFTERWARDS = """\
A filter is not a sandbox. Docker's is a list of what is allowed, so a call of a future kernel is refused; the others,
ours included, list what is refused. Codex and sandbox-runtime leave namespaces, mounts and other families of sockets to
bubblewrap and to the kernel's own checks.
"""


def document() -> str:
    """Return docs/evidence/SYSCALLS.md."""
    calls, others = load()
    return (
        "\n".join([INTRODUCTION, *_sources(others), "", AFTERWARDS, *_tables(calls, (*OWN, *others)), *_open()]) + "\n"
    )


def _sources(others: Sequence[Profile]) -> Iterator[str]:
    yield "| column | read from | dated | for |"
    yield "| --- | --- | --- | --- |"
    for profile in (*OWN, *others):
        yield f"| {profile.title} | {profile.version} | {profile.date} | {profile.read} |"


def _head(profiles: Sequence[Profile], first: str, last: str) -> Iterator[str]:
    yield "| " + " | ".join([first, *(profile.title for profile in profiles), last]) + " |"
    yield "| --- |" + " --- |" * (len(profiles) + 1)


def _tables(calls: Sequence[str], profiles: Sequence[Profile]) -> Iterator[str]:
    yield "## Calls whose answer depends on their arguments\n"
    yield from _head(profiles, "call", "to get")
    for text, call, arguments in QUESTIONS:
        answers = [decide(profile, call, arguments) for profile in profiles]
        shown = ", ".join(str(one) if one < 64 else hex(one) for one in arguments)
        yield f"| `{call}({shown})` | " + " | ".join(answers) + f" | {text} |"
    yield "| a 32-bit call | " + " | ".join(profile.foreign for profile in profiles) + " | another table of numbers |"
    yield "\n## Calls that at least one filter refuses always\n"
    yield from _head(profiles, "call", "why we do, or do not")
    reasons = dict(LEFT_OPEN) | {rule.syscall: rule.reason for rule in reversed(DENY)}
    shared = []
    for call in calls:
        answers = [decide(profile, call, ()) for profile in profiles]
        if is_conditional(profiles, call):
            continue
        if set(answers) == {ALLOWED}:
            shared.append(call)
        else:
            yield f"| `{call}` | " + " | ".join(answers) + f" | {reasons.get(call, '')} |"
    yield "\n## Calls that all of them let through\n"
    yield ", ".join(f"`{call}`" for call in shared) + "."


def _open() -> Iterator[str]:
    yield "\n## Left open on purpose\n"
    yield from (f"* `{call}`: {reason}." for call, reason in LEFT_OPEN.items())


if __name__ == "__main__":
    sys.stdout.write(document())
