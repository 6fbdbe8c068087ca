"""The directories in which one row is tried."""

from __future__ import annotations

from collections.abc import Mapping

from mudroom.ext.certify.row import TrialRow
from mudroom.typing import NamedTuple


class TrialGround(NamedTuple):
    """One row's directories, below a directory that only it uses."""

    row: TrialRow
    top: str

    @property
    def work(self) -> str:
        return self.top + "/fork/work"

    @property
    def private(self) -> str:
        return self.top + "/fork/private"

    @property
    def project(self) -> str:
        return self.top + "/project"

    @property
    def aim(self) -> str:
        """The directory that the deed is aimed at."""
        name = {"quoting": 'q"\\', "accent": "\u00e9"}.get(self.row.name, "l")
        return {
            "outside": self.top + "/outside",
            "project": self.project,
            "policy": self.work + "/.mudroom",
            "mask": self.top + "/tools/mask",
            "store": self.top + "/store",
            "copy": f"{self.work}/{name}",
            "container": self.top + "/container",
            "users": self.top + "/users",
        }[self.row.where]

    @property
    def twin(self) -> str:
        return self.work + "/twin"

    @property
    def control(self) -> str:
        return self.top + "/control"


LIMITS: Mapping[str, tuple[tuple[int, int, int], ...]] = {
    "open_files": ((7, 40, 40),),
    "file_size": ((1, 1 << 14, 1 << 14),),
}
"""(resource, soft, hard) as in a spec, by the row's name: below what its deed asks for (``deed.MANY``, ``deed.LONG``).
"""
