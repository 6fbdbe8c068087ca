"""What a command gets for graphics and compute cards. None of it is isolated: other programs use the same cards."""

from __future__ import annotations

from mudroom.core.confinement.spec import Bind
from mudroom.typing import NamedTuple


class GraphicsAccess(NamedTuple):
    devices: tuple[bytes, ...] = ()
    """Device nodes, and directories of them."""
    binds: tuple[Bind, ...] = ()
    """Libraries and settings of the driver."""
    variables: tuple[tuple[bytes, bytes], ...] = ()
    notes: tuple[str, ...] = ("this machine has no GPU that a command could be given",)
    """The first says what there is."""
