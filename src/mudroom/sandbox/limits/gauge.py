"""The effect of a container's limits on one command, read from outside in the control group that its engine made.

A container outlives a command, so a command's counts are differences. Peaks are the container's: a peak that has not
risen during the command is not the command's. The group is never written to. Source: cgroups(7).
"""

from __future__ import annotations

from collections.abc import Mapping

from mudroom.core.confinement.limit import READ_V1, READ_V2, Limits, Reading, difference, reading_v1, reading_v2
from mudroom.sandbox.limits.cgroup import V1_NAMES, directory, memberships, mounts, read
from mudroom.typing import NamedTuple, TypeVar

_Number = TypeVar("_Number", int, float)
_V1 = {**V1_NAMES, "cpuacct": "cpuacct"}

_BATCH = 4 << 20
"""Bytes. An allocation, such as a huge page, can fail while a group is this far below its limit."""


class GaugePlace(NamedTuple):
    version: int
    where: Mapping[str, str]
    """Directories by controller, with the names in ``core/confinement/limit.py``. Version 2 has only the key ""."""


def find(pid: int, proc: str = "/proc") -> GaugePlace | None:
    """Return a process's group, or None if it is not visible or is this process's own."""
    table, member = mounts(read(f"{proc}/self/mountinfo")), memberships(read(f"{proc}/{pid}/cgroup"))
    own = memberships(read(f"{proc}/self/cgroup"))
    hierarchies = {name: mount for mount in table if mount.kind == "cgroup" for name in mount.options}
    directories = {}
    for name, theirs in _V1.items():
        mount, path = hierarchies.get(theirs), member.get(theirs)
        place = directory(mount, path) if mount is not None and path is not None else None
        if place is not None and path != own.get(theirs):
            directories[name] = place
    if directories:
        return GaugePlace(1, directories)
    unified = next((mount for mount in table if mount.kind == "cgroup2"), None)
    place = directory(unified, member[""]) if unified is not None and "" in member else None
    return GaugePlace(2, {"": place}) if place is not None and member[""] != own.get("") else None


class Gauge:
    """One container's counts. Call ``begin`` before every command. Owner: the thread that has the container."""

    def __init__(self, place: GaugePlace | None) -> None:
        self._place = place
        self._before = self._now()

    def begin(self) -> None:
        self._before = self._now()

    def completed(self, limits: Limits) -> Limits:
        """Return ``limits`` unchanged: a container holds no others."""
        return limits

    def totals(self) -> tuple[Reading, Reading]:
        """Return empty counts: containers share no group."""
        return Reading(), Reading()

    def reading(self) -> Reading | None:
        """Return the counts since ``begin``, for the running or the last command, including the launcher's own use;
        None if the container's group is not visible."""
        now = self._now()
        return since(now, self._before) if now is not None and self._before is not None else None

    def _now(self) -> Reading | None:
        if self._place is None:
            return None
        version, where = self._place
        if version == 2:
            texts = {file: text for file in READ_V2 if (text := read(f"{where['']}/{file}"))}
            return reading_v2(texts) if texts else None
        texts = {file: text for name, file in READ_V1 if name in where and (text := read(f"{where[name]}/{file}"))}
        limit = read(f"{where['memory']}/memory.limit_in_bytes") if "memory" in where else ""
        return _count_full_memory(reading_v1(texts), limit) if texts else None


def _count_full_memory(reading: Reading, limit: str) -> Reading:
    """Count a full memory where the kernel killed for it without counting it.

    Engines set the limit for memory with swap to the same value as the one for memory. A kernel that checks the former
    first does not count a failure of the latter (try_charge_memcg in mm/memcontrol.c). So a kill in a group that has
    been full was for memory.
    """
    most, peak = limit.strip(), reading.memory_peak
    if not reading.memory_kills or peak is None or not most.isdecimal() or peak + _BATCH < int(most):
        return reading
    return reading._replace(memory_full=reading.memory_full + 1)


def since(now: Reading, before: Reading) -> Reading:
    """Return the increase since ``before``. A peak that was already reached then is left out."""
    return difference(now, before)._replace(
        memory_peak=_risen(now.memory_peak, before.memory_peak),
        processes_peak=_risen(now.processes_peak, before.processes_peak),
        cpu=_minus(now.cpu, before.cpu),
        io_read=_minus(now.io_read, before.io_read),
        io_written=_minus(now.io_written, before.io_written),
    )


def _risen(now: int | None, before: int | None) -> int | None:
    return now if now is not None and (before is None or now > before) else None


def _minus(now: _Number | None, before: _Number | None) -> _Number | None:
    return None if now is None or before is None else now - before
