"""Archives of forks that arrive: many at once, beside what unpacking and checking takes, and beside one at a time."""

from __future__ import annotations

import functools
import io
import itertools
import os
import time
from collections.abc import Iterator

from bench.measure import Finding, Lap, Series, against, at_most_over, command, interleave, seconds_of
from bench.place import Place, Scale, fill, new_place
from mudroom.ext.transfer.archives import arrive, export
from mudroom.ext.transfer.vault.arrival import Arrival
from mudroom.ext.transfer.vault.import_fork import LIMIT, take_back, unpack_fork
from mudroom.session import Session
from mudroom.vault.arriving import unpacking

_CHANGED = 7
"""Files that a fork changes."""
_KINDS = 8
"""Different archives."""
_ONLY = "unpacked and checked, no fork of it"
_SINGLY = "one at a time"
_TAR = "tar -xzf into a directory each"


def arrivals(base: bytes, scale: Scale) -> Iterator[Finding]:
    count = max(20, scale.tree // 20)
    with new_place(base, "arriving") as place:
        fill(place.project, 2_000)
        with place.session() as session:
            archives = _archives(session)
            numbers = itertools.count()

            def many() -> list[Lap]:
                names = [f"a{next(numbers)}" for _ in range(count)]
                taken = seconds_of(lambda: _bring(session, archives, names))
                _discard(session, names)
                return [("many", taken / count)]

            def unpacked() -> list[Lap]:
                return [(_ONLY, _unpack(session, archives, count) / count)]

            def singly() -> list[Lap]:
                names = [f"s{next(numbers)}" for _ in range(count // 10)]
                taken = sum(seconds_of(functools.partial(_bring, session, archives, [name])) for name in names)
                _discard(session, names)
                return [(_SINGLY, taken / len(names))]

            def untarred() -> list[Lap]:
                return [(_TAR, _untar(place, archives, count // 10) / (count // 10))]

            found = interleave([many, unpacked, singly, untarred], max(2, scale.looks))
    size = sum(map(len, archives)) / len(archives)
    rivals = against(found, [_ONLY, _SINGLY, _TAR], {_ONLY: at_most_over(2e-3, "2 ms")})
    yield Finding(
        "arrive", f"a fork of {count:,} that arrive at once, {_CHANGED} files changed", found["many"], None, rivals
    )
    yield Finding("arrive", "its archive", Series((size,), "B"))


def _archives(session: Session) -> list[bytes]:
    archives = []
    for number in range(_KINDS):
        script = f"for i in $(seq {_CHANGED}); do echo {number} >> d0001/f00010$i.txt; done"
        session.run([b"sh", b"-c", script.encode()], fork=f"w{number}")
        stream = io.BytesIO()
        export(session, f"w{number}", stream)
        archives.append(stream.getvalue())
        session.forks.discard(f"w{number}")
    return archives


def _bring(session: Session, archives: list[bytes], names: list[str]) -> None:
    arrivals = [Arrival(io.BytesIO(archives[number % _KINDS]), name, errand=name) for number, name in enumerate(names)]
    found = arrive(session, arrivals)
    if any(row.state != "new" for row in found):
        raise RuntimeError(f"a fork did not arrive: {next(row for row in found if row.state != 'new').problem}")


def _discard(session: Session, names: list[str]) -> None:
    for name in names:
        session.vault.discard(session.vault.fork(name))
    session.vault.empty_trash()


def _unpack(session: Session, archives: list[bytes], count: int) -> float:
    vault = session.vault
    made: list[bytes] = []
    started = time.perf_counter()
    with unpacking(vault.path):
        for number in range(count):
            stream = io.BytesIO(archives[number % _KINDS])
            made += unpack_fork(vault, stream, time.time_ns(), LIMIT, lambda _base: None, lambda _label: None).made
    taken = time.perf_counter() - started
    take_back(vault, made)
    return taken


def _untar(place: Place, archives: list[bytes], count: int) -> float:
    paths = []
    for number, archive in enumerate(archives):
        paths.append(place.root + b"/%d.tar.gz" % number)
        with open(paths[-1], "wb") as stream:
            stream.write(archive)
    taken = 0.0
    for number in range(count):
        target = place.root + b"/tar%d" % number
        os.mkdir(target)
        words: list[str | bytes] = ["tar", "-xzf", paths[number % _KINDS], "-C", target]
        taken += seconds_of(functools.partial(command, words))
    command(["rm", "-rf", *(place.root + b"/tar%d" % number for number in range(count))])
    return taken
