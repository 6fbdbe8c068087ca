"""Limits of what a command may use: the values, what enforces each, and what is said when one is reached. Pure.

What enforces them, in this order (``sandbox/limits/limiter.py`` finds out which of it a machine has):

| limit | control group, version 2 | version 1 | without any, if the policy permits it |
| --- | --- | --- | --- |
| memory | memory.max, no swap | memory.limit_in_bytes | RLIMIT_DATA: of each process, not of all together |
| processes | pids.max | pids.max | RLIMIT_NPROC, in a user namespace of an ordinary user |
| cpus | cpu.max | cpu.cfs_quota_us | nothing |
| io | io.max | none: blkio.throttle does not see buffered writes | nothing |
| open_files, file_size | RLIMIT_NOFILE and RLIMIT_FSIZE, always: of each process | | |

Sources: Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/ of the kernel, setrlimit(2).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, NamedTuple

Missing = Literal["refuse", "degrade"]
RLIMIT_FSIZE, RLIMIT_DATA, RLIMIT_CORE, RLIMIT_NPROC, RLIMIT_NOFILE = 1, 2, 4, 6, 7
SIGXFSZ = 25
OWN_PROCESSES = 1
"""The sandbox's init is in the command's group, but not what the user counts."""
PREPARED_PROCESSES = 3
"""A template, a spare and an init count to the user namespace of a session."""
PERIOD = 100_000
"""Microseconds: the kernel's own default of cpu.max."""

_UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
UNITS = (
    {unit + "b": 1000**power for power, unit in enumerate(_UNITS, 1)}
    | {unit + "ib": factor for unit, factor in _UNITS.items()}
    | _UNITS
    | {"b": 1}
)
"""kB, MB … are powers of 1000, KiB, MiB … of 1024; K, M, G alone are those of 1024, as systemd and Docker have them."""


class Limits(NamedTuple):
    """None: no limit. Those without ``total`` hold for one command with all that it starts."""

    memory: int | None = None
    """Bytes, with the page cache of its files and what it has in /tmp."""
    processes: int | None = None
    """At one time; threads count, as for the kernel."""
    cpus: float | None = None
    """Processors' worth of time: 1.5 is one and a half."""
    io: int | None = None
    """Bytes per second, of reading and of writing each, from the disks of project and vault."""
    open_files: int | None = None
    """Of each process."""
    file_size: int | None = None
    """Bytes that one file can be made."""
    total_memory: int | None = None
    """Of all sandboxes of the vault together, as the next two."""
    total_processes: int | None = None
    total_cpus: float | None = None
    missing: Missing = "refuse"
    """What happens to a limit that cannot be enforced here: the command does not run, or runs and is told of it."""


class Write(NamedTuple):
    """One line into one file of a control group."""

    controller: str
    file: str
    content: str
    optional: bool = False
    """Only some kernels have the file; without it the limit is somewhat weaker (swap)."""


KINDS = ("memory", "processes", "cpus", "io")
"""What needs a control group."""
CONTROLLERS = {"memory": "memory", "processes": "pids", "cpus": "cpu", "io": "io"}
NAMES = {
    "memory": "memory",
    "processes": "processes",
    "cpus": "cpus",
    "io": "io",
    "open_files": "open files",
    "file_size": "file size",
    "time": "time",
    "output": "output",
}


def parse_size(text: str) -> int | None:
    """Bytes of "512 MB", "2GiB", "1.5G", "4096"; None if it is no size."""
    word = text.strip().lower()
    unit = next((unit for unit in sorted(UNITS, key=len, reverse=True) if word.endswith(unit)), "")
    number = word[: len(word) - len(unit)].strip()
    if len(number) > 100 or not number.replace(".", "", 1).isdecimal() or not number.isascii():
        return None
    found = int(float(number) * UNITS.get(unit, 1))
    return found if found < 1 << 63 else None


def show_size(size: int) -> str:
    """In the largest unit that gives it exactly, as somebody may have written it; else rounded."""
    exact = [(factor, unit) for unit, factor in UNITS.items() if len(unit) > 1 and factor <= size and not size % factor]
    if exact:
        factor, unit = max(exact)
        return f"{size // factor} {_unit(unit)}"
    for unit, factor in (("gb", 10**9), ("mb", 10**6), ("kb", 10**3)):
        if size >= factor:
            return f"{size / factor:.1f} {_unit(unit)}"
    return f"{size} bytes"


