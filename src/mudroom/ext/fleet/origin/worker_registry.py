"""A user's workers, by name: the commands that start them.

They are in one file in the user's configuration, ``fleet.json``, never in a project: a project that was pulled must not
name a command that runs on this machine. The file is the user's alone, and is refused otherwise.
"""

from __future__ import annotations

import os
from typing import NamedTuple

import msgspec

from mudroom.core.tree.path import show
from mudroom.errors import UsageError
from mudroom.stage import private_file, safe_open
from mudroom.stage.private_directory import make_private
from mudroom.vault.store.fork import is_plain

NAME = b"/fleet.json"
"""Below the user's configuration directory."""
ADD = "mudroom fleet add NAME -- ssh HOST mudroom worker --stdio"
_LIMIT = 1 << 20
_FORMAT = 1


class FleetWorker(NamedTuple):
    name: str
    argv: tuple[bytes, ...]
    """The command that starts it; ``{node}`` in its words is replaced by the name."""
    jobs: int = 0
    """Errands at one time; 0: as many as it has processors."""


class _Row(msgspec.Struct, forbid_unknown_fields=True):
    argv: list[str]
    jobs: int = 0


class _File(msgspec.Struct, forbid_unknown_fields=True):
    format: int
    workers: dict[str, _Row]


def load(config: bytes) -> dict[str, FleetWorker]:
    """Return the workers by name, in the order in which they were added. Raise UsageError if the file is open to
    others or damaged."""
    path = config + NAME
    data = private_file.read(path, _LIMIT)
    if data is None:
        if not os.path.lexists(path):
            return {}
        raise UsageError(
            f"{show(path)} names commands that are run, and is not a file that only you can read and write",
            f"chmod 600 {show(path)}, after a look at it",
        )
    try:
        file = msgspec.json.decode(data, type=_File)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise UsageError(f"{show(path)} is damaged: {error}", "mend it by hand, or remove it") from error
    if file.format != _FORMAT:
        raise UsageError(f"{show(path)} has format {file.format}, this mudroom knows {_FORMAT}", "upgrade mudroom")
    return {name: FleetWorker(name, tuple(map(os.fsencode, row.argv)), row.jobs) for name, row in file.workers.items()}


def save(config: bytes, workers: dict[str, FleetWorker]) -> None:
    """Replace the file. Raise OSError as the disk does."""
    rows = {name: _Row([os.fsdecode(word) for word in worker.argv], worker.jobs) for name, worker in workers.items()}
    data = msgspec.json.format(msgspec.json.encode(_File(_FORMAT, rows)), indent=2)
    make_private(config)
    path = config + NAME
    safe_open.replace(path, data + b"\n", path + b".%d" % os.getpid())


def add(config: bytes, worker: FleetWorker) -> bool:
    """Add a worker, or replace the one with that name. Return whether there was one. Raise UsageError."""
    if not is_plain(worker.name):
        raise UsageError(
            f"{worker.name!r} is no name of a worker", "letters, digits, '-', '_' and '.', at most 64: build-1"
        )
    if not worker.argv:
        raise UsageError("no command was given", ADD.replace("NAME", worker.name))
    for word in worker.argv:
        try:
            word.decode()
        except UnicodeDecodeError:
            raise UsageError(f"{show(word)} is not UTF-8", "name the program in another way") from None
    workers = load(config)
    is_known = worker.name in workers
    save(config, workers | {worker.name: worker})
    return is_known


def remove(config: bytes, name: str) -> None:
    """Remove a worker. Raise UsageError if the name is unknown."""
    workers = load(config)
    chosen(workers, [name])
    save(config, {known: worker for known, worker in workers.items() if known != name})


def chosen(workers: dict[str, FleetWorker], names: list[str]) -> list[FleetWorker]:
    """Return the workers with these names, all if there is no name. Raise UsageError if one is unknown, or if there are
    none."""
    for name in names:
        if name not in workers:
            known = f"known are: {', '.join(workers)}" if workers else ADD
            raise UsageError(f"there is no worker named {show(name.encode())}", known)
    if not workers:
        raise UsageError("there are no workers", ADD)
    return [workers[name] for name in dict.fromkeys(names or workers)]
