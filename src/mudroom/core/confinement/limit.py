"""Resource limits for commands: values, the mechanism that enforces each, and messages when a limit is reached. Pure.

Mechanisms, in order of preference (``sandbox/limits/limiter.py`` determines which are available):

| limit | control group, version 2 | version 1 | without any, if the policy permits it |
| --- | --- | --- | --- |
| memory | memory.max, no swap | memory.limit_in_bytes | RLIMIT_DATA: for each process, not for all together |
| processes | pids.max | pids.max | RLIMIT_NPROC, in an ordinary user's user namespace |
| cpus | cpu.max | cpu.cfs_quota_us | none |
| io | io.max | none: blkio.throttle does not see buffered writes | none |
| open_files, file_size | RLIMIT_NOFILE and RLIMIT_FSIZE, always: for each process | | |

Sources: Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/ in the kernel source, setrlimit(2).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from mudroom.typing import Any, Literal, NamedTuple

Missing = Literal["refuse", "degrade"]
RLIMIT_FSIZE, RLIMIT_DATA, RLIMIT_CORE, RLIMIT_NPROC, RLIMIT_NOFILE = 1, 2, 4, 6, 7
SIGXFSZ = 25
OWN_PROCESSES = 1
"""The sandbox's init is in the command's group, but does not count towards the user's limit."""
PREPARED_PROCESSES = 3
"""A template, a spare and an init count towards a session's user namespace."""
PERIOD = 100_000
"""Microseconds: the kernel's default period for cpu.max."""

_UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
UNITS = (
    {unit + "b": 1000**power for power, unit in enumerate(_UNITS, 1)}
    | {unit + "ib": factor for unit, factor in _UNITS.items()}
    | _UNITS
    | {"b": 1}
)
"""kB, MB … are powers of 1000, KiB, MiB … powers of 1024; K, M, G alone are powers of 1024, as in systemd and
Docker."""


OFF = float("inf")
"""The value for a limit that the policy switches off ("none") although it has a default (``default_limit.py``). It is
milder than every number."""


class Limits(NamedTuple):
    """A field is None if it is not set: then its default holds, if there is one. Limits without ``total`` apply to a
    single command and all its descendants."""

    memory: int | None = None
    """Bytes, including page cache for its files and its data in /tmp."""
    processes: int | None = None
    """At the same time. Threads count, as in the kernel."""
    cpus: float | None = None
    """Processor time: 1.5 is one and a half processors."""
    io: int | None = None
    """Bytes per second, for reads and writes separately, on the disks that hold project and vault."""
    open_files: int | None = None
    """For each process."""
    file_size: int | None = None
    """Largest file, in bytes."""
    total_memory: int | None = None
    """For all the vault's sandboxes together, like the next two."""
    total_processes: int | None = None
    total_cpus: float | None = None
    missing: Missing = "refuse"
    """If a limit cannot be enforced here: refuse the command, or run it and report that."""
    tmp: float | None = None
    """Bytes in the command's own /tmp, if that is in memory; half as much for each other in-memory directory."""
    inotify: float | None = None
    """inotify(7) instances, for all commands in a session together, like the next."""
    inotify_watches: float | None = None


def requested(limits: Limits) -> Limits:
    """Return the limits that were asked for, without those that are switched off."""
    off: dict[str, Any] = {name: None for name in DEFAULTED if getattr(limits, name) == OFF}
    return limits._replace(**off)


NO_LIMITS = Limits()


class Write(NamedTuple):
    """A line to write to a control group's file."""

    controller: str
    file: str
    content: str
    optional: bool = False
    """Only some kernels have the file. Without it the limit is somewhat weaker (swap)."""


DEFAULTED = ("memory", "processes", "tmp", "inotify", "inotify_watches")
"""Limits that hold even if no policy names them."""
NAMESPACED = ("tmp", "inotify", "inotify_watches")
"""Limits that need a mount namespace and a user namespace."""
KINDS = ("memory", "processes", "cpus", "io")
"""Limits that need a control group."""
CONTROLLERS = {"memory": "memory", "processes": "pids", "cpus": "cpu", "io": "io"}
NAMES = {
    "memory": "memory",
    "processes": "processes",
    "cpus": "cpus",
    "io": "io",
    "open_files": "open files",
    "file_size": "file size",
    "tmp": "/tmp",
    "inotify": "inotify instances",
    "inotify_watches": "inotify watches",
    "time": "time",
    "output": "output",
}