def _unit(lower: str) -> str:
    return "kB" if lower == "kb" else lower[0].upper() + lower[1:].replace("b", "B")


def show_limit(kind: str, limit: float) -> str:
    if kind in ("memory", "io", "file_size", "output"):
        return show_size(int(limit)) + ("/s" if kind == "io" else "")
    return f"{limit:g} s" if kind == "time" else f"{limit:g}"


def of_command(limits: Limits) -> Iterator[tuple[str, float]]:
    """(kind, limit) of those that need a control group for each command."""
    for kind in KINDS:
        limit = getattr(limits, kind)
        if limit is not None:
            yield kind, limit


def of_total(limits: Limits) -> Iterator[tuple[str, float]]:
    for kind in KINDS[:3]:
        limit = getattr(limits, "total_" + kind)
        if limit is not None:
            yield kind, limit


def explain_limits(limits: Limits) -> Iterator[str]:
    """Lines for a person, beside those of a plan."""
    for where, found in (("a control group of its own", of_command(limits)), ("the project's group", of_total(limits))):
        asked = ", ".join(f"{NAMES[kind]} {show_limit(kind, limit)}" for kind, limit in found)
        if asked:
            yield f"  +  {where}: {asked}"


def needed(limits: Limits) -> frozenset[str]:
    """The controllers, by their names in version 2."""
    return frozenset(CONTROLLERS[kind] for kind, _limit in (*of_command(limits), *of_total(limits)))


def writes_v2(limits: Iterable[tuple[str, float]], devices: Iterable[str], own: int = 0) -> Iterator[Write]:
    """``devices``: "8:0" and the like, whole disks. ``own``: processes beyond those that are counted."""
    for kind, limit in limits:
        if kind == "memory":
            yield Write("memory", "memory.max", str(int(limit)))
            yield Write("memory", "memory.swap.max", "0", optional=True)
        elif kind == "processes":
            yield Write("pids", "pids.max", str(int(limit) + own))
        elif kind == "cpus":
            yield Write("cpu", "cpu.max", f"{_quota(limit)} {PERIOD}")
        else:
            for device in devices:
                yield Write("io", "io.max", f"{device} rbps={int(limit)} wbps={int(limit)}")


def writes_v1(limits: Iterable[tuple[str, float]], own: int = 0) -> Iterator[Write]:
    """The same for version 1, which has none for io. Swappiness 0: a group at its limit does not swap
    (Documentation/admin-guide/cgroup-v1/memory.rst). Of a limit with swap (memsw) the kernel does not say that it was
    reached."""
    for kind, limit in limits:
        if kind == "memory":
            yield Write("memory", "memory.limit_in_bytes", str(int(limit)))
            yield Write("memory", "memory.swappiness", "0", optional=True)
        elif kind == "processes":
            yield Write("pids", "pids.max", str(int(limit) + own))
        else:
            yield Write("cpu", "cpu.cfs_period_us", str(PERIOD))
            yield Write("cpu", "cpu.cfs_quota_us", str(_quota(limit)))


def _quota(cpus: float) -> int:
    return max(1000, round(cpus * PERIOD))  # the kernel refuses less than a millisecond


def rlimits(limits: Limits) -> tuple[tuple[int, int, int], ...]:
    """Always enforced: (resource, soft, hard).

    A core limit of 1 is the kernel's own word for "no dump at all, not through a pipe either": fs/coredump.c returns
    from coredump_pipe (do_coredump before Linux 6.17) if the limit is 1, before any handler is started, and from
    coredump_file if it is below min_coredump, a page (fs/binfmt_elf.c). With 0 the host's crash handler, which is not
    confined, would still be given the memory of what crashed; so where our own hard limit is 0, it is. Only
    coredump_socket (Linux 6.16, a core_pattern that begins with "@") asks for no limit. mudroom doctor says both.
    """
    found = [(RLIMIT_CORE, 1, 1)]
    if limits.open_files is not None:
        found.append((RLIMIT_NOFILE, limits.open_files, limits.open_files))
    if limits.file_size is not None:
        found.append((RLIMIT_FSIZE, limits.file_size, limits.file_size))
    return tuple(found)


