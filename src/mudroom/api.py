"""Kernel names that a satellite may rely on, loaded at first use.

``API`` is incremented when a name is removed or changes its meaning, not when names or arguments are added. A satellite
in this repository may import more from the kernel, because it changes with it. Programs import ``mudroom`` itself.
"""

from __future__ import annotations

from mudroom.typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mudroom.cli.project_session import open_session as open_session
    from mudroom.cli.project_session import working_directory as working_directory
    from mudroom.cli.terminal.context import Context as Context
    from mudroom.core.approval.approval import CommandAnswer as CommandAnswer
    from mudroom.core.approval.approval import CommandQuestion as CommandQuestion
    from mudroom.core.registry import NotInstalled as NotInstalled
    from mudroom.core.registry import part as part
    from mudroom.core.registry import part_or_none as part_or_none
    from mudroom.core.result import Result as Result
    from mudroom.core.settings import Settings as Settings
    from mudroom.core.tree.change import Change as Change
    from mudroom.core.tree.change import Changeset as Changeset
    from mudroom.core.tree.entry import Entry as Entry
    from mudroom.core.tree.path import is_below as is_below
    from mudroom.core.tree.path import show as show
    from mudroom.core.tree.path import show_path as show_path
    from mudroom.errors import CommandNotStarted as CommandNotStarted
    from mudroom.errors import ForkExists as ForkExists
    from mudroom.errors import ForkGone as ForkGone
    from mudroom.errors import ForkMoved as ForkMoved
    from mudroom.errors import MudroomError as MudroomError
    from mudroom.errors import Refused as Refused
    from mudroom.errors import Unsupported as Unsupported
    from mudroom.errors import UsageError as UsageError
    from mudroom.library.async_handle import AsyncForkHandle as AsyncForkHandle
    from mudroom.library.async_room import AsyncRoom as AsyncRoom
    from mudroom.library.async_room import aopen as aopen
    from mudroom.library.fork_handle import ForkHandle as ForkHandle
    from mudroom.library.opening import open as open  # noqa: A004
    from mudroom.library.room import Room as Room
    from mudroom.library.value import Applied as Applied
    from mudroom.library.value import ChangedFile as ChangedFile
    from mudroom.library.value import CommandFailed as CommandFailed
    from mudroom.library.value import NotApplied as NotApplied
    from mudroom.library.value import OutputChunk as OutputChunk
    from mudroom.library.value import Question as Question
    from mudroom.library.value import RunResult as RunResult
    from mudroom.sandbox.client.cancellation import Cancellation as Cancellation
    from mudroom.session.actor import Actor as Actor
    from mudroom.session.background import Background as Background
    from mudroom.session.order import Stdio as Stdio
    from mudroom.session.session import Session as Session
    from mudroom.vault.apply.landing import LandingResult as LandingResult
    from mudroom.vault.apply.transaction import ApplyResult as ApplyResult

API = 1

PLACES = {
    "cli.project_session": ("open_session", "working_directory"),
    "cli.terminal.context": ("Context",),
    "core.approval.approval": ("CommandAnswer", "CommandQuestion"),
    "core.registry": ("NotInstalled", "part", "part_or_none"),
    "core.result": ("Result",),
    "core.settings": ("Settings",),
    "core.tree.change": ("Change", "Changeset"),
    "core.tree.entry": ("Entry",),
    "core.tree.path": ("is_below", "show", "show_path"),
    "errors": (
        "CommandNotStarted", "ForkExists", "ForkGone", "ForkMoved", "MudroomError", "Refused", "Unsupported",
        "UsageError",
    ),
    "library.async_handle": ("AsyncForkHandle",),
    "library.async_room": ("AsyncRoom", "aopen"),
    "library.fork_handle": ("ForkHandle",),
    "library.opening": ("open",),
    "library.room": ("Room",),
    "library.value": (
        "Applied", "ChangedFile", "CommandFailed", "NotApplied", "OutputChunk", "Question", "RunResult",
    ),
    "sandbox.client.cancellation": ("Cancellation",),
    "session.actor": ("Actor",),
    "session.background": ("Background",),
    "session.order": ("Stdio",),
    "session.session": ("Session",),
    "vault.apply.landing": ("LandingResult",),
    "vault.apply.transaction": ("ApplyResult",),
}  # fmt: skip
"""Names by the module that defines them, without the prefix ``mudroom.``."""


def __getattr__(name: str) -> object:
    """Load a name (PEP 562)."""
    for place, names in PLACES.items():
        if name in names:
            found = getattr(__import__(f"mudroom.{place}", fromlist=(name,)), name)
            globals()[name] = found
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *(name for names in PLACES.values() for name in names)})
