"""Compile a table of rules to a classic BPF program for `seccomp(SECCOMP_SET_MODE_FILTER)`.

Rules:

1. It computes bytes. It installs no filter, inspects no machine and opens no file.
2. A program is built bottom-up from pieces, and *every piece returns on every path*. So pieces are combined by writing
   them one after the other and jumping over the first: no labels, no fix-ups. A jump too far for its 8 bits goes
   through `ja`, whose offset has 32 (`_skip`).
3. A call without a rule reaches ALLOW after loading only `arch` and `nr`. Since 5.11 the kernel (kernel/seccomp.c:
   seccomp_is_const_allow) finds such calls when the filter is installed and does not run the program for them at all.
   Other calls, and all calls before 5.11, cost log2(edges).

A program's shape:

    arch differs?  KILL_PROCESS      a 32-bit call: the numbers mean other calls there
    binary search over nr            the number line, cut at the edges of denied calls; a leaf is a piece:
        ALLOW
        ERRNO(e)                     denied whatever the arguments
        conditions, ERRNO(e) / ALLOW
        ERRNO(ENOSYS)                numbers of a foreign calling convention, x32

x32 gets ENOSYS where a wrong `arch` kills, for three reasons. A kernel without CONFIG_X86_X32_ABI, as most are, answers
ENOSYS. No call is executed either way. And the range holds -1, the number that a tracer writes to skip a call, which is
no reason to die. No program issues a 32-bit call by accident.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from mudroom.sandbox.linux.syscall import ENOSYS, MACHINES, Cond, SyscallRule, number_of
from mudroom.typing import NamedTuple

# linux/bpf_common.h, only the operations used here.
_LD_W_ABS, _ALU_AND_K, _RET_K = 0x20, 0x54, 0x06
_JA, _JEQ_K, _JGE_K = 0x05, 0x15, 0x35

# struct seccomp_data { int nr; __u32 arch; __u64 instruction_pointer; __u64 args[6]; }
# Little endian, as in AUDIT_ARCH: the low half of an argument comes first.
_NR, _ARCH = 0, 4
_LOW_OF_ARG = tuple(range(16, 64, 8))

# linux/seccomp.h; the low 16 bits carry the error, which the kernel caps at MAX_ERRNO.
_KILL_PROCESS, _ERRNO, _ALLOW = 0x80000000, 0x00050000, 0x7FFF0000
_USER_NOTIF = 0x7FC00000
_MAX_ERRNO = 4095

_MAX_INSTRUCTIONS = 4096  # BPF_MAXINSNS
_ALL_BITS = 0xFFFFFFFF


class _Instruction(NamedTuple):
    """struct sock_filter. Jumps count from the next instruction, forward only."""

    code: int
    jt: int
    jf: int
    k: int


_FORMAT = struct.Struct("<HBBI")
_Row = tuple[int, bool, int, int]
_Numbers = tuple[int | None, int | None]
_Code = list[_Instruction]


def compile_filter(
    rules: Sequence[SyscallRule],
    machine: str,
    *,
    notify: bool = False,
    routed: Sequence[_Numbers] = (),
) -> bytes:
    """Compile a program that answers each call by the first rule that matches, and allows all other calls.

    `machine`: as in uname(2). With `notify` the program asks a listener instead of refusing
    (``src/native/launcher/command.c``), except for calls that are reported as missing. The calls `routed`
    go to the listener, which lets them pass or performs them. Raise ValueError for an unknown
    machine or call and for a mistaken rule.
    """
    search = _search(_segments(rules, machine, notify, routed))
    code = [
        *_load(_ARCH),
        *_skip(_JEQ_K, MACHINES[machine].audit_arch, if_true=True, over=1),
        *_return(_KILL_PROCESS),
        *_load(_NR),
        *search,
    ]
    if len(code) > _MAX_INSTRUCTIONS:
        raise ValueError(f"{len(code)} instructions; the kernel takes {_MAX_INSTRUCTIONS}")
    return b"".join(_FORMAT.pack(*instruction) for instruction in code)


def rows(rules: Sequence[SyscallRule], machine: str) -> dict[int, tuple[tuple[int, int, tuple[_Row, ...]], ...]]:
    """Return the rules by system call number, for a notifying filter's listener: rule number, error, and conditions as
    (argument, whether it has to equal the value, value, mask)."""
    table: dict[int, tuple[tuple[int, int, tuple[_Row, ...]], ...]] = {}
    for index, rule in enumerate(rules):
        number = number_of(rule.syscall, machine)
        if number is not None:
            conditions = tuple((cond.arg, cond.op == "==", cond.value, cond.mask) for cond in rule.conditions)
            table[number] = (*table.get(number, ()), (index, rule.action, conditions))
    return table


def _segments(
    rules: Sequence[SyscallRule], machine: str, notify: bool, routed: Sequence[_Numbers]
) -> list[tuple[int, _Code]]:
    """Return the number line as (first number, code from there on), with equal neighbours joined."""
    named: dict[int, list[SyscallRule]] = {}
    for rule in rules:
        _check(rule)
        number = number_of(rule.syscall, machine)
        if number is not None:
            named.setdefault(number, []).append(rule)
    denied = [(number, number + 1, _decide(its_rules, notify)) for number, its_rules in named.items()]
    column = MACHINES[machine].column
    denied += [(number, number + 1, _ROUTED) for row in routed if (number := row[column]) is not None]
    foreign = [(first, end, _return(_ERRNO | ENOSYS)) for first, end in MACHINES[machine].foreign]
    segments: list[tuple[int, _Code]] = []
    reached = 0
    for first, end, code in sorted([*denied, *foreign]):
        if first < reached:
            raise ValueError(f"system call {first} is claimed twice on {machine}")
        if reached < first:
            segments.append((reached, _return(_ALLOW)))
        segments.append((first, code))
        reached = end
    if reached <= _ALL_BITS:
        segments.append((reached, _return(_ALLOW)))
    return [segment for i, segment in enumerate(segments) if i == 0 or segment[1] != segments[i - 1][1]]


_UNROUTED = 0x80000000
"""In the upper half of a fifth argument of 32 bits, which the kernel ignores: a call of the listener's own process
(UNROUTED of ``rename.c``). A command that does the same has the kernel's answer, as without a listener."""