def stand_in(kind: str, limit: float, *, counts_processes: bool) -> tuple[tuple[int, int, int] | None, str]:
    """What there is for a limit without a control group: an rlimit or nothing, and what to say of it.

    ``counts_processes``: RLIMIT_NPROC counts what is in the sandbox and nothing else. So it is in a user namespace
    since Linux 5.14 (kernel/ucount.c), but not for root, to whom it does not apply.
    """
    shown = f"{NAMES[kind]}, {show_limit(kind, limit)}"
    if kind == "memory":
        return (RLIMIT_DATA, int(limit), int(limit)), f"limit {shown}: held for each process, not for all together"
    if kind == "processes" and counts_processes:
        count = int(limit) + PREPARED_PROCESSES
        return (RLIMIT_NPROC, count, count), f"limit {shown}: counted for all commands of this session together"
    return None, f"limit {shown}: not enforced"


class UnenforcedLimits(NamedTuple):
    rlimits: tuple[tuple[int, int, int], ...]
    notes: tuple[str, ...]
    missing: str = ""
    """The name of a limit that was asked for, cannot be held, and may not be done without."""


def without_groups(limits: Limits) -> UnenforcedLimits:
    """What is left of limits where there are no control groups at all (macOS). Nothing stands in: there RLIMIT_DATA
    holds for what a process gets by brk(2), which no allocator uses, and RLIMIT_NPROC counts all that the user runs."""
    notes = []
    for where, asked in (("limit", of_command(limits)), ("limit of all commands together:", of_total(limits))):
        for kind, limit in asked:
            if limits.missing == "refuse":
                return UnenforcedLimits((), (), NAMES[kind])
            notes.append(f"{where} {NAMES[kind]}, {show_limit(kind, limit)}: not enforced (no control groups here)")
    return UnenforcedLimits((), tuple(notes))


class Reading(NamedTuple):
    """What a control group has counted. None: this kernel does not say."""

    memory_kills: int = 0
    memory_full: int = 0
    """How often the group's own limit was in the way of an allocation that nothing could be freed for."""
    processes_refused: int = 0
    throttled: float = 0.0
    """Seconds in which something wanted to run and was not let."""
    memory_peak: int | None = None
    processes_peak: int | None = None
    cpu: float | None = None
    """Seconds."""
    io_read: int | None = None
    io_written: int | None = None


def fields(text: str) -> dict[str, int]:
    """Lines of "key value"."""
    rows = (line.split() for line in text.splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) == 2 and row[1].isdecimal()}


READ_V2 = ("memory.events", "memory.peak", "pids.events", "pids.peak", "cpu.stat", "io.stat")
READ_V1 = (
    ("memory", "memory.oom_control"),
    ("memory", "memory.failcnt"),
    ("memory", "memory.max_usage_in_bytes"),
    ("pids", "pids.events"),
    ("cpu", "cpu.stat"),
    ("cpuacct", "cpuacct.usage"),
)


def reading_v2(texts: Mapping[str, str]) -> Reading:
    """``texts``: by file name, those of ``READ_V2`` that exist."""
    memory, cpu = fields(texts.get("memory.events", "")), fields(texts.get("cpu.stat", ""))
    disks = [
        dict(pair.split("=", 1) for pair in line.split()[1:] if "=" in pair)
        for line in texts.get("io.stat", "").splitlines()
    ]
    return Reading(
        memory_kills=memory.get("oom_kill", 0),
        memory_full=memory.get("oom", 0),
        processes_refused=fields(texts.get("pids.events", "")).get("max", 0),
        throttled=cpu.get("throttled_usec", 0) / 1e6,
        memory_peak=_number(texts, "memory.peak"),
        processes_peak=_number(texts, "pids.peak"),
        cpu=cpu["usage_usec"] / 1e6 if "usage_usec" in cpu else None,
        io_read=sum(int(disk.get("rbytes", 0)) for disk in disks) if "io.stat" in texts else None,
        io_written=sum(int(disk.get("wbytes", 0)) for disk in disks) if "io.stat" in texts else None,
    )


