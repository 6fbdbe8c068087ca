"""Forks of archives that workers have sent, made under one lock. The archives may be hostile (``vault/transfer``)."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from mudroom.errors import MudroomError, UsageError
from mudroom.fleet.origin.book import AttemptRow
from mudroom.fleet.origin.fetching import LandedArchive
from mudroom.session.session import Session
from mudroom.session.upkeep import take_in
from mudroom.vault.forks.background import Ring
from mudroom.vault.forks.live_output import PLACE
from mudroom.vault.store.fork import fork_directory

_TRIES = 10_000


class ArchivePier:
    """Owner: the thread of the verb."""

    def __init__(self, session: Session, waiting: Callable[[str], None], limit: int) -> None:
        """``limit``: bytes that one archive may unpack to."""
        self._session, self._waiting, self._limit = session, waiting, limit

    def has_fork(self, name: str) -> bool:
        return os.path.lexists(self._session.vault.path + b"/forks/" + fork_directory(name))

    def arrive(
        self, archives: list[tuple[AttemptRow, str, bytes]], named: Callable[[list[str]], None]
    ) -> list[LandedArchive]:
        """Make a fork of each archive, or return why it was refused. Raise OSError as the disk does."""
        with self._session.alone("mudroom fleet: forks arrive", self._waiting):
            names: list[str] = []
            for _row, wish, _file in archives:
                names.append(self._free(wish, names))
            named(names)
            return [self._one(name, file) for (_row, _wish, file), name in zip(archives, names, strict=True)]

    def _free(self, wish: str, taken: list[str]) -> str:
        for number in range(1, _TRIES):
            name = wish if number == 1 else f"{wish}-{number}"
            if name not in taken and not self.has_fork(name):
                return name
        raise UsageError(f"there are too many forks named {wish}", "mudroom discard FORK")

    def _one(self, name: str, file: bytes) -> LandedArchive:
        try:
            imported = take_in(self._session, file, name, time.time_ns(), self._limit)
        except MudroomError as error:
            return LandedArchive("", 0, str(error))
        os.unlink(file)
        self._keep_output(name, os.path.dirname(file))
        return LandedArchive(imported.name, imported.changed)

    def _keep_output(self, name: str, directory: bytes) -> None:
        """Make what the errand printed the output of the fork's last command (``vault/forks/live_output.py``)."""
        place = self._session.vault.fork(name).path + PLACE
        for stream in ("stdout", "stderr"):
            try:
                with open(directory + b"/" + stream.encode(), "rb") as kept:
                    os.makedirs(place, mode=0o700, exist_ok=True)
                    ring = Ring(place + b"/" + stream.encode())
                    while block := kept.read(1 << 16):
                        ring.write(block)
                    ring.close()
            except FileNotFoundError:
                continue  # it printed nothing there