def parse_size(text: str) -> int | None:
    """Parse a size such as "512 MB", "2GiB", "1.5G" or "4096" into bytes. Return None if it is not a size."""
    word = text.strip().lower()
    unit = next((unit for unit in sorted(UNITS, key=len, reverse=True) if word.endswith(unit)), "")
    number = word[: len(word) - len(unit)].strip()
    if len(number) > 100 or not number.replace(".", "", 1).isdecimal() or not number.isascii():
        return None
    size = int(float(number) * UNITS.get(unit, 1))
    return size if size < 1 << 63 else None


def show_size(size: int) -> str:
    """Format a size in the largest unit that is exact, or rounded if there is none."""
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
    if kind in ("memory", "io", "file_size", "output", "tmp"):
        return show_size(int(limit)) + ("/s" if kind == "io" else "")
    return f"{limit:g} s" if kind == "time" else f"{limit:g}"


def command_limits(limits: Limits) -> Iterator[tuple[str, float]]:
    """Yield (kind, limit) for the limits that need a control group for each command."""
    for kind in KINDS:
        limit = getattr(limits, kind)
        if limit is not None:
            yield kind, limit


def total_limits(limits: Limits) -> Iterator[tuple[str, float]]:
    for kind in KINDS[:3]:
        limit = getattr(limits, "total_" + kind)
        if limit is not None:
            yield kind, limit


def explain_limits(limits: Limits) -> Iterator[str]:
    """Yield lines for the user, to be shown with a plan's lines."""
    for where, pairs in (
        ("a control group of its own", command_limits(limits)),
        ("the project's group", total_limits(limits)),
    ):
        shown = ", ".join(f"{NAMES[kind]} {show_limit(kind, limit)}" for kind, limit in pairs)
        if shown:
            yield f"  +  {where}: {shown}"


def needed_controllers(limits: Limits) -> frozenset[str]:
    """Return the necessary controllers, by their names in version 2."""
    return frozenset(CONTROLLERS[kind] for kind, _limit in (*command_limits(limits), *total_limits(limits)))


def writes_v2(limits: Iterable[tuple[str, float]], devices: Iterable[str], own: int = 0) -> Iterator[Write]:
    """Yield the writes for version 2 control groups. ``devices``: whole disks, such as "8:0". ``own``: processes to add
    to the limit."""
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
    """Yield the writes for version 1, which has none for io. With swappiness 0, a group at its limit does not swap
    (Documentation/admin-guide/cgroup-v1/memory.rst). A limit that includes swap (memsw) is not used: the kernel does
    not report that it was reached."""
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
    """Return the rlimits that are always enforced: (resource, soft, hard).

    A core limit of 1 is the kernel's value for "no core dump, not even through a pipe". In fs/coredump.c, coredump_pipe
    (do_coredump before Linux 6.17) returns if the limit is 1, before any handler is started, and coredump_file returns
    if it is below min_coredump, a page (fs/binfmt_elf.c). With 0, the host's unconfined crash handler still receives
    the crashed process's memory; that is so if our own hard limit is 0. Only coredump_socket (Linux 6.16, a
    core_pattern that begins with "@") checks no limit. mudroom doctor reports both cases.
    """
    # 1, not 0: with 0 the host's crash handler still gets the memory.
    resources = [(RLIMIT_CORE, 1, 1)]
    if limits.open_files is not None:
        resources.append((RLIMIT_NOFILE, limits.open_files, limits.open_files))
    if limits.file_size is not None:
        resources.append((RLIMIT_FSIZE, limits.file_size, limits.file_size))
    return tuple(resources)


