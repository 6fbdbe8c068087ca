"""mudroom: the room between coding agents (or any command) and your project.

    with mudroom.open("proj") as room:
        result = room.run("make test", fork="a")
        room.apply("a")

The names below are loaded at first use: ``import mudroom`` itself loads no other module. docs/LIBRARY.md describes
them. The other exceptions are in ``mudroom.errors``.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mudroom import errors as errors
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

__version__ = "0.1.0"

__all__ = [
    "Applied",
    "AsyncForkHandle",
    "AsyncRoom",
    "ChangedFile",
    "CommandFailed",
    "ForkHandle",
    "MudroomError",
    "NotApplied",
    "OutputChunk",
    "Question",
    "Refused",
    "Room",
    "RunResult",
    "Unsupported",
    "UsageError",
    "aopen",
    "errors",
    "open",
]

_PLACES = {
    "Applied": "library.value",
    "AsyncForkHandle": "library.async_handle",
    "AsyncRoom": "library.async_room",
    "ChangedFile": "library.value",
    "CommandFailed": "library.value",
    "ForkHandle": "library.fork_handle",
    "MudroomError": "errors",
    "NotApplied": "library.value",
    "OutputChunk": "library.value",
    "Question": "library.value",
    "Refused": "errors",
    "Room": "library.room",
    "RunResult": "library.value",
    "Unsupported": "errors",
    "UsageError": "errors",
    "aopen": "library.async_room",
    "errors": "",
    "open": "library.opening",
}


def __getattr__(name: str) -> object:
    """Load a public name (PEP 562)."""
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import sys

    module = f"{__name__}.{place or name}"
    __import__(module)
    found = sys.modules[module] if not place else getattr(sys.modules[module], name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