def _check(rule: SyscallRule) -> None:
    """Raise ValueError for a mistake in the table: a rule that can never match, or that reports success for a call that
    is never made."""
    if not 1 <= rule.action <= _MAX_ERRNO:
        raise ValueError(f"{rule.syscall}: {rule.action} is not an error number")
    for cond in rule.conditions:
        if not (0 <= cond.arg < len(_LOW_OF_ARG) and 0 < cond.mask <= _ALL_BITS):
            raise ValueError(f"{rule.syscall}: a condition sees 32 bits of one of six arguments: {cond}")
        if cond.value & cond.mask != cond.value:
            raise ValueError(f"{rule.syscall}: the mask hides bits of the value: {cond}")


def _search(segments: Sequence[tuple[int, _Code]]) -> _Code:
    """Return a balanced tree of `nr >= edge` tests. The number is in the accumulator."""
    if len(segments) == 1:
        return segments[0][1]
    middle = len(segments) // 2
    below = _search(segments[:middle])
    return [
        *_skip(_JGE_K, segments[middle][0], if_true=True, over=len(below)),
        *below,
        *_search(segments[middle:]),
    ]


def _decide(rules: Sequence[SyscallRule], notify: bool) -> _Code:
    """Return the code for a system call's rules: the first rule whose conditions all hold decides."""
    code = _return(_ALLOW)
    for rule in reversed(rules):
        denied = _return(_USER_NOTIF if notify and rule.action != ENOSYS else _ERRNO | rule.action)
        for cond in reversed(rule.conditions):
            denied = [*_unless(cond, len(denied)), *denied]
        # Code behind a rule without conditions is never reached. The kernel accepts it, but it confuses readers.
        code = [*denied, *code] if rule.conditions else denied
    return code


def _unless(cond: Cond, over: int) -> _Code:
    """Load, mask and compare; jump over the next `over` instructions unless the condition holds."""
    masked = [] if cond.mask == _ALL_BITS else [_Instruction(_ALU_AND_K, 0, 0, cond.mask)]
    jump = _skip(_JEQ_K, cond.value, if_true=cond.op == "!=", over=over)
    return [*_load(_LOW_OF_ARG[cond.arg]), *masked, *jump]


def _skip(test: int, k: int, *, if_true: bool, over: int) -> _Code:
    """Jump over the next `over` instructions if the test gives `if_true`, else continue with the first."""
    if over <= 0xFF:
        return [_Instruction(test, over if if_true else 0, 0 if if_true else over, k)]
    return [_Instruction(test, 0 if if_true else 1, 1 if if_true else 0, k), _Instruction(_JA, 0, 0, over)]


def _load(offset: int) -> _Code:
    return [_Instruction(_LD_W_ABS, 0, 0, offset)]


def _return(action: int) -> _Code:
    return [_Instruction(_RET_K, 0, 0, action)]


_ROUTED = [
    *_load(_LOW_OF_ARG[4] + 4),
    *_skip(_JEQ_K, _UNROUTED, if_true=True, over=1),
    *_return(_USER_NOTIF),
    *_return(_ALLOW),
]