def stand_in(kind: str, limit: float, *, counts_processes: bool) -> tuple[tuple[int, int, int] | None, str]:
    """Return a limit's replacement where there is no control group: an rlimit or None, and a note.

    ``counts_processes``: RLIMIT_NPROC counts only processes in the sandbox. That holds in a user namespace since Linux
    5.14 (kernel/ucount.c), but not for root, to whom the limit does not apply.
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
    """A requested limit that cannot be enforced although the policy requires it; empty if there is none."""


def without_groups(limits: Limits) -> UnenforcedLimits:
    """Return the limits that can be enforced without control groups (macOS): none. There is no replacement: on macOS,
    RLIMIT_DATA applies to memory from brk(2), which no allocator uses, and RLIMIT_NPROC counts all the user's
    processes."""
    notes = []
    for where, pairs in (("limit", command_limits(limits)), ("limit of all commands together:", total_limits(limits))):
        for kind, limit in pairs:
            if limits.missing == "refuse":
                return UnenforcedLimits((), (), NAMES[kind])
            notes.append(f"{where} {NAMES[kind]}, {show_limit(kind, limit)}: not enforced (no control groups here)")
    return UnenforcedLimits((), tuple(notes))


class Reading(NamedTuple):
    """A control group's counters. None: not reported by this kernel."""

    memory_kills: int = 0
    memory_full: int = 0
    """Allocations that reached the group's own limit when no memory could be freed."""
    processes_refused: int = 0
    throttled: float = 0.0
    """Seconds in which a runnable task was held back."""
    memory_peak: int | None = None
    processes_peak: int | None = None
    cpu: float | None = None
    """Seconds."""
    io_read: int | None = None
    io_written: int | None = None


def fields(text: str) -> dict[str, int]:
    """Parse lines with "key value"."""
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
    """Parse the version 2 files. ``texts``: contents by file name, for the files in ``READ_V2`` that exist."""
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
    """A limit that affected a command, as counted by the kernel."""

    kind: str
    action: str
    """``killed``, ``refused``, ``slowed`` or ``cut``."""
    limit: float | None
    """In the setting's unit: bytes, seconds, or a number. None: the machine itself ran out of memory."""
    whose: str = "command"
    """``command``; ``project``: all the vault's sandboxes together; ``machine``."""
    amount: float = 0.0
    """Killed processes, or refusals; seconds for ``slowed``."""

    def __str__(self) -> str:
        """Return a line such as "killed: memory, 512 MB"."""
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


def reached_limits(limits: Limits, now: Reading, total: Reading) -> tuple[LimitReached, ...]:
    """Return the limits that control groups enforced. ``total``: the counters of the whole vault's group during the
    command; other commands may have caused them."""
    events = []
    if now.memory_kills:
        if limits.memory is not None and now.memory_full:
            events.append(LimitReached("memory", "killed", limits.memory, amount=now.memory_kills))
        elif limits.total_memory is not None and total.memory_full:
            events.append(LimitReached("memory", "killed", limits.total_memory, "project", now.memory_kills))
        else:
            events.append(LimitReached("memory", "killed", None, "machine", now.memory_kills))
    # Until Linux 6.11, a refusal is counted in the group that tried to fork; since then, in the group with the limit.
    if now.processes_refused and limits.processes is not None:
        events.append(LimitReached("processes", "refused", limits.processes, amount=now.processes_refused))
    elif (now.processes_refused or total.processes_refused) and limits.total_processes is not None:
        amount = now.processes_refused or total.processes_refused
        events.append(LimitReached("processes", "refused", limits.total_processes, "project", amount))
    if now.throttled and limits.cpus is not None:
        events.append(LimitReached("cpus", "slowed", limits.cpus, amount=now.throttled))
    elif total.throttled and limits.total_cpus is not None:
        events.append(LimitReached("cpus", "slowed", limits.total_cpus, "project", total.throttled))
    return tuple(events)


def other_reached_limits(
    limits: Limits, signal: int, out_of: float | None, cut: int | None
) -> tuple[LimitReached, ...]:
    """Return the other limits that affected the command. ``signal``: the signal that ended it, or 0; ``out_of``: the
    time limit in seconds if it was exceeded; ``cut``: the output limit if there was more output."""
    events = []
    if signal == SIGXFSZ and limits.file_size is not None:
        events.append(LimitReached("file_size", "killed", limits.file_size))
    if out_of is not None:
        events.append(LimitReached("time", "killed", out_of))
    if cut is not None:
        events.append(LimitReached("output", "cut", cut))
    return tuple(events)


def difference(now: Reading, before: Reading) -> Reading:
    """Return ``now`` with monotonic counters counted from ``before``."""
    return now._replace(
        memory_kills=now.memory_kills - before.memory_kills,
        memory_full=now.memory_full - before.memory_full,
        processes_refused=now.processes_refused - before.processes_refused,
        throttled=now.throttled - before.throttled,
    )