def reading_v1(texts: Mapping[str, str]) -> Reading:
    usage = _number(texts, "cpuacct.usage")
    return Reading(
        memory_kills=fields(texts.get("memory.oom_control", "")).get("oom_kill", 0),
        memory_full=_number(texts, "memory.failcnt") or 0,
        processes_refused=fields(texts.get("pids.events", "")).get("max", 0),
        throttled=fields(texts.get("cpu.stat", "")).get("throttled_time", 0) / 1e9,
        memory_peak=_number(texts, "memory.max_usage_in_bytes"),
        cpu=None if usage is None else usage / 1e9,
    )


def _number(texts: Mapping[str, str], name: str) -> int | None:
    text = texts.get(name, "").strip()
    return int(text) if text.isdecimal() else None


class LimitReached(NamedTuple):
    """A limit that did something to a command, as the kernel counted it."""

    kind: str
    action: str
    """``killed``, ``refused``, ``slowed``, ``cut``."""
    limit: float | None
    """In the unit of the setting: bytes, seconds, a number. None: the machine itself had no more."""
    whose: str = "command"
    """``command``; ``project``: of all sandboxes of the vault together; ``machine``."""
    amount: float = 0.0
    """How many were killed or refused; of ``slowed`` the seconds."""

    def __str__(self) -> str:
        """One line: "killed: memory, 512 MB"."""
        if self.limit is None:
            return f"{self.action}: {NAMES[self.kind]}, the machine had no more"
        line = f"{self.action}: {NAMES[self.kind]}, {show_limit(self.kind, self.limit)}"
        if self.whose == "project":
            line += " for all commands of this project"
        if self.action == "refused":
            line += f" ({self.amount:g} times)" if self.amount > 1 else ""
        if self.action == "slowed":
            line += f" (held back for {self.amount:.1f} s)"
        return line


def reached(limits: Limits, now: Reading, total: Reading) -> tuple[LimitReached, ...]:
    """What control groups did. ``total``: what the group of the whole vault has counted during the command, by itself
    or for others that ran beside it."""
    found = []
    if now.memory_kills:
        if limits.memory is not None and now.memory_full:
            found.append(LimitReached("memory", "killed", limits.memory, amount=now.memory_kills))
        elif limits.total_memory is not None and total.memory_full:
            found.append(LimitReached("memory", "killed", limits.total_memory, "project", now.memory_kills))
        else:
            found.append(LimitReached("memory", "killed", None, "machine", now.memory_kills))
    # Until Linux 6.11 a refusal is counted where the fork was tried, since then where the limit is.
    if now.processes_refused and limits.processes is not None:
        found.append(LimitReached("processes", "refused", limits.processes, amount=now.processes_refused))
    elif (now.processes_refused or total.processes_refused) and limits.total_processes is not None:
        amount = now.processes_refused or total.processes_refused
        found.append(LimitReached("processes", "refused", limits.total_processes, "project", amount))
    if now.throttled and limits.cpus is not None:
        found.append(LimitReached("cpus", "slowed", limits.cpus, amount=now.throttled))
    elif total.throttled and limits.total_cpus is not None:
        found.append(LimitReached("cpus", "slowed", limits.total_cpus, "project", total.throttled))
    return tuple(found)


def reached_else(limits: Limits, signal: int, out_of: float | None, cut: int | None) -> tuple[LimitReached, ...]:
    """What other limits did. ``signal``: the one that ended the command, or 0; ``out_of``: the time that it ran out of,
    in seconds; ``cut``: the output limit if there was more."""
    found = []
    if signal == SIGXFSZ and limits.file_size is not None:
        found.append(LimitReached("file_size", "killed", limits.file_size))
    if out_of is not None:
        found.append(LimitReached("time", "killed", out_of))
    if cut is not None:
        found.append(LimitReached("output", "cut", cut))
    return tuple(found)


def difference(now: Reading, before: Reading) -> Reading:
    """Only what counts up; of the rest, ``now``."""
    return now._replace(
        memory_kills=now.memory_kills - before.memory_kills,
        memory_full=now.memory_full - before.memory_full,
        processes_refused=now.processes_refused - before.processes_refused,
        throttled=now.throttled - before.throttled,
    )
