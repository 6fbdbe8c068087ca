"""The state shared by a plan's steps.

Launcher code: the rules in ``launcher.py`` hold here.
"""

from __future__ import annotations

from mudroom.sandbox.launcher.kernel import RESOLVE_BENEATH, RESOLVE_NO_SYMLINKS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mudroom.sandbox.launcher.refusal import Row


class StepContext:
    """Every attribute that holds a descriptor is -1 while it has none."""

    def __init__(self, namespaces: int) -> None:
        self.root = -1
        """The new root."""
        self.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS
        """How paths below the new root are resolved (openat2(2))."""
        self.view = self.left = self.channel = self.gate = self.door = -1
        """Sockets to the host: the view is sent over ``view``, the command's own directories over ``left``, a
        pseudo-terminal's master over ``channel``, the gate's listeners over ``gate``; a held sandbox receives commands
        over ``door``."""
        self.is_overlay = False
        """Whether the view is this sandbox's own overlay."""
        self.terminal = -1
        """The command's side of the pseudo-terminal."""
        self.listener = -1
        """The seccomp listener that notifies init of refused calls."""
        self.rows: dict[int, tuple[Row, ...]] = {}
        """That filter's rules, by system call number."""
        self.listeners: list[tuple[str, int]] = []
        """The gate's listeners, until they are handed over: kind and descriptor."""
        self.namespaces = namespaces
